"""A running deployment is not replaced if it serves the request: another budget, another choice, a smaller load."""

from __future__ import annotations

from decimal import Decimal

import pytest
from builders.plans import candidate, engine
from fakes.computer import FakeComputer, on, plan, request

from tgi_deploy.cli.views.deployment import changes_text
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.values.base import replaced

CHEAPER = candidate(engine=engine(quantize="awq"))


def set_to(**changes):
    """Return the running spec with other settings and the matching arguments."""
    usual = engine()
    words = dict(zip(usual.container.args[::2], usual.container.args[1::2], strict=True))
    words |= {f"--{name.replace('_', '-')}": str(value) for name, value in changes.items()}
    container = replaced(usual.container, args=tuple(word for pair in words.items() for word in pair))
    return candidate(engine=replaced(usual, settings=replaced(usual.settings, **changes), container=container))


@pytest.fixture
def around(tmp_path):
    return FakeComputer(home=tmp_path / "state")


def bring_up(around, wanted=None, **changes):
    return up(around.context(), request(wanted, wait=True, **changes))


def untouched(around, wanted, **changes):
    """Return the outcome of an `up` that must neither ask nor create anything."""
    made = len(around.world.creations)
    outcome = bring_up(around, wanted, confirm=lambda _proposal: pytest.fail("asked"), **changes)
    assert not outcome.changed
    assert len(around.world.creations) == made
    assert len(around.world.running()) == 1
    return outcome


def updated(around, wanted, **changes):
    """Return the outcome of an `up` that replaces the running revision."""
    outcome = bring_up(around, wanted, confirm=lambda _proposal: False, **changes)
    assert outcome.declined
    assert (outcome.proposal.update.source, outcome.proposal.update.destination) == (1, 2)
    assert len(around.world.running()) == 1


def test_a_bigger_budget_changes_nothing_and_is_recorded(around):
    first = bring_up(around)
    outcome = untouched(around, plan(budget_usd_per_hour=Decimal(6)))
    recorded = around.store.load("demo")
    assert recorded.plan.requirements.budget_usd_per_hour == 6
    assert recorded == outcome.deployment
    assert recorded.revision.spec == first.deployment.revision.spec
    assert (recorded.active, recorded.revision.number, recorded.revision.state) == (1, 1, "serving")
    assert outcome.remarks == ()


def test_a_dry_run_records_nothing(around):
    first = bring_up(around).deployment
    untouched(around, plan(budget_usd_per_hour=Decimal(6)), dry_run=True)
    assert around.store.load("demo") == first


def test_the_running_spec_may_be_any_candidate(around):
    """As after a failover, or with another price list."""
    bring_up(around)
    untouched(around, plan(candidate(), chosen=CHEAPER, budget_usd_per_hour=Decimal(6)))
    untouched(around, replaced(plan(chosen=CHEAPER, budget_usd_per_hour=Decimal(7)), alternatives=(candidate(),)))


def test_another_instance_type_with_the_same_accelerators_is_another_pool_of_the_same_spec(around):
    bring_up(around, plan(on("g6e.2xlarge"), chosen=candidate()))
    untouched(around, plan(chosen=on("g6e.2xlarge"), budget_usd_per_hour=Decimal(6)))


def test_a_better_choice_is_mentioned_with_its_command(around):
    bring_up(around)
    line = replaced(CHEAPER.cost.lines[0], usd_per_hour=Decimal("0.8048"))
    cheap = replaced(CHEAPER, cost=replaced(CHEAPER.cost, lines=(line,)))
    (better,) = untouched(around, plan(candidate(), chosen=cheap, budget_usd_per_hour=Decimal(6))).remarks
    assert better.code == "better_choice"
    assert "$0.8048" in better.message
    assert "run the same 'up' with --replan" in better.message


@pytest.mark.parametrize(
    ("made_with", "asked", "named"),
    [
        ({"ttl_s": 7200}, {"ttl_s": 3600}, "--ttl applied"),
        ({}, {"lease_s": 3600, "idle_s": 600}, "--idle-timeout and --lease applied"),
        ({"max_spend_usd": Decimal(9)}, {"max_spend_usd": Decimal(8), "ttl_s": 600}, "--ttl and --max-spend applied"),
    ],
)
def test_other_limits_are_applied_to_the_machine_that_runs(around, made_with, asked, named):
    bring_up(around, settings=made_with)
    (moved,) = untouched(around, plan(), settings=asked).remarks
    assert moved.code == "limits_moved"
    assert named in moved.message
    ends = around.store.load("demo").ends
    has = {"ttl_s": ends.asked_ttl_s, "idle_s": ends.idle_s, "lease_s": ends.lease_s}
    assert {**has, "max_spend_usd": ends.max_spend_usd}.items() >= asked.items()
    assert untouched(around, plan(), settings=asked).remarks == ()
    assert untouched(around, plan()).remarks == ()


