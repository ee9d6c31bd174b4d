"""Accesses and patches moto's state. Import after `STRICT` is in the environment."""

from __future__ import annotations

import base64
import copy
import hashlib
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from moto import backends as moto_backends
from moto.core import responses as moto_responses
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.core.utils import method_names_from_class, utcnow
from moto.ec2.models import ec2_backends, elastic_ip_addresses
from moto.ec2.models import instances as moto_instances
from moto.ec2.models.amis import Ami, AmiBackend
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.ec2.responses.general import General
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, filter_dict_attribute_mapping, get_prefix
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend
from moto.ssm.models import Parameter, ParameterDict

from tgi_deploy.catalog.quotas import ADDRESSES, read_quotas
from tgi_deploy.catalog.store import Store
from tgi_deploy.sandbox.addresses import Forwarding
from tgi_deploy.sandbox.guest.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tgi_deploy.sandbox.addresses import AddressPool, Lease
    from tgi_deploy.sandbox.faults import MachineFault
    from tgi_deploy.sandbox.guest.machine import System

_STATE_CODES: Final = {
    "pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80
}  # fmt: skip
_LEAVING: Final = frozenset({"shutting-down", "terminated"})
_REASONS: Final = {
    "Server.InternalError": "Server.InternalError: Internal error on launch",
    "Server.SpotInstanceTermination": "Server.SpotInstanceTermination: Spot instance termination",
    "Server.InsufficientInstanceCapacity": "Server.InsufficientInstanceCapacity: Insufficient capacity",
    "Client.InstanceInitiatedShutdown": "Client.InstanceInitiatedShutdown: Instance initiated shutdown",
}
# By the name of the public parameter that has their id.
IMAGES: Final[Mapping[str, Mapping[str, str]]] = {
    item["name"]: item for item in Store.behind().json("aws/amis.json")["parameters"]
}
# Elastic IP addresses of a region, by default: Amazon VPC User Guide, "Amazon VPC quotas".
MOST_ADDRESSES: Final = 5
# Four of the largest machines. The fault `low-quota` overrides it.
_QUOTA_VCPUS: Final = 768.0
_QUOTAS: Final = cache(read_quotas)
_CONSOLE_BYTES: Final = 64 * 1024


class HostedMachine(msgspec.Struct, kw_only=True):
    """The machine of an instance; without user data it never boots.

    `faults`: None until they are drawn; `ends` are its scheduled ends (`time.monotonic`) with reasons; `system` is what
    runs, if it is on.
    """

    layout: Layout
    lease: Lease
    launched: float = msgspec.field(default_factory=time.monotonic)
    faults: tuple[MachineFault, ...] | None = None
    ends: list[tuple[float, str]] = []
    reboot_wanted: bool = False
    system: System | None = None
    ending: threading.Thread | None = None

    @property
    def gone(self) -> bool:
        return self.system is None and (self.ending is None or not self.ending.is_alive())

    def end(self, grace_s: float) -> None:
        """Shut down in the background."""
        system, self.system = self.system, None
        if system is not None:
            self.ending = threading.Thread(target=system.end, args=(grace_s,), daemon=True)
            self.ending.start()


