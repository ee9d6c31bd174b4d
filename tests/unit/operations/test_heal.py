from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from builders.plans import candidate, engine
from fakes.computer import FakeComputer, on, plan, planner_request, request

from tgi_deploy.catalog.phases import read_edits, read_failures
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import DeployError, Diagnosis, Failure, InputError
from tgi_deploy.operations.deploying.heal import Healer, up_and_heal
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.watching.status import status
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.errors import InUseError
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan

REQUEST = OptionTexts(model="example", budget="5", set=("max-best-of=4",))
START = "[tgi-deploy] phase=starting-engine\nStarting shard\n"
PREFILL = (
    f"{START}Warming up model\nRuntimeError: Not enough memory to handle 4096 prefill tokens. "
    "You need to decrease `--max-batch-prefill-tokens`\n[tgi-deploy] phase=engine-exited code=64\n"
)
DISK = (
    "[tgi-deploy] phase=starting-engine\nStarting check and download process\n"
    "OSError: [Errno 28] No space left on device\n[tgi-deploy] phase=engine-exited code=64\n"
)
NOBODY_KNOWS = f"{START}[tgi-deploy] phase=engine-exited code=64\n"


@dataclass
class Sick:
    """A cloud whose first machines fail with these logs, one each; later ones are healthy."""

    around: FakeComputer
    logs: tuple[str, ...]
    asked: list[OptionTexts] = field(default_factory=list)

    @property
    def machines(self):
        return [made for made in self.around.world.creations if made[0] == "instance"]

    @property
    def ill(self):
        return len(self.machines) <= len(self.logs)

    def cloud(self, region):
        inner, sick = self.around.world.cloud(region), self

        class SickCloud:
            def __getattr__(self, name):
                return getattr(inner, name)

            def console(self, _instance_id):
                return sick.logs[len(sick.machines) - 1] if sick.ill else ""

        return SickCloud()

    def context(self):
        return self.around.context(
            cloud=self.cloud,
            probe=lambda _url: Probe(outcome="refused") if self.ill else Probe(outcome="status", status=200),
        )

    def plan_again(self, texts):
        self.asked.append(texts)
        return plan()

    def up(self, made=None, **changes: Any):
        healer = Healer(engine=Tgi(), edits=read_edits(), plan_again=changes.pop("plan_again", self.plan_again))
        return up_and_heal(
            self.context(),
            REQUEST,
            lambda _texts, chosen: request(chosen, wait=True, **changes),
            made or plan(),
            healer,
        )


def test_a_healthy_engine_is_not_changed(around):
    outcome, fixes = Sick(around, ()).up()
    assert (outcome.deployment.status, fixes) == ("ready", ())


@pytest.mark.parametrize(
    ("refused", "error", "code"),
    [
        ("delete security-group", InUseError("in use"), "left_behind"),
        ("delete instance", DeployError("cloud_unreachable", "no answer"), "engine_failed"),
    ],
)
def test_no_retry_next_to_a_failed_removal(around, refused, error, code):
    def refuse(name, _properties):
        if name.startswith(refused):
            raise error

    around.world.on_call = refuse
    sick = Sick(around, (PREFILL, ""))
    with pytest.raises(DeployError) as caught:
        sick.up()
    assert caught.value.code == code
    assert len(sick.machines) == 1


def test_a_prefill_out_of_memory_halves_the_batch_on_a_new_machine(around):
    sick = Sick(around, (PREFILL,))
    outcome, fixes = sick.up()
    assert outcome.deployment.status == "ready"
    assert [(fix.code, fix.edit) for fix in fixes] == [("oom_warmup_prefill", "less_prefill")]
    half = candidate().engine.settings.max_batch_prefill_tokens // 2
    assert sick.asked[0].set == ("max-best-of=4", f"max-batch-prefill-tokens={half}")
    assert (len(sick.machines), len(around.world.running())) == (2, 1)
    assert any(line.startswith("trying to fix oom_warmup_prefill") for line in around.recorder.lines)
    assert [item.origin for item in outcome.deployment.revisions] == ["heal"]


