"""Computes when a machine's limits terminate it, from its tags and its record.

A machine starts with its limits and rereads them from its tags, which its owner may change. The end of an idle timeout
depends on requests, so it is unknown until it is reached.
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
# Set on machines that read all limits from their tags. The tags are authoritative; the record may be stale.
READS_TAGS: Final = (f"{TAG_PREFIX}limits", "tags")
NO_LIMIT: Final = "none"
_AT_ONCE: Final = timedelta(seconds=1)
_COUNT: Final = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """One limit of a machine. `at` is None for `idle`; `seconds` is the length of the lease or timeout."""

    reason: Literal["ttl", "lease", "idle"]
    at: datetime | None = None
    seconds: int | None = None


def stamp(moment: datetime) -> str:
    """Return a time in the form used in tags: ISO 8601, whole seconds, UTC."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def moved_tag(at: datetime | None, now: datetime) -> str:
    """Return the tag of a changed end: its time, for people, and the seconds until then, for the machine."""
    return NO_LIMIT if at is None else f"{stamp(at)} {round((at - now).total_seconds())}"


def at_once_tag(now: datetime) -> str:
    """Return the tag that makes a running machine drain and end now."""
    return moved_tag(now + _AT_ONCE, now)


def ends_at_once(tags: Mapping[str, str]) -> bool:
    """Return whether a machine was asked to drain and end, as the old one is in a rolling update."""
    return tags.get(TAG_EXPIRES, "").endswith(f" {round(_AT_ONCE.total_seconds())}")


def reads_tags(tags: Mapping[str, str]) -> bool:
    """Return whether a machine with these tags reads all its limits from them."""
    name, value = READS_TAGS
    return tags.get(name) == value


def end_tags(deployment: Deployment, intended: str | None) -> dict[str, str]:
    """Return the limit tags of a new resource, from the recorded intent, so that a retry sends the same request."""
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
    """Return all limits, the earliest first, the idle timeout last.

    For machines that read their tags, only the tags count; for others and for leftovers, the later of tag and record.
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


def ttl_end(deployment: Deployment | None, tags: Mapping[str, str]) -> datetime | None:
    """Return when --ttl or --max-spend terminates a machine; None if neither does."""
    return next((end.at for end in ends_of(deployment, [tags]) if end.reason == "ttl"), None)


def certain_end(ends: Iterable[End]) -> datetime | None:
    """Return the time by which the machine will terminate unless its limit is extended; None without a time limit."""
    return min((end.at for end in ends if end.at is not None), default=None)


def moment_of(text: object) -> datetime | None:
    """Parse a time from a tag or record, with its zone; None for anything else."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _latest(tag: str, found: Iterable[Mapping[str, str]], recorded: datetime | None) -> datetime | None:
    tagged = [moment_of(tags.get(tag, "").partition(" ")[0]) for tags in found]
    return max((at for at in (*tagged, recorded) if at is not None), default=None)


def _seconds(tag: str, found: Iterable[Mapping[str, str]], recorded: int | None) -> int | None:
    tagged = (tags.get(tag, "").rpartition(" ")[2] for tags in found)
    return recorded or next((int(text) for text in tagged if _COUNT.fullmatch(text)), None)


def expiry(deployment: Deployment, ttl_s: int | None, seen: Sequence[Found], clock: Clock) -> datetime | None:
    """Return when a machine with this lifetime ends. One that exists or is being created keeps its end."""
    if ttl_s is None:
        return None
    known = deployment.ends.expires_at
    if known is not None and ttl_s == deployment.ends.ttl_s and is_under_way(deployment, seen, clock):
        return known
    return (clock.now() + timedelta(seconds=ttl_s)).replace(microsecond=0)


def is_under_way(deployment: Deployment, seen: Sequence[Found], clock: Clock) -> bool:
    """Return whether a machine exists, or has been requested and is not past its end."""
    known, machine = deployment.ends.expires_at, deployment.machine
    begun = machine is not None and machine.state == "intent" and known is not None and known > clock.now()
    return begun or any(found.is_machine and found.alive for found in seen)


def lease_end(lease_s: int | None, clock: Clock) -> datetime | None:
    """Return when a lease that starts or is renewed now ends."""
    return None if lease_s is None else (clock.now() + timedelta(seconds=lease_s)).replace(microsecond=0)
