"""Compares a locked plan with today's, and returns the plan that deploys the lock exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import ConflictError
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.operations.planning.lock import open_lock, reject_options
from tgi_deploy.operations.planning.option_texts import resolve
from tgi_deploy.operations.planning.plan import narrowed, supply_for, without_limits
from tgi_deploy.operations.planning.plan import plan as make_plan_for
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.text import words_of
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.plan_options import END_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.lock import Lock
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.values.plan import EngineRun, Plan
    from tgi_deploy.values.plan_document import PlanDocument

# If one of these fields differs, the plan runs something else.
_RUN: Final = (
    "chosen.instance_type",
    "chosen.region",
    "chosen.market",
    "chosen.num_shard",
    "chosen.quantize",
    "engine.image",
    "engine.args",
    "engine.env",
)
_SHORT: Final = 40
_ROUNDING: Final = Decimal("0.000001")  # of money in JSON


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A field of the plan that has changed."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if isinstance(self.old, tuple | Mapping):
            return f"{self.field} changed ({', '.join(_changed_words(self.old, self.new))})"
        return f"{self.field} was {self.old}, is {self.new}"


def _changed_words(old: Any, new: Any) -> Iterator[str]:  # noqa: ANN401 -- a list or table of JSON
    was, now = words_of(old), words_of(new)
    yield from (f"-{word[:_SHORT]}" for word in was if word not in now)
    yield from (f"+{word[:_SHORT]}" for word in now if word not in was)


def differences(old: PlanDocument, new: PlanDocument) -> tuple[Difference, ...]:
    """Return the differences between what two plans run, and a price increase."""
    found = [
        Difference(field=name, old=attrgetter(name)(old), new=attrgetter(name)(new))
        for name in _RUN
        if attrgetter(name)(old) != attrgetter(name)(new)
    ]
    was, now = old.cost.usd_per_hour, new.cost.usd_per_hour
    if now - was > _ROUNDING:
        found.append(Difference(field="cost.usd_per_hour", old=was, new=now))
    return tuple(found)


def current(lock: Lock, catalog: Catalog) -> Plan | NoFeasiblePlan:
    """Return today's plan for the locked request. Raises InputError for a name that is no longer in the catalog."""
    return make_plan_for(lock.texts, catalog, {})


def changes(lock: Lock, made: Plan | NoFeasiblePlan) -> tuple[Difference, ...]:
    """Return how today's plan differs from the locked one."""
    if isinstance(made, NoFeasiblePlan):
        return (Difference(field="chosen", old=lock.plan.chosen.instance_type, new="nothing"),)
    return differences(lock.plan, plan_document(made))


def locked_model(path: Path, texts: OptionTexts) -> str:
    """Return the locked model. Raises the errors of `open_lock` and `reject_options`."""
    reject_options(texts, "--lock", but=END_FIELDS)
    return open_lock(path).texts.model


def locked_request(path: Path, texts: OptionTexts, catalog: Catalog, *, force: bool) -> tuple[OptionTexts, Plan]:
    """Return the locked options, completed with the given limits, and the plan to deploy.

    Raises the errors of `open_lock`, `reject_options` and `plan_to_deploy`.
    """
    reject_options(texts, "--lock", but=END_FIELDS)
    lock = open_lock(path)
    ends = {name: getattr(texts, name) for name in END_FIELDS if getattr(texts, name)}
    return replaced(lock.texts, **ends), plan_to_deploy(lock, catalog, force=force)


def plan_to_deploy(lock: Lock, catalog: Catalog, *, force: bool) -> Plan:
    """Return exactly the locked plan, without fallbacks.

    Raises:
        ConflictError: `stale_plan` if today's plan runs something else or costs more, unless `force`;
        `locked_choice_unavailable` if the locked machine is no longer available.
    """
    made = current(lock, catalog)
    stale = changes(lock, made)
    if not isinstance(made, NoFeasiblePlan) and not stale:
        return replaced(made, fallbacks=())
    if not force:
        raise ConflictError(
            "stale_plan",
            f"deploying the lock: today's plan for the same request differs: {'; '.join(map(str, stale))}",
            hint="'tgi-deploy plan MODEL --lock FILE' with the same options locks today's plan for a review; --force "
            "deploys the locked one",
        )
    return _as_locked(lock, catalog)


def _as_locked(lock: Lock, catalog: Catalog) -> Plan:
    """Return the locked machine with the locked command line, regardless of today's choice."""
    chosen = lock.plan.chosen
    request = narrowed(without_limits(resolve(lock.texts, {}, catalog)), lock.plan)
    made = make_plan(request, supply_for(request, catalog), catalog.engine)
    if isinstance(made, NoFeasiblePlan):
        raise ConflictError(
            "locked_choice_unavailable",
            f"deploying the lock: {chosen.instance_type} on {chosen.num_shard} accelerators in {chosen.region} "
            "is no longer available, or no longer serves this model",
            hint="plan again without the lock",
        )
    command = engine_as_planned(made.chosen.engine, lock.plan)
    return replaced(made, chosen=replaced(made.chosen, engine=command), fallbacks=())


def engine_as_planned(engine: EngineRun, plan: PlanDocument) -> EngineRun:
    """Return today's engine settings with the release, command line and limits of an earlier plan."""
    locked = plan.engine
    settings = replaced(
        engine.settings,
        model_id=plan.model.served_id,
        max_input_tokens=locked.max_input_tokens,
        max_total_tokens=locked.max_total_tokens,
    )
    container = replaced(
        engine.container,
        image=replaced(engine.container.image, reference=locked.image),
        args=locked.args,
        env=tuple(sorted(locked.env.items())),
    )
    return replaced(engine, version=locked.version, container=container, settings=settings)