def test_an_update_is_healed_while_the_old_machine_serves(around):
    Sick(around, ()).up()
    (old,) = around.world.running()
    cured = plan(chosen=candidate(engine=engine(quantize="gptq")), quantize="gptq")
    outcome, _ = Sick(around, ("", PREFILL)).up(
        plan(chosen=candidate(engine=engine(quantize="awq")), quantize="awq"), plan_again=lambda _texts: cured
    )
    ended = [thing for call, thing in around.world.calls if call == "delete instance"]
    assert ended[-1] == old.id
    assert [(item.origin, item.state) for item in outcome.deployment.revisions] == [
        ("up", "retired"), ("up", "failed"), ("heal", "serving"),
    ]  # fmt: skip


def planning_for(around, seconds):
    """Return a slow planner, during which the failed machine still runs."""

    def plan_again(_texts):
        around.clock.sleep(seconds)
        return plan()

    return plan_again


def test_healed_attempts_count_toward_max_spend(around):
    sick = Sick(around, (PREFILL,))
    outcome, _ = sick.up(plan_again=planning_for(around, 1800), settings={"max_spend_usd": Decimal(100)})
    assert len(sick.machines) == 2
    spent, price = outcome.deployment.ends.spent_before_usd, outcome.deployment.usd_per_hour
    assert price / 2 <= spent < price
    assert outcome.deployment.ends.ttl_s == int((100 - spent) / price * 3600)


class Meter:
    """Measures what every machine has cost, after each call of the cloud."""

    def __init__(self, around):
        self.around, self.since, self.usd = around, {}, {}
        around.world.after_call = lambda _call: self.look()

    def look(self):
        now = self.around.clock.seconds
        for machine in (item for item in self.around.world.things.values() if item.is_machine):
            begun = self.since.setdefault(machine.id, now)
            if machine.alive or machine.id not in self.usd:
                price = on(machine.attributes["instance_type"]).cost.usd_per_hour
                self.usd[machine.id] = price * Decimal(now - begun) / 3600

    @property
    def total(self):
        return sum(self.usd.values())


def test_all_receipts_of_a_name_add_up_to_its_total(around):
    """A failover, a heal, an update, its rollback, another machine and the removal, under one --max-spend."""
    cent, meter = Decimal("0.01"), Meter(around)
    plans = {"none": plan(), "awq": plan(chosen=candidate(engine=engine(quantize="awq")), quantize="awq")}

    def bring_up(wanted, dollars=300, **changes):
        again = lambda revision: (plans[revision.plan.chosen.quantize], ())  # noqa: E731 -- one word of the record
        settings = {"max_spend_usd": Decimal(dollars)}
        up(around.context(), request(wanted, **{"wait": True, "plan_revision": again, "settings": settings} | changes))
        around.clock.sleep(3600)
        meter.look()

    around.world.deaths = ["Server.InsufficientInstanceCapacity"]
    Sick(around, ("", PREFILL)).up(plan_again=planning_for(around, 1800), settings={"max_spend_usd": Decimal(300)})
    around.clock.sleep(3600)
    bring_up(plans["awq"])
    bring_up(plans["none"], exact=True, origin="rollback")
    bring_up(plan(chosen=on("p4d.24xlarge"), concurrency=64), exact=True)
    spent = status(around.context(), "demo").spent
    assert spent.machines == len(meter.usd) == 6
    assert spent.usd == pytest.approx(meter.total, abs=cent)
    with pytest.raises(InputError) as caught:
        bring_up(plans["none"], dollars=spent.usd + cent, exact=True)
    assert caught.value.code == "max_spend_reached"
    down(around.context(), ["demo"], lambda _removals: True)
    receipts = [Decimal(item["cost"]["usd"]) for item in around.store.receipts("demo")]
    assert len(receipts) == 2
    assert sum(receipts) == pytest.approx(meter.total, abs=cent)


