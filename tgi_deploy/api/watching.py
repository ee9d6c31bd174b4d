"""The read-only methods: what runs, where and at what cost, and what would fail."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, Unpack

from tgi_deploy import wiring
from tgi_deploy.api.base import pastable
from tgi_deploy.api.planning import Planning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from decimal import Decimal

    from tgi_deploy.api.base import UpRequest
    from tgi_deploy.diagnosis.reader import Reading
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.deploying.in_place import Extension
    from tgi_deploy.operations.watching.asking import Answer
    from tgi_deploy.operations.watching.diagnose import DeploymentDiagnosis
    from tgi_deploy.operations.watching.explain import Explanation
    from tgi_deploy.operations.watching.listing import Listing
    from tgi_deploy.operations.watching.status import Status
    from tgi_deploy.values.base import Result
    from tgi_deploy.values.hardware import EntryKind
    from tgi_deploy.values.plan_request import PlanRequest
    from tgi_deploy.values.results import (
        AccessData,
        AnswerData,
        CodesData,
        CostsData,
        DiagnosisData,
        DoctorData,
        ExecData,
        ExplanationData,
        ExtensionData,
        ListData,
        LogData,
        NamedStatusData,
        PolicyData,
        RunbookData,
        StatusData,
    )

    NameKind = EntryKind | Literal["deployments", "codes"]


class Watching(Planning):
    """Methods that read the state of deployments, from records or tags."""

    @pastable
    def status(self, name: str) -> Result[NamedStatusData, Status]:
        """Compare the record with what exists, and check the endpoint.

        A deployment that does not serve is an error of the result, with exit code 5.
        """
        from tgi_deploy.operations.results.watching import status_result

        return status_result(self._look(), name)

    @pastable
    def statuses(self) -> Result[StatusData, tuple[Status, ...]]:
        """Return the status of every deployment."""
        from tgi_deploy.operations.results.watching import statuses_result

        return statuses_result(self._look())

    @pastable
    def list(self) -> Result[ListData, Listing]:
        """Return a summary of every deployment: recorded ones, and those found only by tags in the cloud."""
        from tgi_deploy.operations.results.watching import list_result

        return list_result(self._look())

    @pastable
    def costs(self) -> Result[CostsData, CostsData]:
        """Return the cost of deployments so far and now, with totals by owner."""
        from tgi_deploy.operations.results.watching import costs_result

        return costs_result(self._look())

    @pastable
    def open(self, name: str) -> Result[AccessData, AccessData]:
        """Return how to reach a deployment: its URL, a curl line, a Python line, and a note on unencrypted traffic."""
        from tgi_deploy.operations.results.watching import access_result

        return access_result(self._look(), name)

    @pastable
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
        """Send a prompt to a deployment; `on_piece` receives each piece of the answer as it arrives."""
        from tgi_deploy.operations.results.watching import answer_result
        from tgi_deploy.operations.watching.asking import Prompt

        asked = Prompt(text=prompt, chat=chat, max_tokens=max_tokens, key_variable=api_key_from_env)
        return answer_result(self._look(), name, asked, on_piece or (lambda _piece: None))

    @pastable
    def logs(self, name: str, *, tail: int | None = None, raw: bool = False) -> Result[LogData, str]:
        """Return the log of the machine and the engine, without secrets: the last `tail` lines, or all of them."""
        from tgi_deploy.operations.results.watching import logs_result

        return logs_result(self._look(), name, tail=tail, raw=raw)

    def follow_logs(self, name: str, *, tail: int | None = None, raw: bool = False) -> Iterator[str]:
        """Yield log lines as they arrive, until the machine terminates."""
        from tgi_deploy.operations.watching.logs import follow

        with self._pasted(name).errors():
            yield from follow(self._look(), name, tail=tail, raw=raw)

    @pastable
    def exec(
        self, name: str, words: tuple[str, ...] = (), *, terminal: bool = False, captured: bool = True
    ) -> Result[ExecData, None]:
        """Run a command next to the engine. Unless `captured`, it uses this process's streams, as a shell requires."""
        from tgi_deploy.operations.results.watching import exec_result

        return exec_result(self._look(), name, words, terminal=terminal, captured=captured)

    @pastable
    def diagnose(self, name: str) -> Result[DiagnosisData, DeploymentDiagnosis]:
        """Diagnose a failure from the console, state and plan of a deployment's machine."""
        from tgi_deploy.operations.results.watching import diagnosis_result

        return diagnosis_result(self._look(), name)

    def diagnose_log(
        self, text: str, *, engine: str | None = None, source: str = "-", lines_before: int = 0
    ) -> Result[DiagnosisData, Reading]:
        """Diagnose a failure from a log. Without `engine`, it is detected from the log.

        `source` is the log's name in the result; `lines_before` is the number of its lines before `text`.
        """
        from tgi_deploy.operations.results.watching import log_diagnosis_result

        grammar = wiring.log_grammar(engine or wiring.engine_of_log(text))
        return log_diagnosis_result(text, grammar, source=source, before=lines_before)

    def explain(self, code: str) -> Result[ExplanationData, Explanation]:
        """Return everything known about the code of a diagnosis, an error or a rejection."""
        from tgi_deploy.operations.results.watching import explanation_result

        return explanation_result(code, wiring.engine_named().name)

    def codes(self) -> Result[CodesData, tuple[Explanation, ...]]:
        """Return every code that `explain` explains."""
        from tgi_deploy.operations.results.watching import codes_result

        return codes_result(wiring.engine_named().name)

    def doctor(self, model: str = "", **options: Unpack[UpRequest]) -> Result[DoctorData, tuple[Problem, ...]]:
        """Check for anything that would make a launch fail; without a model, check the account and this computer."""
        from tgi_deploy.operations.checking.doctor import DoctorRequest, doctor
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.results.checking import doctor_result, plan_to_check
        from tgi_deploy.targets.protocol import located

        own, _, request = self._own_options(options)
        texts = texts_of(model, request)
        pasted = self._pasted(searches=False)
        with pasted.errors():
            plan = plan_to_check(texts, self._catalog(), os.environ, self.target, own)
        asked = DoctorRequest(
            context=wiring.context(self._setup(located(self.target, own).locations(texts.regions))),
            workstation=wiring.workstation(sandbox=self._sandbox),
            target=self.target.name,
            options=own,
            environ=wiring.environment(sandbox=self._sandbox),
            plan=plan,
        )
        return pasted.result(doctor_result(doctor(asked)))

    def policy(
        self, *features: str, everything: bool = False, boundary: bool = False
    ) -> Result[PolicyData, PolicyData]:
        """Return the required permissions: for a plain deployment, for these features, or for everything.

        With `boundary`, return the permissions boundary of the roles that `up` creates instead.
        """
        from tgi_deploy.operations.results.checking import policy_result

        return policy_result(self.target, features, everything=everything, boundary=boundary)

    def runbook(
        self, subject: str, *, name: str | None = None, **request: Unpack[PlanRequest]
    ) -> Result[RunbookData, RunbookData]:
        """Return the on-call runbook of a deployment, or of a model as it would be deployed."""
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.results.runbooks import (
            existing_subject,
            may_be_deployed,
            planned_page,
            runbook_result,
        )

        texts, recorded = texts_of(subject, request), subject in self.names("deployments")
        page = None
        if recorded or (may_be_deployed(texts) and not (self._sandbox and wiring.sandbox_status() is None)):
            places = () if recorded else wiring.targets()[0].locations(texts.regions)
            page = existing_subject(wiring.context(self._setup(places)), subject, recorded=recorded)
        if page is None:
            with self._pasted(name or "", searches=False).errors():
                page = planned_page(texts, self._catalog(), os.environ, wiring.target_for, name)
        engine = wiring.engine_named(page.service.engine)
        return runbook_result(page, engine, self._profiles_dir, self._templates_dir, sandbox=self._sandbox)

    @pastable
    def extend(
        self,
        name: str,
        *,
        ttl: str | None = None,
        max_spend: Decimal | float | str | None = None,
        idle_timeout: str | None = None,
        lease: str | None = None,
    ) -> Result[ExtensionData, Extension]:
        """Set, move or remove ('none') limits of a running machine; without any, renew its lease."""
        from tgi_deploy.operations.planning.option_texts import moved_limits
        from tgi_deploy.operations.results.watching import extension_result

        given = {"ttl": ttl, "max_spend": max_spend, "idle_timeout": idle_timeout, "lease": lease}
        texts = {key: None if value is None else str(value) for key, value in given.items()}
        return extension_result(self._look(), name, moved_limits(texts))

    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return the known names of a kind, for completion. Starts nothing and calls no cloud."""
        if kind == "deployments":
            return wiring.recorded_names(sandbox=self._sandbox)
        if kind == "codes":
            return tuple(item.code for item in self.codes().data.codes)
        return wiring.open_catalog(self._profiles_dir).names(kind)
