"""What runs on a machine from its boot to its end: init, commands and user data, in threads of the cloud's process."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.guest.cloudinit import CloudInit
from tgi_deploy.sandbox.guest.commands import Commands
from tgi_deploy.sandbox.guest.init import Init
from tgi_deploy.sandbox.guest.layout import NVME_MOUNT, publish

if TYPE_CHECKING:
    from tgi_deploy.sandbox.guest.layout import Host, Layout
    from tgi_deploy.sandbox.guest.server import CommandServer

_KERNEL: Final = "Linux version 6.8.0-1040-aws (buildd@lcy02) #42~22.04.1-Ubuntu SMP (sandbox)"
_BOOT_S: Final = 45.0


class System:
    """A machine that is on. `ready`: its kernel has booted; `failed`: it did not, and the machine goes down."""

    def __init__(self, host: Host, server: CommandServer) -> None:
        self.ready = self.failed = False
        self._host = host
        self._server = server
        self._init = Init(host)
        self._began_s = time.monotonic()
        threading.Thread(target=self._run, name=host.instance_id, daemon=True).start()

    def tick(self) -> None:
        """Show the uptime, and start what is due."""
        if self.ready:
            with suppress(OSError):  # the computer's disk is full: the next write may have room again
                self._show_uptime()
            self._init.run_timers()

    def end(self, grace_s: float) -> None:
        """Stop the services within this time (real seconds), then end all processes."""
        self._host.down.set()
        stopping = threading.Thread(target=self._init.stop_all, daemon=True)
        stopping.start()
        stopping.join(grace_s)
        self._host.spawner.end_all(grace_s=0.3)
        self._server.machines.pop(self._host.instance_id, None)
        self._host.console.kernel("reboot: Power down")

    def _run(self) -> None:
        """Boot. A failed boot takes the machine down, and its traceback is in the server's log."""
        try:
            self._boot()
        except BaseException as problem:
            if not self._host.down.is_set():
                why = f"{type(problem).__name__}: {problem}"
                self._host.console.kernel(f"Kernel panic - not syncing: boot failed ({why})")
                self.failed = True
            raise

    def _boot(self) -> None:
        """Run the user data to its end. A machine that goes down in between stops there."""
        host, console = self._host, self._host.console
        finished = host.layout.at("/var/lib/cloud/instance/boot-finished")
        console.kernel(_KERNEL)
        console.kernel(f"DMI: Amazon EC2 {host.instance_type}/, BIOS 1.0")
        takes_s = next((fault.boot_s for fault in host.faults if fault.boot_s is not None), _BOOT_S / host.speed)
        if host.down.wait(takes_s):
            return
        if host.hardware.nvme:
            host.layout.at(NVME_MOUNT).mkdir(parents=True, exist_ok=True)
        self._server.add(host, Commands(host, self._init).table)
        console.kernel("systemd[1]: Reached target Network is Online.")
        self._show_uptime()
        self.ready = True
        if finished.exists():
            self._init.start_enabled()
            return
        cloud_init = CloudInit(host)
        cloud_init.announce("running 'init'")
        cloud_init.run(host.cloud.metadata(host.instance_id)["user_data"])
        finished.touch()
        if not host.down.is_set():
            cloud_init.announce("finished")

    def _show_uptime(self) -> None:
        """Write the uptime by the machine's clock."""
        uptime_s = (time.monotonic() - self._began_s) * self._host.clock.speed
        publish(self._host.layout.at("/proc/uptime"), f"{uptime_s:.2f} {uptime_s:.2f}\n")


def guest_environment(layout: Layout) -> dict[str, str]:
    """Return the guest's environment, without the caller's variables and credentials."""
    return {
        "PATH": f"{layout.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(layout.at("/root")),
        "LANG": "C.UTF-8",
        "USER": "root",
        "TMPDIR": str(layout.folder),
    }
