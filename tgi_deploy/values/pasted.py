"""Completes the commands that messages suggest, so that they work when pasted.

Most code knows neither the deployment's name nor the options of the user's command, and writes 'tgi-deploy logs NAME'.
Without --sandbox, the pasted line would call a real account, and `up` would rent machines there; without --region or
--target, it would not find a deployment that has no record here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from tgi_deploy.errors import DeployError
from tgi_deploy.values.base import DataT, Frozen, OutcomeT, as_dict, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.errors import Failure, Problem
    from tgi_deploy.values.base import Result

# The commands that search --region and --target for deployments, those that call a cloud, and those that read
# --profiles-dir. A test checks that each list is complete.
SEARCHING: Final = (
    "scale", "down", "stop", "start", "restart", "extend", "gc", "status", "list", "logs", "diagnose", "open", "ask",
    "exec", "costs",
)  # fmt: skip
CALLING: Final = (*SEARCHING, "up", "rollback", "smoke", "runbook", "doctor")
PLANNING: Final = ("plan", "up", "render", "doctor", "smoke", "rehearse", "runbook", "rollback", "predict")
_LAUNCHING: Final = ("doctor", "plan")
# The rest ends at the next quote, except those of the values of options that are already there.
_COMMAND: Final = re.compile(
    r"\btgi-deploy (?P<command>[a-z]+)\b(?!-)(?P<unnamed> NAME\b)?"
    r"(?=(?P<rest>(?: --[a-z-]+(?: '[^'\n]*'| [^-'\s][^'\s]*)?)*[^'\n]*))"
)
_HASH: Final = "sha256"
# The key of a line of a log, which is passed on unchanged.
_EVIDENCE: Final = "evidence"
_S = TypeVar("_S", bound=Struct)


class Pasted(Frozen, frozen=True, kw_only=True):
    """What completes a command: the deployment's name, if one is known, and the options of the user's command.

    `searches`: it searched `regions` and `target` for deployments; otherwise, `target` is where it launches. An empty
    `target` is the default one.
    """

    name: str = ""
    sandbox: bool = False
    searches: bool = False
    regions: tuple[str, ...] = ()
    target: str = ""
    profiles_dir: str = ""

    def text(self, text: str) -> str:
        """Return a text with its commands completed."""
        return _COMMAND.sub(self._completed, text)

    def _completed(self, found: re.Match[str]) -> str:
        command, rest = found["command"], found["rest"]
        options = [words for words in self._options(command) if f" {words.split()[0]}" not in rest]
        unnamed = [shlex.quote(self.name) if self.name else "NAME"] if found["unnamed"] else []
        return " ".join(("tgi-deploy", command, *options, *unnamed))

    def _options(self, command: str) -> Iterator[str]:
        if command in SEARCHING and self.searches:
            yield from (f"--region {shlex.quote(region)}" for region in self.regions)
        if self.target and command in (*_LAUNCHING, *(SEARCHING if self.searches else ())):
            yield f"--target {self.target}"
        if command in PLANNING and self.profiles_dir:
            yield f"--profiles-dir {shlex.quote(self.profiles_dir)}"
        if command in CALLING and self.sandbox:
            yield "--sandbox"

    def result(self, found: Result[DataT, OutcomeT]) -> Result[DataT, OutcomeT]:
        """Return the result of a use case with the commands in its warnings and errors completed."""
        warnings, errors = (tuple(map(self.problem, items)) for items in (found.warnings, found.errors))
        return replaced(found, warnings=warnings, errors=errors)

    def problem(self, problem: Problem) -> Problem:
        return replaced(self._texts(problem), data=self.data(problem.data))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Complete the commands of an error that is raised in this context."""
        try:
            yield
        except DeployError as error:
            raise self._error(error) from error.__cause__

    def _error(self, error: DeployError) -> DeployError:
        from tgi_deploy.values.plan import NoPlanError  # noqa: PLC0415 -- startup time

        now, failure = self.problem(error.problem), error.failure and self._failure(error.failure)
        again = error.copy(message=now.message, hint=now.hint, data=now.data, failure=failure)
        if isinstance(again, NoPlanError):
            again.commands = tuple(map(self.text, again.commands))
        return again

    def _failure(self, failure: Failure) -> Failure:
        known, runs = failure.diagnosis, failure.still_running
        return replaced(failure, diagnosis=known and self._texts(known), still_running=runs and self._texts(runs))

    def _texts(self, value: _S) -> _S:
        texts = {key: item for key, item in as_dict(value).items() if isinstance(item, str) and key != _EVIDENCE}
        return replaced(value, **{key: self.text(item) for key, item in texts.items()})

    def data(self, value: Any) -> Any:  # noqa: ANN401 -- whatever JSON can hold
        """Return data for JSON with the commands in its texts completed. Hashed parts and evidence stay unchanged."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping) and _HASH in value:
            return value
        if isinstance(value, Mapping):
            return {key: item if key == _EVIDENCE else self.data(item) for key, item in value.items()}
        if isinstance(value, Sequence):
            return tuple(self.data(item) for item in value)
        return value
