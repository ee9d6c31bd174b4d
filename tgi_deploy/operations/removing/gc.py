"""The use case `gc`: finds and removes orphans. The cloud is read before the records.

A resource is judged together with all others of its deployment (name and id). They are owned, and kept, if their
machine exists and is recorded here, or if it exists and its end has not certainly passed: its record may be on another
computer. A resource that may have been created less than `older_than_s` ago is never touched, and an end counts as
passed only if that is certain despite clock skew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import ConflictError, DeployError, InputError, LeftBehindError
from tgi_deploy.operations.removing.down import issue, placeholder_record, remove_own, sweep
from tgi_deploy.operations.removing.leftovers import left_error, naming_what_is_left, raise_all, removing
from tgi_deploy.operations.removing.receipt import Receipt
from tgi_deploy.operations.watching.ledger import Ledger
from tgi_deploy.operations.watching.lookup import created_at
from tgi_deploy.reconcile.clocks import CLOCKS_APART, is_past
from tgi_deploy.reconcile.ends import certain_end, ends_of
from tgi_deploy.reconcile.observe import read_recorded
from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Deployment
from tgi_deploy.values.ends import Ends
from tgi_deploy.values.resource import DESCRIPTION_ONLY, TAG_ID, TAG_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.watching.ledger import Line
    from tgi_deploy.values.resource import Found

_APART_MINUTES: Final = int(CLOCKS_APART.total_seconds() // 60)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SAFE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class GcRequest:
    """The request. `include_unrecorded` includes running machines without a record here, whoever owns them.

    `older_than_s` is the minimum age; 0 means any age.
    """

    older_than_s: float
    confirm: Callable[[Sequence[Group]], bool]
    include_unrecorded: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """All existing resources of one deployment. `reason` is why they are removed or kept."""

    name: str
    id: str
    found: tuple[Found, ...]
    recorded: Deployment | None
    orphaned: bool = False
    reason: str = ""

    @property
    def machine(self) -> Found | None:
        return next(iter(self._machines), None)

    @property
    def _machines(self) -> tuple[Found, ...]:
        """Those that exist: neither ending, nor only the description of one that is gone."""
        return tuple(
            item
            for item in self.found
            if item.is_machine and item.state != "shutting-down" and DESCRIPTION_ONLY not in item.attributes
        )

    @property
    def expires(self) -> datetime | None:
        """Return when its machines have certainly terminated, with extensions in a tag or in the record.

        Only the tags of machines count: leftovers of an earlier machine still have that machine's ends.
        """
        if not self._machines:
            return certain_end(ends_of(self.recorded, (item.tags for item in self.found)))
        ends = [certain_end(ends_of(self.recorded, (item.tags,))) for item in self._machines]
        known = [end for end in ends if end is not None]
        return max(known) if len(known) == len(ends) else None

    @property
    def newest(self) -> datetime | None:
        recorded = self.recorded.updated_at if self.recorded else None
        return max((at for at in (*map(created_at, self.found), recorded) if at is not None), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class GcOutcome:
    """The outcome. `skipped` has (name, reason) of groups that became owned or busy after they were shown.

    `unseen` has (region, reason) of regions that could not be searched.
    """

    orphans: tuple[Group, ...]
    kept: tuple[Group, ...]
    regions: tuple[str, ...]
    receipts: tuple[Receipt, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    unseen: tuple[tuple[str, str], ...] = ()
    declined: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Survey:
    found: tuple[Found, ...]
    regions: tuple[str, ...]
    unseen: tuple[tuple[str, str], ...]


def age_s(text: str) -> int:
    """Return the seconds of `30s`, `10m`, `6h` or `2d`. Raises InputError `bad_option_value`."""
    match = re.fullmatch(r"(\d{1,6})([smhd])", text.strip().lower(), re.ASCII)
    if match is None:
        problem = f"--older-than {text[:60]!r} is not a duration"
        raise InputError("bad_option_value", problem, hint="write 30s, 10m, 6h or 2d")
    return int(match[1]) * _UNITS[match[2]]


def gc(context: Context, request: GcRequest) -> GcOutcome:
    """Find, show and remove orphans.

    Raises LeftBehindError (exit 6) with every remaining id, after everything was tried; the error of the cloud if no
    region could be searched.
    """
    survey = _survey(context)
    groups = tuple(_judge(context, group, request) for group in _groups(context, survey))
    orphans = tuple(group for group in groups if group.orphaned)
    kept = tuple(group for group in groups if not group.orphaned)
    outcome = GcOutcome(orphans=orphans, kept=kept, regions=survey.regions, unseen=survey.unseen)
    if not orphans:
        return outcome
    if not request.confirm(orphans):
        return replace(outcome, declined=True)
    return _remove_all(context, request, outcome)


def _survey(context: Context) -> _Survey:
    """Return this tool's resources in all regions, and the regions that could not be searched (disabled ones, say)."""
    found: list[Found] = []
    failures: list[tuple[str, DeployError]] = []
    regions = _regions(context)
    for region in regions:
        try:
            found.extend(context.cloud(region).find({}))
        except DeployError as error:
            failures.append((region, error))
    if len(failures) == len(regions):
        raise failures[0][1]
    return _Survey(
        found=tuple(found),
        regions=tuple(region for region in regions if region not in dict(failures)),
        unseen=(
            *((region, error.message) for region, error in failures),
            *((region, why) for (region, _), why in context.unsearched.items()),
        ),
    )


