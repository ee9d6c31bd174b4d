from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from builders.records import deployment
from fakes.cloud import FakeWorld, KilledError
from fakes.computer import FakeClock, Recorder

from tgi_deploy.errors import LeftBehindError
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.reconcile.errors import (
    BadRequestError,
    ClaimedError,
    LostReplyError,
    NoCapacityError,
    QuotaError,
    StaleTokenError,
    TokenMismatchError,
)
from tgi_deploy.reconcile.executor import Executor, resolve
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.reconcile.retry import PollPolicy, polls
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import ChangeSet, Found, Ref, Resource, Step

if TYPE_CHECKING:
    from tgi_deploy.values.deployment import Deployment

PLACE = "us-east-1"
PATIENCE = PollPolicy(deadline_s=60, poll_s=1, longest_poll_s=10)


@dataclass
class MemoryStore:
    """Keeps every version that was saved."""

    saved: list[Deployment] = field(default_factory=list)
    events: list = field(default_factory=list)

    def save(self, deployment, *, expected_serial):
        assert expected_serial == (self.saved[-1].serial if self.saved else 0)
        self.saved.append(replaced(deployment, serial=expected_serial + 1))
        return self.saved[-1]

    def append_event(self, event):
        self.events.append(event)


@dataclass
class Bench:
    world: FakeWorld = field(default_factory=FakeWorld)
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: FakeClock = field(default_factory=FakeClock)
    recorder: Recorder = field(default_factory=Recorder)

    @property
    def executor(self):
        return Executor(
            handler=lambda place, kind: self.world.cloud(place).handler(kind),
            store=self.store,
            clock=self.clock,
            reporter=self.recorder,
            version="0.1.0",
            deletion=PATIENCE,
            visibility_timeout=PATIENCE,
        )

    def run(self, wanted, deployment=None):
        deployment = deployment or new(self.clock)
        seen = observe(deployment.name, deployment, cloud=self.world.cloud, places=[PLACE])
        return self.executor.execute(deployment, diff(wanted, deployment.resources, seen))


@pytest.fixture
def bench():
    return Bench()


def new(clock):
    now = clock.now()
    return deployment(place=PLACE, status="creating", created_at=now, updated_at=now)


def group(**changes):
    properties = {"name": "g", "port": 8080, "cidrs": ["10.0.0.1/32"]} | changes
    return Resource(key="security-group", kind="security-group", place=PLACE, properties=properties, mutable=("cidrs",))


def machine(zone="us-east-1a"):
    request = {
        "Placement": {"AvailabilityZone": zone},
        "InstanceType": "g6e.xlarge",
        "Groups": [Ref(key="security-group", attribute="id")],
    }
    return Resource(
        key="instance",
        kind="instance",
        place=PLACE,
        properties={"request": request, "spot": False},
        notes={"pool": zone},
    )


def test_the_intent_is_saved_before_the_call_and_the_result_right_after(bench):
    seen_at_call = []
    bench.world.on_call = lambda name, _: seen_at_call.append(
        (name, [r.state for saved in bench.store.saved[-1:] for r in saved.resources])
    )
    bench.run((group(), machine()))
    assert ("create security-group", ["intent"]) in seen_at_call
    assert ("update security-group", ["created"]) in seen_at_call
    assert ("create instance", ["created", "intent"]) in seen_at_call
    assert [record.state for record in bench.store.saved[-1].resources] == ["created", "created"]


def test_references_are_resolved_just_before_the_call(bench):
    bench.run((group(), machine()))
    (_, properties, _) = bench.world.creations[-1]
    assert properties["request"]["Groups"] == ["security-group-0"]


def test_the_intent_keeps_its_notes(bench):
    deployment = bench.run((group(), machine()))
    notes = deployment.record("instance").notes
    assert notes == {"pool": "us-east-1a", "intended": "2026-01-09T00:00:00+00:00"}


