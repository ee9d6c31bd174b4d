"""Decides whether the running configuration satisfies the request, so that a healthy machine is not replaced.

It does if it runs the spec of the plan's choice or of another candidate, or if the planner still accepts the exact
configuration. So a failover, a new price, a bigger budget or another version of this tool replaces no machine, even if
it changes the choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import Problem, warning
from tgi_deploy.operations.launching.launch import spec_of
from tgi_deploy.operations.launching.traffic import is_encrypted
from tgi_deploy.operations.planning.documents import plan_to_record
from tgi_deploy.operations.planning.locked import engine_as_planned
from tgi_deploy.text import one_line, usd
from tgi_deploy.values.base import as_dict, replaced
from tgi_deploy.values.ends import WantedEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from tgi_deploy.targets.protocol import Launch
    from tgi_deploy.values.deployment import Deployment, Revision
    from tgi_deploy.values.plan import Candidate, Plan
    from tgi_deploy.values.plan_document import PlanDocument

    # Evaluates the running configuration as a candidate for the current request; None if the planner rejects it.
    Judge = Callable[[PlanDocument], Candidate | None]

_MOST_SHOWN: Final = 3
_LONGEST_SHOWN: Final = 60


def accept_equal_only(_running: PlanDocument) -> None:
    """Accept only an equal spec: return no candidate."""


def plan_with_running(recorded: Deployment, plan: Plan, marks: Mapping[str, Any], judge: Judge) -> Plan | None:
    """Return the plan with the running configuration as its choice; None if the request differs."""
    revision, running = recorded.current, recorded.plan
    if running is None or not _may_stay(revision, running, plan, marks):
        return None
    judged = judge(running)
    if judged is not None and not (_runs(revision, plan, judged) or _covers(running, plan, judged)):
        judged = None
    planned = (plan.chosen, *plan.fallbacks, *plan.alternatives)
    found = judged or next((candidate for candidate in planned if _runs(revision, plan, candidate)), None)
    if found is None:
        return None
    return replaced(plan, chosen=replaced(found, engine=engine_as_planned(found.engine, running)))


def _may_stay(revision: Revision, running: PlanDocument, plan: Plan, marks: Mapping[str, Any]) -> bool:
    """Return whether everything that the user requested by name is the same: port, disk, location, market."""
    request, storage = plan.request, running.storage
    return (
        revision.marks == marks
        and running.model.id == request.model.model.hub_id
        and running.engine.name == plan.chosen.engine.name
        and running.engine.port == request.port
        and storage.root_volume_gib >= (request.disk_gib or 0)
        and (running.chosen.market == "owned" or _is_allowed_place(running, plan))
    )


def _is_allowed_place(running: PlanDocument, plan: Plan) -> bool:
    request = plan.request
    return running.chosen.region in request.regions and running.chosen.market in request.markets


def _runs(revision: Revision, plan: Plan, candidate: Candidate) -> bool:
    """Return whether this candidate is running. Records of schema 1 have only the engine's command line."""
    spec, running = spec_of(plan, candidate), revision.plan
    if revision.spec is not None:
        return revision.spec.digest == spec.digest
    return running is not None and (
        spec.container.image.reference == running.engine.image
        and spec.container.args == running.engine.args
        and dict(spec.container.env) == running.engine.env
        and (spec.hardware.accelerator, spec.hardware.accelerators)
        == (running.chosen.accelerator, running.chosen.num_shard)
    )


def _covers(running: PlanDocument, plan: Plan, judged: Candidate) -> bool:
    """Return whether the running settings are at least what the planner would choose on the same hardware."""
    asked, request, settings = running.requirements, plan.request, judged.engine.settings
    return (
        (asked.flags, asked.env) == (dict(request.flags), dict(request.env))
        and asked.concurrency >= request.concurrency
        and running.engine.max_input_tokens >= settings.max_input_tokens
        and running.engine.max_total_tokens >= settings.max_total_tokens
        and running.memory.kv_capacity_tokens >= judged.memory.required_kv_tokens
    )


def is_same_request(recorded: Deployment, *, plan: Plan, launch: Launch, exact: bool) -> bool:
    """Return whether the current revision has the same request, or with `exact` the same choice."""
    revision, marks = recorded.wanted, launch.marks
    if lacks_tls(recorded, launch):
        return False
    if exact:
        return is_choice(recorded, plan, marks)
    return revision.plan is not None and revision.marks == marks and revision.plan.requirements == plan.request.document


