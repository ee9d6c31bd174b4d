"""Waiting, from outside: a slow pull reports its megabytes, `status` the phase, and `logs -f` ends with the machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from builders.waiting import eventually

NAME = "trial"
UP = ("up", "smollm2-135m", "--name", NAME, "--yes")


def seen(program):
    (found,) = program.here("status", NAME).json["data"]["deployments"]
    return found


def until(program, condition, within_s=90):
    def met():
        found = seen(program)
        return found if condition(found) else None

    return eventually(met, lambda: f"status, which says {seen(program)}", within_s=within_s, pause_s=0.1)


def pulls_mb(found):
    starting = found["starting"] or {}
    return starting.get("phase") == "pulling" and " MB" in starting["detail"]


def test_status_shows_the_progress_of_a_slow_pull(program):
    program.fault(name="slow-pull", pull_mb_per_s=100)
    assert program.here(*UP, "--no-wait").code == 0
    first = until(program, pulls_mb)["starting"]["detail"]
    assert re.fullmatch(r"[\d,]+ of about 10,000 MB", first)
    until(program, lambda found: pulls_mb(found) and found["starting"]["detail"] != first)
    text = program.run("status", NAME, "--sandbox").out
    assert re.search(r"^  start +pulling", text, re.MULTILINE), text


def test_up_waits_for_a_slow_pull(program):
    program.fault(name="slow-pull", pull_mb_per_s=4000)
    up = program.run(*UP, "--sandbox")
    assert up.code == 0, up.err
    assert "pulling (about " in up.err
    assert "stalled" not in up.err
    assert seen(program)["starting"] is None
    lines = program.here("logs", NAME).json["data"]["lines"]
    amounts = [int(line.rpartition("=")[2]) for line in lines if line.startswith("[tgi-deploy] received mb=")]
    assert amounts == sorted(amounts)
    assert amounts[-1] <= 10_000
    assert len(amounts) > 2


def test_following_a_log_ends_with_the_machine(program):
    """A real process: it prints existing and new lines once each, then exits."""
    assert program.here(*UP, "--no-wait").code == 0
    words = ["logs", NAME, "--follow", "--sandbox"]
    environment = {**os.environ, "TGI_DEPLOY_HOME": str(program.home)}
    with subprocess.Popen(
        [sys.executable, "-m", "tgi_deploy", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        try:
            until(program, lambda found: found["healthy"])
            assert program.here("down", NAME, "--yes").code == 0
            out, err = following.communicate(timeout=120)
        finally:
            following.kill()
    assert following.returncode == 0, err
    lines = out.splitlines()
    markers = [line for line in lines if line.startswith("[tgi-deploy] phase=")]
    assert [marker.partition("=")[2].split()[0] for marker in markers[:3]] == ["booting", "pulling", "starting-engine"]
    assert any(line.endswith("Connected") for line in lines)
    assert len(markers) == len(set(markers))
    assert err == ""
