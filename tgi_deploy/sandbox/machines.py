"""The cloud's side of machines: boots one per instance with user data, and ends those that should not run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import tgi_deploy
from tgi_deploy.catalog.kept_models import KEPT_MODELS, models_folder
from tgi_deploy.sandbox import roles, rules, schedules, world
from tgi_deploy.sandbox.addresses import Routes
from tgi_deploy.sandbox.api import Endpoint
from tgi_deploy.sandbox.faults import FaultTable
from tgi_deploy.sandbox.guest.layout import NVME_MOUNT, FastClock, Layout, MachineSpec
from tgi_deploy.sandbox.hardware import hardware_of, image_sizes, proxy_image
from tgi_deploy.sandbox.machine import guest_environment
from tgi_deploy.sandbox.processes import end_group, end_recorded_groups
from tgi_deploy.sandbox.sessions.agent import Guest
from tgi_deploy.sandbox.wire import BadRequestError
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.sandbox.faults import MachineFault
    from tgi_deploy.sandbox.world import SandboxInstance

_PENDING_S: Final = 12.0
_BOOT_S: Final = 45.0
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
    """What the parts of the sandbox share. `lock` guards moto; its API at `url` accepts `access_key`."""

    home: Path
    url: str
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
    process: subprocess.Popen[bytes] | None = None
    ending: threading.Thread | None = None

    @property
    def gone(self) -> bool:
        return self.process is None and (self.ending is None or not self.ending.is_alive())

    @property
    def died(self) -> bool:
        """Whether its process ended by itself."""
        return self.process is not None and self.process.poll() is not None


class Machines:
    """Synchronizes machines with moto's instances."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._routes = Routes()
        self._closed = threading.Event()

    def run(self) -> None:
        """Update all instances until closed."""
        while not self._closed.wait(_TICK_S):
            self.sync()

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

    def metadata(self, instance_id: str) -> dict[str, object]:
        """Return user data and what changes while the machine runs: tags if enabled, and a spot notice if there is one.

        Raises BadRequestError for an unknown machine.
        """
        with self._settings.lock:
            region, instance, machine = _find(instance_id)
            shown = instance.metadata_options.instance_metadata_tags == "enabled"
            return {
                "tags": dict(world.tags_of(region, instance.id)) if shown else None,
                "spot_action": self._spot_action(machine),
                "user_data": str(instance.user_data or ""),
            }

    def _spot_action(self, machine: HostedMachine) -> dict[str, str] | None:
        now = time.monotonic()
        due = min((moment for moment, reason in machine.ends if reason == _RECLAIMED), default=None)
        if due is None or due - now > max(_NOTICE_S / self._settings.clock.speed, _LEAST_NOTICE_S):
            return None
        at = self._settings.clock.text(time.time() + due - now).replace("+00:00", "Z")
        return {"action": "terminate", "time": at}

    def guest(self, instance_id: str) -> Guest | None:
        """Return a booted machine, for sessions with it; None otherwise."""
        with self._settings.lock, suppress(BadRequestError):
            _, instance, machine = _find(instance_id)
            layout = machine.layout
            if machine.process and not machine.died and layout.at("/proc/uptime").exists():
                folder, environment = layout.at("/root"), guest_environment(layout)
                return Guest(address=instance.sandbox_lease.address, folder=folder, environment=environment)
        return None

    def schedule_end(self, instance_id: str, fault: MachineFault) -> None:
        """Schedule the end of a running machine by a fault. Raises BadRequestError for an unknown machine."""
        with self._settings.lock:
            _find(instance_id)[2].ends.append((time.monotonic() + fault.after_s, fault.reason))

    def listed(self) -> list[dict[str, object]]:
        with self._settings.lock:
            return [_described(region, one) for region, one in world.instances()]

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
                self._end(machine, at_once=True)
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
            self._end(machine)
            if machine.gone:
                instance.sandbox_state("terminated" if state == "shutting-down" else "stopped")
                shutil.rmtree(machine.layout.at(NVME_MOUNT), ignore_errors=True)  # local drives
                instance.sandbox_lease.close()

    def _admit(self, region: str, instance: SandboxInstance) -> HostedMachine:
        layout = Layout(folder=self._settings.home / "machines" / instance.id)
        faults = self._settings.faults.take_for_machine(rules.launch_facts(region, instance))
        ends = [(time.monotonic() + fault.after_s, fault.reason) for fault in faults if fault.reason]
        instance.sandbox_machine = HostedMachine(layout=layout, faults=faults, ends=ends)
        return instance.sandbox_machine

    def _keep_running(self, region: str, instance: SandboxInstance, machine: HostedMachine) -> None:
        if machine.died:
            instance.sandbox_end(_DIED)
            return
        if instance.sandbox_reboot_wanted:
            instance.sandbox_reboot_wanted = False
            self._end(machine)
        dark = any(fault.dark for fault in machine.faults)
        if machine.gone and instance.user_data and not dark:
            self._boot(region, instance, machine)

    def _boot(self, region: str, instance: SandboxInstance, machine: HostedMachine) -> None:
        layout = machine.layout
        layout.folder.mkdir(parents=True, exist_ok=True)
        layout.spec.write_bytes(msgspec.json.encode(self._spec(region, instance, machine.faults)))
        with (layout.folder / "machine.log").open("ab") as log:
            machine.process = subprocess.Popen(  # noqa: S603 -- our own module
                [sys.executable, "-m", "tgi_deploy.sandbox.machine", str(layout.folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=Path(tgi_deploy.__file__).resolve().parent.parent,
                start_new_session=True,
            )
        machine.ending = None

    def _spec(self, region: str, instance: SandboxInstance, faults: tuple[MachineFault, ...]) -> MachineSpec:
        settings = self._settings
        boots_s = (fault.boot_s * settings.speed for fault in faults if fault.boot_s is not None)
        pulls = (fault.pull_mb_per_s for fault in faults if fault.pull_mb_per_s)
        return MachineSpec(
            instance_id=instance.id,
            region=region,
            instance_type=instance.instance_type,
            hardware=hardware_of(instance.instance_type),
            images=image_sizes(),
            proxy_image=proxy_image(),
            engine_environment={KEPT_MODELS: str(models_folder(os.environ).absolute())},
            address=instance.sandbox_lease.address,
            endpoint=Endpoint(url=settings.url, access_key=settings.access_key, instance_id=instance.id),
            instance_profile=roles.profile_of(instance),
            speed=settings.speed,
            clock=settings.clock,
            boot_s=next(boots_s, _BOOT_S),
            engine_faults=tuple(fault.engine for fault in faults if fault.engine),
            failed_pulls=sum(fault.failed_pulls for fault in faults),
            pull_mb_per_s=next(pulls, None),
            held_ports=instance.sandbox_lease.ports,
        )

    def _end(self, machine: HostedMachine, *, at_once: bool = False) -> None:
        process, machine.process = machine.process, None
        if process is not None:
            grace_s = _GRACE_S + (0.0 if at_once else _SHUTDOWN_S / self._settings.speed)
            machine.ending = threading.Thread(target=_end_process, args=(process, machine.layout, grace_s), daemon=True)
            machine.ending.start()


def _find(instance_id: str) -> tuple[str, SandboxInstance, HostedMachine]:
    """Return an instance with its region and machine. Raises BadRequestError."""
    for region, instance in world.instances():
        if instance.id == instance_id and instance.sandbox_machine:
            return region, instance, instance.sandbox_machine
    raise BadRequestError(f"the machine {instance_id!r} does not exist", 404)


def _described(region: str, instance: SandboxInstance) -> dict[str, object]:
    machine = instance.sandbox_machine
    return {
        "instance_id": instance.id,
        "region": region,
        "instance_type": instance.instance_type,
        "state": instance.state,
        "address": instance.sandbox_lease.address,
        "pid": machine.process.pid if machine and machine.process else None,
        "console": str(machine.layout.console) if machine else None,
    }


def _end_process(process: subprocess.Popen[bytes], layout: Layout, grace_s: float) -> None:
    """Send SIGTERM, then SIGKILL, then end the machine's leftovers."""
    if process.stdin:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        end_group(process.pid, grace_s=0)
        process.wait()
    end_recorded_groups(layout.groups, marker=str(layout.folder))