def test_healing_stops_at_max_spend(around):
    sick = Sick(around, (PREFILL,))
    price = candidate().cost.usd_per_hour
    with pytest.raises(InputError) as caught:
        sick.up(plan_again=planning_for(around, 1800), settings={"max_spend_usd": price / 2})
    assert caught.value.code == "max_spend_reached"
    assert len(sick.machines) == 1
    assert around.world.left() == []


def test_a_full_disk_is_doubled(around):
    sick = Sick(around, (DISK,))
    _, fixes = sick.up()
    assert fixes[0].edit == "more_disk"
    assert sick.asked[0].disk == str(2 * candidate().storage.root_volume_gib)


def test_a_change_that_the_planner_rejects_is_skipped(around):
    sick = Sick(around, (PREFILL,))
    refused = NoFeasiblePlan(request=planner_request(), rejections=(), considered=0, near_misses=(), catalog_date="x")
    outcome, fixes = sick.up(plan(on("g6e.2xlarge")), plan_again=lambda _texts: refused)
    assert fixes[0].what == f"g6e.2xlarge instead of {candidate().offer.instance_type.name}"
    assert outcome.deployment.status == "ready"
    assert around.world.running()[0].attributes["instance_type"] == "g6e.2xlarge"


def test_a_change_that_conflicts_with_the_request_is_skipped(around):
    def refuse(_texts):
        raise InputError("conflicting_options", "no disk for your own machine", hint="x")

    with pytest.raises(DeployError):
        Sick(around, (DISK,)).up(plan_again=refuse)


def test_after_two_changes_the_failure_is_reported(around):
    sick = Sick(around, (PREFILL, DISK, PREFILL))
    decided = []

    def decide(error):
        decided.append(error.data["finding"])
        return "keep"

    with pytest.raises(DeployError) as caught:
        sick.up(on_failure=decide)
    assert caught.value.data["finding"] == "oom_warmup_prefill"
    assert decided == ["oom_warmup_prefill"]
    assert (len(sick.machines), len(around.world.running())) == (3, 1)
    assert [item["edit"] for item in caught.value.data["healed"]] == ["less_prefill", "more_disk"]
    assert "no automatic fix: oom_warmup_prefill occurred after 2 changes, the maximum" in around.recorder.lines


def test_a_failure_without_a_fix_is_not_retried(around):
    sick = Sick(around, (NOBODY_KNOWS,))
    with pytest.raises(DeployError) as caught:
        sick.up()
    assert len(sick.machines) == 1
    assert around.world.left() == []
    assert caught.value.data["healed"] == []
    assert "no automatic fix: no change to the plan fixes engine_failed" in around.recorder.lines


def test_a_change_is_not_repeated_for_one_cause(around):
    sick = Sick(around, (PREFILL, PREFILL))
    with pytest.raises(DeployError):
        sick.up()
    assert len(sick.machines) == 2


def test_every_code_of_the_table_exists_and_every_change_is_known():
    known = {item["code"] for item in read_failures("tgi")} | {
        "longest_failed", "together_failed", "kv_capacity_short", "machine_died", "spot_reclaimed",
        "wrong_device", "implausibly_slow",
    }  # fmt: skip
    fixes = read_edits()
    assert set(fixes) <= known
    kinds = {edit for edits in fixes.values() for edit in edits}
    assert kinds == {"less_prefill", "more_shards", "more_disk", "p2p_off", "other_machine", "again"}


@pytest.mark.parametrize(
    ("code", "field", "value"),
    [("oom_load", "num_shard", "2"), ("nccl_hang", "env", ("NCCL_P2P_DISABLE=1",))],
)
def test_changes_modify_the_options(code, field, value):
    asked = []

    def again(texts):
        asked.append(texts)
        return plan()

    healer = Healer(engine=Tgi(), edits=read_edits(), plan_again=again)
    error = DeployError("engine_failed", "x", failure=Failure(diagnosis=Diagnosis(finding=code)))
    fix = healer.fix(error, replaced(REQUEST, env=()), plan(), ())
    assert getattr(fix.texts, field) == value
    assert asked == [fix.texts]
