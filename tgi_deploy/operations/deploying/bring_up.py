"""Turns the options of `up` and `rollback` into a request of the use case, and runs it."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Self

from tgi_deploy.catalog.phases import read_edits
from tgi_deploy.errors import InputError
from tgi_deploy.operations.deploying.acceptance import accept_equal_only
from tgi_deploy.operations.deploying.heal import Healer, up_and_heal
from tgi_deploy.operations.deploying.rollout import former
from tgi_deploy.operations.deploying.up import UpRequest, up
from tgi_deploy.operations.launching.target_options import supplied
from tgi_deploy.operations.planning.locked import locked_model, locked_request
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.operations.planning.option_texts import wanted_ends
from tgi_deploy.operations.planning.plan import judged, plan
from tgi_deploy.operations.planning.recorded import plan_of_revision
from tgi_deploy.operations.watching.lookup import own_words, unrecorded_deployment
from tgi_deploy.targets.protocol import located
from tgi_deploy.values.base import Frozen, as_value, changed_fields, replaced
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.names import check_name, default_name
from tgi_deploy.values.plan import NoFeasiblePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import DeployError, RecordedResource
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.acceptance import Judge
    from tgi_deploy.operations.deploying.heal import Fix
    from tgi_deploy.operations.deploying.proposal import Proposal
    from tgi_deploy.operations.deploying.service import ReadyLevel
    from tgi_deploy.operations.deploying.up import Decision, UpOutcome
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Supplied, Target
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.deployment import Deployment, Revision, Strategy
    from tgi_deploy.values.plan import Plan


class UpAnswers(Frozen, frozen=True, kw_only=True):
    """Callbacks for decisions during a run.

    `on_plan` may raise an error before anything is looked up. `on_interrupt` receives the existing resources and
    returns whether to remove them.
    """

    on_plan: Callable[[Plan], None]
    confirm: Callable[[Proposal], bool]
    on_failure: Callable[[DeployError], Decision]
    on_interrupt: Callable[[tuple[RecordedResource, ...]], bool]

    @classmethod
    def of(
        cls,
        *,
        on_plan: Callable[[Plan], None] | None,
        confirm: Callable[[Proposal], bool] | None,
        on_failure: Decision | Callable[[DeployError], Decision] | None,
        on_interrupt: Callable[[tuple[RecordedResource, ...]], bool] | None,
    ) -> Self:
        """Return the callbacks, with defaults for missing ones."""
        decide = on_failure if callable(on_failure) else lambda _error: on_failure or "remove"
        return cls(
            on_plan=on_plan or (lambda _plan: None),
            confirm=confirm or (lambda _proposal: True),
            on_failure=decide,
            on_interrupt=on_interrupt or (lambda _exists: True),
        )


class UpOptions(Frozen, frozen=True, kw_only=True):
    """Options of `up` besides the request. `own` are the target's options; see `UpRequest` for `remove_all`."""

    target: Target
    own: Value
    name: str | None = None
    wait: bool = True
    ready: ReadyLevel = "full"
    dry_run: bool = False
    preflight: bool = True
    replan: bool = False
    lock: Path | None = None
    strategy: Strategy | None = None
    remove_all: bool = False

    @property
    def command(self) -> str:
        """The command line with the options that differ from their defaults, without --target."""
        named = ("--name", self.name) if self.name else ()
        off = [f"--no-{word}" for word in ("wait", "preflight") if not getattr(self, word)]
        ready = () if self.ready == "full" else ("--ready", self.ready)
        strategy = ("--strategy", self.strategy) if self.strategy else ()
        return shlex.join(("up", *named, *own_words(changed_fields(self.own)), *off, *ready, *strategy))

    def check(self, *, force: bool, heal: bool) -> None:
        """Raise InputError for options that exclude each other, and for an invalid name."""
        if heal and self.lock:
            raise InputError(
                "conflicting_options",
                "--heal changes the plan and --lock fixes it: they exclude each other",
                hint="leave one of them out",
            )
        if force and not self.lock:
            raise InputError(
                "conflicting_options",
                "--force works only with --lock",
                hint="add --lock FILE, or leave --force out",
            )
        if self.name is not None:
            check_name(self.name)


def check_startable(target: Target, plan: Plan) -> None:
    """Raise InputError for a plan that this version cannot bring up on the target."""
    rejection = target.rejection(plan)
    if rejection is not None:
        raise rejection
    most = max(candidate.replicas for candidate in (plan.chosen, *plan.fallbacks))
    if most > target.facts.most_replicas:
        raise InputError(
            "several_replicas",
            f"starting {plan.request.model.name}: the plan has {most} replicas, but --target {target.name} runs one",
            hint="leave --replicas out, or bring up each replica under a different --name",
        )