def test_a_repeated_request_has_the_same_token_and_another_spec_another(bench):
    failures = [LostReplyError("lost"), LostReplyError("lost")]

    def lose(name):
        if name == "create instance" and failures:
            bench.world.things.popitem()
            raise failures.pop()

    bench.world.after_call = lose
    bench.world.tokens = NoMemory()
    bench.run((group(), machine()))
    tokens = [token for kind, _, token in bench.world.creations if kind == "instance"]
    assert len(tokens) == 3
    assert len(set(tokens)) == 1
    assert all(len(token) <= 64 and token.isascii() for token in tokens)
    bench.world.after_call = None
    bench.run((group(), machine("us-east-1b")), bench.store.saved[-1])
    assert bench.world.creations[-1][2] != tokens[0]


class NoMemory(dict):
    """A cloud that forgets every token."""

    def get(self, key, default=None):
        return default


def test_a_reply_that_takes_more_than_a_minute_is_checked_anyway(bench):
    def lose(name):
        if name == "create instance" and len(bench.world.running()) == 1 and not bench.clock.seconds:
            bench.clock.sleep(60)
            raise LostReplyError("the read timed out")

    bench.world.after_call = lose
    deployment = bench.run((group(), machine()))
    (running,) = bench.world.running()
    assert deployment.record("instance").attributes["id"] == running.id


def test_a_terminated_machine_of_an_earlier_request_is_in_the_history(bench):
    bench.run((group(),))
    ended = Found(key="instance", kind="instance", place="us-east-1", attributes={"id": "i-9"}, alive=False)
    stale = [StaleTokenError("ended", ended=ended)]

    def refuse(name, _):
        if name == "create instance" and stale:
            raise stale.pop()

    bench.world.on_call = refuse
    bench.run((group(), machine()), bench.store.saved[-1])
    (missing,) = [event for event in bench.store.events if event.code == "missing"]
    assert missing.data["id"] == "i-9"


def test_a_stale_token_is_replaced(bench):
    stale = [StaleTokenError("ended")]

    def refuse(name, _):
        if name == "create instance" and stale:
            raise stale.pop()

    bench.world.on_call = refuse
    deployment = bench.run((group(), machine()))
    assert deployment.record("instance").request_number == 3
    assert len(bench.world.running()) == 1


def test_a_machine_with_a_reused_token_is_terminated_first(bench):
    """A run was killed before the reply; the next one can't see the machine yet, and requests it differently."""

    def kill(name):
        if name == "create instance":
            raise KilledError

    bench.world.after_call = kill
    with pytest.raises(KilledError):
        bench.run((group(), machine()))
    bench.world.after_call = None
    (earlier,) = bench.world.running()
    bench.world.hidden.add(earlier.id)
    mismatch = [TokenMismatchError("other parameters")]

    def refuse(name, _):
        if bench.clock.seconds > 30:
            bench.world.hidden.clear()
        if name == "create instance" and mismatch:
            raise mismatch.pop()

    bench.world.on_call = refuse
    deployment = bench.run((group(), machine()), bench.store.saved[-1])
    (running,) = bench.world.running()
    assert running.id == deployment.record("instance").attributes["id"] != earlier.id
    assert bench.world.creations[-1][2] != bench.world.creations[-2][2]


def test_a_mismatch_without_a_result_is_not_awaited_forever(bench):
    mismatch = [TokenMismatchError("other parameters")]

    def refuse(name, _):
        if name == "create instance" and mismatch:
            raise mismatch.pop()

    bench.world.on_call = refuse
    bench.run((group(), machine()))
    assert len(bench.world.running()) == 1
    assert 60 <= bench.clock.seconds < 120


def test_repeated_lost_replies_give_up_eventually(bench):
    def lose(name, _):
        if name == "create instance":
            raise LostReplyError("lost")

    bench.world.on_call = lose
    with pytest.raises(LostReplyError):
        bench.run((group(), machine()))
    assert bench.store.saved[-1].record("instance").state == "intent"
    assert bench.clock.seconds > 0


def lose_reply(bench, call, *, shows_after_s=0.0):
    """The reply of the next such call is lost after it took effect; what it made shows only later."""
    bench.world.time, bench.world.shows_after_s = bench.clock.monotonic, shows_after_s
    lost = []

    def lose(name):
        if name == call and not lost:
            lost.append(name)
            raise LostReplyError("lost")

    bench.world.after_call = lose


