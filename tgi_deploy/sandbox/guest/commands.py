"""The small commands of a machine image: nvidia-smi, mountpoint, curl of the metadata service, aws ssm, shutdown."""

from __future__ import annotations

import json
import re
import threading
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.guest import NVME_MOUNT

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
_CURL_S: Final = 5.0
_HTTP_ERROR: Final = 400
_TAGS: Final = "meta-data/tags/instance/"
_NOTICE: Final = "meta-data/spot/instance-action"
_LOOPBACK: Final = re.compile(r"^(?:http://)?(?:127\.0\.0\.1|localhost):(\d{1,5})(/.*)?$")
_METADATA: Final = re.compile(r"^(?:http://)?169\.254\.169\.254/latest/(.*)$")


class Commands:
    def __init__(self, host: Host) -> None:
        self.spec = host.spec
        self._mapper = host.layout.mapper()

    def nvidia_smi(self, client: Client) -> int:
        """List the GPUs, whatever the options."""
        hardware = self.spec.hardware
        if not hardware.gpu_count:
            client.out(
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                "Make sure that the latest NVIDIA driver is installed and running.\n"
            )
            return _NO_DRIVER_STATUS
        client.out("".join(f"GPU {number}: {hardware.card_name}\n" for number in range(hardware.gpu_count)))
        return 0

    def mountpoint(self, client: Client) -> int:
        mounted = self.spec.hardware.nvme and self._mapper(NVME_MOUNT) in client.argv
        return 0 if mounted else 1

    def curl(self, client: Client) -> int:
        """Serve IMDSv2 (a token by PUT, then paths) and the machine's own ports. Nothing else is reachable."""
        own = next((match for match in map(_LOOPBACK.match, client.argv) if match), None)
        if own is not None:
            return self._own_port(int(own[1]), own[2] or "/", client)
        found = [match for match in map(_METADATA.match, client.argv) if match]
        if not found:
            client.err("curl: (7) Failed to connect: the sandbox's machines reach no other\n")
            return _CURL_UNREACHABLE
        value = self._metadata(found[0][1], client)
        if value is None:
            client.err("curl: (22) The requested URL returned error\n")
            return _CURL_HTTP_ERROR
        client.out(value)
        return 0

    def _own_port(self, port: int, path: str, client: Client) -> int:
        """Return a local port's response, from the machine's loopback address on the host."""
        connection = HTTPConnection(self.spec.address, port, timeout=_CURL_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode("utf-8", "replace")
        except (OSError, HTTPException) as problem:
            client.err(f"curl: (7) Failed to connect to 127.0.0.1 port {port}: {problem}\n")
            return _CURL_UNREACHABLE
        finally:
            connection.close()
        if response.status >= _HTTP_ERROR:
            client.err(f"curl: (22) The requested URL returned error: {response.status}\n")
            return _CURL_HTTP_ERROR
        client.out(body)
        return 0

    def _metadata(self, path: str, client: Client) -> str | None:
        if path == "api/token":
            return "sandbox-token" if "PUT" in client.argv or "-XPUT" in client.argv else None
        if not any(word.lower().startswith("x-aws-ec2-metadata-token:") for word in client.argv):
            return None
        if path == _NOTICE or path.startswith(_TAGS):
            return self._changing(path)
        return self.spec.instance_id if path == "meta-data/instance-id" else None

    def _changing(self, path: str) -> str | None:
        """Return metadata that can change while the machine runs: tags, if enabled, and notices."""
        try:
            known = api.control(self.spec.endpoint, "GET", f"/_sandbox/machines/{self.spec.instance_id}/metadata")
        except (api.ApiError, api.CloudGoneError):
            return None
        if path == _NOTICE:
            return None if known["spot_action"] is None else json.dumps(known["spot_action"])
        tags: dict[str, str] = known["tags"] or {}
        return tags.get(path.removeprefix(_TAGS))

    def aws(self, client: Client) -> int:
        """Run `aws ssm get-parameter` through the sandbox's API with the instance profile's permissions."""
        words = client.argv[:2]
        if words != ["ssm", "get-parameter"]:
            client.err(f"aws: the sandbox's machines know `aws ssm get-parameter` only, not {' '.join(words)!r}\n")
            return _USAGE_STATUS
        if not self.spec.instance_profile:
            client.err('\nUnable to locate credentials. You can configure credentials by running "aws login".\n')
            return _NO_CREDENTIALS_STATUS
        request = {"Name": client.value_of("--name"), "WithDecryption": "--with-decryption" in client.argv}
        try:
            region = client.value_of("--region") or self.spec.region
            answer = api.ssm(self.spec.endpoint, region, "GetParameter", request)
        except api.ApiError as problem:
            client.err(
                f"\nAn error occurred ({problem.code}) when calling the GetParameter operation: {problem.message}\n"
            )
            return _API_ERROR_STATUS
        except api.CloudGoneError:
            client.err("\nCould not connect to the endpoint URL\n")
            return _NO_CREDENTIALS_STATUS
        text = client.value_of("--output") == "text"
        client.out((answer["Parameter"]["Value"] if text else json.dumps(answer, indent=4)) + "\n")
        return 0


class Power:
    """`stop_services` is called before an orderly shutdown."""

    def __init__(self, host: Host, stop_services: Callable[[], None]) -> None:
        self._host = host
        self._stop_services = stop_services

    def off(self, _client: Client) -> int:
        """Power off at once, as forced: services are not stopped first."""
        self._request("poweroff")
        return 0

    def reboot(self, _client: Client) -> int:
        self._request("reboot")
        return 0

    def shutdown(self, client: Client) -> int:
        """Stop the services, then power off or restart: `now`, or in `+MINUTES`."""
        when = next((word for word in client.argv if not word.startswith("-")), "+1").removeprefix("+")
        if when != "now" and not when.isdigit():
            client.err(f"Failed to parse time specification: {when}\n")
            return 1
        delay_s = 0.0 if when == "now" else int(when) * 60.0 / self._host.spec.timer_speed
        timer = threading.Timer(delay_s, self._shut_down, args=("reboot" if "-r" in client.argv else "poweroff",))
        timer.daemon = True
        timer.start()
        return 0

    def _shut_down(self, event: str) -> None:
        self._stop_services()
        self._request(event)

    def _request(self, event: str) -> None:
        self._host.console.kernel(f"systemd-shutdown[1]: {event} requested by the guest")
        path = f"/_sandbox/machines/{self._host.spec.instance_id}/power"
        try:
            api.control(self._host.spec.endpoint, "POST", path, {"event": event})
        except (api.ApiError, api.CloudGoneError):
            self._host.down.set()
