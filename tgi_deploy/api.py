"""The Python API: one method for each use case, with the words of the command line's options (docs/api.md).

It prints nothing, asks nothing, reads no arguments and sets no signal handler. What it shows goes to `progress`, what
it asks goes to the caller's own functions, and what fails is a `DeployError` with a code.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal, Unpack

from tgi_deploy import wiring
from tgi_deploy.errors import DeployError as DeployError
from tgi_deploy.errors import InputError
from tgi_deploy.operations.stops import Stops as Stops  # noqa: TC001 -- callers import it from here
from tgi_deploy.values.base import Result, replaced
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.plan import NoPlanError as NoPlanError
from tgi_deploy.wiring import forms as forms
from tgi_deploy.wiring import logged_engines as logged_engines
from tgi_deploy.wiring import target_names as target_names
from tgi_deploy.wiring import target_of as target_of
from tgi_deploy.wiring import target_options as target_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from decimal import Decimal
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog

    # What outcomes are made of, for whoever writes text from them.
    from tgi_deploy.diagnosis.patterns import Page as Page
    from tgi_deploy.diagnosis.reader import Reading as Reading
    from tgi_deploy.errors import RecordedThing
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.in_place import Extension as Extension
    from tgi_deploy.operations.deploying.pausing import Question as Question
    from tgi_deploy.operations.deploying.pausing import Switched as Switched
    from tgi_deploy.operations.deploying.pausing import SwitchRequest
    from tgi_deploy.operations.deploying.rollout import Update as Update
    from tgi_deploy.operations.deploying.service import Proof as Proof
    from tgi_deploy.operations.deploying.service import ReadyLevel as ReadyLevel
    from tgi_deploy.operations.deploying.up import Decision as Decision
    from tgi_deploy.operations.deploying.up import Proposal as Proposal
    from tgi_deploy.operations.deploying.up import UpOutcome as UpOutcome
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.operations.planning.why_not import WhyNot as WhyNot
    from tgi_deploy.operations.removing.down import DownOutcome as DownOutcome
    from tgi_deploy.operations.removing.down import Removal as Removal
    from tgi_deploy.operations.removing.gc import GcOutcome as GcOutcome
    from tgi_deploy.operations.removing.gc import Group as Group
    from tgi_deploy.operations.removing.receipt import KeptThing as KeptThing
    from tgi_deploy.operations.removing.receipt import Receipt as Receipt
    from tgi_deploy.operations.watching.asking import Answer as Answer
    from tgi_deploy.operations.watching.diagnose import Examined as Examined
    from tgi_deploy.operations.watching.explain import Explanation as Explanation
    from tgi_deploy.operations.watching.listing import Listing as Listing
    from tgi_deploy.operations.watching.listing import Row as Row
    from tgi_deploy.operations.watching.status import Status as Status
    from tgi_deploy.planner.why_not import Explained as Explained
    from tgi_deploy.planner.why_not import Priced as Priced
    from tgi_deploy.planner.why_not import Way as Way
    from tgi_deploy.reconcile.ends import End as End
    from tgi_deploy.sandbox.control import SandboxInfo as RunningSandbox
    from tgi_deploy.targets.protocol import Artifact, TargetOptions
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.change_results import DownData, GcData, SwitchData, UpData
    from tgi_deploy.values.deployment import Strategy
    from tgi_deploy.values.hardware import EntryKind
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.plan_document import PlanData
    from tgi_deploy.values.plan_request import PlanRequest
    from tgi_deploy.values.plan_results import (
        CasesData,
        Comparison,
        DiffData,
        PredictionData,
        RenderData,
        SweepData,
        WhyNotData,
    )
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
        RunbookData,
        SandboxData,
        SandboxInfo,
        SandboxStopData,
        StatusData,
    )

    NameKind = EntryKind | Literal["deployments", "codes"]
    Percent = Decimal | float | str | None

    class UpRequest(PlanRequest, TargetOptions, total=False):
        """Options of a plan, and of the target."""


_COMMAND: Final = "a program that uses tgi_deploy.Client"


def _yes(_what: object) -> bool:
    return True


def _sandbox_info(found: RunningSandbox) -> SandboxInfo:
    from tgi_deploy.values.results import SandboxInfo

    return SandboxInfo(endpoint_url=found.endpoint_url, pid=found.pid, started=found.started)


class Client:
    """Deployments of one place, or of the sandbox. Clients share nothing: one for each thread.

    `target` and `region` are where is looked for what no record names, as `--target` and `--region`; a region may be
    'all'. `command` is what a lock says about its holder, `owner` who begins deployments, empty for the person here.
    `progress` receives each event; `str` makes a line of one.
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
        owner: str = "",
    ) -> None:
        self.target: Final = wiring.target_named(target or target_names()[0])
        self._regions: Final = (region,) if isinstance(region, str) else tuple(region)
        self._sandbox, self._offline = sandbox, offline
        self._profiles_dir, self._templates_dir = profiles_dir, templates_dir
        self._progress: Final = progress
        self._command: Final = command
        self._owner: Final = owner

    def _setup(self, regions: tuple[str, ...], *, key_variable: str | None = None) -> wiring.Setup:
        return wiring.Setup(
            progress=self._progress,
            command=self._command,
            sandbox=self._sandbox,
            regions=regions,
            profiles_dir=self._profiles_dir,
            templates_dir=self._templates_dir,
            offline=self._offline,
            api_key_variable=key_variable,
            owner=self._owner,
        )

    @property
    def places(self) -> tuple[str, ...]:
        """Where is looked for what no record names."""
        return self.target.locations(self._regions)

    def _look(self) -> Context:
        """Return the surroundings of what looks for what exists."""
        return wiring.context(self._setup(self.places))

    def plan(
        self,
        model: str,
        *,
        explain: bool = False,
        lock: Path | None = None,
        report: Path | None = None,
        plot: Path | None = None,
        **request: Unpack[PlanRequest],
    ) -> Result[PlanData, Plan]:
        """Return the plan for a model. `request` are the options of a plan by their words: `budget=5`.

        The plan is written to the file `lock`, and drawn in `report` (HTML) and `plot` (.svg, .png).
        Raises NoPlanError, which has the nearest misses.
        """
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.results.planning import plan_result

        files = None
        if lock or report or plot:
            from tgi_deploy.operations.planning.plan_files import PlanFiles

            files = PlanFiles(lock=lock, report=report, plot=plot, targets=wiring.targets())
            files.check()
        texts = texts_of(model, request)
        return plan_result(self.target, texts, self._catalog(), os.environ, explain=explain, into=files)

    def own(
        self, model: str, file: Path, *, explain: bool = False, **request: Unpack[PlanRequest]
    ) -> Result[PlanData, Plan]:
        """Return the plan on the hardware that a file describes, what it costs, and which rentals it beats."""
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.results.about_plans import owned_result

        return owned_result(file, texts_of(model, request), self._catalog(), os.environ, explain=explain)

    def locked(self, file: Path) -> Result[PlanData, None]:
        """Return the plan of a lock as it was printed; a warning says how today's differs. The hub is not asked."""
        from tgi_deploy.operations.results.about_plans import locked_result

        return locked_result(file, wiring.catalog(self._profiles_dir, offline=True))

    def why_not(self, model: str, kind: str, **request: Unpack[PlanRequest]) -> Result[WhyNotData, WhyNot]:
        """Explain an instance type or an accelerator for a request, with the arithmetic."""
        from tgi_deploy.operations.results.about_plans import why_not_result

        return why_not_result(self._supplied(model, request), kind, self._catalog(), os.environ)

    def sweep(self, model: str, values: str, **request: Unpack[PlanRequest]) -> Result[SweepData, SweepData]:
        """Plan for many values of one option: `concurrency=1,2,4`, `context=2048..16384*2`, `budget=1..10+1`."""
        from tgi_deploy.operations.results.about_plans import sweep_result

        return sweep_result(self._supplied(model, request), values, self._catalog(), os.environ)

    def _supplied(self, model: str, request: PlanRequest) -> OptionTexts:
        """Return a request with what the target adds to it."""
        from tgi_deploy.operations.launching.target_options import supplied
        from tgi_deploy.operations.planning.option_texts import texts_of

        return supplied(self.target, texts_of(model, request), self._catalog(), os.environ)[0]

    def render(
        self, model: str, form: str, *, name: str | None = None, **request: Unpack[PlanRequest]
    ) -> Result[RenderData, Artifact]:
        """Return one artifact of a plan as finished text; `forms` has what can be written. Raises NoPlanError."""
        from tgi_deploy.operations.planning.artifacts import artifact_result
        from tgi_deploy.operations.planning.option_texts import texts_of

        return artifact_result(
            form,
            texts_of(model, request),
            self._catalog(),
            os.environ,
            write=lambda subject: wiring.written(form, subject, self._templates_dir),
            name=name,
            profiles_dir=self._profiles_dir,
        )

    def diff(
        self,
        old: Path,
        new: Path,
        *,
        max_cost_increase: Percent = None,
        max_token_cost_increase: Percent = None,
        min_memory_margin_tokens: int | None = None,
        max_memory_margin_decrease: Percent = None,
    ) -> Result[DiffData, Comparison]:
        """Compare two plans: locks, or what `plan --json` printed. Limits are percentages: `10`, `"10%"`.

        Those that the new one breaks are errors of the result, with exit code 3.
        """
        from tgi_deploy.operations.planning.compare_plans import Limits
        from tgi_deploy.operations.results.about_plans import diff_result

        limits = Limits.of(
            max_cost_increase=max_cost_increase,
            max_token_cost_increase=max_token_cost_increase,
            max_memory_margin_decrease=max_memory_margin_decrease,
            min_memory_margin_tokens=min_memory_margin_tokens,
        )
        return diff_result(old, new, limits)

    def predict(  # noqa: PLR0913 -- one argument an option
        self,
        model: str,
        *,
        accelerator: str,
        num_shard: int = 1,
        interconnect: str | None = None,
        weights: str = "fp16",
        kv: str = "fp16",
        input_tokens: int = 1024,
        output_tokens: int = 256,
        concurrency: int | str = "saturated",
        engine: str | None = None,
        engine_version: str = "",
    ) -> Result[PredictionData, PredictionData]:
        """Return the predicted speed of a stated configuration, each figure with an 80 % interval."""
        from tgi_deploy.operations.planning.predict import Question, concurrency_of
        from tgi_deploy.operations.results.about_plans import prediction_result

        question = Question(
            model=model,
            accelerator=accelerator,
            num_shard=num_shard,
            interconnect=interconnect or "",
            weights=weights,
            kv=kv,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            concurrency=concurrency_of(str(concurrency)),
            engine=engine or wiring.engine_named().name,
            engine_version=engine_version,
        )
        return prediction_result(question, self._catalog())

    def predict_cases(self, file: Path) -> Result[CasesData, CasesData]:
        """Return a prediction for each row of a CSV file, in order. The hub is not asked."""
        from tgi_deploy.operations.results.about_plans import cases_result

        return cases_result(file, wiring.catalog(self._profiles_dir, offline=True))

    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return the names that are known of a kind, for completion: nothing is started, and no cloud is asked."""
        if kind == "deployments":
            return wiring.recorded_names(sandbox=self._sandbox)
        if kind == "codes":
            return tuple(item.code for item in self.codes().data.codes)
        return wiring.open_catalog(self._profiles_dir).names(kind)

    def sandbox_start(self) -> Result[SandboxData, SandboxInfo]:
        """Start the local cloud, or find it running."""
        from tgi_deploy.values.results import SandboxData

        found = wiring.sandbox_start()
        info = replaced(_sandbox_info(found), access_key=found.access_key)
        return Result(data=SandboxData(sandbox=info), outcome=info)

    def sandbox_stop(self) -> Result[SandboxStopData, bool]:
        """Stop the local cloud and everything that runs in it; return whether it ran."""
        from tgi_deploy.values.results import SandboxStopData

        stopped = wiring.sandbox_stop()
        return Result(data=SandboxStopData(stopped=stopped), outcome=stopped)

    def sandbox_status(self) -> Result[SandboxData, SandboxInfo | None]:
        """Return where the local cloud runs, None where it does not."""
        from tgi_deploy.values.results import SandboxData

        found = wiring.sandbox_status()
        info = _sandbox_info(found) if found else None
        return Result(data=SandboxData(sandbox=info), outcome=info)

    def up(  # noqa: PLR0913 -- one argument an option
        self,
        model: str = "",
        *,
        lock: Path | None = None,
        force: bool = False,
        heal: bool = False,
        name: str | None = None,
        wait: bool = True,
        ready: ReadyLevel = "full",
        on_failure: Literal["keep", "remove"] | Callable[[DeployError], Decision] | None = None,
        dry_run: bool = False,
        preflight: bool = True,
        replan: bool = False,
        strategy: Strategy | None = None,
        on_plan: Callable[[Plan], None] | None = None,
        confirm: Callable[[Proposal], bool] | None = None,
        on_interrupt: Callable[[tuple[RecordedThing, ...]], bool] | None = None,
        stops: Stops | None = None,
        **options: Unpack[UpRequest],
    ) -> Result[UpData, UpOutcome]:
        """Plan a model, or take a lock, bring it up, wait until it is healthy, and prove that it answers.

        `options` are those of a plan and of the target. By default nothing is asked, and what a failed or stopped run
        has made is removed; `on_failure='remove'` also removes what was there before. `on_plan` gets the plan before
        anything is looked up, and may raise; `confirm` gets what would be done, and returns whether to go on;
        `on_interrupt` gets what exists, and returns whether to remove it.
        """
        from tgi_deploy.operations.deploying.bring_up import UpAnswers, UpJob, UpOptions, healer
        from tgi_deploy.operations.launching.target_options import supplied
        from tgi_deploy.operations.planning.locked import locked_request
        from tgi_deploy.operations.planning.no_plan import without_plan
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.planning.plan import plan as make
        from tgi_deploy.operations.removing.stopping import run_settled
        from tgi_deploy.operations.results.changing import up_result

        own, request = self._own_options(options, {"sandbox": self._sandbox})
        asked = UpOptions(
            target=self.target,
            own=own,
            name=name,
            wait=wait,
            ready=ready,
            dry_run=dry_run,
            preflight=preflight,
            replan=replan,
            locked=lock is not None,
            strategy=strategy,
            remove_all=on_failure == "remove",
        )
        answers = UpAnswers.of(on_plan=on_plan, confirm=confirm, on_failure=on_failure, on_interrupt=on_interrupt)
        asked.check(force=force, heal=heal)
        catalog = self._catalog()
        plan: Plan | NoFeasiblePlan
        texts, found = supplied(self.target, texts_of(model, request), catalog, os.environ, locked=lock is not None)
        if lock is None:
            plan = make(texts, catalog, os.environ)
        else:
            texts, plan = locked_request(lock, texts, catalog, force=force)
        if isinstance(plan, NoFeasiblePlan):
            raise without_plan(f"up --name {name}" if name else "up", texts, plan)
        job = UpJob(
            options=asked,
            answers=answers,
            plan=plan,
            found=found,
            catalog=catalog,
            environ=wiring.environment(sandbox=self._sandbox),
        )
        job.check()
        setup = self._setup(job.places(texts), key_variable=getattr(own, "api_key_from_env", None))
        cures = healer(catalog, self._profiles_dir, os.environ) if heal else None
        outcome, made = run_settled(
            wiring.context(setup), stops, job.runner(texts, cures), name=job.name, ask=answers.on_interrupt
        )
        notice = wiring.region_notice(setup) if self.target.facts.regions else None
        return up_result(plan, outcome, made, found.notices, notice)

    def rollback(  # noqa: PLR0913 -- one argument an option
        self,
        name: str,
        *,
        dry_run: bool = False,
        strategy: Strategy | None = None,
        on_plan: Callable[[Plan], None] | None = None,
        confirm: Callable[[Proposal], bool] | None = None,
        on_failure: Callable[[DeployError], Decision] | None = None,
        on_interrupt: Callable[[tuple[RecordedThing, ...]], bool] | None = None,
        stops: Stops | None = None,
    ) -> Result[UpData, UpOutcome]:
        """Go back to the revision that served before, with its options and today's limits."""
        from tgi_deploy.operations.deploying.bring_up import UpAnswers, former_job
        from tgi_deploy.operations.removing.stopping import run_settled
        from tgi_deploy.operations.results.changing import up_result

        answers = UpAnswers.of(on_plan=on_plan, confirm=confirm, on_failure=on_failure, on_interrupt=on_interrupt)
        recorded, job = former_job(
            wiring.context(self._setup(())),
            name,
            self._catalog(),
            wiring.environment(sandbox=self._sandbox),
            answers,
            dry_run=dry_run,
            strategy=strategy,
        )
        setup = self._setup((), key_variable=getattr(job.options.own, "api_key_from_env", None))
        outcome = run_settled(
            wiring.context(setup), stops, job.former_runner(recorded), name=name, ask=answers.on_interrupt
        )
        return up_result(job.plan, outcome)

    def down(
        self,
        *names: str,
        everything: bool = False,
        volumes: bool = False,
        confirm: Callable[[Sequence[Removal]], bool] | None = None,
        stops: Stops | None = None,
    ) -> Result[DownData, DownOutcome]:
        """Remove deployments by their names, or everything, and prove that nothing is left.

        `confirm` gets what would be removed, and returns whether to go on. Raises LeftBehindError with what is left.
        """
        from tgi_deploy.operations.removing.down import down
        from tgi_deploy.operations.removing.down_all import down_all
        from tgi_deploy.operations.removing.stopping import run_again
        from tgi_deploy.operations.results.changing import down_result

        if bool(names) == everything:
            raise InputError(
                "bad_usage", "name one deployment, or give --all", hint="'tgi-deploy list' shows what there is"
            )
        context, ask = self._look(), confirm or _yes
        again = " ".join(("tgi-deploy down", *(names or ("--all",))))
        outcome = run_again(
            context,
            stops,
            lambda guarded: (
                down(guarded, names, ask, volumes=volumes) if names else down_all(guarded, ask, volumes=volumes)
            ),
            doing=again,
            advice=f"what is left keeps its record: '{again}' resumes where it stopped, 'tgi-deploy list' shows it",
        )
        return down_result(context, outcome)

    def gc(
        self,
        *,
        older_than: str = "1m",
        include_unrecorded: bool = False,
        all_regions: bool = False,
        confirm: Callable[[Sequence[Group]], bool] | None = None,
        stops: Stops | None = None,
    ) -> Result[GcData, GcOutcome]:
        """Find orphans by their tags, and remove them. Raises LeftBehindError with what is left."""
        from tgi_deploy.operations.removing.gc import GcRequest, age_s, gc
        from tgi_deploy.operations.removing.stopping import run_again
        from tgi_deploy.operations.results.changing import gc_result

        request = GcRequest(
            older_than_s=age_s(older_than), include_unrecorded=include_unrecorded, confirm=confirm or _yes
        )
        places = wiring.targets()[0].locations(("all",)) if all_regions else self.places
        found = run_again(
            wiring.context(self._setup(places)),
            stops,
            lambda guarded: gc(guarded, request),
            doing="gc",
            advice="what is left is found again by the same 'tgi-deploy gc'",
        )
        return gc_result(found)

    def stop(
        self, name: str, *, confirm: Callable[[Question], bool] | None = None, stops: Stops | None = None
    ) -> Result[SwitchData, Switched]:
        """Stop the machine once open requests have been answered; its disk is kept and billed."""
        from tgi_deploy.operations.deploying.pausing import stop

        return self._switch(stop, name, "full", confirm, stops)

    def start(
        self,
        name: str,
        *,
        ready: ReadyLevel = "full",
        confirm: Callable[[Question], bool] | None = None,
        stops: Stops | None = None,
    ) -> Result[SwitchData, Switched]:
        """Start a machine stopped by `stop`, wait until it is healthy, and prove that it answers."""
        from tgi_deploy.operations.deploying.pausing import start

        return self._switch(start, name, ready, confirm, stops)

    def restart(
        self,
        name: str,
        *,
        ready: ReadyLevel = "full",
        confirm: Callable[[Question], bool] | None = None,
        stops: Stops | None = None,
    ) -> Result[SwitchData, Switched]:
        """Restart the engine on its machine, wait until it is healthy, and prove that it answers."""
        from tgi_deploy.operations.deploying.pausing import restart

        return self._switch(restart, name, ready, confirm, stops)

    def _switch(
        self,
        act: Callable[[Context, SwitchRequest], Switched],
        name: str,
        ready: ReadyLevel,
        confirm: Callable[[Question], bool] | None,
        stops: Stops | None,
    ) -> Result[SwitchData, Switched]:
        from tgi_deploy.operations.deploying.pausing import SwitchRequest
        from tgi_deploy.operations.removing.stopping import run_again
        from tgi_deploy.operations.results.changing import switch_result

        request = SwitchRequest(
            name=name,
            confirm=confirm or _yes,
            level=ready,
            reported_as=lambda release: self._catalog().release(release).reported_as,
        )
        again = f"tgi-deploy {act.__name__} {name}"
        found = run_again(
            self._look(),
            stops,
            lambda guarded: act(guarded, request),
            doing=again,
            advice=f"'{again}' resumes it, 'tgi-deploy status {name}' shows what there is",
        )
        return switch_result(found)

    def _catalog(self) -> Catalog:
        return wiring.catalog(self._profiles_dir, offline=self._offline)

    def _own_options(
        self, options: Mapping[str, object], others: Mapping[str, object]
    ) -> tuple[Value, dict[str, object]]:
        """Return the target's own options among those that were given, and the rest."""
        from tgi_deploy.operations.launching.target_options import own_options, refuse

        every = wiring.targets()
        own = own_options(self.target, every, options)
        refuse(self.target, {**options, **others}, os.environ)
        of_targets = {name for target in every for name in target.options.__struct_fields__}
        return own, {name: value for name, value in options.items() if name not in of_targets}

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

    def costs(self) -> Result[CostsData, CostsData]:
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

    def runbook(
        self, subject: str, *, name: str | None = None, **request: Unpack[PlanRequest]
    ) -> Result[RunbookData, RunbookData]:
        """Return the page for whoever is on call, of a deployment or of a model as it would be deployed."""
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
            page = planned_page(texts, self._catalog(), os.environ, wiring.target_for, name)
        engine = wiring.engine_named(page.service.engine)
        return runbook_result(page, engine, self._profiles_dir, self._templates_dir)

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