@pytest.mark.parametrize("shows_after_s", [0, 4, 12, 30, 59])
def test_a_lost_unique_name_has_a_minute_to_become_visible(bench, shows_after_s):
    lose_reply(bench, "create security-group", shows_after_s=shows_after_s)
    deployment = bench.run((group(),))
    (made,) = bench.world.there("security-group")
    assert deployment.record("security-group").attributes["id"] == made.id
    assert bench.clock.seconds <= 60


@pytest.mark.parametrize("shows_after_s", [0, 12, 59])
@pytest.mark.parametrize("killed", [False, True])
def test_a_lost_address_allocation_is_awaited_before_another(bench, shows_after_s, killed):
    address = Resource(key="address", kind="address", place="us-east-1", properties={"domain": "vpc"})
    lose_reply(bench, "create address", shows_after_s=shows_after_s)
    if killed:

        def kill(name):
            if name == "create address":
                raise KilledError

        bench.world.after_call = kill
        with pytest.raises(KilledError):
            bench.run((address,))
        bench.world.live_on()
    deployment = bench.run((address,), bench.store.saved[-1] if killed else None)
    (made,) = bench.world.there("address")
    assert deployment.record("address").attributes["id"] == made.id
    assert bench.clock.seconds <= 60


def test_a_taken_unique_name_may_be_our_own(bench):
    """A request that the service failed on is repeated below this layer, and may have taken effect the first time."""
    bench.run((group(),))
    bench.store.saved.clear()
    bench.world.time, bench.world.shows_after_s = bench.clock.monotonic, 12
    bench.world.made_at = {"security-group-0": 0}
    deployment = bench.run((group(),))
    assert deployment.record("security-group").attributes["id"] == "security-group-0"


def test_a_unique_name_that_stays_foreign_for_a_minute_is_taken(bench):
    bench.run((group(),))
    bench.store.saved.clear()
    bench.world.hidden.add("security-group-0")
    with pytest.raises(ClaimedError, match="by a resource without this tool's tags"):
        bench.run((group(),))
    assert bench.clock.seconds == pytest.approx(60)
    assert bench.store.saved[-1].record("security-group") is None, "somebody else's thing is not waited for again"


def test_a_unique_name_that_is_taken_after_a_lost_reply_leaves_the_intent_open(bench):
    """What came of the lost request may be the very thing that has the name, and shows later than its minute."""
    lose_reply(bench, "create security-group", shows_after_s=90)
    with pytest.raises(ClaimedError):
        bench.run((group(),))
    assert bench.store.saved[-1].record("security-group").state == "intent"


REFUSALS = (NoCapacityError("none"), QuotaError("too many"), BadRequestError("bad"))


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: error.code)
def test_a_lost_requests_resource_is_found_even_if_its_retry_is_rejected(bench, refusal):
    """A cloud that keeps to its tokens answers the same again. One that does not would get a second machine."""
    lose_reply(bench, "create instance", shows_after_s=30)

    def refuse(name, _):
        if name == "create instance" and bench.world.there("instance"):
            raise refusal

    bench.world.on_call = refuse
    deployment = bench.run((group(), machine()))
    (running,) = bench.world.running()
    assert deployment.record("instance").attributes["id"] == running.id


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: error.code)
def test_a_rejected_request_is_settled_at_once(bench, refusal):
    def refuse(name, _):
        if name == "create instance":
            raise refusal

    bench.world.on_call = refuse
    with pytest.raises(type(refusal)):
        bench.run((group(), machine()))
    assert bench.store.saved[-1].record("instance") is None
    assert bench.clock.seconds == 0


def test_an_open_intent_is_settled_before_it_is_replaced(bench):
    """Killed before the reply came; the next run asks for another zone, and the first machine shows only then."""

    def kill(name):
        if name == "create instance":
            raise KilledError

    bench.world.after_call = kill
    with pytest.raises(KilledError):
        bench.run((group(), machine("us-east-1a")))
    bench.world.after_call = None
    bench.world.time, bench.world.shows_after_s = bench.clock.monotonic, 30
    (earlier,) = bench.world.running()
    bench.world.made_at = {earlier.id: 0}
    deployment = bench.run((group(), machine("us-east-1b")), bench.store.saved[-1])
    (running,) = bench.world.running()
    assert running.attributes["zone"] == "us-east-1b"
    assert running.id == deployment.record("instance").attributes["id"]


