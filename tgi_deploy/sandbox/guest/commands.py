"""The small commands of a machine image: nvidia-smi, mountpoint, curl of the metadata service, aws ssm, shutdown."""

from __future__ import annotations

import json
import re
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.guest.docker import Docker
from tgi_deploy.sandbox.guest.layout import NVME_MOUNT
from tgi_deploy.sandbox.wire import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.sandbox.guest.init import Init
    from tgi_deploy.sandbox.guest.layout import Host
    from tgi_deploy.sandbox.guest.server import Client

_SILENT: Final = re.compile(r"-[a-zA-Z]*s")  # curl's -s, alone or among other letters
_TAGS: Final = "meta-data/tags/instance/"
_NOTICE: Final = "meta-data/spot/instance-action"
_OWN: Final = r"(?:127\.0\.0\.1|localhost):(?P<port>\d{1,5})(?P<path>/.*)?"
_URL: Final = re.compile(rf"^(?:http://)?(?:{_OWN}|169\.254\.169\.254/latest/(?P<metadata>.*))$")


class Commands:
    def __init__(self, host: Host, init: Init) -> None:
        self._host = host
        self._init = init

    @property
    def table(self) -> Mapping[str, Callable[[Client], int]]:
        """The commands' handlers, which return an exit status."""
        power = {event: partial(self._power, event) for event in ("poweroff", "reboot")}
        return {
            "aws": self._aws,
            "curl": self._curl,
            "docker": Docker(self._host).command,
            "mountpoint": self._mountpoint,
            "nvidia-smi": self._nvidia_smi,
            "shutdown": self._shutdown,
            "systemctl": lambda client: power.get("".join(client.argv[:1]), self._init.systemctl)(client),
            **power,
        }

    def _nvidia_smi(self, client: Client) -> int:
        """List the GPUs, whatever the options."""
        hardware = self._host.hardware
        for number in range(hardware.gpu_count):
            client.out(f"GPU {number}: {hardware.card_name}\n")
        if not hardware.gpu_count:
            client.out("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")
        return 0 if hardware.gpu_count else 9

    def _mountpoint(self, client: Client) -> int:
        return 0 if self._host.hardware.nvme and self._host.layout.mapped(NVME_MOUNT) in client.argv else 1

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
            status, body = api.send(f"http://{self._host.address}:{port}", "GET", path, b"", {})
        except api.NoAnswerError:
            return 0, ""
        return status, body.decode("utf-8", "replace")

    def _metadata(self, path: str, client: Client) -> tuple[int, str]:
        if path == "api/token":
            return (200, "sandbox-token") if "PUT" in client.argv or "-XPUT" in client.argv else (405, "")
        if not any(word.lower().startswith("x-aws-ec2-metadata-token:") for word in client.argv):
            return 401, ""
        if path == "meta-data/instance-id":
            return 200, self._host.instance_id
        if path != _NOTICE and not path.startswith(_TAGS):
            return 404, ""
        known = self._host.cloud.metadata(self._host.instance_id)
        value = known["spot_action"] if path == _NOTICE else known["tags"].get(path.removeprefix(_TAGS), "")
        return (200, value) if value else (404, "")

    def _aws(self, client: Client) -> int:
        """Run `aws ssm get-parameter` with the permissions of the instance profile."""
        words = client.argv[:2]
        if words != ["ssm", "get-parameter"]:
            client.err(f"aws: the sandbox's machines know `aws ssm get-parameter` only, not {' '.join(words)!r}\n")
            return 252
        region, name = client.value_of("--region") or self._host.region, client.value_of("--name")
        try:
            value = self._host.cloud.parameter(self._host.instance_id, region, name)
        except RefusedError as problem:
            error = f"An error occurred ({problem.code}) when calling the GetParameter operation: {problem.message}"
            client.err(f"\n{error}\n")
            return 254
        if value is None:
            client.err('\nUnable to locate credentials. You can configure credentials by running "aws login".\n')
            return 253
        whole = {"Parameter": {"Name": name, "Value": value}}
        client.out((value if client.value_of("--output") == "text" else json.dumps(whole, indent=4)) + "\n")
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

        timer = threading.Timer(0.0 if when == "now" else int(when) * 60.0 / self._host.clock.speed, end)
        timer.daemon = True
        timer.start()
        return 0

    def _power(self, event: str, _client: Client) -> int:
        """Power off or restart at once, as forced: services are not stopped first."""
        if not self._host.down.is_set():
            self._host.console.kernel(f"systemd-shutdown[1]: {event} requested by the guest")
            self._host.cloud.power(self._host.instance_id, event)
        return 0
