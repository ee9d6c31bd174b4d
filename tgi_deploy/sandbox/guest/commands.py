"""The small commands of a machine image: nvidia-smi, mountpoint, logger, curl of the metadata service, aws ssm."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.guest import NVME_MOUNT
from tgi_deploy.sandbox.guest.words import value_of

if TYPE_CHECKING:
    from tgi_deploy.sandbox.guest.console import Console
    from tgi_deploy.sandbox.guest.hardware import Hardware
    from tgi_deploy.sandbox.guest.layout import MachineSpec, PathMapper
    from tgi_deploy.sandbox.guest.server import Client

_DRIVER: Final = "595.58.03"
_CUDA: Final = "13.2"
_NO_DRIVER_STATUS: Final = 9
_USAGE_STATUS: Final = 252
_NO_CREDENTIALS_STATUS: Final = 253
_API_ERROR_STATUS: Final = 254
_CURL_HTTP_ERROR: Final = 22
_CURL_UNREACHABLE: Final = 7
_CURL_S: Final = 5.0
_HTTP_ERROR: Final = 400
_TAGS: Final = "meta-data/tags/instance/"
_LOOPBACK: Final = re.compile(r"^(?:http://)?(?:127\.0\.0\.1|localhost):(\d{1,5})(/.*)?$")
_METADATA: Final = re.compile(r"^(?:http://)?169\.254\.169\.254/latest/(.*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Commands:
    spec: MachineSpec
    hardware: Hardware
    console: Console
    mapper: PathMapper

    def nvidia_smi(self, client: Client) -> int:
        if not self.hardware.gpu_count:
            client.out(
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                "Make sure that the latest NVIDIA driver is installed and running.\n"
            )
            return _NO_DRIVER_STATUS
        if "-L" in client.argv or "--list-gpus" in client.argv:
            client.out("".join(f"GPU {n}: {self.hardware.card_name} (UUID: {self._uuid(n)})\n" for n in self._gpus()))
            return 0
        query = value_of("--query-gpu", client.argv)
        client.out(self._query(query, value_of("--format", client.argv)) if query else self._table())
        return 0

    def _gpus(self) -> range:
        return range(self.hardware.gpu_count)

    def _uuid(self, index: int) -> str:
        return f"GPU-{self.spec.instance_id[-8:]}-0000-0000-0000-{index:012d}"

    def _query(self, query: str, style: str) -> str:
        unit = "" if "nounits" in style else " MiB"
        names = [name.strip() for name in query.split(",")]
        lines = [] if "noheader" in style else [", ".join(names)]
        for index in self._gpus():
            values = {
                "index": str(index),
                "name": self.hardware.card_name,
                "uuid": self._uuid(index),
                "memory.total": f"{self.hardware.memory_mib}{unit}",
                "memory.used": f"0{unit}",
                "memory.free": f"{self.hardware.memory_mib}{unit}",
                "driver_version": _DRIVER,
                "compute_cap": self.hardware.compute_capability,
                "count": str(self.hardware.gpu_count),
            }
            lines.append(", ".join(values.get(name, "[N/A]") for name in names))
        return "\n".join(lines) + "\n"

    def _table(self) -> str:
        head = f"| NVIDIA-SMI {_DRIVER}    Driver Version: {_DRIVER}    CUDA Version: {_CUDA} |\n"
        rows = (f"| {n}  {self.hardware.card_name}  0MiB / {self.hardware.memory_mib}MiB |\n" for n in self._gpus())
        return head + "".join(rows)

    def mountpoint(self, client: Client) -> int:
        paths = [word for word in client.argv if not word.startswith("-")]
        mounted = self.hardware.nvme and paths == [self.mapper(NVME_MOUNT)]
        if not {"-q", "--quiet"} & set(client.argv):
            client.out(f"{' '.join(paths)} is {'' if mounted else 'not '}a mountpoint\n")
        return 0 if mounted else 1

    def logger(self, client: Client) -> int:
        tag = value_of("-t", client.argv) or value_of("--tag", client.argv) or "root"
        words = [word for word in client.argv if not word.startswith("-") and word != tag]
        for line in (" ".join(words) or client.stdin).splitlines():
            self.console.journal("syslog", f"{tag}: {line}")
        return 0

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

    def _changing(self, path: str) -> str | None:
        """Return metadata that can change while the machine runs: tags, if enabled, and notices."""
        try:
            known = api.control(self.spec.endpoint, "GET", f"/_sandbox/machines/{self.spec.instance_id}/metadata")
        except (api.ApiError, api.CloudGoneError):
            return None
        if path == "meta-data/spot/instance-action":
            return None if known["spot_action"] is None else json.dumps(known["spot_action"])
        tags: dict[str, str] = known["tags"] or {}
        if path.rstrip("/") == _TAGS.rstrip("/"):
            return "\n".join(sorted(tags)) or None
        return tags.get(path.removeprefix(_TAGS))

    def _metadata(self, path: str, client: Client) -> str | None:
        if path == "api/token":
            return "sandbox-token" if "PUT" in client.argv or "-XPUT" in client.argv else None
        if not any(word.lower().startswith("x-aws-ec2-metadata-token:") for word in client.argv):
            return None
        if path == "meta-data/spot/instance-action" or path.startswith(_TAGS.rstrip("/")):
            return self._changing(path)
        spec = self.spec
        return {
            "meta-data/instance-id": spec.instance_id,
            "meta-data/instance-type": spec.instance_type,
            "meta-data/ami-id": spec.image_id,
            "meta-data/local-ipv4": spec.address,
            "meta-data/public-ipv4": spec.address,
            "meta-data/placement/region": spec.region,
            "meta-data/placement/availability-zone": spec.zone,
            "dynamic/instance-identity/document": json.dumps(
                {"instanceId": spec.instance_id, "region": spec.region, "instanceType": spec.instance_type}
            ),
        }.get(path)

    def aws(self, client: Client) -> int:
        """Run `aws ssm get-parameter` through the sandbox's API with the instance profile's permissions."""
        words = [word for word in client.argv if not word.startswith("-")]
        if words[:2] != ["ssm", "get-parameter"]:
            client.err(f"aws: the sandbox's machines know `aws ssm get-parameter` only, not {' '.join(words[:2])!r}\n")
            return _USAGE_STATUS
        if not self.spec.instance_profile:
            client.err('\nUnable to locate credentials. You can configure credentials by running "aws login".\n')
            return _NO_CREDENTIALS_STATUS
        return self._get_parameter(client)

    def _get_parameter(self, client: Client) -> int:
        region = value_of("--region", client.argv) or client.env.get("AWS_REGION") or self.spec.region
        request = {"Name": value_of("--name", client.argv), "WithDecryption": "--with-decryption" in client.argv}
        try:
            answer = api.ssm(self.spec.endpoint, region, "GetParameter", request)
        except api.ApiError as problem:
            client.err(
                f"\nAn error occurred ({problem.code}) when calling the GetParameter operation: {problem.message}\n"
            )
            return _API_ERROR_STATUS
        except api.CloudGoneError:
            client.err("\nCould not connect to the endpoint URL\n")
            return _NO_CREDENTIALS_STATUS
        plain = value_of("--query", client.argv) == "Parameter.Value" and value_of("--output", client.argv) == "text"
        client.out((answer["Parameter"]["Value"] if plain else json.dumps(answer, indent=4, default=str)) + "\n")
        return 0
