"""Machines terminate themselves: by TTL, idle timeout or an expired lease; a reboot does not move the limit."""

from __future__ import annotations

import re

import pytest
from builders.boot import boot
from builders.boot_kinds import KINDS, PARAMETERS

from tgi_deploy.reconcile.ends import TAG_LEASE
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_EXPIRES
from tgi_deploy.wiring import render_artifact

pytestmark = [pytest.mark.boot, pytest.mark.docker_engine, pytest.mark.slow]

STATE = "/var/lib/tgi-deploy"


def ending(**ends):
    return render_artifact("user-data", replaced(KINDS["bare"].deployable(), **ends)).text


def ended_by(machine, reason):
    machine.until("the machine to power off", lambda: not machine.running())
    markers = [marker for marker in machine.markers() if marker.startswith("phase=expired")]
    assert len(markers) == 1
    assert f"reason={reason}" in markers[0]


def looked(machine, file="age"):
    """Wait until it has booted and watches its limits."""
    machine.until("the first look", lambda: bool(machine.run("cat", f"{STATE}/{file}", check=False)))


def test_a_ttl_terminates_the_machine(docker_engine):
    with boot(docker_engine, ending(ttl_s=20)) as machine:
        ended_by(machine, "ttl")


def test_an_idle_timeout_terminates_the_machine(docker_engine):
    with boot(docker_engine, ending(idle_s=5, ready_deadline_s=5)) as machine:
        ended_by(machine, "idle")


def test_without_its_timer_it_terminates_anyway(docker_engine):
    with boot(docker_engine, ending(ttl_s=40)) as machine:
        looked(machine)
        machine.run("systemctl", "mask", "--runtime", "--now", "tgi-deploy-expire.timer")
        machine.run("systemctl", "kill", "--signal=KILL", "tgi-deploy-expire-watch.service")
        ended_by(machine, "ttl")


def test_without_its_watch_it_terminates_anyway(docker_engine):
    with boot(docker_engine, ending(ttl_s=40)) as machine:
        looked(machine)
        machine.run("systemctl", "mask", "--runtime", "--now", "tgi-deploy-expire-watch.service")
        ended_by(machine, "ttl")


def idle(docker_engine):
    """A machine whose engine answers, and that terminates a minute later."""
    kind = KINDS["bare"]
    return boot(docker_engine, ending(idle_s=60), gpus=kind.gpus, nvme=kind.mounts_nvme)


def test_a_dead_docker_counts_as_idle(docker_engine):
    units = ("docker.socket", "docker.service", "containerd.service")
    with idle(docker_engine) as machine:
        looked(machine, "idle-since")
        machine.run("systemctl", "mask", "--runtime", *units)
        machine.run("systemctl", "kill", "--signal=KILL", *units[1:])
        assert not machine.healthy()
        ended_by(machine, "idle")


@pytest.mark.parametrize("broken", ["size=16k", "ro"])
def test_a_full_disk_does_not_prevent_termination(docker_engine, broken):
    with idle(docker_engine) as machine:
        looked(machine, "idle-since")
        machine.run("mount", "-t", "tmpfs", "-o", broken, "tmpfs", STATE)
        machine.run("sh", "-c", f"! head -c 64k /dev/zero >{STATE}/filler")
        ended_by(machine, "idle")


def test_a_hanging_shutdown_is_forced(docker_engine):
    quick = re.sub(r">= \d+\)\); then cut_power", ">= 15)); then cut_power", ending(ttl_s=20))
    with boot(docker_engine, quick) as machine:
        looked(machine)
        stuck = ("-p", "ExecStop=/bin/sleep infinity", "-p", "TimeoutStopSec=infinity")
        machine.run("systemd-run", "--unit=stuck", *stuck, "sleep", "infinity")
        ended_by(machine, "ttl")


def test_an_expired_lease_terminates_the_machine(docker_engine):
    with boot(docker_engine, ending(lease_s=1)) as machine:
        ended_by(machine, "lease")


def test_limits_can_be_moved_and_lifted(docker_engine):
    expires, lease = (f"metadata/meta-data/tags/instance/{tag}" for tag in (TAG_EXPIRES, TAG_LEASE))
    tags = {expires: "none", lease: "2026-11-21T12:00:00+00:00 3600"}
    with boot(docker_engine, ending(ttl_s=600, lease_s=600), fakes=tags) as machine:
        machine.check_boot()
        machine.until("the first look", lambda: "lease-until=" in machine.console())
        assert "expires=none" in machine.console()
        machine.place(lease, "2026-11-21T13:00:00+00:00 1")
        ended_by(machine, "lease")


def test_a_reboot_keeps_the_limit_and_restarts_the_engine(docker_engine):
    kind = KINDS["everything"]
    with boot(docker_engine, kind.user_data(), gpus=kind.gpus, nvme=kind.mounts_nvme, fakes=PARAMETERS) as machine:
        machine.check_boot()
        machine.until("the engine to answer", machine.healthy)
        age = age_s(machine)
        machine.reboot()
        machine.check_boot()
        machine.until("the engine to answer again", machine.healthy)
        assert age_s(machine) > age
        assert machine.units("failed") == []
        assert machine.markers().count("phase=starting-engine") == 2


def age_s(machine):
    """Return the seconds since its first poll, as counted by the machine."""
    return int(machine.run("cat", f"{STATE}/age").split()[0])