def test_the_planner_judges_exactly_the_running_configuration(around):
    bring_up(around)
    asked = []
    wanted = plan(chosen=CHEAPER, budget_usd_per_hour=Decimal(6))
    untouched(around, wanted, judge=lambda running: asked.append(running.chosen.quantize) or candidate())
    assert asked == ["none"]


def test_settings_that_serve_more_than_requested_are_kept(around):
    """Another version of this tool may set the same hardware otherwise."""
    bring_up(around)
    judged = set_to(max_total_tokens=4096, max_input_tokens=4095)
    untouched(around, plan(chosen=judged, context_tokens=4096, concurrency=4), judge=lambda _running: judged)


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"max_total_tokens": 16384}, {"context_tokens": 16384}),
        ({"max_concurrent_requests": 256}, {"concurrency": 200}),
        ({"max_batch_prefill_tokens": 2048}, {"flags": (("max-batch-prefill-tokens", "2048"),)}),
    ],
)
def test_settings_that_serve_less_are_an_update(around, changes, asked):
    bring_up(around)
    judged = set_to(**changes)
    updated(around, plan(chosen=judged, **asked), judge=lambda _running: judged)


@pytest.mark.parametrize(
    "asked",
    [{"port": 9090}, {"disk_gib": 5000}, {"regions": ("eu-west-1",)}, {"markets": ("spot",)}],
)
def test_values_of_the_creation_are_not_options(around, asked):
    bring_up(around)
    updated(around, plan(**asked), judge=lambda _running: candidate())


def test_another_spec_lists_the_differences(around):
    bring_up(around)
    updated(around, plan(chosen=CHEAPER, quantize="awq"))
    assert any("has different settings: quantize auto, now awq" in line for line in around.recorder.lines)


def test_an_unfinished_deployment_resumes_its_own_spec(around):
    bring_up_unfinished = request(wait=False)
    up(around.context(), bring_up_unfinished)
    wanted = plan(chosen=CHEAPER, budget_usd_per_hour=Decimal(6))
    outcome = bring_up(around, wanted, judge=lambda _running: candidate())
    assert outcome.deployment.status == "ready"
    assert outcome.deployment.plan.chosen.quantize == "none"
    assert len(around.world.running()) == 1
    assert [kind for kind, *_ in around.world.creations].count("instance") == 1


def test_added_networks_are_allowed_in_place(around):
    bring_up(around, settings={"allow_cidr": ("203.0.113.0/24",)})
    (group,) = around.world.there("security-group")
    both = {"allow_cidr": ("203.0.113.0/24", "198.51.100.7/32")}
    (result,) = untouched(around, plan(), settings=both, dry_run=True).remarks
    assert around.world.there("security-group") == [group]
    (added,) = untouched(around, plan(), settings=both).remarks
    assert (result.code, added.code) == ("networks_changed", "networks_changed")
    assert around.world.properties[group.id]["allowed"] == ["198.51.100.7/32", "203.0.113.0/24"]
    assert untouched(around, plan(), settings=both).remarks == ()


def test_dropped_networks_are_revoked_in_place(around):
    bring_up(around, settings={"allow_cidr": ("203.0.113.0/24", "198.51.100.7/32")})
    (group,) = around.world.there("security-group")
    other = {"allow_cidr": ("203.0.113.0/24", "192.0.2.0/24")}
    declined = bring_up(around, settings=other, confirm=lambda _proposal: False)
    assert declined.declined
    assert changes_text(declined.proposal.changes).splitlines() == [
        "  + network 192.0.2.0/24 (is named by --allow-cidr)",
        "  - network 198.51.100.7/32 (is no longer named by --allow-cidr)",
    ]
    assert around.world.properties[group.id]["allowed"] == ["198.51.100.7/32", "203.0.113.0/24"]
    outcome = bring_up(around, settings=other)
    assert [item.code for item in outcome.remarks] == ["networks_changed", "networks_changed"]
    assert around.world.properties[group.id]["allowed"] == ["192.0.2.0/24", "203.0.113.0/24"]
    assert untouched(around, plan(), settings=other).remarks == ()


def test_an_update_revokes_networks_after_its_launch(around):
    bring_up(around, settings={"allow_cidr": ("203.0.113.0/24",)})
    (group,) = around.world.there("security-group")
    asked = []
    bring_up(
        around,
        plan(chosen=CHEAPER, quantize="awq"),
        settings={"allow_cidr": ("192.0.2.0/24",)},
        confirm=lambda proposal: asked.append(changes_text(proposal.changes)) or True,
    )
    assert "  - network 203.0.113.0/24 (is no longer named by --allow-cidr)" in asked[0]
    assert around.world.properties[group.id]["allowed"] == ["192.0.2.0/24"]


def test_without_the_option_no_network_is_removed(around):
    bring_up(around, settings={"allow_cidr": ("192.0.2.0/24",)})
    (group,) = around.world.there("security-group")
    assert untouched(around, plan()).remarks == ()
    assert around.world.properties[group.id]["allowed"] == ["192.0.2.0/24"]