def _regions(context: Context) -> tuple[str, ...]:
    """Return the given regions and those in records. The records are read again after the cloud."""
    records = [_load(context, name) for name in context.store.names()]
    places = [place for record in records if isinstance(record, Deployment) for place in record.places]
    return tuple(dict.fromkeys((*context.regions, *places)))


def _groups(context: Context, survey: _Survey) -> tuple[Group, ...]:
    """Group resources by name and id; then add records whose locations were all searched without finding any."""
    records = {name: _load(context, name) for name in context.store.names()}
    groups = [_group(owner, survey, records.get(owner[0])) for owner in dict.fromkeys(map(_owner, survey.found))]
    seen = {(group.name, group.id) for group in groups}
    for record in records.values():
        if not isinstance(record, Deployment) or (record.name, record.id) in seen:
            continue
        if set(record.places) <= set(survey.regions):
            groups.append(Group(name=record.name, id=record.id, found=(), recorded=record))
    return tuple(groups)


def _group(owner: tuple[str, str], survey: _Survey, recorded: Deployment | DeployError | None) -> Group:
    found = tuple(item for item in survey.found if _owner(item) == owner)
    group = Group(name=owner[0], id=owner[1], found=found, recorded=None)
    if isinstance(recorded, DeployError):
        return replace(group, reason=recorded.message)
    if recorded is None or recorded.id != group.id:
        return group
    hidden = [place for place in recorded.places if place not in survey.regions]
    return replace(group, recorded=recorded, reason=f"{hidden[0]} could not be searched" if hidden else "")


def _owner(found: Found) -> tuple[str, str]:
    return found.tags.get(TAG_NAME, ""), found.tags.get(TAG_ID, "")


def _load(context: Context, name: str) -> Deployment | DeployError | None:
    """Return the record, or the error of an unreadable one, which counts as an owner."""
    try:
        return context.store.load(name)
    except DeployError as error:
        return error


def _judge(context: Context, group: Group, request: GcRequest) -> Group:
    """Return the group with `orphaned` and `reason`."""
    if group.reason or not (_SAFE.fullmatch(group.name) and _SAFE.fullmatch(group.id)):
        return replace(group, reason=group.reason or "its tags were not written by this tool")
    now = context.clock.now()
    if request.older_than_s and group.newest is not None and not is_past(group.newest, now, by_s=request.older_than_s):
        return _recorded_here(group, group.machine) or replace(
            group, reason=f"it may be younger than the limit: clocks are up to {_APART_MINUTES} minutes apart"
        )
    if group.expires is not None and is_past(group.expires, now):
        return replace(group, orphaned=True, reason=f"its end was {group.expires.isoformat(timespec='seconds')}")
    machine = group.machine or _known_by_id(context, group)
    if machine is not None:
        return _judge_machine(group, machine, request)
    if group.recorded is not None and not group.found:
        return replace(group, orphaned=True, reason="only its record is left")
    return replace(group, orphaned=True, reason="it has no machine")


