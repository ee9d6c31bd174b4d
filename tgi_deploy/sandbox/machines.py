"""The cloud's side of machines: boots one per instance with user data, and ends those that should not run."""

from __future__ import annotations

import json
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tgi_deploy.sandbox import roles, world
from tgi_deploy.sandbox.addresses import Routes
from tgi_deploy.sandbox.faults import FaultTable
from tgi_deploy.sandbox.guest.layout import NVME_MOUNT, FastClock
from tgi_deploy.sandbox.guest.machine import System, guest_environment
from tgi_deploy.sandbox.guest.server import CommandServer
from tgi_deploy.sandbox.sessions.agent import Guest
from tgi_deploy.sandbox.wire import BadRequestError
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
            for system in [instance.machine.system for instance in world.instances()]:
                if system:
                    system.tick()

    def sync(self) -> None:
        with self._settings.lock:
            if not self._closed.is_set():
                roles.run_due(self._settings.clock.speed)
                for instance in world.instances():
                    if instance.state != "terminated":
                        self._step(instance)
                self._routes.sync(world.forwardings())

    def power(self, instance_id: str, event: str) -> None:
        """Handle a guest's poweroff or restart."""
        with self._settings.lock:
            instance = find(instance_id)
            if event == "reboot":
                instance.reboot()
            else:
                behavior = str(instance.instance_initiated_shutdown_behavior)
                instance.end("Client.InstanceInitiatedShutdown", behavior=behavior)

    def metadata(self, instance_id: str) -> dict[str, Any]:
        """Return user data and what changes while the machine runs: tags if enabled, and its spot notice."""
        with self._settings.lock:
            instance = find(instance_id)
            shown = instance.metadata_options.instance_metadata_tags == "enabled"
            return {
                "tags": {tag["key"]: tag["value"] for tag in instance.get_tags()} if shown else {},
                "spot_action": self._spot_action(instance),
                "user_data": str(instance.user_data or ""),
            }

    def _spot_action(self, instance: SandboxInstance) -> str:
        now = time.monotonic()
        due = min((moment for moment, reason in instance.machine.ends if reason == _RECLAIMED), default=None)
        if due is None or due - now > max(_NOTICE_S / self._settings.clock.speed, _LEAST_NOTICE_S):
            return ""
        at = self._settings.clock.text(time.time() + due - now).replace("+00:00", "Z")
        return json.dumps({"action": "terminate", "time": at})

    def parameter(self, instance_id: str, action: str, region: str, name: str) -> str | None:
        """Read a parameter as the machine's role; None without a role. Raises RefusedError."""
        with self._settings.lock:
            return roles.read_parameter(find(instance_id), action, region, name)

    def guest(self, instance_id: str) -> Guest | None:
        """Return a booted machine, for sessions with it; None otherwise."""
        with self._settings.lock:
            instance = world.find_instance(instance_id)
            if instance is None or instance.machine.system is None or not instance.machine.system.ready:
                return None
            layout = instance.machine.layout
            environment = guest_environment(layout)
            return Guest(address=instance.private_dns_name, folder=layout.at("/root"), environment=environment)

    def listed(self) -> list[dict[str, object]]:
        with self._settings.lock:
            return [
                {
                    "instance_id": one.id,
                    "region": one.region,
                    "instance_type": one.instance_type,
                    "state": one.state,
                    "address": one.private_dns_name,
                    "clock": msgspec.to_builtins(self._settings.clock),
                    "booted": one.machine.system is not None,
                    "console": str(one.machine.layout.console),
                }
                for one in world.instances()
            ]

    def close(self) -> None:
        """End all machines and wait for them."""
        self._closed.set()
        self.clear()

    def clear(self) -> None:
        """End all machines and wait for them, before moto forgets their instances."""
        with self._settings.lock:
            hosted = [instance.machine for instance in world.instances()]
            self._routes.sync(set())
            for machine in hosted:
                machine.end(_GRACE_S)
        for machine in hosted:
            if machine.ending:
                machine.ending.join()
            machine.lease.close()

    def _step(self, instance: SandboxInstance) -> None:
        machine, speed = instance.machine, self._settings.speed
        if machine.faults is None:
            machine.faults = self._settings.faults.take_for_machine(_facts(instance))
            machine.ends = [
                (time.monotonic() + fault.after_s, fault.reason) for fault in machine.faults if fault.reason
            ]
        due = [reason for moment, reason in machine.ends if time.monotonic() >= moment]
        if due:
            machine.ends.clear()
            instance.end(due[0])
        state, age_s = instance.state, time.monotonic() - machine.launched
        if state == "pending" and age_s >= _PENDING_S / speed and machine.gone:
            instance.switch("running")
        elif state == "running":
            self._keep_running(instance)
        elif state in {"shutting-down", "stopping"}:
            machine.end(_GRACE_S + _SHUTDOWN_S / speed)
            if machine.gone:
                instance.switch("terminated" if state == "shutting-down" else "stopped")
                shutil.rmtree(machine.layout.at(NVME_MOUNT), ignore_errors=True)  # local drives
                machine.lease.close()

    def _keep_running(self, instance: SandboxInstance) -> None:
        machine = instance.machine
        if machine.system and machine.system.failed:
            instance.end(_DIED)
            return
        if machine.reboot_wanted:
            machine.reboot_wanted = False
            machine.end(_GRACE_S + _SHUTDOWN_S / self._settings.speed)
        dark = any(fault.dark for fault in machine.faults or ())
        if machine.gone and instance.user_data and not dark:
            machine.system = System(instance, self._settings, self, self._commands)


def _facts(instance: SandboxInstance) -> dict[str, str]:
    """Return the values that a machine fault's `when` is compared with."""
    return {
        "Region": instance.region,
        "InstanceId": instance.id,
        "InstanceType": instance.instance_type,
        "AvailabilityZone": str(instance.availability_zone),
        "SubnetId": str(instance.subnet_id),
        "Market": "spot" if instance.lifecycle == "spot" else "on-demand",
    }


def find(instance_id: str) -> SandboxInstance:
    """Return an instance. Raises BadRequestError."""
    instance = world.find_instance(instance_id)
    if instance is None:
        raise BadRequestError(f"the machine {instance_id!r} does not exist", 404)
    return instance
