"""Manifests as YAML. Every text that a parser of YAML 1.1 or 1.2 could read as something else is quoted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.targets.deployable import check
from tgi_deploy.targets.kubernetes.cards import Cards
from tgi_deploy.targets.kubernetes.manifests import manifests, workload
from tgi_deploy.targets.protocol import Artifact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.targets.kubernetes.manifests import Manifest
    from tgi_deploy.targets.protocol import Deployable

FILE: Final = "kubernetes.yaml"
_WIDTH: Final = 2**31
# Words without a meaning of their own in any version of YAML: no number and no date begins with a letter.
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*", re.ASCII)
_MEANINGS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def written(form: str, deployable: Deployable) -> Artifact:
    """Render the artifact. Raises InputError for unsafe values, and `extra_missing` without PyYAML."""
    check(deployable)
    nodes = Cards.packaged().selector(deployable.candidate.offer.instance_type.accelerator.name)
    return Artifact.of(form, FILE, as_yaml(manifests(workload(deployable, nodes))))


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
