"""Plan locks: files with a plan that can be reviewed, reprinted, compared and deployed exactly.

A lock contains the request (so that it can be planned again), the basis of the decision (the model's revision, a hash
of its shape, a hash of the figures used), and the plan as `--json` printed it. People review locks, so alternatives
and rejections are left out. The plan in the lock is authoritative: printing it recomputes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tgi_deploy import bounded_json
from tgi_deploy.errors import InputError
from tgi_deploy.files import read_file
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.values.base import Value, as_dict, as_value, replaced
from tgi_deploy.values.plan_document import LockData, LockedCatalog, LockedEngine, LockedModel, PlanDocument
from tgi_deploy.values.plan_options import variable_of

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.values.engine import Release
    from tgi_deploy.values.model import ModelSpec
    from tgi_deploy.values.plan import Plan

KIND: Final = "tgi-deploy-lock"
SCHEMA: Final = 2

# Everything but the choice: it would be most of the file, and changes in it would hide a change of the choice.
_OMITTED: Final = ("alternatives", "breakeven", "fallbacks", "frontier", "rejections")
# The source of a shape does not affect what is served.
_PROVENANCE: Final = frozenset({"local_path", "source", "note"})
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """A lock from a file."""

    texts: OptionTexts
    plan: PlanDocument
    made_with: LockData


def open_lock(path: Path) -> Lock:
    """Return a lock from its file. Raises InputError `unreadable_path`, `bad_lock`."""
    return read_lock(read_file(path, what="the lock"), str(path))


def reject_options(texts: OptionTexts, option: str, *, but: tuple[str, ...] = ()) -> None:
    """Raise InputError `conflicting_options` for plan options: a lock contains its own request."""
    given = [name for name, value in as_dict(texts).items() if name not in but and value]
    if given:
        first = "MODEL" if given[0] == "model" else f"--{given[0].replace('_', '-')}"
        raise InputError(
            "conflicting_options",
            f"{option} and {first} exclude each other: the lock contains the request",
            hint=f"leave {first} out, or plan without {option}",
        )


def lock_document(
    plan: Plan,
    texts: OptionTexts,
    environ: Mapping[str, str],
    release: Release,
    *,
    printed: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the lock of `plan`, ready for JSON. `printed` is the plan as `--json` prints it."""
    model, engine = plan.request.model.model, plan.chosen.engine
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "model": {"id": model.hub_id, "revision": model.revision, "config_sha256": config_sha256(model)},
        "engine": {"name": engine.name, "version": engine.version, "image": engine.container.image.reference},
        "catalog": {"date": plan.catalog_date, "sha256": catalog_sha256(plan, release)},
        "request": texts_document(_with_environment(texts, environ, plan.request.regions)),
        "plan": {**printed, **dict.fromkeys(_OMITTED, ())},
    }


def lock_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def config_sha256(model: ModelSpec) -> str:
    """Return the hash of the model's shape in canonical form, independent of its source."""
    return _sha256({name: value for name, value in _canonical(model).items() if name not in _PROVENANCE})


def catalog_sha256(plan: Plan, release: Release) -> str:
    """Return the hash of the figures used: offers of the choice and its fallbacks, their bills, the engine's rules."""
    used = [{"offer": _canonical(item.offer), "cost": _canonical(item.cost)} for item in (plan.chosen, *plan.fallbacks)]
    return _sha256({"candidates": used, "release": _canonical(release)})


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _canonical(value: Any) -> Any:  # noqa: ANN401 -- any value in the planner's types
    if isinstance(value, Value):
        return _canonical(as_dict(value))
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_canonical(item) for item in value]
    return str(value) if isinstance(value, Decimal) else value


def _with_environment(texts: OptionTexts, environ: Mapping[str, str], regions: tuple[str, ...]) -> OptionTexts:
    """Return the options including those from the environment, so that they have the same effect elsewhere."""
    changes: dict[str, Any] = {
        field: environ[variable]
        for field, value in as_dict(texts).items()
        if value is None and environ.get(variable := variable_of(field))
    }
    hardware = changes.get("hardware", texts.hardware)
    return replaced(texts, **changes, regions=() if hardware else regions)


def texts_document(texts: OptionTexts) -> dict[str, Any]:
    """Return the given options."""
    given = ((name, value) for name, value in as_dict(texts).items() if value)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given}


def read_lock(text: str, name: str) -> Lock:
    """Parse a lock. Raises InputError `bad_lock`."""
    document = read_json(text, name)
    if document.get("kind") != KIND:
        raise _bad(name, f"it is not a lock: `kind` is not {KIND!r}")
    if document.get("schema") != SCHEMA:
        raise _bad(name, f"its schema is {str(document.get('schema'))[:20]!r}, but this version reads only {SCHEMA}")
    return Lock(
        texts=_part(document, "request", OptionTexts, name),
        plan=_part(document, "plan", PlanDocument, name),
        made_with=LockData(
            model=_part(document, "model", LockedModel, name),
            engine=_part(document, "engine", LockedEngine, name),
            catalog=_part(document, "catalog", LockedCatalog, name),
        ),
    )


def read_plan(text: str, name: str) -> PlanDocument:
    """Return the plan of a lock, or of the output of `plan --json`. Raises InputError `bad_lock`."""
    document = read_json(text, name)
    if document.get("kind") == KIND:
        return read_lock(text, name).plan
    data = document.get("data")
    if document.get("command") != "plan" or not isinstance(data, Mapping) or "plan" not in data:
        raise _bad(name, "it is neither a lock nor a plan printed with --json")
    return _part(data, "plan", PlanDocument, name)


def read_json(text: str, name: str) -> Mapping[str, Any]:
    try:
        return bounded_json.parse_object(text)
    except ValueError as error:
        raise _bad(name, str(error)) from None


def _part(document: Mapping[str, Any], key: str, kind: type[_T], name: str) -> _T:
    try:
        return as_value(_table(document, key, name), kind, key)
    except ValueError as error:
        raise _bad(name, str(error)) from None


def _table(document: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise _bad(name, f"`{key}` is missing or not a table")
    return cast("Mapping[str, Any]", value)


def _bad(name: str, what: str) -> InputError:
    return InputError(
        "bad_lock", f"reading the lock {name!r}: {what}", hint="'tgi-deploy plan MODEL --lock FILE' writes one"
    )
