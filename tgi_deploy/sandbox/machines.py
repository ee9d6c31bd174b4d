"""The cloud's side of machines: boots one per instance with user data, and ends those that should not run."""

from __future__ import annotations

import json
import shutil
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tgi_deploy.sandbox import roles, schedules, world
from tgi_deploy.sandbox.addresses import Routes
from tgi_deploy.sandbox.faults import FaultTable
from tgi_deploy.sandbox.guest.layout import NVME_MOUNT, Console, FastClock, Host, Layout
from tgi_deploy.sandbox.guest.machine import System, guest_environment
from tgi_deploy.sandbox.guest.server import CommandServer
from tgi_deploy.sandbox.guest.spawn import Spawner
from tgi_deploy.sandbox.hardware import hardware_of
from tgi_deploy.sandbox.sessions.agent import Guest
from tgi_deploy.sandbox.wire import BadRequestError
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tgi_deploy.sandbox.faults import MachineFault
    from tgi_deploy.sandbox.world import SandboxInstance

_PENDING_S: Final = 12.0
_TICK_S: Final = 0.05
_GRACE_S: Final = 1.5
# "If the instance OS does not cleanly shut down within a few minutes, a hard shutdown is performed": EC2 User Guide,
# "How instance stop and start works".
_SHUTDOWN_S: Final = 180.0
_RECLAIMED: Final = "Server.SpotInstanceTermination"
# EC2 gives two minutes' notice, best effort (EC2 User Guide, "Spot Instance interruption notices").
_NOTICE_S: Final = 120.0
# Real seconds: an engine must have time to drain even with fast timers.
_LEAST_NOTICE_S: Final = 30.0
_DIED: Final = "Server.InternalError"


class Settings(Frozen, frozen=True, kw_only=True):
    """What the parts of the sandbox share. `lock` guards moto; its API accepts `access_key`."""

    home: Path
    access_key: str
    speed: float
    clock: FastClock
    shut_down: Callable[[], None]
    faults: FaultTable = msgspec.field(default_factory=FaultTable)
    lock: threading.RLock = msgspec.field(default_factory=threading.RLock)


class HostedMachine(msgspec.Struct, kw_only=True):
    """The machine of an instance; without user data it never boots. `ends` are its scheduled ends with reasons."""

    layout: Layout
    faults: tuple[MachineFault, ...]
    ends: list[tuple[float, str]]
    system: System | None = None
    ending: threading.Thread | None = None

    @property
    def gone(self) -> bool:
        return self.system is None and (self.ending is None or not self.ending.is_alive())

    def end(self, grace_s: float) -> None:
        """Shut down in the background."""
        system, self.system = self.system, None
        if system is not None:
            self.ending = threading.Thread(target=system.end, args=(grace_s,), daemon=True)
            self.ending.start()


