"""Machines end for real: by their time, by idleness, by a lease that nobody renews; and a reboot moves no end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from builders.boot import boot
from builders.boot_kinds import KINDS, PARAMETERS

from tgi_deploy.render.artifacts import render
from tgi_deploy.render.user_data import LEASE_TAG

pytestmark = [pytest.mark.boot, pytest.mark.docker_engine, pytest.mark.slow, pytest.mark.xdist_group("boot")]

STATE = "/var/lib/tgi-deploy"


def ending(**ends):
    return render("user-data", replace(KINDS["bare"].deployable(), **ends)).text


def ended_by(machine, reason):
    machine.until("the machine to power off", lambda: not machine.running())
    markers = [marker for marker in machine.markers() if marker.startswith("phase=expired")]
    assert len(markers) == 1
    assert f"reason={reason}" in markers[0]


def test_time_to_live(docker_engine):
    with boot(docker_engine, ending(ttl_s=20)) as machine:
        ended_by(machine, "ttl")


def test_idleness(docker_engine):
    with boot(docker_engine, ending(idle_s=5, ready_deadline_s=5)) as machine:
        ended_by(machine, "idle")


def test_a_lease_that_is_not_renewed(docker_engine):
    tag = f"metadata/meta-data/tags/instance/{LEASE_TAG}"
    with boot(docker_engine, ending(lease_s=1)) as machine_without:
        ended_by(machine_without, "lease")
    with boot(docker_engine, ending(lease_s=1), stand_in={tag: moment(hours=1)}) as machine:
        machine.check_boot()
        machine.until("the first look", lambda: "lease-until=" in machine.console())
        machine.place(tag, moment(hours=-1))
        ended_by(machine, "lease")


def moment(**later):
    return (datetime.now(UTC) + timedelta(**later)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_reboot_moves_no_end_and_brings_the_engine_back(docker_engine):
    kind = KINDS["everything"]
    with boot(docker_engine, kind.user_data(), gpus=kind.gpus, nvme=kind.mounts_nvme, stand_in=PARAMETERS) as machine:
        machine.check_boot()
        machine.until("the engine to answer", machine.healthy)
        ends = {name: machine.run("cat", f"{STATE}/{name}") for name in ("ends-at", "lease-until")}
        machine.reboot()
        machine.check_boot()
        machine.until("the engine to answer again", machine.healthy)
        assert ends == {name: machine.run("cat", f"{STATE}/{name}") for name in ends}
        assert machine.units("failed") == []
        assert machine.markers().count("phase=starting-engine") == 2
