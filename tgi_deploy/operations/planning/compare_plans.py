"""The cost gate: two plans side by side, and whether the new one is worse than is allowed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tgi_deploy.values.base import Document
    from tgi_deploy.values.plan_document import PlanDocument

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
    """How much worse the new plan may be; None: not looked at. Percentages as written (10 for 10 %)."""

    max_cost_increase_percent: Decimal | None = None
    max_token_cost_increase_percent: Decimal | None = None
    min_memory_margin_tokens: int | None = None
    max_memory_margin_decrease_percent: Decimal | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A figure of both plans. `change_percent` is None where there is no old figure to compare with."""

    name: str
    old: Decimal | None
    new: Decimal | None
    change_percent: Decimal | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One limit and what came of it. `message` says it with the numbers."""

    name: str
    passed: bool
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    field: str
    old: Any
    new: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """`promises` are options that differ: figures of different requests are not of the same thing."""

    promises: tuple[Change, ...]
    metrics: tuple[Metric, ...]
    changes: tuple[Change, ...]
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)


def percent(text: str, option: str) -> Decimal:
    """`10%` or `10` → 10. Raises InputError `bad_percent`."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        raise InputError(
            "bad_percent", f"{option}: {text[:60]!r} is not a percentage", hint=f"write {option} 10%, for example"
        )
    return Decimal(match.group(1))


def flags_with_values(words: Iterable[object]) -> list[str]:
    """The words of a command line, each flag together with what follows it."""
    grouped: list[str] = []
    for word in map(str, words):
        if word.startswith("--") or not grouped:
            grouped.append(word)
        else:
            grouped[-1] += f" {word}"
    return grouped


def compare(old: PlanDocument, new: PlanDocument, limits: Limits) -> Comparison:
    """Two plans against the limits."""
    figures = zip(_METRICS, _figures(old), _figures(new), strict=True)
    metrics = tuple(_metric(name, was, now) for name, was, now in figures)
    return Comparison(
        promises=_changes(old.requirements, new.requirements, old.requirements.__struct_fields__),
        metrics=metrics,
        changes=_changes(old, new, _FIELDS),
        checks=tuple(_checks(metrics, limits)),
    )


def _changes(old: Document, new: Document, fields: Iterable[str]) -> tuple[Change, ...]:
    pairs = ((name, attrgetter(name)(old), attrgetter(name)(new)) for name in fields)
    return tuple(Change(field=name, old=was, new=now) for name, was, now in pairs if was != now)


_METRICS: Final = ("usd_per_hour", "usd_per_million_output_tokens", "memory_margin_tokens")


def _figures(plan: PlanDocument) -> tuple[Decimal | None, ...]:
    """In the order of `_METRICS`."""
    margin = Decimal(plan.memory.kv_capacity_tokens) - plan.memory.required_kv_tokens
    return plan.cost.usd_per_hour, plan.performance.usd_per_million_output_tokens, margin


def _metric(name: str, old: Decimal | None, new: Decimal | None) -> Metric:
    change = None if old is None or new is None or old == 0 else (new - old) / abs(old) * _HUNDRED
    if old is not None and old == new:
        change = Decimal(0)
    return Metric(name=name, old=old, new=new, change_percent=change)


def _checks(metrics: tuple[Metric, ...], limits: Limits) -> Iterator[Check]:
    cost, token_cost, margin = metrics
    if limits.max_cost_increase_percent is not None:
        yield _dearer(cost, "max-cost-increase", "the price an hour", limits.max_cost_increase_percent)
    if limits.max_token_cost_increase_percent is not None:
        yield _dearer(
            token_cost, "max-token-cost-increase", "a million output tokens", limits.max_token_cost_increase_percent
        )
    if limits.min_memory_margin_tokens is not None:
        yield _least_margin(margin, limits.min_memory_margin_tokens)
    if limits.max_memory_margin_decrease_percent is not None:
        yield _smaller_margin(margin, limits.max_memory_margin_decrease_percent)


def _dearer(metric: Metric, name: str, what: str, allowed: Decimal) -> Check:
    """An unknown price passes only where it was unknown before."""
    if metric.old is None or metric.new is None:
        return Check(
            name=name, passed=metric.old is metric.new, message=f"{what} is not known in both plans"
        )  # fmt: skip
    passed = metric.new * _HUNDRED <= metric.old * (_HUNDRED + allowed)
    return Check(
        name=name,
        passed=passed,
        message=f"{what}: ${metric.old} → ${metric.new}{_by(metric)}, at most +{allowed} % allowed",
    )


def _least_margin(metric: Metric, least: int) -> Check:
    new = metric.new or Decimal(0)
    return Check(
        name="min-memory-margin-tokens",
        passed=new >= least,
        message=f"KV cache beyond what is promised: {metric.old} → {new} tokens, at least {least} asked for",
    )


def _smaller_margin(metric: Metric, allowed: Decimal) -> Check:
    old, new = metric.old or Decimal(0), metric.new or Decimal(0)
    passed = new >= old or (old > 0 and (old - new) * _HUNDRED <= old * allowed)
    return Check(
        name="max-memory-margin-decrease",
        passed=passed,
        message=f"KV cache beyond what is promised: {old} → {new} tokens{_by(metric)}, at most -{allowed} % allowed",
    )


def _by(metric: Metric) -> str:
    return "" if metric.change_percent is None else f" ({metric.change_percent:+.1f} %)"
