"""When a machine ends by itself, as its tags and its record tell it.

A lifetime is fixed at launch. A lease ends unless its owner moves a tag, which the machine reads. An idle time-out
depends on requests, so that no moment is certain before it has come.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.values.ends import Ends
from tgi_deploy.values.resource import TAG_EXPIRES, TAG_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tgi_deploy.reconcile.ports import Clock
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found

TAG_LEASE: Final = f"{TAG_PREFIX}lease-until"
TAG_LEASE_S: Final = f"{TAG_PREFIX}lease-s"
TAG_IDLE_S: Final = f"{TAG_PREFIX}idle-s"
_COUNT: Final = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """One way a machine ends. `at` is None for `idle`; `seconds` is the lease's or the time-out's length."""

    reason: Literal["ttl", "lease", "idle"]
    at: datetime | None = None
    seconds: int | None = None


def stamp(moment: datetime) -> str:
    """A moment as tags carry it, and as the machine's own script reads it: ISO 8601, whole seconds, UTC."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def end_tags(deployment: Deployment, intended: str | None) -> dict[str, str]:
    """Tags of the ends of what is about to be made. Made of the recorded intent: a repeated request is the same."""
    tags, ends = {}, deployment.ends
    if ends.expires_at is not None:
        tags[TAG_EXPIRES] = ends.expires_at.isoformat(timespec="seconds")
    if ends.idle_s is not None:
        tags[TAG_IDLE_S] = str(ends.idle_s)
    if ends.lease_s is not None:
        tags[TAG_LEASE_S] = str(ends.lease_s)
        if intended is not None:
            tags[TAG_LEASE] = stamp(datetime.fromisoformat(intended) + timedelta(seconds=ends.lease_s))
    return tags


def ends_of(deployment: Deployment | None, tags: Iterable[Mapping[str, str]]) -> tuple[End, ...]:
    """Every end there is, the earliest first, idleness last. Of a moment told twice the later one counts."""
    found, known = tuple(tags), deployment.ends if deployment else Ends()
    timed: list[tuple[datetime, End]] = []
    expires = _latest(TAG_EXPIRES, found, known.expires_at)
    if expires is not None:
        timed.append((expires, End(reason="ttl", at=expires)))
    until = _latest(TAG_LEASE, found, known.lease_until)
    if until is not None:
        lease_s = _seconds(TAG_LEASE_S, found, known.lease_s)
        timed.append((until, End(reason="lease", at=until, seconds=lease_s)))
    ends = tuple(end for _, end in sorted(timed, key=lambda item: item[0]))
    idle_s = _seconds(TAG_IDLE_S, found, known.idle_s)
    return ends if idle_s is None else (*ends, End(reason="idle", seconds=idle_s))


def certain_end(ends: Iterable[End]) -> datetime | None:
    """The moment at which the machine has ended for certain, unless it is put off before; None when there is none."""
    return min((end.at for end in ends if end.at is not None), default=None)


def moment_of(text: object) -> datetime | None:
    """A moment as tags and records carry it, with its zone; None for anything else."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _latest(tag: str, found: Iterable[Mapping[str, str]], recorded: datetime | None) -> datetime | None:
    told = [moment_of(tags.get(tag)) for tags in found]
    return max((at for at in (*told, recorded) if at is not None), default=None)


def _seconds(tag: str, found: Iterable[Mapping[str, str]], recorded: int | None) -> int | None:
    told = (tags.get(tag, "") for tags in found)
    return recorded or next((int(text) for text in told if _COUNT.fullmatch(text)), None)


def expiry(deployment: Deployment, ttl_s: int | None, seen: Sequence[Found], clock: Clock) -> datetime | None:
    """When a machine of this lifetime ends. One that is there keeps its moment, so does one that may be on its way."""
    if ttl_s is None:
        return None
    known = deployment.ends.expires_at
    if known is not None and ttl_s == deployment.ends.ttl_s and is_under_way(deployment, seen, clock):
        return known
    return (clock.now() + timedelta(seconds=ttl_s)).replace(microsecond=0)


def is_under_way(deployment: Deployment, seen: Sequence[Found], clock: Clock) -> bool:
    """Return whether a machine is there, or may be on its way and not past its end."""
    known, machine = deployment.ends.expires_at, deployment.machine
    begun = machine is not None and machine.state == "intent" and known is not None and known > clock.now()
    return begun or any(found.is_machine and found.alive for found in seen)


def lease_end(lease_s: int | None, clock: Clock) -> datetime | None:
    """Until when a lease lasts that is made or renewed now."""
    return None if lease_s is None else (clock.now() + timedelta(seconds=lease_s)).replace(microsecond=0)
