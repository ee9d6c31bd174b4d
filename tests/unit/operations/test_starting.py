"""`status NAME` of an engine that does not answer: the progress of its start, from one read of the console."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from fakes.computer import FakeComputer, request

from tgi_deploy.cli.views.status import status_text
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.results.watching import status_data
from tgi_deploy.operations.watching.starting import Starting
from tgi_deploy.operations.watching.status import status, statuses
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.values.resource import MachineState

BOOT = "[tgi-deploy] phase=booting\n"
PULL = BOOT + "[tgi-deploy] phase=pulling image=tgi:3.3.7\n[tgi-deploy] received mb=4096\n"
ENGINE = PULL + "[tgi-deploy] phase=starting-engine\nStarting check and download process for m/m\n"
LOAD = (
    ENGINE + "Sharding model on 2 processes\nStarting shard rank=0\nStarting shard rank=1\nShard ready in 9.1s rank=0\n"
)


@dataclass
class Talking:
    inner: Any
    text: Any
    state: str = "running"
    reads: list[str] = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def console(self, instance_id):
        self.reads.append(instance_id)
        if isinstance(self.text, DeployError):
            raise self.text
        return self.text

    def machine(self, _instance_id):
        return MachineState(state=self.state, address="203.0.113.7")


@pytest.fixture
def around(tmp_path):
    made = FakeComputer(home=tmp_path)
    up(made.context(), request())
    made.probe = Probe(outcome="refused")
    return made


def seen(around, text, **settings):
    cloud = Talking(around.world.cloud("us-east-1"), text, **settings)
    return status(around.context(cloud=lambda _region: cloud), "demo"), cloud


@pytest.mark.parametrize(
    ("text", "phase", "detail", "fraction"),
    [
        ("", "booting", "", None),
        (BOOT, "booting", "", None),
        (PULL, "pulling", "4,096 of about 7,500 MB", None),
        (ENGINE + "Download: [1/4] -- ETA: 0:01:30\n", "downloading", "1 of 4 files, about 90 s left", 0.25),
        (LOAD, "loading", "1 of 2 shards ready", 0.5),
        (
            LOAD + "Starting Webserver\nKV-cache blocks: 9000, size: 1\n",
            "warming_up",
            "KV cache holds 9000 tokens",
            None,
        ),
    ],
)
def test_phase_and_detail(around, text, phase, detail, fraction):
    found, cloud = seen(around, text)
    assert found.starting == Starting(phase=phase, detail=detail, fraction=fraction)
    assert len(cloud.reads) == 1
    words = phase.replace("_", " ")
    assert f"  start     {words}: {detail}".removesuffix(": ") in status_text(found).splitlines()
    assert status_data(found).starting.phase == phase


def test_an_engine_that_exited_is_reported(around):
    died = LOAD + "torch.OutOfMemoryError: CUDA out of memory.\n[tgi-deploy] phase=engine-exited code=1\n"
    found, _ = seen(around, died)
    assert (found.starting.exit_code, found.starting.cause) == (1, "oom_load")
    assert "loading: the engine exited: oom_load; 'tgi-deploy diagnose demo' finds the cause" in status_text(found)


def test_an_exit_is_reported_even_if_the_console_lost_the_lines_before_it(around):
    """A console keeps 64 KiB, which a traceback can fill."""
    found, _ = seen(around, "torch.OutOfMemoryError: CUDA out of memory.\n[tgi-deploy] phase=engine-exited code=1\n")
    assert found.starting == Starting(phase="loading", exit_code=1, cause="oom_load")
    assert "refused the connection" in status_text(found)


def test_the_log_of_a_responding_engine_is_not_read(around):
    around.probe = Probe(outcome="status", status=200)
    found, cloud = seen(around, PULL)
    assert (found.starting, cloud.reads) == (None, [])


def test_a_machine_that_does_not_run_yet_has_no_log(around):
    found, cloud = seen(around, PULL, state="pending")
    assert (found.starting, cloud.reads) == (Starting(phase="launching"), [])


@pytest.mark.parametrize("state", ["terminated", "shutting-down"])
def test_a_terminated_machine_is_not_starting(around, state):
    assert seen(around, PULL, state=state)[0].starting is None


def test_an_unreadable_console_is_not_an_error(around):
    found, cloud = seen(around, DeployError("denied", "not allowed"))
    assert (found.starting, len(cloud.reads)) == (None, 1)


def test_status_without_a_name_reads_no_console(around):
    cloud = Talking(around.world.cloud("us-east-1"), PULL)
    (found,) = statuses(around.context(cloud=lambda _region: cloud))
    assert (found.starting, cloud.reads) == (None, [])
