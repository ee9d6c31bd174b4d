"""The cluster's nodes: instance types of the catalog, registered with the labels that GPU feature discovery sets."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.catalog import Catalog

if TYPE_CHECKING:
    from tgi_deploy.values.hardware import InstanceType

GPU: Final = "nvidia.com/gpu"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
LEASES: Final = "kube-node-lease"
_ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}
_MIB: Final = 2**20
# What node images keep of memory for the system: docs of GKE, plan-node-sizes.
_SYSTEM_SHARE: Final = 0.06
_DISK_BYTES: Final = 200 * 10**9
_LEASE_S: Final = 40


@cache
def hardware(instance_type: str) -> InstanceType:
    """Raises InputError `unknown_instance_type`."""
    return Catalog.open().instance_type(instance_type)


def node(name: str, instance_type: str, *, port: int = 0, version: str = "") -> dict[str, Any]:
    """Return a Node as its kubelet registers it. `port` is the agent's."""
    found = hardware(instance_type)
    gpus = found.accelerator_count
    cards = {
        "nvidia.com/gpu.product": (found.accelerator.driver_name or found.accelerator.name).replace(" ", "-"),
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.memory": str(found.memory_bytes_per_accelerator // _MIB),
        "nvidia.com/gpu.present": "true",
    }
    arch = _ARCHITECTURES[found.cpu_arch]
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": arch,
        INSTANCE_TYPE: instance_type,
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": "us-east-1a",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | (cards if gpus else {})},
        "spec": {"taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}] if gpus else []},
        "status": {
            **_resources(found),
            **ready(),
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            # Exec sessions reach the agent as WebSockets, which the API server would otherwise translate to SPDY.
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
            "nodeInfo": {
                **dict.fromkeys(("machineID", "systemUUID", "bootID"), name),
                "kernelVersion": "6.8.0",
                "osImage": "sandbox",
                "containerRuntimeVersion": "stub://1",
                "kubeletVersion": version,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": arch,
            },
        },
    }


def _resources(found: InstanceType) -> dict[str, Any]:
    disk = found.nvme_bytes or _DISK_BYTES
    capacity = {
        "cpu": str(found.vcpus),
        "memory": str(found.ram_bytes),
        "ephemeral-storage": str(disk),
        "pods": "110",
        GPU: str(found.accelerator_count),
    }
    less = {"cpu": f"{found.vcpus * 1000 - 100}m", "memory": str(int(found.ram_bytes * (1 - _SYSTEM_SHARE)))}
    return {"capacity": capacity, "allocatable": capacity | less}


def ready() -> dict[str, Any]:
    """Return the part of a status that says that the node can run pods."""
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the sandbox's agent runs"}
    return {"conditions": [{**condition, "lastHeartbeatTime": now(), "lastTransitionTime": now()}]}


def lease(name: str) -> dict[str, Any]:
    """Return the heartbeat of a node."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASES},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": _LEASE_S, "renewTime": f"{_utc():%FT%T.%fZ}"},
    }


def now() -> str:
    return f"{_utc():%FT%TZ}"


def _utc() -> datetime:
    return datetime.now(UTC)
