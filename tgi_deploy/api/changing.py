"""The methods that change something. Each can be stopped, and reports what happened to its resources."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tgi_deploy import wiring
from tgi_deploy.api.base import names_replacements, pastable
from tgi_deploy.api.watching import Watching
from tgi_deploy.errors import DeployError, InputError, InterruptedByUserError, LeftBehindError
from tgi_deploy.values.base import Result, changed_fields, replaced
from tgi_deploy.values.names import default_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tgi_deploy.api.base import UpRequest
    from tgi_deploy.errors import RecordedResource
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.file_run import FileOutcome, Pruned
    from tgi_deploy.operations.deploying.pausing import SwitchOutcome, SwitchProposal, SwitchRequest
    from tgi_deploy.operations.deploying.proposal import Proposal
    from tgi_deploy.operations.deploying.scaling import ScaleOutcome
    from tgi_deploy.operations.deploying.service import ReadyLevel
    from tgi_deploy.operations.deploying.smoke import Proved, Smoked
    from tgi_deploy.operations.deploying.up import Decision, UpOutcome
    from tgi_deploy.operations.planning.deployment_file import DeploymentFile, FileDeployment
    from tgi_deploy.operations.removing.down import DownOutcome, Removal
    from tgi_deploy.operations.removing.gc import GcOutcome, Group
    from tgi_deploy.operations.stops import Stops
    from tgi_deploy.sandbox.control import SandboxInfo as RunningSandbox
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.change_results import (
        DownData,
        GcData,
        ProofsData,
        RehearsalData,
        ScaleData,
        SmokeData,
        SwitchData,
        UpData,
        UpFileData,
    )
    from tgi_deploy.values.deployment import Strategy
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.plan_request import PlanRequest
    from tgi_deploy.values.results import (
        SandboxData,
        SandboxInfo,
        SandboxStopData,
    )


def _yes(_what: object) -> bool:
    return True


def _only(names: Sequence[str]) -> str:
    """Return the name if there is just one, else an empty one."""
    return names[0] if len(names) == 1 else ""


def _sandbox_info(found: RunningSandbox) -> SandboxInfo:
    from tgi_deploy.values.results import SandboxInfo

    return SandboxInfo(endpoint_url=found.endpoint_url, pid=found.pid, started=found.started, speed=found.speed)


class Changing(Watching):
    """Methods for the life of a deployment, and for the local cloud."""

    def up(  # noqa: PLR0913 -- one argument per option
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
        on_interrupt: Callable[[tuple[RecordedResource, ...]], bool] | None = None,
        stops: Stops | None = None,
        **options: Unpack[UpRequest],
    ) -> Result[UpData, UpOutcome]:
        """Plan a model or read a lock, bring it up, wait until it is healthy, and verify that it answers.

        `options` are those of a plan and of the target. By default there is no confirmation, and what a failed or
        stopped run created is removed; `on_failure='remove'` also removes what existed before. `on_plan` receives the
        plan before anything is looked up, and may raise; `confirm` receives the proposal and returns whether to
        continue; `on_interrupt` receives what exists and returns whether to remove it.
        """
        from tgi_deploy.operations.deploying.bring_up import UpAnswers, UpOptions, healer, up_job
        from tgi_deploy.operations.launching.target_options import reject_unsupported
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.removing.stopping import run_settled
        from tgi_deploy.operations.results.changing import up_result

        own, _, request = self._own_options(options)
        pasted = self._pasted(name or (default_name(model) if model else ""), searches=False)
        with pasted.errors():
            reject_unsupported(self.target, {**options, "sandbox": self._sandbox}, os.environ)
        asked = UpOptions(
            target=self.target,
            own=own,
            name=name,
            wait=wait,
            ready=ready,
            dry_run=dry_run,
            preflight=preflight,
            replan=replan,
            lock=lock,
            strategy=strategy,
            remove_all=on_failure == "remove",
        )
        asked.check(force=force, heal=heal)
        answers = UpAnswers.of(on_plan=on_plan, confirm=confirm, on_failure=on_failure, on_interrupt=on_interrupt)
        catalog, environ = self._catalog(), wiring.environment(sandbox=self._sandbox)
        known = partial(wiring.recorded, sandbox=self._sandbox)
        with pasted.errors():
            texts, job = up_job(asked, answers, texts_of(model, request), catalog, environ, force=force, recorded=known)
        setup = self._setup(job.places(texts), key_variable=getattr(own, "api_key_from_env", None))
        fixes = healer(job.catalog, self._profiles_dir, os.environ) if heal else None
        pasted = replaced(pasted, name=job.name)
        with pasted.errors():
            outcome, made = run_settled(
                wiring.context(setup), stops, job.runner(texts, fixes), name=job.name, ask=answers.on_interrupt
            )
        named = bool(texts.regions) or not self.target.facts.regions
        notice = None if named else wiring.region_notice(sandbox=self._sandbox)
        return pasted.result(up_result(job.plan, outcome, made, job.found.notices, notice))

    def up_file(  # noqa: PLR0913 -- one argument per option
        self,
        file: Path,
        *,
        prune: bool = False,
        heal: bool = False,
        wait: bool = True,
        ready: ReadyLevel = "full",
        on_failure: Literal["keep", "remove"] | Callable[[DeployError], Decision] | None = None,
        dry_run: bool = False,
        preflight: bool = True,
        replan: bool = False,
        on_plan: Callable[[Plan], None] | None = None,
        confirm: Callable[[Proposal], bool] | None = None,
        confirm_removal: Callable[[Sequence[Removal]], bool] | None = None,
        on_interrupt: Callable[[tuple[RecordedResource, ...]], bool] | None = None,
        stops: Stops | None = None,
    ) -> Result[UpFileData, FileOutcome]:
        """Bring up the deployments in a file, one after another, after planning all of them.

        `prune` also deletes its owner's deployments that the file does not name; `confirm_removal` receives what would
        be removed. The other arguments are those of `up`.
        """
        from tgi_deploy.operations.deploying.file_run import (
            check_described,
            file_result,
            named,
            read_described,
        )
        from tgi_deploy.operations.stops import Stops

        described = read_described(file, wiring.target_options("up"), prune=prune)
        every = [(item, self._beside(item.target, described.owner)) for item in described.deployments]
        places: list[str] = []
        for item, client in every:
            with named(item, file):
                check_described(item, client.target, wiring.targets(), {"sandbox": self._sandbox}, os.environ)
                places.extend(self._places_of(client.target, item))
        stops = stops or Stops()
        done: list[Result[UpData, UpOutcome]] = []
        for item, client in every:
            asked: dict[str, Any] = {**changed_fields(item.texts), **item.own, "strategy": item.strategy}
            with named(item, file, described.deployments[: len(done)]):
                stops.begin_another()
                done.append(
                    client.up(
                        name=item.name,
                        heal=heal,
                        wait=wait,
                        ready=ready,
                        on_failure=on_failure,
                        dry_run=dry_run,
                        preflight=preflight,
                        replan=replan,
                        on_plan=on_plan,
                        confirm=confirm,
                        on_interrupt=on_interrupt,
                        stops=stops,
                        **asked,
                    )
                )
        ask = confirm_removal or (lambda _removals: not dry_run)
        pruned = self._pruned(described, file, tuple(dict.fromkeys(places)), ask, stops) if prune else None
        return file_result(done, pruned)

    def _places_of(self, target: Target, item: FileDeployment) -> tuple[str, ...]:
        """Return the locations where a deployment of a file may be: recorded, chosen by its options, or planned."""
        from tgi_deploy.operations.deploying.file_run import places_of
        from tgi_deploy.operations.launching.target_options import own_options
        from tgi_deploy.operations.results.planning import plan_result
        from tgi_deploy.targets.protocol import located

        recorded = wiring.recorded(item.name or default_name(item.texts.model), sandbox=self._sandbox)
        there = located(target, own_options(target, wiring.targets(), item.own), recorded)
        return places_of(there, plan_result(there, item.texts, self._catalog(), os.environ, explain=False).outcome)

    def _pruned(
        self,
        described: DeploymentFile,
        file: Path,
        places: tuple[str, ...],
        confirm: Callable[[Sequence[Removal]], bool],
        stops: Stops,
    ) -> Pruned | None:
        """Delete the owner's deployments that the file does not name; None if there are none."""
        from tgi_deploy.operations.deploying.file_run import Pruned
        from tgi_deploy.operations.removing.down import down
        from tgi_deploy.operations.removing.stopping import run_repeatable
        from tgi_deploy.operations.results.changing import down_result
        from tgi_deploy.operations.watching.fleet import names_of_owner

        context, kept = wiring.context(self._setup(places)), {item.name for item in described.deployments}
        names = tuple(name for name in names_of_owner(context, described.owner) if name not in kept)
        if not names:
            return None
        again = f"tgi-deploy up -f {file} --prune"
        stops.begin_another()
        try:
            outcome = run_repeatable(
                context,
                stops,
                lambda guarded: down(guarded, names, confirm),
                doing=again,
                advice=f"what is left keeps its record: '{again}' resumes where it stopped",
            )
        except LeftBehindError as error:
            return Pruned(names=names, places=places, left=error)
        return Pruned(names=names, places=places, result=down_result(context, outcome))

    @pastable
    def rollback(  # noqa: PLR0913 -- one argument per option
        self,
        name: str,
        *,
        dry_run: bool = False,
        strategy: Strategy | None = None,
        on_plan: Callable[[Plan], None] | None = None,
        confirm: Callable[[Proposal], bool] | None = None,
        on_failure: Callable[[DeployError], Decision] | None = None,
        on_interrupt: Callable[[tuple[RecordedResource, ...]], bool] | None = None,
        stops: Stops | None = None,
    ) -> Result[UpData, UpOutcome]:
        """Go back to the previous serving revision, with its options and the current limits."""
        from tgi_deploy.operations.deploying.bring_up import UpAnswers, rollback_job
        from tgi_deploy.operations.removing.stopping import run_settled
        from tgi_deploy.operations.results.changing import up_result

        answers = UpAnswers.of(on_plan=on_plan, confirm=confirm, on_failure=on_failure, on_interrupt=on_interrupt)
        recorded, job = rollback_job(
            wiring.context(self._setup(())),
            name,
            self._catalog,
            wiring.environment(sandbox=self._sandbox),
            answers,
            dry_run=dry_run,
            strategy=strategy,
        )
        setup = self._setup((), key_variable=getattr(job.options.own, "api_key_from_env", None))
        outcome = run_settled(
            wiring.context(setup), stops, job.rollback_runner(recorded), name=name, ask=answers.on_interrupt
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
        """Remove deployments by name, or all of them, and verify that nothing is left.

        `confirm` receives what would be removed and returns whether to continue. Raises LeftBehindError with what is
        left.
        """
        from tgi_deploy.operations.removing.down import down
        from tgi_deploy.operations.removing.down_all import down_all
        from tgi_deploy.operations.removing.stopping import run_repeatable
        from tgi_deploy.operations.results.changing import down_result

        if bool(names) == everything:
            raise InputError(
                "bad_usage", "name the deployments, or add --all", hint="'tgi-deploy list' shows what exists"
            )
        context, ask = self._look(), confirm or _yes
        again = " ".join(("tgi-deploy down", *(names or ("--all",))))
        with self._pasted(_only(names)).errors():
            outcome = run_repeatable(
                context,
                stops,
                lambda guarded: (
                    down(guarded, names, ask, volumes=volumes) if names else down_all(guarded, ask, volumes=volumes)
                ),
                doing=again,
                advice=f"what is left keeps its record: '{again}' resumes where it stopped, 'tgi-deploy list' shows it",
            )
        return down_result(context, outcome)

    @names_replacements
    @pastable
    def gc(
        self,
        *,
        older_than: str = "1m",
        include_unrecorded: bool = False,
        confirm: Callable[[Sequence[Group]], bool] | None = None,
        stops: Stops | None = None,
    ) -> Result[GcData, GcOutcome]:
        """Find orphans by their tags, and remove them. Raises LeftBehindError with what is left."""
        from tgi_deploy.operations.removing.gc import GcRequest, age_s, gc
        from tgi_deploy.operations.removing.stopping import run_repeatable
        from tgi_deploy.operations.results.changing import gc_result

        request = GcRequest(
            older_than_s=age_s(older_than), include_unrecorded=include_unrecorded, confirm=confirm or _yes
        )
        found = run_repeatable(
            self._look(),
            stops,
            lambda guarded: gc(guarded, request),
            doing="gc",
            advice="what is left is found again by the same 'tgi-deploy gc'",
        )
        return gc_result(found)

    @pastable
    def scale(
        self, name: str, replicas: int | str, *, wait: bool = True, stops: Stops | None = None
    ) -> Result[ScaleData, ScaleOutcome]:
        """Change the number of replicas, and wait until all of them are ready.

        Within a range such as `"1..4"`, the number follows the load from then on. Raises InputError `bad_option_value`.
        """
        from tgi_deploy.operations.deploying.scaling import number_or_range, scale
        from tgi_deploy.operations.removing.stopping import run_repeatable
        from tgi_deploy.operations.results.changing import scale_result

        asked = number_or_range(str(replicas))
        again = f"tgi-deploy scale {name} {asked.words}"
        found = run_repeatable(
            self._look(),
            stops,
            lambda guarded: scale(guarded, name, asked, wait=wait),
            doing=again,
            advice=f"'{again}' resumes it, 'tgi-deploy status {name}' shows what exists",
        )
        return scale_result(found)

    @pastable
    def stop(
        self, name: str, *, confirm: Callable[[SwitchProposal], bool] | None = None, stops: Stops | None = None
    ) -> Result[SwitchData, SwitchOutcome]:
        """Stop the machine after its open requests have finished; its disk is kept and billed."""
        from tgi_deploy.operations.deploying.pausing import stop

        return self._switch(stop, name, "full", confirm, stops)

    @pastable
    def start(
        self,
        name: str,
        *,
        ready: ReadyLevel = "full",
        confirm: Callable[[SwitchProposal], bool] | None = None,
        stops: Stops | None = None,
    ) -> Result[SwitchData, SwitchOutcome]:
        """Start a machine stopped by `stop`, wait until it is healthy, and verify that it answers."""
        from tgi_deploy.operations.deploying.pausing import start

        return self._switch(start, name, ready, confirm, stops)

    @pastable
    def restart(
        self,
        name: str,
        *,
        ready: ReadyLevel = "full",
        confirm: Callable[[SwitchProposal], bool] | None = None,
        stops: Stops | None = None,
    ) -> Result[SwitchData, SwitchOutcome]:
        """Restart the engine on its machine, wait until it is healthy, and verify that it answers."""
        from tgi_deploy.operations.deploying.pausing import restart

        return self._switch(restart, name, ready, confirm, stops)

    def _switch(
        self,
        act: Callable[[Context, SwitchRequest], SwitchOutcome],
        name: str,
        ready: ReadyLevel,
        confirm: Callable[[SwitchProposal], bool] | None,
        stops: Stops | None,
    ) -> Result[SwitchData, SwitchOutcome]:
        from tgi_deploy.operations.deploying.pausing import SwitchRequest
        from tgi_deploy.operations.removing.stopping import run_repeatable
        from tgi_deploy.operations.results.changing import switch_result

        request = SwitchRequest(
            name=name,
            confirm=confirm or _yes,
            level=ready,
            reported_as=lambda release: self._catalog().release(release).reported_as,
        )
        again = f"tgi-deploy {act.__name__} {name}"
        found = run_repeatable(
            self._look(),
            stops,
            lambda guarded: act(guarded, request),
            doing=again,
            advice=f"'{again}' resumes it, 'tgi-deploy status {name}' shows what exists",
        )
        return switch_result(found)

    def deployed(self, *names: str) -> tuple[str, ...]:
        """Return the names that are deployments, by a record or by the tags of a machine."""
        from tgi_deploy.operations.deploying.smoke import deployed

        with self._pasted(_only(names)).errors():
            return deployed(self._look(), names)

    def prove(
        self, *names: str, ready: ReadyLevel = "full", stops: Stops | None = None
    ) -> Result[ProofsData, tuple[Proved, ...]]:
        """Verify that deployments serve what was planned. If one does not, that is an error of the result."""
        from tgi_deploy.operations.deploying.smoke import prove_all
        from tgi_deploy.operations.removing.stopping import run_repeatable
        from tgi_deploy.operations.results.trials import proofs_result

        catalog = self._catalog()
        found = run_repeatable(
            self._look(),
            stops,
            lambda guarded: prove_all(guarded, names, ready, lambda release: catalog.release(release).reported_as),
            doing="smoke",
            advice="run it again: the test changes nothing",
        )
        return self._pasted().result(proofs_result(found))

    def smoke(
        self,
        *models: str,
        at_once: int = 1,
        ready: ReadyLevel = "full",
        confirm: Callable[[tuple[str, ...]], bool] | None = None,
        stops: Stops | None = None,
        **options: Unpack[UpRequest],
    ) -> Result[SmokeData, tuple[Smoked, ...]]:
        """Bring models up, test them and always remove them, `at_once` of them in parallel.

        Each runs in its own process of this program. On a stop request they remove what they created. A failure is an
        error of the result, with the most severe exit code.
        """
        from tgi_deploy.operations.deploying.smoke import check_smoke, job_for, named_line, smoke
        from tgi_deploy.operations.planning.no_plan import given_options, option_words
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.results.trials import smoke_result
        from tgi_deploy.operations.stops import Stops
        from tgi_deploy.values.options import flag_of
        from tgi_deploy.values.progress import Events

        _, own, request = self._own_options(options)
        check_smoke(models, self.target, self._catalog(), at_once=at_once)
        if not (confirm or _yes)(models):
            raise InterruptedByUserError("interrupted", "nothing was brought up", hint="run it again, and confirm it")
        own |= {"profiles_dir": str(self._profiles_dir) if self._profiles_dir else None}
        words = [word for _, several in given_options(texts_of("", request)) for word in several]
        words += [word for name, value in own.items() if value for word in option_words(flag_of(name), value)]
        jobs = [job_for(model, self.target, words, os.environ, ready=ready, sandbox=self._sandbox) for model in models]
        if self._sandbox:
            wiring.sandbox_start()
        events = Events(self._progress)
        programs = wiring.child_programs(lambda words, line: events.note(named_line(words, line)))
        with (stops or Stops()).passed_on(programs.stop):
            found = smoke(programs, jobs, at_once=at_once, clock=wiring.clock())
        return smoke_result(found)

    def rehearse(
        self,
        model: str,
        *,
        faults: Sequence[str] = (),
        seed: int = 1,
        name: str | None = None,
        stops: Stops | None = None,
        **request: Unpack[PlanRequest],
    ) -> Result[RehearsalData, RehearsalData]:
        """Run `up` and `down` of a plan in an isolated sandbox with faults. Leftovers are an error."""
        from tgi_deploy.operations.deploying.rehearse import chosen, plan_to_rehearse, rehearse, request_of
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.removing.stopping import run_repeatable
        from tgi_deploy.operations.results.trials import rehearsal_result
        from tgi_deploy.values.progress import Events

        texts, catalog = texts_of(model, request), self._catalog()
        scenarios = chosen(faults, wiring.rehearsable())
        plan = plan_to_rehearse(texts, catalog, os.environ, scenarios)
        regions = tuple(dict.fromkeys(item.offer.region for item in (plan.chosen, *plan.fallbacks)))
        Events(self._progress).note("starting an isolated sandbox; your records are not touched")
        with wiring.rehearsal(self._setup(regions)) as (context, stage):
            asked = request_of(plan, texts, catalog, context.targets[0], name)
            found = run_repeatable(
                context,
                stops,
                lambda guarded: rehearse(guarded, stage, asked, scenarios, seed=seed),
                doing="rehearse",
                advice="everything that it created is deleted: run it again",
            )
        return rehearsal_result(found)

    def sandbox_start(self) -> Result[SandboxData, SandboxInfo]:
        """Start the local cloud unless it is running."""
        from tgi_deploy.values.results import SandboxData

        found = wiring.sandbox_start()
        info = replaced(_sandbox_info(found), access_key=found.access_key)
        return Result(data=SandboxData(sandbox=info), outcome=info)

    def sandbox_stop(self) -> Result[SandboxStopData, bool]:
        """Stop the local cloud and everything that runs in it; return whether it was running."""
        from tgi_deploy.values.results import SandboxStopData

        stopped = wiring.sandbox_stop()
        return Result(data=SandboxStopData(stopped=stopped), outcome=stopped)

    def sandbox_status(self) -> Result[SandboxData, SandboxInfo | None]:
        """Return the running local cloud, or None."""
        from tgi_deploy.values.results import SandboxData

        found = wiring.sandbox_status()
        info = _sandbox_info(found) if found else None
        return Result(data=SandboxData(sandbox=info), outcome=info)
