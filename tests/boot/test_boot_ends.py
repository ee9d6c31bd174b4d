"""Machines end for real: by their time, by idleness, by a lease that nobody renews; and a reboot moves no end."""

from __future__ import annotations

import re
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


def looked(machine):
    """It has booted, and its end is under watch."""
    machine.until("the first look", lambda: bool(machine.run("cat", f"{STATE}/age", check=False)))


def test_time_to_live(docker_engine):
    with boot(docker_engine, ending(ttl_s=20)) as machine:
        ended_by(machine, "ttl")


def test_idleness(docker_engine):
    with boot(docker_engine, ending(idle_s=5, ready_deadline_s=5)) as machine:
        ended_by(machine, "idle")


@pytest.mark.parametrize("stopped", ["tgi-deploy-expire.timer", "tgi-deploy-expire-watch.service"])
def test_either_of_the_two_that_look_suffices(docker_engine, stopped):
    with boot(docker_engine, ending(ttl_s=25)) as machine:
        looked(machine)
        machine.run("systemctl", "mask", "--runtime", "--now", stopped)
        ended_by(machine, "ttl")


def test_what_looks_comes_back_when_it_is_killed(docker_engine):
    with boot(docker_engine, ending(ttl_s=40)) as machine:
        looked(machine)
        machine.run("systemctl", "mask", "--runtime", "--now", "tgi-deploy-expire.timer")
        machine.run("systemctl", "kill", "--signal=KILL", "tgi-deploy-expire-watch.service")
        ended_by(machine, "ttl")


def test_a_dead_docker_is_idle(docker_engine):
    kind = KINDS["bare"]
    with boot(docker_engine, ending(idle_s=20), gpus=kind.gpus) as machine:
        machine.until("the engine to answer", machine.healthy)
        machine.until(
            "its requests to be counted", lambda: bool(machine.run("cat", f"{STATE}/idle-since", check=False))
        )
        machine.run("systemctl", "mask", "--runtime", "--now", "docker.socket", "docker.service", "containerd.service")
        ended_by(machine, "idle")


@pytest.mark.parametrize("broken", ["size=16k", "ro"])
@pytest.mark.parametrize(("ends", "reason"), [({"ttl_s": 40}, "ttl"), ({"idle_s": 20}, "idle")], ids=("ttl", "idle"))
def test_a_disk_that_takes_nothing_keeps_no_end_from_coming(docker_engine, ends, reason, broken):
    with boot(docker_engine, ending(**ends)) as machine:
        looked(machine)
        machine.run("mount", "-t", "tmpfs", "-o", broken, "tmpfs", STATE)
        machine.run("sh", "-c", f"head -c 64k /dev/zero >{STATE}/filler; true", check=False)
        machine.until("the engine to answer", machine.healthy)
        ended_by(machine, reason)


def test_a_clock_that_jumps_moves_no_end(docker_engine):
    """The clock is the host's: `date` alone is set, as the script sees it."""
    with boot(docker_engine, ending(ttl_s=45)) as machine:
        looked(machine)
        machine.run(
            "sh", "-c", "printf '#!/bin/sh\necho 9999999999\n' >/usr/local/bin/date; chmod +x /usr/local/bin/date"
        )
        machine.run("systemctl", "start", "tgi-deploy-expire.service")
        assert machine.running()
        assert not [marker for marker in machine.markers() if marker.startswith("phase=expired")]
        ended_by(machine, "ttl")


def test_a_shutdown_that_hangs_is_cut(docker_engine):
    quick = re.sub(r">= \d+\)\); then cut_power", ">= 15)); then cut_power", ending(ttl_s=20))
    with boot(docker_engine, quick) as machine:
        looked(machine)
        stuck = ("-p", "ExecStop=/bin/sleep infinity", "-p", "TimeoutStopSec=infinity")
        machine.run("systemd-run", "--unit=stuck", *stuck, "sleep", "infinity")
        ended_by(machine, "ttl")


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
        until, age = machine.run("cat", f"{STATE}/lease-until"), age_s(machine)
        machine.reboot()
        machine.check_boot()
        machine.until("the engine to answer again", machine.healthy)
        assert machine.run("cat", f"{STATE}/lease-until") == until
        assert age_s(machine) > age
        assert machine.units("failed") == []
        assert machine.markers().count("phase=starting-engine") == 2


def age_s(machine):
    """Seconds since its first look, by its own count."""
    return int(machine.run("cat", f"{STATE}/age").split()[0])