class UpJob(Frozen, frozen=True, kw_only=True):
    """A plan with everything needed to bring it up."""

    options: UpOptions
    answers: UpAnswers
    plan: Plan
    found: Supplied
    catalog: Catalog
    environ: Mapping[str, str]

    def places(self, texts: OptionTexts) -> tuple[str, ...]:
        """Return the locations to search."""
        if self.found.place:
            return (self.found.place,)
        return self.options.target.locations(self.plan.request.regions if texts.regions else ())

    @property
    def name(self) -> str:
        return self.options.name or default_name(self.plan.request.model.name)

    def runner(self, texts: OptionTexts, healer: Healer | None) -> Callable[[Context], tuple[UpOutcome, Sequence[Fix]]]:
        """Return a function that brings up the plan as requested."""
        if healer is None:
            return lambda context: (up(context, self._request(texts, self.plan)), ())
        return lambda context: up_and_heal(context, texts, self._request, self.plan, healer)

    def rollback_runner(self, recorded: Deployment) -> Callable[[Context], UpOutcome]:
        """Return a function that brings up an earlier revision with today's limits."""
        ends = recorded.ends
        wanted = WantedEnds(
            ttl_s=ends.ttl_s, max_spend_usd=ends.max_spend_usd, idle_s=ends.idle_s, lease_s=ends.lease_s
        )
        request = replaced(self._asked(self.plan, wanted), exact=True, origin="rollback")
        return partial(up, request=request)

    def _request(self, texts: OptionTexts, plan: Plan) -> UpRequest:
        asked = self._asked(plan, wanted_ends(texts, self.environ))
        return replaced(asked, judge=self._judge(texts, plan), exact=self.options.replan)

    def _asked(self, plan: Plan, ends: WantedEnds) -> UpRequest:
        options, catalog = self.options, self.catalog

        def plan_revision(revision: Revision) -> tuple[Plan, tuple[str, ...]]:
            former = plan_of_revision(revision, catalog)
            return former, catalog.release(former.chosen.engine.version).reported_as

        return UpRequest(
            plan=plan,
            target=options.target.name,
            options=options.own,
            ends=ends,
            supplied=self.found,
            environ=self.environ,
            confirm=self.answers.confirm,
            on_failure=self.answers.on_failure,
            remove_all=options.remove_all,
            versions=catalog.release(plan.chosen.engine.version).reported_as,
            name=options.name,
            wait=options.wait,
            ready=options.ready,
            dry_run=options.dry_run,
            preflight=options.preflight,
            strategy=options.strategy,
            plan_revision=plan_revision,
        )

    def _judge(self, texts: OptionTexts, plan: Plan) -> Judge:
        """Return a function that evaluates the running configuration. A lock accepts only its own choice."""
        if self.options.lock:
            return accept_equal_only
        return lambda running: judged(plan.request, running, self.catalog, release=texts.engine_version)


def up_job(
    options: UpOptions,
    answers: UpAnswers,
    texts: OptionTexts,
    catalog: Catalog,
    environ: Mapping[str, str],
    *,
    force: bool,
    recorded: Callable[[str], Deployment | None] = lambda _name: None,
) -> tuple[OptionTexts, UpJob]:
    """Plan a model or read its lock; return the options as text, including those of the lock, and the job.

    `recorded` returns the deployment recorded under a name; its location is used if the options name none.

    Raises InputError, ConflictError, NoPlanError, and the errors of `on_plan`.
    """
    name = options.name or default_name(locked_model(options.lock, texts) if options.lock else texts.model)
    there = located(options.target, options.own, recorded(name))
    asked = texts
    texts, found = supplied(there, texts, catalog, environ, locked=options.lock is not None)
    catalog = catalog.with_added(found.added)
    made: Plan | NoFeasiblePlan
    if options.lock is None:
        made = plan(texts, catalog, environ)
    else:
        texts, made = locked_request(options.lock, texts, catalog, force=force)
    if isinstance(made, NoFeasiblePlan):
        raise without_plan(options.command, asked if found.added else texts, made, target=options.target)
    check_startable(options.target, made)
    answers.on_plan(made)
    return texts, UpJob(options=options, answers=answers, plan=made, found=found, catalog=catalog, environ=environ)


def rollback_job(
    context: Context,
    name: str,
    catalog_of: Callable[[Target], Catalog],
    environ: Mapping[str, str],
    answers: UpAnswers,
    *,
    dry_run: bool,
    strategy: Strategy | None,
) -> tuple[Deployment, UpJob]:
    """Return a deployment, and the options of `up` for its previous revision. Raises InputError."""
    recorded = context.store.load(name)
    if recorded is None:
        raise unrecorded_deployment(context, name)
    revision, target = former(recorded), context.target(recorded.target)
    catalog = catalog_of(target)
    plan = plan_of_revision(revision, catalog)
    answers.on_plan(plan)
    own = as_value(revision.options, target.options, "options")
    options = UpOptions(
        target=target,
        own=own,
        name=name,
        dry_run=dry_run,
        strategy=strategy,
    )
    hardware = plan.request.hardware is not None
    found = located(target, own, recorded).supply(catalog, release=plan.chosen.engine.version, hardware=hardware)
    return recorded, UpJob(options=options, answers=answers, plan=plan, found=found, catalog=catalog, environ=environ)


def healer(catalog: Catalog, profiles_dir: Path | None, environ: Mapping[str, str]) -> Healer:
    """Return the healer, which fixes a plan after a failure."""
    return Healer(
        engine=catalog.engine,
        edits=read_edits(user_dir=profiles_dir),
        plan_again=lambda changed: plan(changed, catalog, environ),
    )
