"""Models: short profiles (`models/*.toml`), known shapes (`models/shapes.json`), and directories with a config.json."""

from __future__ import annotations

import os.path
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tgi_deploy.catalog import names
from tgi_deploy.catalog.fields import (
    IGNORED,
    OPTIONAL_TEXT,
    REQUIRED_TEXT,
    Field,
    anything,
    boolean,
    positive,
    read,
    scalar,
    table,
)
from tgi_deploy.catalog.shapes import read_shape
from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted
from tgi_deploy.values.base import Where
from tgi_deploy.values.model import Profile, QuantizedRepository
from tgi_deploy.values.plan_options import PLAN_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.repository import DirectorySource
    from tgi_deploy.catalog.store import Store

SHAPES_FILE: Final = "models/shapes.json"
_LONGEST_NAME: Final = 200
_LONGEST_PATH: Final = 1024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+(@[A-Za-z0-9._-]+)?)?")
_PATH_STARTS: Final = ("/", "./", "../")
_MAYBE_MISSPELLED: Final = frozenset({"hub_not_found", "hub_offline", "hub_unreachable", "extra_missing"})

_PROFILE: Final = {
    "hub_id": REQUIRED_TEXT,
    "summary": REQUIRED_TEXT,
    "notice": OPTIONAL_TEXT,
    "chat": Field(check=boolean, required=False),
    "defaults": Field(check=anything, required=False),
    "quantized": Field(check=anything, required=False),
    "shape": IGNORED,
}
_QUANTIZED: Final = {
    "method": REQUIRED_TEXT,
    "hub_id": REQUIRED_TEXT,
    "bits": Field(check=positive),
    "group_size": Field(check=positive, required=False),
    "intermediate_size": Field(check=positive, required=False),
    "source": REQUIRED_TEXT,
}
# Options that a profile may set; the code that applies them validates their values.
_SETTINGS: Final = {row.name: Field(check=scalar, required=False) for row in PLAN_OPTIONS if row.profile}


def _means_folder(model: str) -> bool:
    """Return whether MODEL is a folder: by its form, or because one exists and no other name has that form."""
    if model.startswith(_PATH_STARTS) or model in {".", ".."}:
        return len(model) <= _LONGEST_PATH
    return not _NAME.fullmatch(model) and os.path.isdir(model)  # noqa: PTH112 -- Path's own raises for some texts


class MoreModels(Protocol):
    """A source of models outside the catalog. Both methods raise InputError."""

    def resolve(self, hub_id: str, revision: str | None = None) -> Profile: ...

    def of_folder(self, source: DirectorySource) -> Profile:
        """Return the model in a folder, possibly from a cache."""
        ...


class Models:
    """Resolves MODEL of the command line."""

    def __init__(self, store: Store, more: MoreModels | None) -> None:
        self._store, self._more = store, more

    def profile_names(self) -> tuple[str, ...]:
        return self._store.names("models", ".toml")

    def hub_ids(self) -> tuple[str, ...]:
        return tuple(self._shapes)

    def resolve(self, model: str) -> Profile:
        """Return a profile by short name, by hub id, a known shape, a directory, or one of `more`, in this order.

        Raises:
            InputError: `bad_model_name`, `unknown_model`, `unreadable_path`, `bad_model_config`, `bad_profile`,
                `bad_checkpoint`, and what `MoreModels` raises.
        """
        if _means_folder(model):
            return self._of_folder(Path(model))
        self._check_name(model)
        if "/" not in model and self._store.find(f"models/{model}.toml"):
            return self._profile(model)
        if model in self._shapes:
            return self._of_hub_id(model)
        if Path(model).is_dir():
            return self._of_folder(Path(model))
        if "/" in model and self._more is not None:
            return self._of_hub(model, self._more)
        raise self._unknown(model)

    def _of_folder(self, folder: Path) -> Profile:
        from tgi_deploy.catalog.checkpoint import read_folder  # noqa: PLC0415 -- most models are in the catalog
        from tgi_deploy.catalog.repository import DirectorySource  # noqa: PLC0415 -- startup time

        source = DirectorySource(folder=folder)
        return read_folder(source) if self._more is None else self._more.of_folder(source)

    def _of_hub(self, model: str, more: MoreModels) -> Profile:
        hub_id, _, revision = model.partition("@")
        try:
            return more.resolve(hub_id, revision or None)
        except InputError as problem:
            misspelled = problem.code in _MAYBE_MISSPELLED and not revision
            near = names.suggestion(hub_id, self._known) if misspelled else None
            if near is None:
                raise
            raise InputError(problem.code, problem.message, hint=f"{near} {problem.hint}") from None

    @property
    def _known(self) -> tuple[str, ...]:
        return *self.profile_names(), *self.hub_ids()

    def _unknown(self, model: str) -> InputError:
        return names.unknown(
            "unknown_model", "model", model, self._known,
            otherwise="'tgi-deploy catalog list models' lists those known without the hub; a folder with the "
            "model's config.json also works, for example ./my-model",
        )  # fmt: skip

    @cached_property
    def _shapes(self) -> Mapping[str, Any]:
        return table(self._store.json(SHAPES_FILE).get("shapes"), Where(SHAPES_FILE).child("shapes"))

    def _check_name(self, model: str) -> None:
        if len(model) > _LONGEST_NAME or not _NAME.fullmatch(model):
            near = names.suggestion(model, self._known)
            advice = "use a profile's name, a hub id like org/name, or a folder like ./my-model"
            raise InputError(
                "bad_model_name",
                f"{quoted(model)} is not a valid model name",
                hint=f"{near} {advice}" if near else advice,
            )

    def _profile(self, name: str) -> Profile:
        file = f"models/{name}.toml"
        raw, where = self._store.toml(file), Where(file)
        found = read(raw, _PROFILE, where)
        hub_id = found.pop("hub_id")
        if "shape" in raw:
            shape, place = raw["shape"], where.child("shape")
        elif hub_id in self._shapes:
            shape, place = self._shapes[hub_id], Where(SHAPES_FILE).child("shapes").child(hub_id)
        else:
            raise where.child("hub_id").error(f"{quoted(hub_id)} is not in {SHAPES_FILE}: add a [shape]")
        return Profile(
            name=name,
            model=read_shape(hub_id, shape, place),
            quantized=_quantized(found.pop("quantized", []), where.child("quantized")),
            defaults=read(found.pop("defaults", {}), _SETTINGS, where.child("defaults")),
            **found,
        )

    def _of_hub_id(self, hub_id: str) -> Profile:
        """Return the profile with this hub id, if any, which has more facts than the bare shape."""
        line = f'hub_id = "{hub_id}"'
        for name in self.profile_names():
            content = self._store.text(f"models/{name}.toml")
            if line in content.partition("[[")[0]:
                return self._profile(name)
        spec = read_shape(hub_id, self._shapes[hub_id], Where(SHAPES_FILE).child("shapes").child(hub_id))
        return Profile(
            name=hub_id, model=spec, summary=f"{spec.architecture}, {spec.parameters / 1e9:.1f} B parameters"
        )


def _quantized(raw: object, where: Where) -> tuple[QuantizedRepository, ...]:
    if not isinstance(raw, list):
        raise where.error("should be a list of tables: [[quantized]]")
    return tuple(
        QuantizedRepository(**{"group_size": None, **read(entry, _QUANTIZED, where.child(index))})
        for index, entry in enumerate(raw)
    )
