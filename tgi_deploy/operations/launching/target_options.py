"""Selects the target's options among the given ones. Options without effect are rejected, not ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tgi_deploy.errors import InputError
from tgi_deploy.values.base import as_dict, replaced
from tgi_deploy.values.options import options_of
from tgi_deploy.values.plan_options import variable_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Supplied, Target
    from tgi_deploy.values.base import Value


def own_options(target: Target, targets: Sequence[Target], given: Mapping[str, Any], *, command: str = "") -> Value:
    """Return the target's options, or only those of `command`.

    Raises InputError `conflicting_options` for an option of another target.
    """
    own = _names(target, command)
    for other in targets:
        foreign = next((name for name in _names(other, command) if name not in own and given.get(name)), None)
        if foreign is not None:
            raise InputError(
                "conflicting_options",
                f"--{foreign.replace('_', '-')} is an option of --target {other.name}",
                hint=f"leave it out; {target.facts.who_connects}",
            )
    return target.options(**{name: given[name] for name in own if name in given})


def _names(target: Target, command: str) -> tuple[str, ...]:
    kind = target.options
    return tuple(item.name for item in options_of((kind,), command)) if command else kind.__struct_fields__


def reject_unsupported(target: Target, given: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Raise InputError for an option that the target does not support, given here or in the environment."""
    for item in target.facts.unsupported:
        for name in item.options:
            if given.get(name) or environ.get(variable_of(name)):
                raise InputError(item.code, f"--{name.replace('_', '-')}: {item.why}", hint=item.hint)


def supplied(
    target: Target, texts: OptionTexts, catalog: Catalog, environ: Mapping[str, str], *, locked: bool = False
) -> tuple[OptionTexts, Supplied]:
    """Return the request with the target's additions before planning. Raises InputError."""
    reject_unsupported(target, as_dict(texts), environ)
    named = locked or bool(texts.hardware or environ.get(variable_of("hardware")))
    found = target.supply(catalog, release=texts.engine_version or catalog.default_release, hardware=named)
    if found.hardware:
        texts = replaced(texts, hardware=found.hardware)
    if found.machines and _given(texts, environ, "replicas") and not _given(texts, environ, "max_machines"):
        texts = replaced(texts, max_machines=str(found.machines))
    return texts, found


def _given(texts: OptionTexts, environ: Mapping[str, str], name: str) -> bool:
    return bool(getattr(texts, name) or environ.get(variable_of(name)))