class SandboxInstance(moto_instances.Instance):
    """moto's instance on a loopback address, which takes time to start and stop."""

    addresses: ClassVar[AddressPool]
    home: ClassVar[Path]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 -- moto's own signature, passed on
        super().__init__(*args, **kwargs)
        self.region: str = self.ec2_backend.region_name
        layout, lease = Layout(folder=self.home / "machines" / self.id), self.addresses.lease(_opened_ports(self))
        self.machine = HostedMachine(layout=layout, lease=lease)
        self.place()
        self.switch("pending")

    def switch(self, state: str) -> None:
        self._state = moto_instances.InstanceState(state, _STATE_CODES[state])
        if state == "terminated":
            for held in [item for item in self.ec2_backend.addresses if item.instance is self]:
                held.instance = held.eni = held.association_id = None

    def place(self) -> None:
        """Give it its own address, and if it is public, its Elastic IP address."""
        nic, own = self.nics[0], self.private_dns_name
        nic.private_ip_address = own
        for item in nic.private_ip_addresses[:1]:
            item["PrivateIpAddress"] = own
        if nic.public_ip:
            held = (item.public_ip for item in self.ec2_backend.addresses if item.instance is self)
            nic.public_ip = next(held, own)

    @property
    def private_dns_name(self) -> str:
        return self.machine.lease.address

    @property
    def public_dns_name(self) -> str | None:
        return self.private_dns_name if self.nics[0].public_ip else None

    def start(self) -> Any:  # noqa: ANN401 -- moto's InstanceState
        """Start it unless it runs. The stop released its address, so it gets a new one."""
        before = copy.copy(self._state)
        if self.state == "stopped":
            super().start()
            self.machine.lease, self.machine.launched = self.addresses.lease(_opened_ports(self)), time.monotonic()
            self.place()
            self.switch("pending")
        return before

    def reboot(self) -> None:
        super().reboot()
        self.machine.reboot_wanted = True

    def stop(self) -> Any:  # noqa: ANN401 -- moto's InstanceState
        before = copy.copy(self._state)
        if self.state not in {"stopping", "stopped"}:
            super().stop()
            self.switch("stopping")
        return before

    def terminate(self) -> Any:  # noqa: ANN401 -- moto's InstanceState
        before = copy.copy(self._state)
        if self.state not in _LEAVING:
            super().terminate()
            self.switch("shutting-down")
        return before

    def end(self, code: str, *, behavior: str = "terminate") -> None:
        """Stop or terminate it for a reason of the cloud or the guest."""
        if self.state not in _LEAVING:
            self.stop() if behavior == "stop" else self.terminate()
            self.state_reason = moto_instances.StateReason(_REASONS.get(code, code), code)
            self._reason = code


def install(home: Path, addresses: AddressPool) -> None:
    """Make moto launch `SandboxInstance`s, and add what it lacks: public image parameters, quotas, consoles."""
    SandboxInstance.home, SandboxInstance.addresses = home, addresses
    filter_dict_attribute_mapping["client-token"] = "client_token"
    changes: tuple[tuple[object, str, object], ...] = (
        (moto_instances, "Instance", SandboxInstance),
        (elastic_ip_addresses, "random_ip", addresses.take),
        (AmiBackend, "_load_amis", _load_images),
        (TaggedEC2Resource, "get_tags", _tags_of),
        (ParameterDict, "_check_loading_status", _load_parameter),
        (moto_responses, "method_names_from_class", cache(method_names_from_class)),
        (moto_backends, "list_of_moto_modules", frozenset(moto_backends.list_of_moto_modules()).copy),
        (ServiceQuotasBackend, "get_service_quota", _quota),
        (General, "get_console_output", _console),
    )
    for owner, name, own in changes:
        setattr(owner, name, own)
    # moto's launches are always shown as pending.
    EC2BaseResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER.pop("RunInstances.Reservation.Instances.Instance.State")


def _load_images(backend: Any) -> None:  # noqa: ANN401 -- moto's own class
    """Add the images of the sandbox's parameters to a region."""
    for parameter, image in IMAGES.items():
        identity = image_id(backend.region_name, parameter)
        backend.amis[identity] = Ami(
            backend, identity, name=parameter, description=image["note"], owner_id="898082745236", public=True,
            owner_alias="amazon", virtualization_type="hvm", architecture=image["arch"], hypervisor="xen",
            root_device_type="ebs", root_device_name=image["root_device"], region_name=backend.region_name,
        )  # fmt: skip


def _tags_of(resource: Any) -> list[dict[str, str]]:  # noqa: ANN401 -- any of moto's resources
    """Look up the tags directly; moto scans all tags of the account for each resource."""
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(resource.id), "") if resource.id else ""
    found = resource.ec2_backend.tags.get(resource.id, {}).items()
    return [{"resource_id": resource.id, "key": key, "value": value, "resource_type": kind} for key, value in found]


