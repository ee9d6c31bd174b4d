"""The cloud's side of machines: boots one per instance with user data, and ends those that should not run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tgi_deploy
from tgi_deploy.catalog.kept_models import KEPT_MODELS, models_folder
from tgi_deploy.sandbox import roles, rules, schedules, world
from tgi_deploy.sandbox.addresses import Routes
from tgi_deploy.sandbox.guest.layout import FastClock, Layout, MachineSpec
from tgi_deploy.sandbox.hardware import hardware_of, image_sizes, proxy_image
from tgi_deploy.sandbox.machine import guest_environment
from tgi_deploy.sandbox.processes import end_group, end_recorded_groups
from tgi_deploy.sandbox.sessions.agent import Guest

if TYPE_CHECKING:
    from tgi_deploy.sandbox.addresses import Lease
    from tgi_deploy.sandbox.faults import FaultTable, MachineFault
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


@dataclass(kw_only=True, slots=True)
class HostedMachine:
    """A booted (or never booted: no user data) machine. `ends` are its scheduled ends with reasons."""

    layout: Layout
    lease: Lease
    faults: tuple[MachineFault, ...]
    ends: list[tuple[float, str]]
    process: subprocess.Popen[bytes] | None = None
    ending: threading.Thread | None = None

    def empty_drives(self) -> None:
        """Clear its local drives and release its address, which happens except on a reboot."""
        shutil.rmtree(self.layout.at("/opt/dlami/nvme"), ignore_errors=True)
        self.lease.close()

    @property
    def gone(self) -> bool:
        return self.process is None and (self.ending is None or not self.ending.is_alive())

    @property
    def died(self) -> bool:
        """Whether its process ended by itself."""
        return self.process is not None and self.process.poll() is not None


class Machines:
    """Synchronizes machines with moto's instances. `lock` guards moto."""

    def __init__(
        self, *, home: Path, faults: FaultTable, speed: float, timer_speed: float, lock: threading.RLock
    ) -> None:
        self.endpoint_url = ""
        self.access_key = ""
        self._home = home / "machines"
        self._faults = faults
        self._speed = speed
        self._timer_speed = timer_speed
        self._clock = FastClock(epoch=time.time(), speed=timer_speed)
        self._routes = Routes()
        self._lock = lock
        self._machines: dict[str, HostedMachine] = {}
        self._over: set[str] = set()  # terminated ones, which moto keeps
        self._closed = threading.Event()

    def run(self) -> None:
        """Update all instances until closed."""
        while not self._closed.wait(_TICK_S):
            self.sync()

    def sync(self) -> None:
        with self._lock:
            if not self._closed.is_set():
                schedules.run_due(self._timer_speed)
                for region, instance in world.instances():
                    if instance.id not in self._over:
                        self._step(region, instance)
                self._routes.sync(world.forwardings())

    def power(self, instance_id: str, event: str) -> bool:
        """Handle a guest's poweroff or restart. Return False for an unknown machine."""
        with self._lock:
            instance = world.find_instance(instance_id)
            machine = self._machines.get(instance_id)
            if instance is None or machine is None:
                return False
            if event == "reboot":
                instance.reboot()
            else:
                behavior = str(instance.instance_initiated_shutdown_behavior)
                instance.sandbox_end("Client.InstanceInitiatedShutdown", behavior=behavior)
        return True

    def metadata(self, instance_id: str) -> dict[str, object] | None:
        """Return user data and what changes while the machine runs: tags if enabled, and a spot notice if there is one.

        None for an unknown machine.
        """
        with self._lock:
            machine = self._machines.get(instance_id)
            for region, instance in world.instances():
                if machine is not None and instance.id == instance_id:
                    shown = instance.metadata_options.instance_metadata_tags == "enabled"
                    return {
                        "tags": dict(world.tags_of(region, instance.id)) if shown else None,
                        "spot_action": self._spot_action(machine),
                        "user_data": str(instance.user_data or ""),
                    }
        return None

    def _spot_action(self, machine: HostedMachine) -> dict[str, str] | None:
        now = time.monotonic()
        due = min((moment for moment, reason in machine.ends if reason == _RECLAIMED), default=None)
        if due is None or due - now > max(_NOTICE_S / self._clock.speed, _LEAST_NOTICE_S):
            return None
        at = self._clock.text(time.time() + due - now).replace("+00:00", "Z")
        return {"action": "terminate", "time": at}

    def guest(self, instance_id: str) -> Guest | None:
        """Return a booted machine, for sessions with it; None otherwise."""
        with self._lock:
            machine, instance = self._machines.get(instance_id), world.find_instance(instance_id)
            if machine is None or instance is None or machine.process is None or machine.died:
                return None
            layout = machine.layout
            if not layout.at("/proc/uptime").exists():
                return None
            folder, environment = layout.at("/root"), guest_environment(layout)
            return Guest(address=instance.sandbox_address, folder=folder, environment=environment)

    def schedule_end(self, instance_id: str, fault: MachineFault) -> bool:
        """Schedule the end of a running machine by a fault. Return False for an unknown machine."""
        with self._lock:
            machine = self._machines.get(instance_id)
            if machine is None:
                return False
            machine.ends.append((time.monotonic() + fault.after_s, fault.reason))
        return True

    def listed(self) -> list[dict[str, object]]:
        with self._lock:
            return [self._described(region, one) for region, one in world.instances()]

    def close(self) -> None:
        """End all machines and wait for them."""
        self._closed.set()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            machines = list(self._machines.values())
            self._machines.clear()
            self._over.clear()
            self._routes.sync({})
            for machine in machines:
                self._end(machine, at_once=True)
        for machine in machines:
            if machine.ending:
                machine.ending.join()
            machine.lease.close()

    def _described(self, region: str, instance: SandboxInstance) -> dict[str, object]:
        machine = self._machines.get(instance.id)
        process = machine.process if machine else None
        return {
            "instance_id": instance.id,
            "region": region,
            "instance_type": instance.instance_type,
            "state": instance.state,
            "address": instance.sandbox_address,
            "pid": process.pid if process else None,
            "console": str(machine.layout.console) if machine else None,
        }

    def _step(self, region: str, instance: SandboxInstance) -> None:
        machine = self._machines.get(instance.id)
        if machine is None:
            if instance.state == "terminated":
                self._over.add(instance.id)
                return
            machine = self._admit(region, instance)
        self._apply_end(instance, machine)
        now = time.monotonic()
        state = instance.state
        if state == "pending" and now - instance.sandbox_launched >= _PENDING_S / self._speed and machine.gone:
            instance.sandbox_state("running")
        elif state == "running":
            self._keep_running(region, instance, machine)
        elif state in {"shutting-down", "stopping"}:
            self._end(machine)
            if machine.gone:
                instance.sandbox_state("terminated" if state == "shutting-down" else "stopped")
                machine.empty_drives()
        elif state == "terminated" and machine.gone:
            self._over.add(instance.id)
            machine.lease.close()

    def _admit(self, region: str, instance: SandboxInstance) -> HostedMachine:
        facts = rules.launch_facts(region, instance)
        layout = Layout(folder=self._home / instance.id)
        faults = self._faults.take_for_machine(facts)
        ends = [(time.monotonic() + fault.after_s, fault.reason) for fault in faults if fault.reason]
        machine = HostedMachine(layout=layout, lease=instance.sandbox_lease, faults=faults, ends=ends)
        instance.sandbox_console = layout.console
        self._machines[instance.id] = machine
        return machine

    def _apply_end(self, instance: SandboxInstance, machine: HostedMachine) -> None:
        due = [reason for moment, reason in machine.ends if time.monotonic() >= moment]
        if due:
            machine.ends.clear()
            instance.sandbox_end(due[0])

    def _keep_running(self, region: str, instance: SandboxInstance, machine: HostedMachine) -> None:
        if machine.died:
            instance.sandbox_end(_DIED)
            return
        if instance.sandbox_reboot_wanted:
            instance.sandbox_reboot_wanted = False
            self._end(machine)
        dark = any(fault.dark for fault in machine.faults)
        if machine.process is None and machine.gone and instance.user_data and not dark:
            self._boot(region, instance, machine)

    def _boot(self, region: str, instance: SandboxInstance, machine: HostedMachine) -> None:
        layout, machine.lease = machine.layout, instance.sandbox_lease
        layout.folder.mkdir(parents=True, exist_ok=True)
        self._spec(region, instance, machine).write(layout.spec)
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

    def _spec(self, region: str, instance: SandboxInstance, machine: HostedMachine) -> MachineSpec:
        boots_s = (fault.boot_s * self._speed for fault in machine.faults if fault.boot_s is not None)
        pulls = (fault.pull_mb_per_s for fault in machine.faults if fault.pull_mb_per_s)
        return MachineSpec(
            instance_id=instance.id,
            region=region,
            instance_type=instance.instance_type,
            hardware=hardware_of(instance.instance_type),
            images=image_sizes(),
            proxy_image=proxy_image(),
            engine_environment={KEPT_MODELS: str(models_folder(os.environ).absolute())},
            address=instance.sandbox_address,
            endpoint_url=self.endpoint_url,
            access_key=self.access_key,
            instance_profile=roles.profile_of(instance),
            speed=self._speed,
            timer_speed=self._timer_speed,
            epoch=self._clock.epoch,
            boot_s=next(boots_s, _BOOT_S),
            engine_faults=tuple(fault.engine for fault in machine.faults if fault.engine),
            failed_pulls=sum(fault.failed_pulls for fault in machine.faults),
            pull_mb_per_s=next(pulls, None),
            held_ports=machine.lease.ports,
        )

    def _end(self, machine: HostedMachine, *, at_once: bool = False) -> None:
        process = machine.process
        if process is None:
            return
        machine.process = None
        grace_s = _GRACE_S + (0.0 if at_once else _SHUTDOWN_S / self._speed)
        machine.ending = threading.Thread(target=_end_process, args=(process, machine.layout, grace_s), daemon=True)
        machine.ending.start()


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
