"""What runs on a machine from its boot to its end, in threads of the cloud's process.

Its init, its user data, and the small commands of the image: nvidia-smi, mountpoint, curl of the metadata service, aws
ssm, shutdown.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.guest.cloudinit import CloudInit
from tgi_deploy.sandbox.guest.docker import Docker, value_of
from tgi_deploy.sandbox.guest.init import Init
from tgi_deploy.sandbox.guest.layout import NVME_MOUNT, Console, publish
from tgi_deploy.sandbox.guest.spawn import Spawner
from tgi_deploy.sandbox.hardware import hardware_of
from tgi_deploy.sandbox.wire import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.sandbox.guest.layout import Layout
    from tgi_deploy.sandbox.guest.server import Client, CommandServer
    from tgi_deploy.sandbox.machines import Machines, Settings
    from tgi_deploy.sandbox.world import SandboxInstance

_KERNEL: Final = "Linux version 6.8.0-1040-aws (buildd@lcy02) #42~22.04.1-Ubuntu SMP (sandbox)"
_BOOT_S: Final = 45.0
_SILENT: Final = re.compile(r"-[a-zA-Z]*s")  # curl's -s, alone or among other letters
_TAGS: Final = "meta-data/tags/instance/"
_NOTICE: Final = "meta-data/spot/instance-action"
_OWN: Final = r"(?:127\.0\.0\.1|localhost):(?P<port>\d{1,5})(?P<path>/.*)?"
_METADATA: Final = "169.254.169.254/latest/"
_TOKEN: Final = "sandbox-token"  # noqa: S105 -- worth nothing, as it is not checked
_URL: Final = re.compile(rf"^(?:http://)?(?:{_OWN}|{re.escape(_METADATA)}(?P<metadata>.*))$")


class System:
    """A machine that is on. `ready`: its kernel has booted; `failed`: it did not, and the machine goes down.

    Durations are simulated seconds, divided by `speed`; timers run at the speed of `clock`. `held_ports` of its address
    are reserved for it. `down` is set when it goes down.
    """

    def __init__(self, instance: SandboxInstance, settings: Settings, cloud: Machines, server: CommandServer) -> None:
        self.ready = self.failed = False
        self.down = threading.Event()
        self.instance_id, self.region, self.address = instance.id, instance.region, instance.private_dns_name
        self.hardware = hardware_of(instance.instance_type)
        self.held_ports, self.faults = instance.machine.lease.ports, instance.machine.faults or ()
        self.speed, self.clock, self.layout = settings.speed, settings.clock, instance.machine.layout
        self.layout.make()
        self.console = Console(self.layout, speed=self.speed)
        home, environment = self.layout.at("/root"), guest_environment(self.layout)
        self.spawner = Spawner(groups=self.layout.groups, environment=environment, home=home)
        self._kind, self._cloud, self._server = instance.instance_type, cloud, server
        self._init = Init(self)
        self._began_s = time.monotonic()
        threading.Thread(target=self._run, name=self.instance_id, daemon=True).start()

    def tick(self) -> None:
        """Show the uptime, and start what is due."""
        if self.ready:
            with suppress(OSError):  # the computer's disk is full: the next write may have room again
                self._show_uptime()
            self._init.run_timers()

    def end(self, grace_s: float) -> None:
        """Stop the services within this time (real seconds), then end all processes."""
        self.down.set()
        stopping = threading.Thread(target=self._init.stop_all, daemon=True)
        stopping.start()
        stopping.join(grace_s)
        self.spawner.end_all(grace_s=0.3)
        self._server.machines.pop(self.instance_id, None)
        self.console.kernel("reboot: Power down")

    def _run(self) -> None:
        """Boot. A failed boot takes the machine down, and its traceback is in the server's log."""
        try:
            self._boot()
        except BaseException as problem:
            if not self.down.is_set():
                why = f"{type(problem).__name__}: {problem}"
                self.console.kernel(f"Kernel panic - not syncing: boot failed ({why})")
                self.failed = True
            raise

    def _boot(self) -> None:
        """Run the user data to its end. A machine that goes down in between stops there."""
        finished = self.layout.at("/var/lib/cloud/instance/boot-finished")
        self.console.kernel(_KERNEL)
        self.console.kernel(f"DMI: Amazon EC2 {self._kind}/, BIOS 1.0")
        takes_s = next((fault.boot_s for fault in self.faults if fault.boot_s is not None), _BOOT_S / self.speed)
        if self.down.wait(takes_s):
            return
        if self.hardware.nvme:
            self.layout.at(NVME_MOUNT).mkdir(parents=True, exist_ok=True)
        self._server.add(self, self._handlers(), self._scripts())
        self.console.kernel("systemd[1]: Reached target Network is Online.")
        self._show_uptime()
        self.ready = True
        if finished.exists():
            self._init.start_enabled()
            return
        cloud_init = CloudInit(self)
        cloud_init.announce("running 'init'")
        cloud_init.run(self._cloud.metadata(self.instance_id)["user_data"])
        finished.touch()
        if not self.down.is_set():
            cloud_init.announce("finished")

    def _show_uptime(self) -> None:
        """Write the uptime by the machine's clock."""
        uptime_s = (time.monotonic() - self._began_s) * self.clock.speed
        publish(self.layout.at("/proc/uptime"), f"{uptime_s:.2f} {uptime_s:.2f}\n")

    def _scripts(self) -> Mapping[str, str]:
        """Return the commands that need no handler, and that part of curl, because a shell starts more quickly."""
        hardware, mount = self.hardware, self.layout.mapped(NVME_MOUNT)
        cards = [f"GPU {number}: {hardware.card_name}" for number in range(hardware.gpu_count)]
        failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
        return {
            "nvidia-smi": f"printf '%s\\n' {shlex.join(cards or [failed])}\nexit {0 if cards else 9}",
            "mountpoint": f"case $* in *{mount}) exit {0 if hardware.nvme else 1} ;; esac\nexit 1",
            "curl": f"case $* in *PUT*//{_METADATA}api/token*) printf {_TOKEN}; exit ;; esac",
        }

    def _handlers(self) -> Mapping[str, Callable[[Client], int]]:
        """Return the other commands' handlers, which return an exit status."""
        power = {event: partial(self._power, event) for event in ("poweroff", "reboot")}
        return {
            "aws": self._aws,
            "curl": self._curl,
            "docker": Docker(self).command,
            "shutdown": self._shutdown,
            "systemctl": lambda client: power.get("".join(client.argv[:1]), self._init.systemctl)(client),
            **power,
        }

    def _curl(self, client: Client) -> int:
        """Serve IMDSv2 (a token by PUT, then paths) and the machine's own ports. Nothing else is reachable."""
        found = next(filter(None, map(_URL.match, client.argv)), None)
        status, text = 0, ""
        if found and found["port"]:
            status, text = self._own_port(int(found["port"]), found["path"] or "/")
        elif found:
            status, text = self._metadata(found["metadata"], client)
        silent = any(_SILENT.match(word) for word in client.argv)
        if status == 0:
            text = "curl: (7) Failed to connect: nothing listens there, or it is not this machine\n"
        elif status >= 400:  # noqa: PLR2004 -- HTTP's own boundary
            text = f"curl: (22) The requested URL returned error: {status}\n"
        else:
            client.out(text)
            return 0
        client.err("" if silent else text)
        return 22 if status else 7

    def _own_port(self, port: int, path: str) -> tuple[int, str]:
        """Return status and text of a port, at the machine's loopback address on the host; 0 if nothing answers."""
        try:
            status, body = api.send(f"http://{self.address}:{port}", "GET", path, b"", {})
        except api.NoAnswerError:
            return 0, ""
        return status, body.decode("utf-8", "replace")

    def _metadata(self, path: str, client: Client) -> tuple[int, str]:
        if not any(word.lower().startswith("x-aws-ec2-metadata-token:") for word in client.argv):
            return 401, ""
        if path == "meta-data/instance-id":
            return 200, self.instance_id
        if path != _NOTICE and not path.startswith(_TAGS):
            return 404, ""
        known = self._cloud.metadata(self.instance_id)
        value = known["spot_action"] if path == _NOTICE else known["tags"].get(path.removeprefix(_TAGS), "")
        return (200, value) if value else (404, "")

    def _aws(self, client: Client) -> int:
        """Run `aws ssm get-parameter` with the permissions of the instance profile; other verbs are denied or fail."""
        service, verb, *_ = [*client.argv, "", ""]
        action = verb.title().replace("-", "")
        if service != "ssm" or not verb.endswith("-parameter"):
            client.err(f"aws: the sandbox's machines know `aws ssm get-parameter` only, not '{service} {verb}'\n")
            return 252
        region, name = value_of("--region", client.argv) or self.region, value_of("--name", client.argv)
        try:
            value = self._cloud.parameter(self.instance_id, action, region, name)
        except RefusedError as problem:
            error = f"An error occurred ({problem.code}) when calling the {action} operation: {problem.message}"
            client.err(f"\n{error}\n")
            return 254
        if value is None:
            client.err('\nUnable to locate credentials. You can configure credentials by running "aws login".\n')
            return 253
        whole = {"Parameter": {"Name": name, "Value": value}}
        client.out((value if value_of("--output", client.argv) == "text" else json.dumps(whole, indent=4)) + "\n")
        return 0

    def _shutdown(self, client: Client) -> int:
        """Stop the services, then power off or restart: `now`, or in `+MINUTES`."""
        when = next((word for word in client.argv if not word.startswith("-")), "+1").removeprefix("+")
        if when != "now" and not when.isdigit():
            client.err(f"Failed to parse time specification: {when}\n")
            return 1

        def end() -> None:
            self._init.stop_all()
            self._power("reboot" if "-r" in client.argv else "poweroff", client)

        timer = threading.Timer(0.0 if when == "now" else int(when) * 60.0 / self.clock.speed, end)
        timer.daemon = True
        timer.start()
        return 0

    def _power(self, event: str, _client: Client) -> int:
        """Power off or restart at once, as forced: services are not stopped first."""
        if not self.down.is_set():
            self.console.kernel(f"systemd-shutdown[1]: {event} requested by the guest")
            self._cloud.power(self.instance_id, event)
        return 0


def guest_environment(layout: Layout) -> dict[str, str]:
    """Return the guest's environment, without the caller's variables and credentials."""
    return {
        "PATH": f"{layout.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(layout.at("/root")),
        "LANG": "C.UTF-8",
        "USER": "root",
        "TMPDIR": str(layout.folder),
    }
