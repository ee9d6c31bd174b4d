"""Caches models that are not in the catalog: hub models by commit, folders by their files.

A cached hub revision is used for a day without checking for a newer commit. Plans name their commit, so a day-old
answer is never wrong.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import bounded_files
from tgi_deploy.catalog.fields import OPTIONAL_TEXT, REQUIRED_TEXT, Field, anything, boolean, positive, read
from tgi_deploy.catalog.shapes import read_shape, shape_table
from tgi_deploy.catalog.store import parse_json, read_text
from tgi_deploy.data_files import HOME_VARIABLE
from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Where, replaced
from tgi_deploy.values.model import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.catalog.repository import DirectorySource

MAIN: Final = "main"
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
# The sandbox passes the folder to its engine this way, because everything else there looks like another machine.
KEPT_MODELS: Final = "TGI_DEPLOY_KEPT_MODELS"
# Increment if the same files would be read differently, to invalidate older caches.
_FORMAT: Final = 2
_LOCAL: Final = "local"
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
    """Return the cache folder of hub models: under `HOME_VARIABLE` if that is set."""
    home, caches = environ.get(HOME_VARIABLE), environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(home) / "cache" if home else Path(caches).expanduser() / "tgi-deploy"
    return folder / "models"


class CachedModels:
    """Profiles of cached models. Never contacts the hub."""

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.time) -> None:
        self._folder, self._now = folder, now

    def resolve(self, hub_id: str, revision: str | None = None) -> Profile:
        """Return the model at the cached commit of a revision (default: main). Raises InputError `hub_offline`."""
        commit, _ = self.commit_of(hub_id, revision or MAIN)
        kept = None if commit is None else self.profile(hub_id, commit)
        if kept is None:
            raise _offline(hub_id)
        return kept

    def of_folder(self, source: DirectorySource) -> Profile:
        """Return the model in a folder; its headers are reread only if one of its files changed.

        Raises:
            InputError: `unreadable_path`, `bad_model_config`, `bad_checkpoint`.
        """
        from tgi_deploy.catalog.checkpoint import check_folder, read_folder, tokenizer_notice  # noqa: PLC0415 -- most are in the catalog

        check_folder(source)
        resolved = source.folder.resolve()
        path = self._folder / _LOCAL / f"{source.fingerprint()}.json"
        kept = self._kept(path, resolved.name)
        if kept is not None:
            model = replaced(kept.model, local_path=str(resolved))
            return replaced(kept, model=model, notice=tokenizer_notice(source))
        profile = read_folder(source)
        if profile.model.tensor_bytes:
            self._keep(path, _entry(profile))
        return profile

    def profile(self, hub_id: str, commit: str) -> Profile | None:
        return self._kept(self._path(hub_id, f"{commit}.json"), hub_id)

    def keep(self, profile: Profile, commit: str) -> None:
        self._keep(self._path(profile.name, f"{commit}.json"), _entry(profile))

    def keep_commit(self, hub_id: str, wanted: str, commit: str) -> None:
        """Store the commit of a branch or tag."""
        self._keep(self._path(hub_id, f"{wanted}.ref"), commit)

    def commit_of(self, hub_id: str, wanted: str) -> tuple[str | None, bool]:
        """Return the cached commit of a revision, and whether it is still fresh."""
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
        """Return the cached profile; None if missing or invalid."""
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
        """Write atomically. If writing fails, the next plan reads the model again."""
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


def _offline(hub_id: str) -> InputError:
    return InputError(
        "hub_offline",
        f"reading {hub_id}: it is neither in the catalog nor cached, and offline mode is on",
        hint="plan it once online (unset HF_HUB_OFFLINE), or use a folder with the model's config.json",
    )