def lacks_tls(recorded: Deployment, launch: Launch) -> bool:
    """Return whether the user requests TLS but the machine serves plain HTTP, which can't change while it runs."""
    revision = recorded.wanted
    machine = recorded.machine_at(revision.number)
    return launch.tls and not revision.options.get("tls") and machine is not None and not is_encrypted(machine)


def is_choice(recorded: Deployment, plan: Plan, marks: Mapping[str, Any]) -> bool:
    """Return whether the current revision is exactly the plan's choice, including type, market and region."""
    revision = recorded.wanted
    if revision.plan is None or revision.marks != marks or not _runs(revision, plan, plan.chosen):
        return False
    chosen, offer = revision.plan.chosen, plan.chosen.offer
    return (chosen.instance_type, chosen.market, chosen.region) == (
        offer.instance_type.name,
        offer.market,
        offer.region,
    )


def with_request(deployment: Deployment, plan: Plan) -> Deployment:
    """Record the new request. `plan` is from `plan_with_running`; the running configuration stays unchanged."""
    revision, running = deployment.wanted, deployment.wanted.plan
    if running is None:
        return deployment
    made = plan_to_record(plan, plan.chosen)
    if made.requirements == running.requirements:
        return deployment
    stays = {name: getattr(running, name) for name in ("chosen", "cost", "engine", "storage", "time_to_ready")}
    return deployment.with_revision(replaced(revision, plan=replaced(made, **stays)))


def other_limits(deployment: Deployment, wanted: WantedEnds) -> WantedEnds | None:
    """Return the requested limits that differ from the recorded ones; None if there are none.

    --ttl and --max-spend go together, because the earlier one ends the machine. An earlier version did not record --ttl
    if --max-spend was given.
    """
    ends, ttl_s, ceiling = deployment.ends, wanted.ttl_s, wanted.max_spend_usd
    known_ttl_s = (
        ttl_s if ends.asked_ttl_s is None and ends.max_spend_usd is not None else ends.asked_ttl_s or ends.ttl_s
    )
    timed = ttl_s not in {None, known_ttl_s} or ceiling not in {None, ends.max_spend_usd}
    found = WantedEnds(
        ttl_s=ttl_s if timed else None,
        max_spend_usd=ceiling if timed else None,
        idle_s=None if wanted.idle_s == ends.idle_s else wanted.idle_s,
        lease_s=None if wanted.lease_s == ends.lease_s else wanted.lease_s,
    )
    return None if found == WantedEnds() else found


def limit_options(wanted: WantedEnds) -> tuple[str, ...]:
    named = {"--ttl": wanted.ttl_s, wanted.max_spend_option: wanted.max_spend_usd}
    named |= {"--idle-timeout": wanted.idle_s, "--lease": wanted.lease_s}
    return tuple(option for option, value in named.items() if value is not None)


def better_choice(deployment: Deployment, plan: Plan) -> Iterator[Problem]:
    """Yield a remark if today's plan would choose something cheaper."""
    revision, price, chosen = deployment.current, deployment.usd_per_hour, plan.chosen
    if price is None or revision.plan is None or _runs(revision, plan, chosen):
        return
    if chosen.cost.usd_per_hour >= price:
        return
    running, offer = revision.plan.chosen, chosen.offer
    yield warning(
        "better_choice",
        f"{running.instance_type} runs at {usd(price)} an hour; today's plan would choose "
        f"{offer.instance_type.name} at {usd(chosen.cost.usd_per_hour)}: "
        "to switch to it, run the same 'up' with --replan, which replaces the machine",
    )


def differences(recorded: Deployment, plan: Plan, launch: Launch) -> str:
    """Return the first three differences (`: model a, now b; …`); empty if the record lacks them."""
    before = as_dict(recorded.plan.requirements) if recorded.plan else {}
    pairs = [(name, before[name], now) for name, now in as_dict(plan.request.document).items() if before]
    old, new = recorded.wanted.marks, launch.marks
    pairs += [(name, old.get(name), new.get(name)) for name in sorted({*old, *new})]
    pairs += [("TLS", False, lacks_tls(recorded, launch))]
    changed = [_changed(name, before, now) for name, before, now in pairs if before != now]
    more = f"; and {len(changed) - _MOST_SHOWN} more" if len(changed) > _MOST_SHOWN else ""
    return f": {'; '.join(changed[:_MOST_SHOWN])}{more}" if changed else ""


def _changed(name: str, before: object, now: object) -> str:
    what = name.replace("_", " ")
    if isinstance(now, Mapping):  # environment values may be private
        return what
    if True in {before is True, now is True}:
        return f"{what} is {'on' if now else 'off'} now"
    return f"{what} {_short(before)}, now {_short(now)}"


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)
    return one_line(text, limit=_LONGEST_SHOWN)
