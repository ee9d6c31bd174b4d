"""Faults on a machine that really boots."""

from __future__ import annotations

import pytest
from builders.boot import boot
from builders.boot_kinds import KINDS, Kind
from builders.logs import GRAMMAR

from tgi_deploy.diagnosis.reader import read

pytestmark = [pytest.mark.boot, pytest.mark.docker_engine, pytest.mark.slow]

ENGINE = "tgi-deploy-engine.service"
DRIVER_ERROR = "requirement error: unsatisfied condition: cuda>=12.4, please update your driver to a newer version"


FAULTS = {
    "driver_too_old": {"fakes": {"driver_error": DRIVER_ERROR}},
    "toolkit_missing": {"with_toolkit": False},
    "oom_warmup_prefill": {"fakes": {"engine.json": '{"STUB_FAULTS": "oom-warmup"}'}},
}


@pytest.mark.parametrize("code", FAULTS)
def test_a_failure_that_a_restart_cannot_fix_is_not_retried(docker_engine, code):
    with boot(docker_engine, KINDS["bare"].user_data(), **FAULTS[code]) as machine:
        machine.until("the verdict", lambda: "verdict=configuration exit=64" in machine.markers())
        machine.until("the unit to fail", lambda: machine.show(ENGINE, "ActiveState") == "failed")
        assert machine.show(ENGINE, "NRestarts") == "0"
        assert read(machine.console(), GRAMMAR).findings[0].code == code
        # The user data did its part: the failure is the engine's alone.
        machine.check_boot()
        assert machine.units("failed") == [ENGINE]


def test_a_crashed_engine_is_restarted(docker_engine):
    with boot(docker_engine, KINDS["bare"].user_data()) as machine:
        machine.until("the engine to answer", machine.healthy)
        machine.run("docker", "kill", "tgi")
        machine.until("its second start", lambda: machine.markers().count("phase=starting-engine") == 2)
        machine.until("the engine to answer again", machine.healthy)
        assert machine.show(ENGINE, "NRestarts") == "1"
        assert "phase=engine-exited code=137" in machine.markers()


def test_a_spot_notice_lets_the_engine_finish(docker_engine):
    notice = '{"action": "terminate", "time": "2030-01-01T00:00:00Z"}'
    with boot(docker_engine, Kind(texts={"market": "spot"}).user_data()) as machine:
        machine.check_boot()
        machine.until("the engine to answer", machine.healthy)
        machine.place("metadata/meta-data/spot/instance-action", notice)
        reported = "spot-notice action=terminate time=2030-01-01T00:00:00Z"
        machine.until("the notice to be reported", lambda: reported in machine.markers())
        machine.until("the engine to end", lambda: machine.show(ENGINE, "ActiveState") == "inactive")
        assert "signal received, starting graceful shutdown" in machine.console()
        assert machine.units("failed") == []
