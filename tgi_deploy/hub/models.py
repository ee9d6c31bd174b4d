"""Hub models, from the local cache where possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tgi_deploy.catalog.kept_models import COMMIT, MAIN
from tgi_deploy.errors import InputError
from tgi_deploy.hub.answer import bad_hub_answer
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.catalog.kept_models import CachedModels
    from tgi_deploy.catalog.repository import DirectorySource, ModelSource
    from tgi_deploy.values.model import Profile

# Errors after which the cache is used.
_NO_ANSWER: Final = frozenset({"hub_unreachable", "extra_missing", "bad_hub_answer"})


class Hub(Protocol):
    """A source of models by id."""

    def open(self, hub_id: str, revision: str) -> ModelSource:
        """Return its files at a branch, tag or commit.

        Raises:
            InputError: `hub_not_found`, `hub_gated`, `hub_unreachable`, `bad_hub_answer`.
        """
        ...


class HubModels:
    """Profiles of hub models. `connect` is called only when the hub is needed."""

    def __init__(self, kept: CachedModels, connect: Callable[[], Hub]) -> None:
        self._kept, self._connect = kept, connect

    def resolve(self, hub_id: str, revision: str | None = None) -> Profile:
        """Return the model at a revision (default: the newest of its main branch), pinned to the commit.

        Raises:
            InputError: `extra_missing`, `hub_unreachable`, `bad_hub_answer`, `hub_not_found`, `hub_gated`,
                `bad_checkpoint`, `bad_model_config`.
        """
        wanted = revision or MAIN
        commit, is_fresh = self._kept.commit_of(hub_id, wanted)
        kept = None if commit is None else self._kept.profile(hub_id, commit)
        if kept is not None and is_fresh:
            return kept
        try:
            return self._ask(hub_id, wanted)
        except InputError as problem:
            if kept is None or problem.code not in _NO_ANSWER:
                raise
            return replaced(kept, notice=f"{problem.message}; the cached commit {commit} is used")

    def of_folder(self, source: DirectorySource) -> Profile:
        """Return the model in a folder. Raises like `CachedModels.of_folder`."""
        return self._kept.of_folder(source)

    def _ask(self, hub_id: str, wanted: str) -> Profile:
        from tgi_deploy.catalog.checkpoint import read_profile  # noqa: PLC0415 -- most models are in the catalog

        source = self._connect().open(hub_id, wanted)
        commit = source.revision or ""
        if not COMMIT.fullmatch(commit) or (COMMIT.fullmatch(wanted) and commit != wanted):
            raise bad_hub_answer(hub_id, f"it is for a commit other than {wanted}")
        profile = self._kept.profile(hub_id, commit)
        if profile is None:
            profile = read_profile(source, hub_id)
            self._kept.keep(profile, commit)
        if wanted != commit:
            self._kept.keep_commit(hub_id, wanted, commit)
        return profile
