"""Models that the catalogue does not know, read once and then kept: of the hub by commit, of folders by their files.

What is kept of the hub answers for a day without asking it whether there is a newer commit; after that, or for
another revision, it is asked. A plan names the commit it was made for, so an answer a day old is never a wrong one.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tgi_deploy import bounded_files
from tgi_deploy.catalog.fields import OPTIONAL_TEXT, REQUIRED_TEXT, Field, Where, anything, boolean, positive, read
from tgi_deploy.catalog.hub_answer import COMMIT, bad_hub_answer
from tgi_deploy.catalog.shapes import read_shape, shape_table
from tgi_deploy.catalog.store import parse_json, read_text
from tgi_deploy.errors import InputError
from tgi_deploy.planner.types import Profile
from tgi_deploy.resources import HOME_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.catalog.repository import DirectorySource, ModelSource

MAIN: Final = "main"
# How the sandbox tells its engine of the folder: everything else there has the look of another machine.
KEPT_MODELS: Final = "TGI_DEPLOY_KEPT_MODELS"
# Raise when the same files would be read differently: what older versions kept is then read anew.
_FORMAT: Final = 1
_LOCAL: Final = "local"
# Where what was read before serves as well.
_NO_ANSWER: Final = frozenset({"hub_unreachable", "hub_extra_missing", "bad_hub_answer"})
_FRESH_S: Final = 24 * 3600
_COMMIT_BYTES: Final = 40
_ENTRY: Final = {
    "format": Field(check=positive),
    "summary": REQUIRED_TEXT,
    "chat": Field(check=boolean),
    "notice": OPTIONAL_TEXT,
    "shape": Field(check=anything),
}


def models_folder(environ: Mapping[str, str]) -> Path:
    """Where hub models are kept: they may be lost. Beside everything else where `HOME_VARIABLE` names a place."""
    home, caches = environ.get(HOME_VARIABLE), environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(home) / "cache" if home else Path(caches).expanduser() / "tgi-deploy"
    return folder / "models"


class Hub(Protocol):
    """A place that has models by their ids."""

    def open(self, hub_id: str, revision: str) -> ModelSource:
        """Return its files at a branch, tag or commit.

        Raises:
            InputError: `hub_not_found`, `hub_gated`, `hub_unreachable`, `bad_hub_answer`.
        """
        ...


class HubModels:
    """Profiles of hub models. `connect` is called only when something has to be asked."""

    def __init__(
        self,
        folder: Path,
        connect: Callable[[], Hub],
        *,
        offline: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._connect, self._offline, self._now = folder, connect, offline, now

    @classmethod
    def kept(cls, folder: Path) -> HubModels:
        """Only what was read before; no hub is ever asked."""
        return cls(folder, _no_hub, offline=True)

    def resolve(self, hub_id: str, revision: str | None = None) -> Profile:
        """The model at a revision (default: the newest of its main branch), pinned to the commit.

        Raises:
            InputError: `hub_offline`, `hub_extra_missing`, `hub_unreachable`, `bad_hub_answer`, `hub_not_found`,
                `hub_gated`, `bad_checkpoint`, `bad_model_config`.
        """
        wanted = revision or MAIN
        commit, is_fresh = self._known_commit(hub_id, wanted)
        kept = self._kept(self._path(hub_id, f"{commit}.json"), hub_id) if commit else None
        if kept is not None and (is_fresh or self._offline):
            return kept
        if self._offline:
            raise _offline(hub_id)
        try:
            return self._ask(hub_id, wanted)
        except InputError as problem:
            if kept is None or problem.code not in _NO_ANSWER:
                raise
            return replace(kept, notice=f"{problem.message} The commit {commit} is used, read before.")

    def of_folder(self, source: DirectorySource) -> Profile:
        """The model in a folder; its headers are read again only when a file of it was written.

        Raises:
            InputError: `unreadable_path`, `bad_model_config`, `bad_checkpoint`.
        """
        from tgi_deploy.catalog.checkpoint import read_folder  # noqa: PLC0415 -- most models are in the catalogue
        from tgi_deploy.catalog.repository import CONFIG  # noqa: PLC0415 -- likewise

        source.read(CONFIG)
        resolved = source.folder.resolve()
        path = self._folder / _LOCAL / f"{source.fingerprint()}.json"
        kept = self._kept(path, resolved.name)
        if kept is not None:
            return replace(kept, model=replace(kept.model, local_path=str(resolved)))
        profile = read_folder(source)
        if profile.model.tensor_bytes:
            self._keep(path, _entry(profile))
        return profile

    def _ask(self, hub_id: str, wanted: str) -> Profile:
        from tgi_deploy.catalog.checkpoint import read_profile  # noqa: PLC0415 -- most models are in the catalogue

        source = self._connect().open(hub_id, wanted)
        commit = source.revision or ""
        if not COMMIT.fullmatch(commit) or (COMMIT.fullmatch(wanted) and commit != wanted):
            raise bad_hub_answer(hub_id, f"it is about another commit than {wanted}")
        path = self._path(hub_id, f"{commit}.json")
        profile = self._kept(path, hub_id)
        if profile is None:
            profile = read_profile(source, hub_id)
            self._keep(path, _entry(profile))
        if wanted != commit:
            self._keep(self._path(hub_id, f"{wanted}.ref"), commit)
        return profile

    def _known_commit(self, hub_id: str, wanted: str) -> tuple[str | None, bool]:
        """The commit a revision stood for when it was last asked, and whether that still counts."""
        if COMMIT.fullmatch(wanted):
            return wanted, True
        path = self._path(hub_id, f"{wanted}.ref")
        try:
            commit = bounded_files.read_text(path, most=_COMMIT_BYTES)
            age_s = self._now() - path.stat().st_mtime
        except (OSError, ValueError):
            return None, False
        return (commit if COMMIT.fullmatch(commit) else None), 0 <= age_s < _FRESH_S

    def _kept(self, path: Path, hub_id: str) -> Profile | None:
        """What was read before; nothing where there is nothing that can be understood."""
        try:
            where = Where(str(path))
            found = read(parse_json(read_text(path), str(path)), _ENTRY, where)
            if found.pop("format") != _FORMAT:
                return None
            shape = read_shape(hub_id, found.pop("shape"), where.child("shape"))
        except InputError:
            return None
        return Profile(name=hub_id, model=shape, **found)

    def _keep(self, path: Path, content: str) -> None:
        """Whole or not at all. Where nothing can be written, the next plan reads again."""
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(content, encoding="utf-8")
            partial.replace(path)
            os.utime(path, (self._now(), self._now()))

    def _path(self, hub_id: str, name: str) -> Path:
        return self._folder / hub_id.replace("/", "--") / name


def _entry(profile: Profile) -> str:
    entry: dict[str, Any] = {
        "format": _FORMAT,
        "summary": profile.summary,
        "chat": profile.chat,
        "shape": shape_table(profile.model),
    }
    return json.dumps(entry, indent=1)


def _no_hub() -> Hub:
    raise AssertionError("nobody asks the hub offline")


def _offline(hub_id: str) -> InputError:
    return InputError(
        "hub_offline",
        f"Reading {hub_id}: it is not in the catalogue, was not read before, and the hub is not to be asked (offline).",
        hint="Plan it once online (unset HF_HUB_OFFLINE), or give a directory with the model's config.json.",
    )
