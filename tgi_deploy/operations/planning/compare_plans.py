"""The cost gate: compares two plans, and checks whether the new one is worse than allowed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.text import dated, usd
from tgi_deploy.values.base import plain
from tgi_deploy.values.plan_results import ChangeData, CheckData, Comparison, MetricData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tgi_deploy.values.base import Document
    from tgi_deploy.values.plan_document import PlanDocument

    Percent = Decimal | float | str | None

_PERCENT: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*%?", re.ASCII)
_HUNDRED: Final = Decimal(100)
_FIELDS: Final = (
    "chosen.instance_type",
    "chosen.region",
    "chosen.market",
    "chosen.accelerator",
    "chosen.num_shard",
    "chosen.quantize",
    "chosen.dtype",
    "engine.version",
    "engine.image",
    "engine.args",
    "engine.env",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much worse the new plan may be. None is not checked; percentages are numbers (10 for 10%)."""

    max_cost_increase_percent: Decimal | None = None
    max_token_cost_increase_percent: Decimal | None = None
    min_memory_margin_tokens: int | None = None

    @classmethod
    def of(cls, *, min_memory_margin_tokens: int | None, **percents: Percent) -> Limits:
        """Return the limits from the texts of their options. Raises InputError `bad_option_value`."""
        read = {
            f"{name}_percent": None if value is None else percent(str(value), f"--{name.replace('_', '-')}")
            for name, value in percents.items()
        }
        return cls(min_memory_margin_tokens=min_memory_margin_tokens, **read)


def percent(text: str, option: str) -> Decimal:
    """Return 10 for `10%` or `10`. Raises InputError `bad_option_value`."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        raise InputError(
            "bad_option_value", f"{option}: {text[:60]!r} is not a percentage", hint=f"write {option} 10%, for example"
        )
    return Decimal(match.group(1))


def compare(old: PlanDocument, new: PlanDocument, limits: Limits) -> Comparison:
    """Return how two plans differ, and whether the new one is within the limits."""
    figures = zip(_METRICS, _figures(old), _figures(new), strict=True)
    metrics = tuple(_metric(name, was, now) for name, was, now in figures)
    return Comparison(
        promises=_changes(old.requirements, new.requirements, old.requirements.__struct_fields__),
        metrics=metrics,
        changes=_changes(old, new, _FIELDS),
        checks=tuple(_checks(metrics, limits)),
        old_prices=dated(old.chosen.price_date, estimated=old.chosen.estimated),
        new_prices=dated(new.chosen.price_date, estimated=new.chosen.estimated),
    )


def _changes(old: Document, new: Document, fields: Iterable[str]) -> tuple[ChangeData, ...]:
    pairs = ((name, attrgetter(name)(old), attrgetter(name)(new)) for name in fields)
    return tuple(ChangeData(field=name, old=plain(was), new=plain(now)) for name, was, now in pairs if was != now)


_METRICS: Final = ("usd_per_hour", "usd_per_million_output_tokens", "memory_margin_tokens")


def _figures(plan: PlanDocument) -> tuple[Decimal | None, ...]:
    """Return a plan's figures in the order of `_METRICS`."""
    margin = Decimal(plan.memory.kv_capacity_tokens) - plan.memory.required_kv_tokens
    return plan.cost.usd_per_hour, plan.performance.usd_per_million_output_tokens, margin


def _metric(name: str, old: Decimal | None, new: Decimal | None) -> MetricData:
    change = None if old is None or new is None or old == 0 else (new - old) / abs(old) * _HUNDRED
    if old is not None and old == new:
        change = Decimal(0)
    return MetricData(name=name, old=old, new=new, change_percent=change)


def _checks(metrics: tuple[MetricData, ...], limits: Limits) -> Iterator[CheckData]:
    cost, token_cost, margin = metrics
    if limits.max_cost_increase_percent is not None:
        yield _price_check(cost, "max-cost-increase", "the price per hour", limits.max_cost_increase_percent)
    if limits.max_token_cost_increase_percent is not None:
        yield _price_check(
            token_cost, "max-token-cost-increase", "a million output tokens", limits.max_token_cost_increase_percent
        )
    if limits.min_memory_margin_tokens is not None:
        yield _least_margin(margin, limits.min_memory_margin_tokens)


def _price_check(metric: MetricData, name: str, what: str, allowed: Decimal) -> CheckData:
    """Compare prices. An unknown one passes only if it was unknown before."""
    if metric.old is None or metric.new is None:
        return CheckData(
            name=name, passed=metric.old is metric.new, message=f"{what} is not known for both plans"
        )  # fmt: skip
    passed = metric.new * _HUNDRED <= metric.old * (_HUNDRED + allowed)
    return CheckData(
        name=name,
        passed=passed,
        message=f"{what}: {usd(metric.old)} → {usd(metric.new)}{_by(metric)}, at most +{allowed}% allowed",
    )


def _least_margin(metric: MetricData, least: int) -> CheckData:
    new = metric.new or Decimal(0)
    return CheckData(
        name="min-memory-margin-tokens",
        passed=new >= least,
        message=f"spare KV cache beyond the planned load: {metric.old} → {new} tokens, at least {least} required",
    )


def _by(metric: MetricData) -> str:
    return "" if metric.change_percent is None else f" ({metric.change_percent:+.1f}%)"
