"""The small commands of a machine image: nvidia-smi, mountpoint, curl of the metadata service, aws ssm, shutdown."""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.guest.layout import NVME_MOUNT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.sandbox.guest.layout import Host
    from tgi_deploy.sandbox.guest.server import Client

_NO_DRIVER_STATUS: Final = 9
_USAGE_STATUS: Final = 252
_NO_CREDENTIALS_STATUS: Final = 253
_API_ERROR_STATUS: Final = 254
_CURL_HTTP_ERROR: Final = 22
_CURL_UNREACHABLE: Final = 7
_SILENT: Final = re.compile(r"-[a-zA-Z]*s")  # curl's -s, alone or among other letters
_TAGS: Final = "meta-data/tags/instance/"
_NOTICE: Final = "meta-data/spot/instance-action"
_OWN: Final = r"(?:127\.0\.0\.1|localhost):(?P<port>\d{1,5})(?P<path>/.*)?"
_URL: Final = re.compile(rf"^(?:http://)?(?:{_OWN}|169\.254\.169\.254/latest/(?P<metadata>.*))$")


class Commands:
    """`stop_services` is called before an orderly shutdown."""

    def __init__(self, host: Host, stop_services: Callable[[], None]) -> None:
        self._host = host
        self._spec = host.spec
        self._stop_services = stop_services

    def nvidia_smi(self, client: Client) -> int:
        """List the GPUs, whatever the options."""
        hardware = self._spec.hardware
        if not hardware.gpu_count:
            client.out(
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                "Make sure that the latest NVIDIA driver is installed and running.\n"
            )
            return _NO_DRIVER_STATUS
        client.out("".join(f"GPU {number}: {hardware.card_name}\n" for number in range(hardware.gpu_count)))
        return 0

    def mountpoint(self, client: Client) -> int:
        mounted = self._spec.hardware.nvme and self._host.layout.mapped(NVME_MOUNT) in client.argv
        return 0 if mounted else 1

    def curl(self, client: Client) -> int:
        """Serve IMDSv2 (a token by PUT, then paths) and the machine's own ports. Nothing else is reachable."""
        found = next(filter(None, map(_URL.match, client.argv)), None)
        if found is None or found["port"] is None:
            status, text = (0, "") if found is None else self._metadata(found["metadata"], client)
        else:
            status, text = self._own_port(int(found["port"]), found["path"] or "/")
        silent = any(_SILENT.match(word) for word in client.argv)
        if status == 0:
            client.err(
                "" if silent else "curl: (7) Failed to connect: nothing listens there, or it is not this machine\n"
            )
            return _CURL_UNREACHABLE
        if status >= 400:  # noqa: PLR2004 -- HTTP's own boundary
            client.err("" if silent else f"curl: (22) The requested URL returned error: {status}\n")
            return _CURL_HTTP_ERROR
        client.out(text)
        return 0

    def _own_port(self, port: int, path: str) -> tuple[int, str]:
        """Return status and text of a port, at the machine's loopback address on the host; 0 if nothing answers."""
        try:
            status, body = api.send(f"http://{self._spec.address}:{port}", "GET", path, b"", {})
        except api.NoAnswerError:
            return 0, ""
        return status, body.decode("utf-8", "replace")

    def _metadata(self, path: str, client: Client) -> tuple[int, str]:
        if path == "api/token":
            return (200, "sandbox-token") if "PUT" in client.argv or "-XPUT" in client.argv else (405, "")
        if not any(word.lower().startswith("x-aws-ec2-metadata-token:") for word in client.argv):
            return 401, ""
        if path == "meta-data/instance-id":
            return 200, self._spec.instance_id
        if path != _NOTICE and not path.startswith(_TAGS):
            return 404, ""
        try:  # what can change while the machine runs: tags, if enabled, and notices
            known = api.control(self._spec.endpoint, "GET", f"/_sandbox/machines/{self._spec.instance_id}/metadata")
        except (api.ApiError, api.NoAnswerError):
            return 0, ""
        notice = known["spot_action"] and json.dumps(known["spot_action"])
        value = notice if path == _NOTICE else (known["tags"] or {}).get(path.removeprefix(_TAGS))
        return (404, "") if value is None else (200, value)

    def aws(self, client: Client) -> int:
        """Run `aws ssm get-parameter` through the sandbox's API with the instance profile's permissions."""
        words = client.argv[:2]
        if words != ["ssm", "get-parameter"]:
            client.err(f"aws: the sandbox's machines know `aws ssm get-parameter` only, not {' '.join(words)!r}\n")
            return _USAGE_STATUS
        if not self._spec.instance_profile:
            client.err('\nUnable to locate credentials. You can configure credentials by running "aws login".\n')
            return _NO_CREDENTIALS_STATUS
        request = {"Name": client.value_of("--name"), "WithDecryption": "--with-decryption" in client.argv}
        try:
            region = client.value_of("--region") or self._spec.region
            answer = api.ssm(self._spec.endpoint, region, "GetParameter", request)
        except api.ApiError as problem:
            client.err(
                f"\nAn error occurred ({problem.code}) when calling the GetParameter operation: {problem.message}\n"
            )
            return _API_ERROR_STATUS
        except api.NoAnswerError:
            client.err("\nCould not connect to the endpoint URL\n")
            return _NO_CREDENTIALS_STATUS
        text = client.value_of("--output") == "text"
        client.out((answer["Parameter"]["Value"] if text else json.dumps(answer, indent=4)) + "\n")
        return 0

    def shutdown(self, client: Client) -> int:
        """Stop the services, then power off or restart: `now`, or in `+MINUTES`."""
        when = next((word for word in client.argv if not word.startswith("-")), "+1").removeprefix("+")
        if when != "now" and not when.isdigit():
            client.err(f"Failed to parse time specification: {when}\n")
            return 1

        def end() -> None:
            self._stop_services()
            self.power("reboot" if "-r" in client.argv else "poweroff")

        timer = threading.Timer(0.0 if when == "now" else int(when) * 60.0 / self._spec.clock.speed, end)
        timer.daemon = True
        timer.start()
        return 0

    def power(self, event: str) -> int:
        """Power off or restart at once, as forced: services are not stopped first."""
        self._host.console.kernel(f"systemd-shutdown[1]: {event} requested by the guest")
        path = f"/_sandbox/machines/{self._spec.instance_id}/power"
        try:
            api.control(self._spec.endpoint, "POST", path, {"event": event})
        except (api.ApiError, api.NoAnswerError):
            self._host.down.set()
        return 0