def _load_parameter(known: ParameterDict, name: str) -> None:
    """Create the public parameter of an image when it is read; moto's own way loads thousands of others, too."""
    value = image_id(known.region_name, name)
    if name in IMAGES and [one.value for one in dict.get(known, name, [])] != [value]:
        parameter = Parameter(  # type: ignore[abstract]
            account_id=known.account_id, name=name, value=value, parameter_type="String", description=None,
            allowed_pattern=None, keyid=None, last_modified_date=utcnow(), version=1, data_type="aws:ec2:image",
        )  # fmt: skip
        dict.__setitem__(known, name, [parameter])


def _quota(backend: ServiceQuotasBackend, service_code: str, quota_code: str) -> dict[str, Any]:
    """EC2's vCPU quotas of accelerated machines, and its quota of Elastic IP addresses."""
    quota = _QUOTAS().get(quota_code)
    name, value = ("EC2-VPC Elastic IPs", float(MOST_ADDRESSES)) if quota_code == ADDRESSES else ("", _QUOTA_VCPUS)
    if service_code != "ec2" or not (quota or name):
        raise NoSuchResource
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{backend.region_name}:{DEFAULT_ACCOUNT_ID}:ec2/{quota_code}",
        "QuotaCode": quota_code,
        "QuotaName": quota.name if quota else name,
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }


def _console(response: General) -> ActionResult:
    """Return the end of the machine's console."""
    instance = response.ec2_backend.get_instance(response._get_param("InstanceId"))  # noqa: SLF001 -- moto's own way
    path = instance.machine.layout.console
    text = path.read_bytes()[-_CONSOLE_BYTES:] if path.exists() else b""
    output = Base64EncodedString.from_encoded_bytes(base64.b64encode(text))
    return ActionResult({"InstanceId": instance.id, "Timestamp": utcnow(), "Output": output})


def is_region(region: str) -> bool:
    return region in ec2_backends[DEFAULT_ACCOUNT_ID].regions


def image_id(region: str, parameter: str) -> str:
    return "ami-" + hashlib.sha256(f"{region} {parameter}".encode()).hexdigest()[:17]


def instances() -> Iterator[SandboxInstance]:
    for found in list(ec2_backends[DEFAULT_ACCOUNT_ID].values()):
        for reservation in list(found.reservations.values()):
            yield from (one for one in reservation.instances if isinstance(one, SandboxInstance))


def forwardings() -> set[Forwarding]:
    """Return where connections to Elastic IP addresses go. A machine that lost one gets its own address back."""
    held: list[Any] = [item for found in ec2_backends[DEFAULT_ACCOUNT_ID].values() for item in found.addresses]
    for instance in instances() if held else ():
        if instance.state not in _LEAVING:
            instance.place()
    return {
        Forwarding(address=item.public_ip, port=port, machine=item.instance.private_dns_name)
        for item in held
        if item.instance is not None and item.public_ip != item.instance.private_dns_name
        for port in _opened_ports(item.instance)
    }


def find_instance(instance_id: str) -> SandboxInstance | None:
    return next((instance for instance in instances() if instance.id == instance_id), None)


def is_in_use(region: str, group: str) -> bool:
    """Return whether an instance uses the security group, given by id or name."""
    using = (one for one in instances() if one.region == region and one.state != "terminated")
    return any(group in {item.id, item.name} for one in using for item in _groups(one))


def _opened_ports(instance: SandboxInstance) -> tuple[int, ...]:
    """Return the single TCP ports that the instance's security groups open to anybody."""
    rules = [rule for group in _groups(instance) for rule in group.ingress_rules if rule.ip_protocol == "tcp"]
    return tuple({int(rule.from_port) for rule in rules if rule.from_port == rule.to_port})


def _groups(instance: SandboxInstance) -> Iterator[Any]:
    yield from instance.security_groups
    for nic in instance.nics.values():
        yield from nic.group_set
