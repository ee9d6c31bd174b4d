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

import msgspec

from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.guest.cloudinit import CloudInit
from tgi_deploy.sandbox.guest.commands import Commands
from tgi_deploy.sandbox.guest.docker import Docker
from tgi_deploy.sandbox.guest.init import Init
from tgi_deploy.sandbox.guest.layout import NVME_MOUNT, Console, Host, Layout, MachineSpec, publish
from tgi_deploy.sandbox.guest.server import Client, CommandServer
from tgi_deploy.sandbox.guest.spawn import Spawner

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

    def boot(self) -> None:
        """Run the user data to its end. A machine that goes down in between stops there."""
        finished = self._layout.at("/var/lib/cloud/instance/boot-finished")
        self._console.kernel(_KERNEL)
        self._console.kernel(f"DMI: Amazon EC2 {self._spec.instance_type}/, BIOS 1.0")
        if self.down.wait(self._spec.boot_s / self._spec.speed):
            return
        self._serve()
        self._console.kernel("systemd[1]: Reached target Network is Online.")
        self._show_uptime()
        threading.Thread(target=self._keep_uptime, name="uptime", daemon=True).start()
        threading.Thread(target=self._init.run_timers, name="timers", daemon=True).start()
        if finished.exists():
            self._init.start_enabled()
        else:
            self._first_boot(finished)

    def run(self) -> None:
        """Boot. A failed boot, whose traceback is in the machine's log, takes it down; so does the end of its cloud."""
        try:
            self.boot()
        except api.NoAnswerError:
            self.down.set()
        except BaseException as problem:
            try:
                if not self.down.is_set():
                    why = f"{type(problem).__name__}: {problem}"
                    self._console.kernel(f"Kernel panic - not syncing: boot failed ({why})")
            finally:
                self.down.set()
            raise

    def end(self) -> None:
        self.down.set()
        self._init.stop_all()
        self._spawner.end_all(grace_s=0.3)
        self._console.kernel("reboot: Power down")

    def _serve(self) -> None:
        """Provide the local drive and the commands of the image."""
        if self._spec.hardware.nvme:
            self._layout.at(NVME_MOUNT).mkdir(parents=True, exist_ok=True)
        commands = Commands(self._host, self._init.stop_all)

        def systemctl(client: Client) -> int:
            verb = client.argv[0] if client.argv else ""
            return commands.power(verb) if verb in {"poweroff", "reboot"} else self._init.systemctl(client)

        server = CommandServer(
            {
                "aws": commands.aws,
                "curl": commands.curl,
                "docker": Docker(self._host).command,
                "mountpoint": commands.mountpoint,
                "nvidia-smi": commands.nvidia_smi,
                "systemctl": systemctl,
                "shutdown": commands.shutdown,
                "poweroff": lambda _client: commands.power("poweroff"),
                "reboot": lambda _client: commands.power("reboot"),
            }
        )
        server.write_shims(self._layout, speed=self._spec.speed, clock=self._spec.clock)
        threading.Thread(target=server.serve_forever, name="commands", daemon=True).start()

    def _keep_uptime(self) -> None:
        while not self.down.wait(0.1):
            with suppress(OSError):  # the host's disk is full: the next write may have room again
                self._show_uptime()

    def _show_uptime(self) -> None:
        """Write the uptime by the machine's clock."""
        uptime_s = (time.monotonic() - self._began_s) * self._spec.clock.speed
        publish(self._layout.at("/proc/uptime"), f"{uptime_s:.2f} {uptime_s:.2f}\n")

    def _first_boot(self, finished: Path) -> None:
        cloud_init = CloudInit(self._host)
        cloud_init.announce("running 'init'")
        path = f"/_sandbox/machines/{self._spec.instance_id}/metadata"
        try:
            cloud_init.run(api.control(self._spec.endpoint, "GET", path)["user_data"])
        except api.ApiError as problem:
            cloud_init.log(f"[CRITICAL]: user data could not be read: {problem}")
        finished.touch()
        if not self.down.is_set():
            cloud_init.announce("finished")


def guest_environment(layout: Layout) -> dict[str, str]:
    """Return the guest's environment, without the caller's variables and credentials."""
    return {
        "PATH": f"{layout.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(layout.at("/root")),
        "LANG": "C.UTF-8",
        "USER": "root",
        "TMPDIR": str(layout.folder),
    }


def main(argv: list[str]) -> int:
    layout = Layout(folder=Path(argv[0]).absolute())
    layout.make()
    os.chdir(layout.folder)  # so that its command socket has a short name
    machine = Machine(layout, msgspec.json.decode(layout.spec.read_bytes(), type=MachineSpec))

    def end_with_the_cloud() -> None:
        """End when the cloud ends, which closes the other end of standard input."""
        while os.read(sys.stdin.fileno(), 4096):
            pass
        machine.down.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: machine.down.set())
    threading.Thread(target=end_with_the_cloud, daemon=True).start()
    threading.Thread(target=machine.run, daemon=True).start()
    machine.down.wait()
    machine.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
