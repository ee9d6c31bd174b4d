"""What a machine reports while it pulls its image: megabytes from its network cards."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from builders import plans
from builders.logs import GRAMMAR
from builders.machine import Machine

from tgi_deploy.diagnosis.reader import read
from tgi_deploy.wiring import render_artifact

if TYPE_CHECKING:
    from pathlib import Path

TICK = "exec /bin/sleep 0.05\n"
# Bytes arrive while `docker pull` runs; it continues until they have been reported.
PULL = """case $1 in
  image) exit 1 ;;
  pull)
    for file in "$STEPS"/*; do
      /bin/cp "$file" "$NET_DEV.new" && /bin/mv "$NET_DEV.new" "$NET_DEV"
      /bin/sleep "${STEP_S:-0.4}"
    done
    echo sha256:0000
    exit "${PULL_CODE:-0}"
    ;;
esac
"""


def pulling(tmp_path: Path, *steps: dict[str, int], before: dict[str, int], **environment: str) -> Machine:
    """A machine whose counters go through `steps` during the pull."""
    text = render_artifact("user-data", plans.deployable()).text
    machine = Machine(folder=tmp_path / "machine", user_data=text, commands={"docker": PULL, "sleep": TICK})
    folder = tmp_path / "steps"
    folder.mkdir()
    for number, step in enumerate(steps):
        machine.received(**step)
        (folder / str(number)).write_text(machine.at("/proc/net/dev").read_text())
    machine.received(**before)
    machine.environment |= {"STEPS": str(folder), "NET_DEV": str(machine.at("/proc/net/dev")), **environment}
    return machine


def reported_mib(output: str) -> list[int]:
    return [int(mb) for mb in re.findall(r"^\[tgi-deploy\] received mb=(\d+)$", output, re.MULTILINE)]


def test_received_bytes_are_reported_during_the_pull(tmp_path: Path):
    done = pulling(
        tmp_path, {"eth0": 1_500_000_000}, {"eth0": 2_750_000_000, "ens6": 250_000_000}, before={"eth0": 500_000_000}
    ).run("run-engine")
    amounts = reported_mib(done.stdout)
    assert amounts == sorted(amounts)
    assert {1000, 2500} <= set(amounts)
    assert "sha256" not in done.stdout


def test_bridges_and_loopback_are_not_counted(tmp_path: Path):
    local = {"lo": 9 * 10**9, "docker0": 10**9, "veth1234": 10**9, "br-5678": 10**9, "virbr0": 10**9}
    done = pulling(tmp_path, {"eth0": 7_000_000, **local}, before={"eth0": 0}).run("run-engine")
    assert set(reported_mib(done.stdout)) <= {0, 7}
    assert 7 in reported_mib(done.stdout)


def test_the_report_ends_with_the_pull(tmp_path: Path):
    done = pulling(tmp_path, {"eth0": 10**9}, before={"eth0": 0}).run("run-engine")
    after = done.stdout.partition("phase=starting-engine")[2]
    assert after
    assert not reported_mib(after)
    assert "Terminated" not in done.stderr


@pytest.mark.parametrize("code", ["1", "7"])
def test_a_failed_pull_is_still_a_failure(tmp_path: Path, code: str):
    done = pulling(tmp_path, {"eth0": 10**9}, before={"eth0": 0}, PULL_CODE=code, STEP_S="0").run("run-engine")
    assert done.returncode == 1
    assert f"error=the image {plans.IMAGE} could not be pulled" in done.stdout


def test_an_existing_image_is_not_awaited(tmp_path: Path):
    text = render_artifact("user-data", plans.deployable()).text
    machine = Machine(folder=tmp_path / "machine", user_data=text, environment={"IMAGE_CODE": "0"})
    assert not reported_mib(machine.run("run-engine").stdout)
    assert not machine.docker("pull")


def test_the_report_does_not_outlive_a_killed_script(tmp_path: Path):
    """The pipe closes only when its last writer has exited."""
    machine = pulling(tmp_path, *([{"eth0": 10**9}] * 2), before={"eth0": 0})
    script = machine.at("/opt/tgi-deploy/run-engine")
    environment = {"PATH": str(machine.bin), "RECORD": str(tmp_path / "calls"), **machine.environment}
    with subprocess.Popen([script], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "received" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        process.stdout.read()


def test_the_marker_counts_as_progress_not_as_a_new_attempt():
    grammar = GRAMMAR
    pull = "[tgi-deploy] phase=booting\n[tgi-deploy] phase=pulling image=tgi:3.3.7\n"
    view = read(pull + "[  12.5] run-engine[812]: [tgi-deploy] received mb=4096\n", grammar)
    assert (view.startup_phase, view.progress.received_mb, view.exits) == ("pulling", 4096, 0)
    view = read(pull + "[tgi-deploy] received mb=4096\nStarting shard rank=0\n", grammar)
    assert view.startup_phase == "loading"