class Machines:
    """Synchronizes machines with moto's instances."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._commands = CommandServer()
        self._routes = Routes()
        self._closed = threading.Event()

    def run(self) -> None:
        """Update all instances until closed."""
        while not self._closed.wait(_TICK_S):
            self.sync()
            for _, instance in world.instances():
                if instance.sandbox_machine and instance.sandbox_machine.system:
                    instance.sandbox_machine.system.tick()

    def sync(self) -> None:
        with self._settings.lock:
            if not self._closed.is_set():
                schedules.run_due(self._settings.clock.speed)
                for region, instance in world.instances():
                    if instance.state != "terminated":
                        self._step(region, instance)
                self._routes.sync(world.forwardings())

    def power(self, instance_id: str, event: str) -> None:
        """Handle a guest's poweroff or restart. Raises BadRequestError for an unknown machine."""
        with self._settings.lock:
            _, instance, _ = _find(instance_id)
            if event == "reboot":
                instance.reboot()
            else:
                behavior = str(instance.instance_initiated_shutdown_behavior)
                instance.sandbox_end("Client.InstanceInitiatedShutdown", behavior=behavior)

    def metadata(self, instance_id: str) -> dict[str, Any]:
        """Return user data and what changes while the machine runs: tags if enabled, and its spot notice.

        Raises BadRequestError for an unknown machine.
        """
        with self._settings.lock:
            region, instance, machine = _find(instance_id)
            shown = instance.metadata_options.instance_metadata_tags == "enabled"
            return {
                "tags": dict(world.tags_of(region, instance.id)) if shown else {},
                "spot_action": self._spot_action(machine),
                "user_data": str(instance.user_data or ""),
            }

    def _spot_action(self, machine: HostedMachine) -> str:
        now = time.monotonic()
        due = min((moment for moment, reason in machine.ends if reason == _RECLAIMED), default=None)
        if due is None or due - now > max(_NOTICE_S / self._settings.clock.speed, _LEAST_NOTICE_S):
            return ""
        at = self._settings.clock.text(time.time() + due - now).replace("+00:00", "Z")
        return json.dumps({"action": "terminate", "time": at})

    def parameter(self, instance_id: str, region: str, name: str) -> str | None:
        """Read a parameter as the machine's role; None without a role. Raises RefusedError."""
        with self._settings.lock:
            return roles.read_parameter(_find(instance_id)[1], region, name)

    def guest(self, instance_id: str) -> Guest | None:
        """Return a booted machine, for sessions with it; None otherwise."""
        with self._settings.lock, suppress(BadRequestError):
            _, instance, machine = _find(instance_id)
            if machine.system and machine.system.ready:
                folder, environment = machine.layout.at("/root"), guest_environment(machine.layout)
                return Guest(address=instance.sandbox_lease.address, folder=folder, environment=environment)
        return None

    def schedule_end(self, instance_id: str, fault: MachineFault) -> None:
        """Schedule the end of a running machine by a fault. Raises BadRequestError for an unknown machine."""
        with self._settings.lock:
            _find(instance_id)[2].ends.append((time.monotonic() + fault.after_s, fault.reason))

    def listed(self) -> list[dict[str, object]]:
        with self._settings.lock:
            return [self._described(region, one) for region, one in world.instances()]

    def _described(self, region: str, instance: SandboxInstance) -> dict[str, object]:
        machine = instance.sandbox_machine
        return {
            "instance_id": instance.id,
            "region": region,
            "instance_type": instance.instance_type,
            "state": instance.state,
            "address": instance.sandbox_lease.address,
            "clock": msgspec.to_builtins(self._settings.clock),
            "booted": bool(machine and machine.system),
            "console": str(machine.layout.console) if machine else None,
        }

    def close(self) -> None:
        """End all machines and wait for them."""
        self._closed.set()
        self.clear()

    def clear(self) -> None:
        """End all machines and wait for them, before moto forgets their instances."""
        with self._settings.lock:
            hosted = [(one, one.sandbox_machine) for _, one in world.instances() if one.sandbox_machine]
            self._routes.sync(set())
            for _, machine in hosted:
                machine.end(_GRACE_S)
        for instance, machine in hosted:
            if machine.ending:
                machine.ending.join()
            instance.sandbox_lease.close()

    def _step(self, region: str, instance: SandboxInstance) -> None:
        machine = instance.sandbox_machine or self._admit(region, instance)
        due = [reason for moment, reason in machine.ends if time.monotonic() >= moment]
        if due:
            machine.ends.clear()
            instance.sandbox_end(due[0])
        state, age_s = instance.state, time.monotonic() - instance.sandbox_launched
        if state == "pending" and age_s >= _PENDING_S / self._settings.speed and machine.gone:
            instance.sandbox_state("running")
        elif state == "running":
            self._keep_running(region, instance, machine)
        elif state in {"shutting-down", "stopping"}:
            machine.end(_GRACE_S + _SHUTDOWN_S / self._settings.speed)
            if machine.gone:
                instance.sandbox_state("terminated" if state == "shutting-down" else "stopped")
                shutil.rmtree(machine.layout.at(NVME_MOUNT), ignore_errors=True)  # local drives
                instance.sandbox_lease.close()

    def _admit(self, region: str, instance: SandboxInstance) -> HostedMachine:
        layout = Layout(folder=self._settings.home / "machines" / instance.id)
        faults = self._settings.faults.take_for_machine(_launch_facts(region, instance))
        ends = [(time.monotonic() + fault.after_s, fault.reason) for fault in faults if fault.reason]
        instance.sandbox_machine = HostedMachine(layout=layout, faults=faults, ends=ends)
        return instance.sandbox_machine

    def _keep_running(self, region: str, instance: SandboxInstance, machine: HostedMachine) -> None:
        if machine.system and machine.system.failed:
            instance.sandbox_end(_DIED)
            return
        if instance.sandbox_reboot_wanted:
            instance.sandbox_reboot_wanted = False
            machine.end(_GRACE_S + _SHUTDOWN_S / self._settings.speed)
        dark = any(fault.dark for fault in machine.faults)
        if machine.gone and instance.user_data and not dark:
            machine.system = System(self._host(region, instance, machine), self._commands)

    def _host(self, region: str, instance: SandboxInstance, machine: HostedMachine) -> Host:
        settings, layout = self._settings, machine.layout
        layout.make()
        environment, home = guest_environment(layout), layout.at("/root")
        return Host(
            instance_id=instance.id,
            region=region,
            instance_type=instance.instance_type,
            hardware=hardware_of(instance.instance_type),
            address=instance.sandbox_lease.address,
            held_ports=instance.sandbox_lease.ports,
            speed=settings.speed,
            clock=settings.clock,
            faults=machine.faults,
            cloud=self,
            layout=layout,
            console=Console(layout, speed=settings.speed),
            spawner=Spawner(groups=layout.groups, environment=environment, home=home),
        )


def _launch_facts(region: str, instance: SandboxInstance) -> dict[str, str]:
    """Return the values that a machine fault's `when` is compared with."""
    return {
        "Region": region,
        "InstanceId": instance.id,
        "InstanceType": instance.instance_type,
        "AvailabilityZone": str(instance.availability_zone),
        "SubnetId": str(instance.subnet_id),
        "Market": "spot" if instance.lifecycle == "spot" else "on-demand",
    }


def _find(instance_id: str) -> tuple[str, SandboxInstance, HostedMachine]:
    """Return an instance with its region and machine. Raises BadRequestError."""
    for region, instance in world.instances():
        if instance.id == instance_id and instance.sandbox_machine:
            return region, instance, instance.sandbox_machine
    raise BadRequestError(f"the machine {instance_id!r} does not exist", 404)
