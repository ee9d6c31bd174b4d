"""The Python API: one method for each use case, with the words of the command line's options (docs/api.md).

It prints nothing, asks nothing, reads no arguments and sets no signal handler. What it shows goes to `progress`, what
it asks goes to the caller's own functions, and what fails is a `DeployError` with a code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy import wiring
from tgi_deploy.errors import DeployError as DeployError
from tgi_deploy.wiring import logged_engines as logged_engines
from tgi_deploy.wiring import target_names as target_names
from tgi_deploy.wiring import target_of as target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from decimal import Decimal
    from pathlib import Path

    # What outcomes are made of, for whoever writes text from them.
    from tgi_deploy.diagnosis.patterns import Page as Page
    from tgi_deploy.diagnosis.reader import Reading as Reading
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.in_place import Extension as Extension
    from tgi_deploy.operations.watching.asking import Answer as Answer
    from tgi_deploy.operations.watching.costs import Amounts as Amounts
    from tgi_deploy.operations.watching.costs import Costs as Costs
    from tgi_deploy.operations.watching.diagnose import Examined as Examined
    from tgi_deploy.operations.watching.explain import Explanation as Explanation
    from tgi_deploy.operations.watching.listing import Listing as Listing
    from tgi_deploy.operations.watching.listing import Row as Row
    from tgi_deploy.operations.watching.status import Status as Status
    from tgi_deploy.reconcile.ends import End as End
    from tgi_deploy.values.progress import ProgressEvent
    from tgi_deploy.values.results import (
        AccessData,
        AnswerData,
        CodesData,
        CostsData,
        DiagnosisData,
        ExecData,
        ExplanationData,
        ExtensionData,
        ListData,
        LogData,
        NamedStatusData,
        Result,
        StatusData,
    )

_COMMAND: Final = "a program that uses tgi_deploy.Client"


class Client:
    """Deployments of one place, or of the sandbox. Clients share nothing: one for each thread.

    `target` and `region` are where is looked for what no record names, as `--target` and `--region`; a region may be
    'all'. `command` is what a lock says about its holder. `progress` receives each event; `str` makes a line of one.
    """

    def __init__(  # noqa: PLR0913 -- where it looks, and what it shows
        self,
        *,
        target: str | None = None,
        region: str | Sequence[str] = (),
        sandbox: bool = False,
        profiles_dir: Path | None = None,
        templates_dir: Path | None = None,
        offline: bool = False,
        progress: Callable[[ProgressEvent], None] | None = None,
        command: str = _COMMAND,
    ) -> None:
        self.target: Final = wiring.target_named(target or target_names()[0])
        self._regions: Final = (region,) if isinstance(region, str) else tuple(region)
        self._sandbox, self._offline = sandbox, offline
        self._profiles_dir, self._templates_dir = profiles_dir, templates_dir
        self._progress: Final = progress
        self._command: Final = command

    def _setup(self, regions: tuple[str, ...]) -> wiring.Setup:
        return wiring.Setup(
            progress=self._progress,
            command=self._command,
            sandbox=self._sandbox,
            regions=regions,
            profiles_dir=self._profiles_dir,
            templates_dir=self._templates_dir,
            offline=self._offline,
        )

    @property
    def places(self) -> tuple[str, ...]:
        """Where is looked for what no record names."""
        return self.target.locations(self._regions)

    def _look(self) -> Context:
        """Return the surroundings of what looks for what exists."""
        return wiring.context(self._setup(self.places))

    def status(self, name: str) -> Result[NamedStatusData, Status]:
        """Compare what was recorded with what is there, and ask the endpoint.

        A deployment that does not serve is an error of the result, with exit code 5.
        """
        from tgi_deploy.operations.results.watching import status_result

        return status_result(self._look(), name)

    def statuses(self) -> Result[StatusData, tuple[Status, ...]]:
        """Return the status of every deployment."""
        from tgi_deploy.operations.results.watching import statuses_result

        return statuses_result(self._look())

    def list(self) -> Result[ListData, Listing]:
        """Return every deployment in short: recorded ones, and those that only tags in the cloud show."""
        from tgi_deploy.operations.results.watching import list_result

        return list_result(self._look())

    def costs(self) -> Result[CostsData, Costs]:
        """Return what deployments have cost so far and cost now, with totals by owner."""
        from tgi_deploy.operations.results.watching import costs_result

        return costs_result(self._look())

    def open(self, name: str) -> Result[AccessData, AccessData]:
        """Return how to reach a deployment: its URL, a curl line, a Python line, and what travels unencrypted."""
        from tgi_deploy.operations.results.watching import access_result

        return access_result(self._look(), name)

    def ask(
        self,
        name: str,
        prompt: str,
        *,
        chat: bool | None = None,
        max_tokens: int | None = None,
        api_key_from_env: str | None = None,
        on_piece: Callable[[str], None] | None = None,
    ) -> Result[AnswerData, Answer]:
        """Ask a deployment one question; `on_piece` gets each piece of the answer as it arrives."""
        from tgi_deploy.operations.results.watching import answer_result
        from tgi_deploy.operations.watching.asking import Prompt

        asked = Prompt(text=prompt, chat=chat, max_tokens=max_tokens, key_variable=api_key_from_env)
        return answer_result(self._look(), name, asked, on_piece or (lambda _piece: None))

    def logs(self, name: str, *, tail: int | None = None, raw: bool = False) -> Result[LogData, str]:
        """Return what machine and engine have logged, without secrets: the last `tail` lines, or all."""
        from tgi_deploy.operations.results.watching import logs_result

        return logs_result(self._look(), name, tail=tail, raw=raw)

    def follow_logs(self, name: str, *, tail: int | None = None, raw: bool = False) -> Iterator[str]:
        """Yield the lines as they come, until the machine ends."""
        from tgi_deploy.operations.watching.logs import follow

        return follow(self._look(), name, tail=tail, raw=raw)

    def exec(
        self, name: str, words: tuple[str, ...] = (), *, terminal: bool = False, captured: bool = True
    ) -> Result[ExecData, None]:
        """Run a command where the engine runs. Without `captured` it has this process's streams: a shell needs them."""
        from tgi_deploy.operations.results.watching import exec_result

        return exec_result(self._look(), name, words, terminal=terminal, captured=captured)

    def diagnose(self, name: str) -> Result[DiagnosisData, Examined]:
        """Name the cause of a failure from the console, state and plan of a deployment's machine."""
        from tgi_deploy.operations.results.watching import diagnosis_result

        return diagnosis_result(self._look(), name)

    def diagnose_log(
        self, text: str, *, engine: str | None = None, source: str = "-", lines_before: int = 0
    ) -> Result[DiagnosisData, Reading]:
        """Name the cause of a failure from a log. `engine` None: what the log looks like.

        `source` is what the result calls it; `lines_before` is how many lines of it come before `text`.
        """
        from tgi_deploy.operations.results.watching import log_diagnosis_result

        grammar = wiring.log_grammar(engine or wiring.engine_of_log(text))
        return log_diagnosis_result(text, grammar, source=source, before=lines_before)

    def explain(self, code: str) -> Result[ExplanationData, Explanation]:
        """Return all that is known of the code of a diagnosis, an error or a rejection."""
        from tgi_deploy.operations.results.watching import explanation_result

        return explanation_result(code, wiring.engine_named().name)

    def codes(self) -> Result[CodesData, tuple[Explanation, ...]]:
        """Return every code that `explain` explains."""
        from tgi_deploy.operations.results.watching import codes_result

        return codes_result(wiring.engine_named().name)

    def extend(
        self,
        name: str,
        *,
        ttl: str | None = None,
        max_spend: Decimal | float | str | None = None,
        idle_timeout: str | None = None,
        lease: str | None = None,
    ) -> Result[ExtensionData, Extension]:
        """Set, move or lift ('none') limits of a machine that runs; renew its lease where none is given."""
        from tgi_deploy.operations.planning.option_texts import moved_limits
        from tgi_deploy.operations.results.watching import extension_result

        given = {"ttl": ttl, "max_spend": max_spend, "idle_timeout": idle_timeout, "lease": lease}
        texts = {key: None if value is None else str(value) for key, value in given.items()}
        return extension_result(self._look(), name, moved_limits(texts))