def _known_by_id(context: Context, group: Group) -> Found | None:
    """Return a recorded machine by its id: its tags may have been removed, so that no search finds it."""
    record = group.recorded.machine if group.recorded else None
    if record is None or "id" not in record.attributes:
        return None
    found = read_recorded(record, context.cloud(record.place))
    return replace(group, found=found).machine


def _judge_machine(group: Group, machine: Found, request: GcRequest) -> Group:
    if group.recorded is not None and group.recorded.status == "deleting":
        return replace(group, orphaned=True, reason="its removal is not finished")
    if kept := _recorded_here(group, machine):
        return kept
    if request.include_unrecorded:
        return replace(group, orphaned=True, reason=f"its machine is {machine.state} and not recorded here")
    elsewhere = "its record may be on another computer; --include-unrecorded removes it anyway"
    return replace(group, reason=f"its machine is {machine.state}, and {elsewhere}")


def _recorded_here(group: Group, machine: Found | None) -> Group | None:
    """Return the group as kept if this computer's record has its machine; None otherwise."""
    if group.recorded is None or group.recorded.status == "deleting" or machine is None:
        return None
    return replace(group, reason=f"its machine is {machine.state} and recorded here")


def _remove_all(context: Context, request: GcRequest, outcome: GcOutcome) -> GcOutcome:
    receipts: list[Receipt] = []
    skipped: list[tuple[str, str]] = []
    failures: list[DeployError] = []
    for group in outcome.orphans:
        try:
            with context.store.lock(group.name, command=context.command):
                result = _remove(context, request, group, outcome.regions)
        except ConflictError as error:
            skipped.append((group.name, error.message))
        except DeployError as error:
            failures.append(error)
        else:
            (receipts if isinstance(result, Receipt) else skipped).append(result)  # type: ignore[arg-type]
    raise_all(failures)
    return replace(outcome, receipts=tuple(receipts), skipped=tuple(skipped))


def _remove(context: Context, request: GcRequest, group: Group, regions: Sequence[str]) -> Receipt | tuple[str, str]:
    """Remove the group if it is still orphaned: someone may have resumed its deployment since it was shown."""
    survey = _Survey(found=tuple(_of(context, group, regions)), regions=tuple(regions), unseen=())
    again = next((item for item in _groups(context, survey) if (item.name, item.id) == (group.name, group.id)), None)
    if again is None:
        return group.name, "it no longer exists"
    again = _judge(context, again, request)
    if not again.orphaned:
        return group.name, again.reason
    if again.recorded is not None:
        with removing(context, group.name):
            return remove_own(context, again.recorded)
    return _remove_unrecorded(context, again, regions)


def _of(context: Context, group: Group, regions: Iterable[str]) -> Iterable[Found]:
    return (item for region in regions for item in context.cloud(region).find({TAG_ID: group.id}))


def _remove_unrecorded(context: Context, group: Group, regions: Sequence[str]) -> Receipt:
    """Remove only resources with this id, not another deployment of the same name."""
    ledger = Ledger()
    unowned = replaced(
        placeholder_record(context, group.name, group.id, group.found[0].place), ends=Ends(expires_at=group.expires)
    )
    for item in reversed(group.found):
        context.reporter.note(f"removing {item.kind} {item.id} in {item.place}")
    tags = {TAG_NAME: group.name, TAG_ID: group.id}

    def left() -> list[Line]:
        return [line for line in ledger.lines.values() if line.removed_at is None]

    with naming_what_is_left(context, left, again="the same 'gc' resumes it"):
        try:
            sweep(context, tags, regions, note=ledger.add, polling=context.pace.deletion)
        except LeftBehindError as error:
            items = error.left
            receipt = issue(context, unowned, ledger, regions, left=items)
            hint = "run the same 'gc' again; until then it may cost money"
            raise left_error(context, error.message, items, hint=hint, receipts=(receipt,)) from error
        return issue(context, unowned, ledger, regions)
