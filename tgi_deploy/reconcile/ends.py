"""When a machine ends by itself, by its tags and its record.

A machine is made with its limits, and reads them anew from its tags, which its owner may change. An idle time-out
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
TAG_MAX_SPEND: Final = f"{TAG_PREFIX}max-spend-usd"
# On machines that read all limits from their tags: these tags are the truth, and a record of them may be old.
READS_TAGS: Final = (f"{TAG_PREFIX}limits", "tags")
NO_LIMIT: Final = "none"
_COUNT: Final = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """One way a machine ends. `at` is None for `idle`; `seconds` is the lease's or the time-out's length."""

    reason: Literal["ttl", "lease", "idle"]
    at: datetime | None = None
    seconds: int | None = None


def stamp(moment: datetime) -> str:
    """Return a moment as tags carry it: ISO 8601, whole seconds, UTC."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def moved_tag(at: datetime | None, now: datetime) -> str:
    """Return the tag of a moved end: its moment, for people, and the seconds until then, which the machine counts."""
    return NO_LIMIT if at is None else f"{stamp(at)} {round((at - now).total_seconds())}"


def reads_tags(tags: Mapping[str, str]) -> bool:
    """Return whether the machine with these tags reads all of its limits from them."""
    name, value = READS_TAGS
    return tags.get(name) == value


def end_tags(deployment: Deployment, intended: str | None) -> dict[str, str]:
    """Tags of the ends of what is about to be made. Made of the recorded intent: a repeated request is the same."""
    tags, ends = {}, deployment.ends
    if ends.expires_at is not None:
        tags[TAG_EXPIRES] = ends.expires_at.isoformat(timespec="seconds")
    if ends.idle_s is not None:
        tags[TAG_IDLE_S] = str(ends.idle_s)
    if ends.max_spend_usd is not None:
        tags[TAG_MAX_SPEND] = str(ends.max_spend_usd)
    if ends.lease_s is not None:
        tags[TAG_LEASE_S] = str(ends.lease_s)
        if intended is not None:
            tags[TAG_LEASE] = stamp(datetime.fromisoformat(intended) + timedelta(seconds=ends.lease_s))
    return tags


def ends_of(deployment: Deployment | None, tags: Iterable[Mapping[str, str]]) -> tuple[End, ...]:
    """Return every end there is, the earliest first, idleness last.

    Machines that read their tags end by these alone. Of others, and of what is left of one, the later moment counts.
    """
    found, known = tuple(tags), deployment.ends if deployment else Ends()
    if reading := tuple(filter(reads_tags, found)):
        found, known = reading, Ends()
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
    tagged = [moment_of(tags.get(tag, "").partition(" ")[0]) for tags in found]
    return max((at for at in (*tagged, recorded) if at is not None), default=None)


def _seconds(tag: str, found: Iterable[Mapping[str, str]], recorded: int | None) -> int | None:
    told = (tags.get(tag, "").rpartition(" ")[2] for tags in found)
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
