"""Manifests as YAML. Every text that a parser of YAML 1.1 or 1.2 could read as something else is quoted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.reconcile.ends import READS_TAGS, TAG_IDLE_S, TAG_LEASE_S
from tgi_deploy.targets.container import api_key_variable
from tgi_deploy.targets.deployable import check
from tgi_deploy.targets.kubernetes.autoscaling import Autoscaler, autoscaler_manifest, requests_each
from tgi_deploy.targets.kubernetes.ingress import host_manifest
from tgi_deploy.targets.kubernetes.limits import limit_manifests
from tgi_deploy.targets.kubernetes.manifests import HUB_TOKEN_SECRET, label, manifests, workload
from tgi_deploy.targets.kubernetes.node_labels import NodeLabels
from tgi_deploy.targets.kubernetes.options import KubernetesOptions
from tgi_deploy.targets.protocol import Artifact
from tgi_deploy.values.resource import TAG_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.targets.kubernetes.manifests import Manifest
    from tgi_deploy.targets.protocol import Deployable

FILE: Final = "kubernetes.yaml"
_NAMESPACE: Final = "default"
_TTL_S: Final = f"{TAG_PREFIX}ttl-s"
_WIDTH: Final = 2**31
# Words without a meaning of their own in any version of YAML: no number and no date begins with a letter.
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*", re.ASCII)
_MEANINGS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def render_artifact(form: str, deployable: Deployable) -> Artifact:
    """Render the artifact. Raises InputError for unsafe values, and `extra_missing` without PyYAML."""
    check(deployable)
    options: KubernetesOptions = deployable.options or KubernetesOptions()
    return Artifact.of(form, FILE, as_yaml(_documents(deployable, options)))


def _documents(deployable: Deployable, options: KubernetesOptions) -> list[Manifest]:
    """Return all objects, in a namespace if one is named, or if limits name the objects in it."""
    nodes = NodeLabels.packaged().selector(deployable.candidate.offer.instance_type.accelerator.name)
    secret, namespace = options.api_key_secret, options.namespace or _NAMESPACE
    wanted = workload(
        deployable,
        nodes,
        replicas=deployable.candidate.replicas,
        hub_token_secret=options.hub_token_secret or HUB_TOKEN_SECRET,
        api_key=(api_key_variable(deployable.candidate.engine), secret) if secret else None,
        weights_claim=options.weights_claim or "",
    )
    engine, *found = manifests(wanted)
    notes = _limits(deployable)
    if notes:
        engine["metadata"]["annotations"] = {**engine["metadata"].get("annotations", {}), **notes}
        found = [*limit_manifests(engine, namespace), engine, *found]
    else:
        found = [engine, *found]
    if options.host:
        found.append(host_manifest(engine["metadata"]["labels"], wanted.container.port, options))
    if deployable.replicas.varies:
        del engine["spec"]["replicas"]
        found.append(autoscaler_manifest(_autoscaler(deployable, options.prometheus), engine, namespace))
    if notes or options.namespace:
        found = [{**item, "metadata": {**item["metadata"], "namespace": namespace}} for item in found]
    return found


def _autoscaler(deployable: Deployable, prometheus: str | None) -> Autoscaler:
    """Return what follows the load, of a cluster whose adapter serves the metrics of pods unless KEDA is used."""
    return Autoscaler(
        source="prometheus" if prometheus else "pods",
        replicas=deployable.replicas,
        gauges=deployable.candidate.engine.metrics.load,
        each=requests_each(deployable.concurrency, deployable.candidate.replicas),
        ready_s=deployable.starts_s,
        prometheus=prometheus or "",
    )


def _limits(deployable: Deployable) -> dict[str, str]:
    """Return the limits as annotations, counted from the creation of the Deployment."""
    named = {_TTL_S: deployable.ttl_s, TAG_IDLE_S: deployable.idle_s, TAG_LEASE_S: deployable.lease_s}
    found = {label(tag): str(seconds) for tag, seconds in named.items() if seconds is not None}
    tag, value = READS_TAGS
    return {**found, label(tag): value} if found else {}


def as_yaml(documents: Sequence[Manifest]) -> str:
    try:
        import yaml  # noqa: PLC0415 -- only rendering needs it
    except ImportError as error:
        from tgi_deploy.extras import extra_missing  # noqa: PLC0415 -- only an installation without it pays for it

        raise extra_missing("kubernetes", "writing manifests", error) from error

    class Dumper(yaml.SafeDumper):
        """Quotes, indents lists, and writes no anchors."""

        def ignore_aliases(self, _data: object) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ANN401, ARG002, FBT001, FBT002 -- PyYAML's own
            return super().increase_indent(flow, indentless=False)

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _MEANINGS
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')

    Dumper.add_representer(str, text)
    return yaml.dump_all(
        documents, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH, explicit_start=True
    )
