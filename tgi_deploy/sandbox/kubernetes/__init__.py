"""A Kubernetes cluster on this computer: real servers (`plane`) and simulated GPU nodes (`agent`), all on loopback.

The servers are kube-apiserver, kube-controller-manager, kube-scheduler and etcd; `scripts/control_plane` builds them.
One agent stands in for the kubelets of all nodes: it runs the stub server for each pod.
"""

from __future__ import annotations

from typing import Final

# The files of a cluster's folder: `groups` has the ids of its processes, `engine.json` how engines behave.
KUBECONFIG: Final = "kubeconfig"
CERTIFICATE: Final = "plane.crt"
KEY: Final = "plane.key"
NODES: Final = "nodes.json"
ENGINE: Final = "engine.json"
GROUPS: Final = "groups"
