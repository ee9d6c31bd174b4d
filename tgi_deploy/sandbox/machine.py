"""One machine: `python -m tgi_deploy.sandbox.machine FOLDER`, started by the sandbox for each instance.

It boots, reads its user data through the API, runs it, and ends when the cloud ends it, when the guest powers off, or
when the cloud is gone (its standard input closes).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.guest import NVME_MOUNT
from tgi_deploy.sandbox.guest.cloudinit import VERSION, CloudInit
from tgi_deploy.sandbox.guest.commands import Commands, Power
from tgi_deploy.sandbox.guest.console import Console, serve_device
from tgi_deploy.sandbox.guest.docker import Docker
from tgi_deploy.sandbox.guest.init import Init
from tgi_deploy.sandbox.guest.layout import Host, Layout, MachineSpec
from tgi_deploy.sandbox.guest.server import Client, CommandServer, write_date, write_sudo
from tgi_deploy.sandbox.guest.spawn import Spawner

_GRACE_S: Final = 0.3
_UPTIME_TICK_S: Final = 0.1
_KERNEL: Final = "Linux version 6.8.0-1040-aws (buildd@lcy02) #42~22.04.1-Ubuntu SMP (sandbox)"


class Machine:
    def __init__(self, layout: Layout, spec: MachineSpec) -> None:
        self.down = threading.Event()
        self._layout = layout
        self._spec = spec
        self._began_s = time.monotonic()
        self._console = Console(layout, speed=spec.speed)
        self._spawner = Spawner(groups=layout.groups, environment=guest_environment(layout), home=layout.at("/root"))
        self._host = Host(spec=spec, layout=layout, console=self._console, spawner=self._spawner, down=self.down)
        self._init = Init(self._host)
        self._power = Power(self._host, self._init.stop_all)

    def boot(self) -> None:
        """Run the user data to its end. A machine that goes down in between stops there."""
        first = not self._layout.at("/var/lib/cloud/instance/boot-finished").exists()
        self._console.kernel(_KERNEL)
        self._console.kernel(f"DMI: Amazon EC2 {self._spec.instance_type}/, BIOS 1.0")
        if self.down.wait(self._spec.boot_s / self._spec.speed):
            return
        self._serve()
        self._console.kernel("systemd[1]: Reached target Network is Online.")
        self._show_uptime()
        threading.Thread(target=self._keep_uptime, name="uptime", daemon=True).start()
        threading.Thread(target=self._init.run_timers, name="timers", daemon=True).start()
        if first:
            self._first_boot()
        else:
            self._init.start_enabled()

    def panic(self, problem: BaseException) -> None:
        """Go down after a failed boot; the machine's log has the traceback."""
        try:
            if not self.down.is_set():
                self._console.kernel(f"Kernel panic - not syncing: boot failed ({_reason(problem)})")
        finally:
            self.down.set()

    def end(self) -> None:
        self.down.set()
        self._init.stop_all()
        self._spawner.end_all(grace_s=_GRACE_S)
        self._console.kernel("reboot: Power down")

    def _serve(self) -> None:
        for device in ("/dev/console", "/dev/ttyS0"):
            serve_device(self._console, self._layout.at(device))
        if self._spec.hardware.nvme:
            self._layout.at(NVME_MOUNT).mkdir(parents=True, exist_ok=True)
        docker, commands = Docker(self._host), Commands(self._host)
        server = CommandServer(
            {
                "aws": commands.aws,
                "curl": commands.curl,
                "docker": docker.command,
                "mountpoint": commands.mountpoint,
                "nvidia-smi": commands.nvidia_smi,
                "systemctl": self._systemctl,
                "shutdown": self._power.shutdown,
                "poweroff": self._power.off,
                "reboot": self._power.reboot,
            }
        )
        server.write_shims(self._layout, speed=self._spec.speed)
        write_date(self._layout.bin, self._spec.clock)
        write_sudo(self._layout.bin)
        server.start()

    def _keep_uptime(self) -> None:
        while not self.down.wait(_UPTIME_TICK_S):
            with suppress(OSError):  # the host's disk is full: the next write may have room again
                self._show_uptime()

    def _show_uptime(self) -> None:
        """Write the uptime by the machine's clock, atomically."""
        uptime_s = (time.monotonic() - self._began_s) * self._spec.timer_speed
        path = self._layout.at("/proc/uptime")
        new = path.with_name("uptime.new")
        new.write_text(f"{uptime_s:.2f} {uptime_s:.2f}\n", encoding="ascii")
        new.replace(path)

    def _systemctl(self, client: Client) -> int:
        power = {"poweroff": self._power.off, "reboot": self._power.reboot}
        return power.get(client.argv[0] if client.argv else "", self._init.systemctl)(client)

    def _first_boot(self) -> None:
        cloud_init = CloudInit(self._host)
        cloud_init.say(
            f"Cloud-init v. {VERSION} running 'init' at {_now()}. Up {self._console.uptime_s():.2f} seconds."
        )
        path = f"/_sandbox/machines/{self._spec.instance_id}/metadata"
        try:
            cloud_init.run(api.control(self._spec.endpoint, "GET", path)["user_data"])
        except api.ApiError as problem:
            cloud_init.say(f"[CRITICAL]: user data could not be read: {problem}")
        self._layout.at("/var/lib/cloud/instance/boot-finished").touch()
        if not self.down.is_set():
            cloud_init.say(
                f"Cloud-init v. {VERSION} finished at {_now()}. Datasource DataSourceEc2Local.  "
                f"Up {self._console.uptime_s():.2f} seconds"
            )


def _reason(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"


def _now() -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime())


def guest_environment(layout: Layout) -> dict[str, str]:
    """Return the guest's environment, without the caller's variables and credentials."""
    return {
        "PATH": f"{layout.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(layout.at("/root")),
        "LANG": "C.UTF-8",
        "USER": "root",
        "TMPDIR": str(layout.folder),
    }


def _end_with_the_cloud(down: threading.Event) -> None:
    """End when the cloud ends, which closes the other end of standard input."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    down.set()


def _end_on_signal(down: threading.Event) -> None:
    signal.signal(signal.SIGTERM, lambda _number, _frame: down.set())
    signal.signal(signal.SIGINT, lambda _number, _frame: down.set())


def main(argv: list[str]) -> int:
    layout = Layout(folder=Path(argv[0]).absolute())
    layout.make()
    os.chdir(layout.folder)  # so that its command socket has a short name
    machine = Machine(layout, MachineSpec.read(layout.spec))
    _end_on_signal(machine.down)
    threading.Thread(target=_end_with_the_cloud, args=(machine.down,), daemon=True).start()
    boot = threading.Thread(target=_boot, args=(machine,), daemon=True)
    boot.start()
    machine.down.wait()
    machine.end()
    return 0


def _boot(machine: Machine) -> None:
    try:
        machine.boot()
    except api.CloudGoneError:
        machine.down.set()
    except BaseException as problem:
        machine.panic(problem)
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