def test_an_old_intent_is_not_awaited(bench):
    def kill(name, _):
        if name == "create instance":
            raise KilledError

    bench.world.on_call = kill
    with pytest.raises(KilledError):
        bench.run((group(), machine("us-east-1a")))
    bench.world.on_call = None
    bench.clock.sleep(3600)
    bench.run((group(), machine("us-east-1b")), bench.store.saved[-1])
    assert bench.clock.seconds == 3600


def test_a_repeated_request_records_both_times(bench):
    """Tags are made of the first moment and belong to the token; how new the request is goes by the last."""

    def kill(name, _):
        if name == "create instance":
            raise KilledError

    bench.world.on_call = kill
    for _ in range(2):
        with pytest.raises(KilledError):
            bench.run((group(), machine()), bench.store.saved[-1] if bench.store.saved else None)
        bench.clock.sleep(3600)
    notes = bench.store.saved[-1].record("instance").notes
    assert (notes["intended"], notes["asked"]) == ("2026-01-09T00:00:00+00:00", "2026-01-09T01:00:00+00:00")


def test_resources_created_before_a_crash_are_adopted(bench):
    first = bench.run((group(), machine()))
    intent = replaced(first.record("instance"), state="intent", attributes={})
    bench.store.saved.append(first.with_record(intent))
    deployment = bench.run((group(), machine()), first.with_record(intent))
    assert len(bench.world.running()) == 1
    assert deployment.record("instance").attributes == first.record("instance").attributes
    assert bench.store.events[-1].code == "adopted"


def test_a_group_in_use_is_deleted_once_it_is_free(bench):
    deployment = bench.run((group(), machine()))
    bench.world.slow_to_end = 3
    deployment = bench.run((), deployment)
    assert bench.world.left() == []
    assert deployment.resources == ()


def test_a_group_that_stays_in_use_is_reported_and_recorded(bench):
    deployment = bench.run((group(), machine()))
    only_group = next(
        step
        for step in diff(
            (), deployment.resources, observe("demo", deployment, cloud=bench.world.cloud, places=[])
        ).steps
        if step.key == "security-group"
    )
    with pytest.raises(LeftBehindError, match="an interface holds the group") as caught:
        bench.executor.execute(deployment, ChangeSet(steps=(only_group,)))
    assert caught.value.data["not_removed"] == [{"kind": "security-group", "id": "security-group-0", "region": PLACE}]
    assert bench.store.saved[-1].record("security-group").state == "deleting"
    assert bench.clock.seconds == pytest.approx(60)


def test_deleting_a_duplicate_leaves_the_record_of_the_other(bench):
    deployment = bench.run((group(),))
    step = Step(
        action="delete",
        key="security-group",
        kind="security-group",
        place=PLACE,
        reason="",
        attributes={"id": "security-group-99"},
    )
    deployment = bench.executor.execute(deployment, ChangeSet(steps=(step,)))
    assert deployment.record("security-group").state == "created"


def test_kept_resources_are_still_updated(bench):
    deployment = bench.run((group(),))
    bench.run((group(cidrs=["10.0.0.2/32"]),), deployment)
    assert bench.world.properties["security-group-0"]["allowed"] == ["10.0.0.1/32", "10.0.0.2/32"]


def test_an_unknown_reference_is_a_defect(bench):
    with pytest.raises(ValueError, match=r"x\.id is not known"):
        resolve({"a": Ref(key="x", attribute="id")}, new(bench.clock))


def test_polling_ends_exactly_at_the_deadline():
    clock = FakeClock()
    waits = list(polls(clock, PollPolicy(deadline_s=10, poll_s=1, longest_poll_s=4, growth=2)))
    assert waits == [0, 1, 3, 7, 10]


def test_looks_end_on_a_clock_whose_sums_are_rounded():
    for started in (n * 1e6 + n / 10 for n in range(1, 50)):
        waits = polls(FakeClock(seconds=started), PollPolicy(deadline_s=0.7, poll_s=0.1, longest_poll_s=1))
        assert len(list(islice(waits, 10))) == 5, started
