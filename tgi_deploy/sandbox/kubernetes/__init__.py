"""A Kubernetes cluster on this computer: real servers (`plane`) and simulated GPU nodes (`agent`), all on loopback.

The servers are kube-apiserver, kube-controller-manager, kube-scheduler and etcd; `scripts/control_plane` builds them.
One agent acts as the kubelet of all nodes: it runs the stub server for each pod.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

# The files of a cluster's folder: `groups` has the ids of its processes, `engine.json` how engines behave.
KUBECONFIG: Final = "kubeconfig"
CERTIFICATE: Final = "plane.crt"
KEY: Final = "plane.key"
NODES: Final = "nodes.json"
ENGINE: Final = "engine.json"
GROUPS: Final = "groups"


def access(folder: Path) -> tuple[str, str]:
    """Return the URL of a cluster's API server, and its owner's token.

    Raises OSError, ValueError, LookupError if the kubeconfig can't be read.
    """
    document = json.loads((folder / KUBECONFIG).read_text(encoding="utf-8"))
    return document["clusters"][0]["cluster"]["server"], document["users"][0]["user"]["token"]
