"""Endpoints of SageMaker, on a fake of its API: from `up` to `down`, killed at every call."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING

import pytest
from builders.samples import quick
from fakes import hosting_api
from fakes.cloud import KilledError
from fakes.computer import FakeComputer, plan
from fakes.hosting_account import FIRST, ROLE, SECOND, TOKEN, Account, another, exactly, first, ranged
from fakes.hosting_api import refusal

from tgi_deploy.cli.views.deployment import update_text
from tgi_deploy.cli.views.status import status_text
from tgi_deploy.errors import ConflictError, DeployError, InputError, NotHealthyError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.pausing import SwitchRequest, restart
from tgi_deploy.operations.deploying.scaling import scale
from tgi_deploy.operations.watching.access import access
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.shell import run_there
from tgi_deploy.operations.watching.status import status
from tgi_deploy.planner.time_to_ready import estimate
from tgi_deploy.targets.protocol import AccountRequest
from tgi_deploy.targets.sagemaker.endpoints import at_a_time
from tgi_deploy.targets.sagemaker.options import SageMakerOptions
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.plan import Cost
from tgi_deploy.values.request import Replicas
from tgi_deploy.values.resource import TAG_PRICE
from tgi_deploy.values.supply import CostLine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(FakeComputer(home=tmp_path / "state"))


def test_an_endpoint_is_created_with_its_tags_in_each_creating_call_and_removed(account):
    deployment = account.up()
    assert account.hosting.everything == FIRST
    assert (
        deployment.endpoint == "https://runtime.sagemaker.us-east-1.amazonaws.com/endpoints/tgi-deploy-demo/invocations"
    )
    for call, sent in account.hosting.sent:
        if call.startswith("create_"):
            tags = {item["Key"]: item["Value"] for item in sent["Tags"]}
            assert (tags["tgi-deploy:deployment"], tags["tgi-deploy:id"]) == ("demo", "id000001")
    (config,) = account.hosting.configs.values()
    (variant,) = config["ProductionVariants"]
    assert variant["RoutingConfig"] == {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
    assert 600 <= variant["ContainerStartupHealthCheckTimeoutInSeconds"] <= 3600
    (receipt,) = account.down().receipts
    assert account.hosting.everything == {}
    assert [line.id for line in receipt.machines] == ["tgi-deploy-demo-r1"]


CHANGES_OF_UP = 6  # role, its policy, model, configuration, endpoint, and what follows the endpoint


@pytest.mark.parametrize("call", quick(range(1, CHANGES_OF_UP), 2))
def test_a_killed_up_is_resumed_without_a_second_of_anything(account, call):
    account.kill_at(call)
    with pytest.raises(KilledError):
        account.up()
    account.kill_at(None)
    account.up()
    assert account.hosting.everything == FIRST
    account.down()
    assert account.hosting.everything == {}


@pytest.mark.parametrize("call", quick(range(1, CHANGES_OF_UP), 2))
def test_a_killed_up_is_removed_completely(account, call):
    account.kill_at(call)
    with pytest.raises(KilledError):
        account.up()
    account.kill_at(None)
    account.down()
    assert account.hosting.everything == {}


@pytest.mark.parametrize("call", ["create_role", "create_model", "create_endpoint_config", "create_endpoint"])
def test_a_lost_reply_creates_nothing_twice(account, call):
    account.hosting.lost = [call]
    account.up()
    assert account.hosting.everything == FIRST


def test_an_update_moves_the_endpoint_and_removes_the_former_revision(account):
    account.up()
    deployment = account.up(plan=another())
    assert account.hosting.everything == SECOND
    assert account.hosting.endpoints["tgi-deploy-demo"]["config"] == "tgi-deploy-demo-r2"
    assert deployment.active == 2
    assert account.hosting.calls.count("create_endpoint") == 1
    assert "delete_endpoint" not in account.hosting.calls


CHANGES_OF_AN_UPDATE = 8  # the policy, model, alarm, configuration, the move, and the former revision's two deletions


@pytest.mark.parametrize(("call", "again"), quick(product(range(1, CHANGES_OF_AN_UPDATE), ["resumed", "removed"]), 4))
def test_a_killed_update_is_finished_or_removed(account, call, again):
    account.up()
    account.kill_at(call)
    with pytest.raises(KilledError):
        account.up(plan=another())
    account.kill_at(None)
    if again == "resumed":
        account.up(plan=another())
        assert account.hosting.everything == SECOND
        assert "delete_endpoint" not in account.hosting.calls
    account.down()
    assert account.hosting.everything == {}


@pytest.mark.parametrize("call", ["create_model", "create_endpoint_config", "update_endpoint"])
def test_a_lost_reply_of_an_update_moves_the_endpoint_once(account, call):
    account.up()
    account.hosting.lost = [call]
    account.up(plan=another())
    assert account.hosting.everything == SECOND
    assert "delete_endpoint" not in account.hosting.calls


CHANGES_OF_DOWN = 8  # endpoint, configuration, model, schedule group, and two roles with their policies


@pytest.mark.parametrize("call", quick(range(1, CHANGES_OF_DOWN), 2))
def test_a_killed_down_is_finished_by_the_next(account, call):
    account.up(ends=WantedEnds(ttl_s=7200))
    account.kill_at(call)
    with pytest.raises(KilledError):
        account.down()
    account.kill_at(None)
    account.down()
    assert account.hosting.everything == {}


def test_an_update_that_aws_rolls_back_leaves_the_former_revision_serving(account):
    account.up()
    account.hosting.fails["tgi-deploy-demo-r2"] = "The primary container did not pass the ping health check."
    with pytest.raises(DeployError, match="ping health check"):
        account.up(plan=another())
    assert account.hosting.everything == FIRST
    assert account.hosting.endpoints["tgi-deploy-demo"]["config"] == "tgi-deploy-demo-r1"
    assert account.around.store.load("demo").active == 1


def test_a_removal_during_an_update_never_moves_the_endpoint_back(account):
    account.up()
    account.hosting.looks = 5
    account.kill_at(5)
    with pytest.raises(KilledError):
        account.up(plan=another())
    account.kill_at(None)
    assert account.hosting.endpoints["tgi-deploy-demo"]["status"] == "Updating"
    account.down()
    assert account.hosting.everything == {}
    assert account.hosting.calls.count("update_endpoint") == 1


def test_an_update_by_recreate_removes_the_endpoint_first(account):
    account.up()
    account.up(plan=another(), strategy="recreate")
    calls = account.hosting.calls
    assert calls.index("delete_endpoint") < len(calls) - calls[::-1].index("create_endpoint")
    without = {kind: names for kind, names in SECOND.items() if kind != "alarms"}
    assert (account.hosting.everything, "update_endpoint" in calls) == (without, False)
    assert "put_metric_alarm" not in calls


def test_of_two_users_of_a_name_the_first_has_it(account, tmp_path):
    account.kill_at(3)
    with pytest.raises(KilledError):
        account.up()
    account.kill_at(None)
    second = Account(FakeComputer(home=tmp_path / "other", owner="bob@desk", ids=7), account.hosting)
    with pytest.raises(ConflictError, match="ann@laptop"):
        second.up()
    account.up()
    assert account.hosting.everything == FIRST


def test_an_update_that_is_not_proved_is_put_back(account):
    account.up()
    account.around.engine.model_id = "somebody/else"
    with pytest.raises(NotHealthyError, match="somebody/else"):
        account.up(plan=another())
    assert account.hosting.everything == FIRST
    assert account.hosting.endpoints["tgi-deploy-demo"]["config"] == "tgi-deploy-demo-r1"


def test_a_failed_endpoint_is_removed_with_the_cause_from_its_log_and_its_name_is_free(account):
    account.hosting.fails["tgi-deploy-demo-r1"] = "The primary container did not pass the ping health check."
    account.hosting.log["engine/i-0abc"] = [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a capacity of 22.05 GiB"
    ]
    with pytest.raises(DeployError) as caught:
        account.up(on_failure=lambda _error: "remove")
    assert "CUDA out of memory" in json.dumps(str(caught.value.failure))
    assert "--create-role --name demo" in str(caught.value.failure)
    assert account.hosting.everything == {}
    account.hosting.fails.clear()
    account.up()
    assert account.hosting.everything == FIRST | {"roles": list(account.hosting.roles)}


def test_a_refused_endpoint_leaves_nothing(account):
    account.hosting.refusals["create_endpoint"] = refusal("ResourceLimitExceeded", "for endpoint usage is 0 Instances")
    with pytest.raises(DeployError, match="endpoint usage"):
        account.up()
    assert account.hosting.everything == {}


def test_somebody_elses_endpoint_of_that_name_is_left_alone(account):
    account.hosting.endpoints["tgi-deploy-demo"] = {
        "Tags": [], "status": "InService", "config": "theirs", "pending": "", "left": 0, "count": 1
    }  # fmt: skip
    with pytest.raises(DeployError, match="tgi-deploy-demo exists"):
        account.up()
    assert account.hosting.everything == {"endpoints": ["tgi-deploy-demo"]}
    with pytest.raises(ConflictError, match="tgi-deploy-demo"):
        account.up(preflight=False)
    assert account.hosting.everything == {"endpoints": ["tgi-deploy-demo"]}


def test_limits_are_held_by_a_schedule_that_exists_before_the_endpoint(account):
    account.up(ends=WantedEnds(ttl_s=7200))
    calls = account.hosting.calls
    assert calls.index("create_schedule") < calls.index("create_endpoint")
    (group,) = account.hosting.groups.values()
    target = group["schedule"]["Target"]
    assert target["Arn"] == "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
    assert json.loads(target["Input"]) == {"EndpointName": "tgi-deploy-demo"}
    statement, _ = account.hosting.roles["tgi-deploy-id000001-us-east-1-end"]["policy"]["Statement"]
    assert statement["Action"] == "sagemaker:DeleteEndpoint"
    assert statement["Resource"].endswith(":endpoint/tgi-deploy-demo")
    account.down()
    assert account.hosting.everything == {}


@pytest.mark.parametrize("call", quick(range(1, 10), 2))
def test_a_killed_up_with_a_limit_is_removed_completely(account, call):
    account.kill_at(call)
    with pytest.raises(KilledError):
        account.up(ends=WantedEnds(ttl_s=7200))
    account.kill_at(None)
    account.down()
    assert account.hosting.everything == {}


def test_a_first_limit_is_set_moved_and_lifted_while_the_endpoint_serves(account):
    account.up()
    extend(account.context, "demo", WantedEnds(ttl_s=3600))
    first = account.hosting.groups["tgi-deploy.demo-id000001"]["schedule"]["StartDate"]
    extend(account.context, "demo", WantedEnds(lease_s=600))
    second = account.hosting.groups["tgi-deploy.demo-id000001"]["schedule"]["StartDate"]
    assert second < first
    extend(account.context, "demo", WantedEnds(ttl_s=0, lease_s=0))
    assert account.hosting.groups["tgi-deploy.demo-id000001"]["schedule"]["State"] == "DISABLED"
    account.down()
    assert account.hosting.everything == {}


def test_an_update_keeps_the_limits_that_it_does_not_name(account):
    account.up(ends=WantedEnds(ttl_s=7200))
    before = account.hosting.groups["tgi-deploy.demo-id000001"]["schedule"]["StartDate"]
    account.around.clock.seconds += 60
    deployment = account.up(plan=another())
    assert account.hosting.groups["tgi-deploy.demo-id000001"]["schedule"]["StartDate"] == before
    assert deployment.ends.expires_at is not None
    assert "limits_dropped" not in " ".join(account.around.recorder.lines)


@pytest.mark.parametrize("ends", [WantedEnds(idle_s=600), WantedEnds(max_spend_usd=5)])
def test_limits_that_nothing_would_hold_are_refused_for_a_running_endpoint(account, ends):
    account.up()
    with pytest.raises(InputError, match=r"requests|costs"):
        extend(account.context, "demo", ends)


def test_scaling_changes_the_number_of_machines_and_nothing_else(account):
    account.up()
    done = scale(account.context, "demo", exactly(3))
    assert (done.before, done.replicas) == (exactly(1), exactly(3))
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 3
    assert "this costs up to $3.722/h more" in account.around.recorder.lines
    assert done.deployment.usd_per_hour == 3 * plan().chosen.cost.usd_per_hour
    account.up(plan=ranged(3, 3, 3))
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 3
    account.around.clock.seconds += 3600
    (receipt,) = account.down().receipts
    first, second = sorted((line for line in receipt.lines if line.is_machine), key=lambda line: line.created)
    assert second.usd_per_hour == 3 * first.usd_per_hour
    assert second.created == first.removed_at


def test_up_asks_before_more_machines_and_names_their_price(account):
    account.up()
    price, shown = plan().chosen.cost.usd_per_hour, []
    more = {"plan": ranged(3, 3, 3), "confirm": lambda proposal: bool(shown.append(proposal))}
    account.up(**more)
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 1
    assert shown[0].added_usd_per_hour == 2 * price
    account.up(plan=ranged(3, 3, 3))
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 3
    account.up(**{**more, "plan": ranged(2, 2, 2)})
    assert (account.hosting.endpoints["tgi-deploy-demo"]["count"], len(shown)) == (2, 1)


def test_the_price_of_more_machines_is_that_of_the_costliest_pool(account):
    account.up(plan=pooled("1", "3"))
    shown = []
    more = pooled("1", "3", replicas=3)
    more = replaced(more, request=replaced(more.request, replicas=exactly(3)))
    account.up(plan=more, confirm=lambda proposal: bool(shown.append(proposal)))
    assert shown[0].added_usd_per_hour == 6


def test_more_machines_of_the_costliest_pool_have_to_fit_the_budget(account):
    made = pooled("1", "3")
    account.up(plan=replaced(made, request=replaced(made.request, budget_usd_per_hour=Decimal("6.9"))))
    with pytest.raises(DeployError, match=r"3 machines would cost up to \$7.00/h: the budget is \$6.90/h"):
        scale(account.context, "demo", exactly(3))
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 1
    scale(account.context, "demo", exactly(2))


@pytest.mark.parametrize(("number", "fits"), [(2, True), (3, False)])
def test_scaling_stays_within_the_budget(account, number, fits):
    made = plan()
    budget = made.chosen.cost.usd_per_hour * 2
    account.up(plan=replaced(made, request=replaced(made.request, budget_usd_per_hour=budget)))
    if fits:
        scale(account.context, "demo", exactly(number))
    else:
        with pytest.raises(DeployError, match="the budget is") as caught:
            scale(account.context, "demo", exactly(number))
        assert caught.value.code == "over_budget"
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == (number if fits else 1)


@pytest.mark.parametrize("asked", [1, 4])
@pytest.mark.parametrize("state", ["Updating", "SystemUpdating"])
def test_an_endpoint_that_is_changing_is_not_scaled(account, asked, state):
    account.up(plan=ranged(3, 3, 3))
    account.hosting.endpoints["tgi-deploy-demo"].update(status=state, pending="tgi-deploy-demo-r1", left=5)
    with pytest.raises(DeployError) as caught:
        scale(account.context, "demo", exactly(asked))
    assert caught.value.code == "endpoint_busy"
    assert account.around.store.load("demo").plan.chosen.replicas == 3
    account.hosting.endpoints["tgi-deploy-demo"].update(left=0)
    scale(account.context, "demo", exactly(asked))
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == asked


def test_a_limit_that_was_set_later_is_no_difference_between_record_and_reality(account):
    account.up()
    extend(account.context, "demo", WantedEnds(ttl_s=3600))
    assert status(account.context, "demo").drift == ()


def test_an_endpoint_that_was_deleted_elsewhere_is_gone_and_costs_nothing(account):
    account.up()
    account.hosting.endpoints.clear()
    found = status(account.context, "demo")
    assert (found.missing, found.usd_per_hour, found.failure.code) == (True, 0, "machine_missing")
    assert [item.message for item in found.drift] == ["endpoint tgi-deploy-demo-r1: only its configuration is left"]
    text = status_text(found)
    assert "no running machine; last known state: ready" in text
    assert "cost      nothing now: no running machine" in text
    (row,) = list_deployments(account.context).rows
    assert (row.now, row.usd_per_hour) == ("missing", 0)
    account.down()
    assert account.hosting.everything == {}


def pooled(own_usd, other_usd, replicas=1):
    """Return a plan with one more pool, and the names of both types."""
    first = ranged(replicas, replicas, replicas)
    offer, kind = first.chosen.offer, first.chosen.offer.instance_type
    priced = [
        replaced(
            first.chosen,
            offer=replaced(offer, instance_type=replaced(kind, name=name), usd_per_hour=Decimal(usd)),
            cost=Cost(lines=(CostLine(item=name, usd_per_hour=Decimal(usd) * replicas),)),
        )
        for name, usd in (("ml.own", own_usd), ("ml.other", other_usd))
    ]
    return replaced(first, chosen=priced[0], fallbacks=(priced[1],))


def tagged_usd(account, revision=1):
    tags = account.hosting.configs[f"tgi-deploy-demo-r{revision}"]["Tags"]
    return Decimal(next(item["Value"] for item in tags if item["Key"] == TAG_PRICE))


def test_the_highest_price_counts_as_long_as_an_autoscaler_may_take_machines_of_any_pool(account):
    made = pooled("1", "3")
    ranging = replaced(made, request=replaced(made.request, replicas=Replicas(least=1, most=4)))
    assert account.up(plan=ranging).current.any_pool


def test_a_refused_price_tag_does_not_hide_a_new_number_from_the_receipt(account):
    account.up()
    account.hosting.refusals["add_tags"] = refusal("AccessDeniedException", "not allowed")
    scale(account.context, "demo", exactly(3))
    assert "resized" in {event.code for event in account.around.store.events("demo")}
    assert any("the tag with the price was not updated" in line for line in account.around.recorder.lines)


def test_an_alarm_of_the_name_that_is_not_the_deployments_is_left_alone(account):
    account.up()
    account.hosting.alarms["tgi-deploy-demo-r2"] = {"Tags": [], "Namespace": "Own"}
    asked = []
    for options in ({}, {"preflight": False}):
        with pytest.raises(DeployError, match="tgi-deploy-demo-r2"):
            account.up(plan=another(), confirm=lambda proposal: asked.append(proposal) or True, **options)
    assert account.hosting.alarms == {"tgi-deploy-demo-r2": {"Tags": [], "Namespace": "Own"}}
    assert len(asked) == 1, "with the checks before the launch, there is no question"


@pytest.mark.parametrize(
    ("before", "after", "most"),
    [
        (1, 1, 2),  # a second machine beside the only one
        (1, 3, 4),  # all new ones beside the only one
        (3, 3, 4),  # one more than serve
        (2, 4, 5),
        (4, 2, 5),
    ],
)
@pytest.mark.parametrize("short", [0, 1])
def test_an_update_counts_old_and_new_machines_toward_the_quota(account, before, after, most, short):
    kind = first().chosen.offer.instance_type.name
    account.hosting.quotas = {kind: float(most - short)}
    account.up(plan=ranged(before, before, before))
    update = another(replicas=after)
    if not short:
        account.up(plan=update)
        assert account.hosting.everything == SECOND
        return
    asked = []
    with pytest.raises(DeployError) as caught:
        account.up(plan=update, confirm=lambda proposal: asked.append(proposal) or True)
    assert not asked, "it is known before the question"
    assert account.hosting.everything == FIRST
    found = caught.value
    assert found.code == "quota_exceeded"
    assert f"limit {most - 1}, needed {most} while both revisions run" in found.message
    assert f"--desired-value {most}" in str(found.hint)
    assert "--strategy recreate" in str(found.hint)
    account.up(plan=update, strategy="recreate")
    assert account.hosting.everything.keys() == FIRST.keys()


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ({}, ["role_missing", "token_readable"]),
        ({"create_role": True}, ["token_readable"]),
        ({"create_role": True, "hub_token_from_env": True}, ["secret_missing"]),
        ({"role": ROLE, "weights": "s3://any/folder/"}, []),
    ],
)
def test_the_doctor_finds_the_options_that_up_would_reject(account, options, codes):
    made = first()
    model = replaced(made.request.model, model=replaced(made.request.model.model, gated=True))
    gated = replaced(made, request=replaced(made.request, model=model))
    asked = AccountRequest(options=SageMakerOptions(**options), plan=gated, place="us-east-1", environ={})
    found = account.target.examine(account.context, asked)
    assert [item.code for item in found if item.code in {"role_missing", "token_readable", "secret_missing"}
            and item.severity == "error"] == codes  # fmt: skip


def test_an_update_to_another_type_counts_only_the_new_machines(account):
    account.up()
    offer = first().chosen.offer
    other = replaced(offer, instance_type=replaced(offer.instance_type, name="ml.other.xlarge"))
    account.hosting.quotas = {offer.instance_type.name: 1.0, "ml.other.xlarge": 1.0}
    account.up(plan=another(offer=other))
    assert account.hosting.everything == SECOND


@pytest.mark.parametrize(
    ("decision", "code"),
    [("allowed", None), ("implicitDeny", "role_insufficient"), ("explicitDeny", "role_insufficient")],
)
def test_a_role_that_may_not_read_alarms_is_refused_before_an_update_is_asked_about(account, decision, code):
    options = SageMakerOptions(role=ROLE, weights="s3://any/folder/")
    account.hosting.decision = decision
    account.up(options=options)
    assert "simulate_principal_policy" not in account.hosting.calls
    asked = []
    update = {"plan": another(), "options": options, "confirm": lambda proposal: asked.append(proposal) or True}
    if code is None:
        account.up(**update)
        assert len(asked) == 1
        return
    with pytest.raises(DeployError) as caught:
        account.up(**update)
    (found,) = (item for item in caught.value.problem.data["findings"] if item["severity"] == "error")
    assert (found["code"], asked, account.hosting.alarms) == (code, [], {})
    assert "put-role-policy --role-name hosting" in str(caught.value.problem)
    account.up(**update, strategy="recreate")
    assert account.hosting.alarms == {}


def test_a_caller_that_may_not_read_alarms_is_not_asked_about_an_update(account):
    account.up()
    account.hosting.refusals["describe_alarms"] = refusal("AccessDeniedException", "not allowed")
    with pytest.raises(DeployError, match="reading an alarm in us-east-1 failed"):
        account.up(plan=another(), confirm=lambda _proposal: pytest.fail("asked"))


@pytest.mark.parametrize(("full", "usd"), [((), "1"), (("ml.own",), "3")])
def test_the_price_is_that_of_the_pool_that_serves(account, full, usd):
    account.hosting.full = frozenset(full)
    deployment = account.up(plan=pooled("1", "3"))
    assert (deployment.usd_per_hour, tagged_usd(account)) == (Decimal(usd), Decimal(usd))
    assert status(account.context, "demo").usd_per_hour == Decimal(usd)
    account.around.clock.seconds += 3600
    (receipt,) = account.down().receipts
    (line,) = (line for line in receipt.lines if line.is_machine)
    assert line.usd_per_hour == Decimal(usd)


def test_the_price_is_the_highest_while_it_is_unknown_which_pool_serves(account):
    deployment = account.up(plan=pooled("1", "3"), wait=False)
    assert (deployment.usd_per_hour, tagged_usd(account)) == (3, 3)
    assert "at most $3" in status_text(status(account.context, "demo"))


def test_the_price_after_scaling_is_recorded_and_tagged(account):
    account.up(plan=pooled("1", "3"))
    account.hosting.full = frozenset({"ml.own"})
    done = scale(account.context, "demo", exactly(2))
    assert (done.deployment.usd_per_hour, tagged_usd(account)) == (6, 6)
    done = scale(account.context, "demo", exactly(3), wait=False)
    assert (done.deployment.usd_per_hour, tagged_usd(account)) == (9, 9)


def test_fallbacks_with_the_same_container_are_pools_and_another_machine_than_planned_is_shown(account):
    first = plan()
    kind = first.chosen.offer.instance_type
    other = replaced(first.chosen, offer=replaced(first.chosen.offer, instance_type=replaced(kind, name="ml.other")))
    account.hosting.full = frozenset({kind.name})
    account.up(plan=replaced(first, fallbacks=(other,)))
    (variant,) = account.hosting.configs["tgi-deploy-demo-r1"]["ProductionVariants"]
    assert variant["InstancePools"] == [
        {"InstanceType": kind.name, "Priority": 1}, {"InstanceType": "ml.other", "Priority": 2}
    ]  # fmt: skip
    (found,) = status(account.context, "demo").drift
    assert (found.code, "ml.other" in found.message) == ("other_instance_type", True)


def test_an_update_after_a_lifted_limit_needs_no_downtime(account):
    account.up(ends=WantedEnds(ttl_s=7200))
    extend(account.context, "demo", WantedEnds(ttl_s=0))
    account.up(plan=another())
    assert "delete_endpoint" not in account.hosting.calls


def test_what_sagemaker_can_not_do_is_refused(account):
    account.up()
    with pytest.raises(InputError) as caught:
        restart(account.context, SwitchRequest(name="demo"))
    assert caught.value.code == "not_restartable"
    with pytest.raises(DeployError, match="not allow access to its machines"):
        run_there(account.context, "demo", ("ls",))


def policies(account):
    return [sent["DeploymentConfig"] for call, sent in account.hosting.sent if call == "update_endpoint"]


@pytest.mark.parametrize(
    ("before", "after", "at_a_time", "steps", "words"),
    [
        (1, 1, 0, 1, "a second machine for about"),
        (3, 3, 1, 3, "1 more replica for about"),
        (1, 3, 0, 1, "a second machine for about"),
    ],
)
def test_the_question_counts_the_minutes_and_the_price_of_all_steps(account, before, after, at_a_time, steps, words):
    account.up(plan=ranged(before, before, before))
    asked = []
    account.up(plan=another(replicas=after), confirm=lambda proposal: asked.append(proposal) or True)
    update = asked[0].update
    one_s = round(sum(phase.expected_s for phase in estimate(asked[0].candidate))) + update.drain_s
    assert (update.at_a_time, update.overlap_s) == (at_a_time, steps * one_s)
    assert update.extra_usd == asked[0].candidate.rent_usd_per_hour * one_s / 3600
    text = update_text(update)
    assert words in text
    assert ("1 replica at a time" in text) is (at_a_time == 1)
    assert "new requests go to the new machine once SageMaker's own check of it passes" in " ".join(text.split())


def test_the_extra_price_is_that_of_the_costliest_pool(account):
    account.up()
    asked, made = [], another()
    other = pooled("1", "3").fallbacks[0]
    other = replaced(other, engine=made.chosen.engine)
    account.up(plan=replaced(made, fallbacks=(other,)), confirm=lambda proposal: asked.append(proposal) or True)
    update = asked[0].update
    assert update.extra_usd == 3 * Decimal(update.overlap_s) / 3600


@pytest.mark.parametrize(("replicas", "found"), [(1, 1), (20, 1), (21, 1), (39, 1), (40, 2), (100, 5)])
def test_as_many_machines_are_replaced_at_a_time_as_a_batch_of_the_policy_has(replicas, found):
    assert at_a_time(replicas) == found


def test_an_endpoint_with_several_machines_is_updated_machine_by_machine(account):
    account.up(plan=ranged(3, 3, 3))
    account.up(plan=another(replicas=3))
    (sent,) = policies(account)
    assert sent["RollingUpdatePolicy"]["MaximumBatchSize"] == {"Type": "INSTANCE_COUNT", "Value": 1}


def answering_in(seconds, made):
    """Return the plan with a predicted time for an answer of all tokens."""
    tokens = made.chosen.engine.settings.max_total_tokens
    speed = replaced(made.chosen.performance, ttft_ms=0, tpot_ms=1000 * seconds / tokens, tpot_ms_span=None)
    return replaced(made, chosen=replaced(made.chosen, performance=replaced(speed, tpot_ms_p95=None)))


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [(300, 20, 300), (20, 300, 180), (900, 20, 480)],
    ids=["as long as the former answers", "as long as the alarm needs", "as long as any stream"],
)
@pytest.mark.parametrize("machines", [1, 3])
def test_an_update_waits_for_the_answers_of_the_revision_that_it_replaces(account, before, after, waits, machines):
    account.up(plan=answering_in(before, ranged(machines, machines, machines)))
    outcome = account.up(plan=answering_in(after, another(replicas=machines)))
    (sent,) = policies(account)
    policy = next(iter(sent.values()))
    assert policy.get("TerminationWaitInSeconds", policy.get("WaitIntervalInSeconds")) == waits
    assert outcome.active == 2


def test_going_back_waits_for_the_answers_of_the_revision_that_failed(account):
    account.up(plan=answering_in(20, plan()))
    account.around.engine.model_id = "somebody/else"
    with pytest.raises(NotHealthyError):
        account.up(plan=answering_in(300, another()))
    there, back = policies(account)
    assert there["BlueGreenUpdatePolicy"]["TerminationWaitInSeconds"] == 180
    assert back["BlueGreenUpdatePolicy"]["TerminationWaitInSeconds"] == 300
    assert "AutoRollbackConfiguration" not in back


def test_aws_goes_back_by_itself_when_the_new_machines_answer_with_errors(account):
    account.up()
    assert account.hosting.alarms == {}
    account.up(plan=another())
    (sent,) = policies(account)
    assert sent["AutoRollbackConfiguration"] == {"Alarms": [{"AlarmName": "tgi-deploy-demo-r2"}]}
    (alarm,) = account.hosting.alarms.values()
    assert (alarm["MetricName"], "AlarmActions" in alarm) == ("Invocation5XXErrors", False)
    assert {item["Name"]: item["Value"] for item in alarm["Dimensions"]} == {
        "EndpointName": "tgi-deploy-demo", "VariantName": "engine", "EndpointConfigName": "tgi-deploy-demo-r2"
    }  # fmt: skip
    account.up(plan=another("8"))
    assert list(account.hosting.alarms) == ["tgi-deploy-demo-r3"]
    account.down()
    assert account.hosting.everything == {}


def test_fewer_machines_may_cut_off_answers_that_take_longer_than_aws_gives_them(account):
    account.up(plan=answering_in(300, ranged(3, 3, 3)))
    scale(account.context, "demo", exactly(4))
    assert "answers_cut" not in " ".join(account.around.recorder.lines)
    scale(account.context, "demo", exactly(2))
    assert "answers_cut" in " ".join(account.around.recorder.lines)


def test_short_answers_have_enough_time_when_the_number_shrinks(account):
    account.up(plan=answering_in(20, ranged(3, 3, 3)))
    scale(account.context, "demo", exactly(2))
    assert "answers_cut" not in " ".join(account.around.recorder.lines)


def test_a_range_lets_aws_change_the_number_which_up_does_not_reset(account):
    account.up(plan=ranged(1, 4))
    (target,) = account.hosting.scaled.values()
    assert (target["least"], target["most"]) == (1, 4)
    assert target["policy"]["PredefinedMetricSpecification"] == {
        "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    }
    assert target["policy"]["TargetValue"] == pytest.approx(plan().request.concurrency * 0.7)
    account.hosting.endpoints["tgi-deploy-demo"]["count"] = 3
    account.up(plan=ranged(1, 4))
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 3
    account.down()
    assert account.hosting.everything == {}


@pytest.mark.parametrize("asked", [(5, 5), (1, 1), (2, 6)])
def test_a_number_outside_the_range_and_another_range_are_refused(account, asked):
    account.up(plan=ranged(2, 4, 2))
    with pytest.raises(DeployError) as caught:
        scale(account.context, "demo", Replicas(least=asked[0], most=asked[1]))
    assert (caught.value.code, account.hosting.endpoints["tgi-deploy-demo"]["count"]) == ("replicas_out_of_range", 2)


def activity(minute, what, state="Successful", **more):
    return {
        "StartTime": datetime(2026, 1, 9, 12, minute, tzinfo=timezone(timedelta(hours=2))), "Description": what,
        "Cause": "monitor alarm high in state ALARM triggered policy tgi-deploy", "StatusCode": state, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ([], ""),
        (
            [activity(1, "Setting desired instance count to 2."), activity(9, "Setting desired instance count to 3.")],
            (
                "2026-01-09 10:09:00 UTC: Setting desired instance count to 3 (successful): monitor alarm high in"
                " state ALARM triggered policy tgi-deploy"
            ),
        ),
        (
            [activity(1, "Setting it to 4.", "Failed", StatusMessage="Failed to set it to 4.\nReason: quota.")],
            "2026-01-09 10:01:00 UTC: Setting it to 4 (failed): Failed to set it to 4. Reason: quota",
        ),
    ],
    ids=["none", "the last", "a failed one"],
)
def test_status_shows_what_aws_did_last_to_the_number(account, found, shown):
    account.up(plan=ranged(1, 4))
    account.hosting.activities = found
    seen = status(account.context, "demo")
    assert seen.autoscaler.latest == shown
    assert ("last: " in status_text(seen)) == bool(shown)


@pytest.mark.parametrize(
    "hostile",
    [
        activity(1, "\x1b[2J" + "x" * 100_000, Cause="\u202e" + "y" * 100_000),
        activity(1, "fine", StartTime=datetime(1, 1, 1, tzinfo=UTC)),
        {"StartTime": 5, "Description": [], "StatusCode": None},
    ],
)
def test_hostile_words_of_the_cloud_stay_short_and_on_one_line(account, hostile):
    account.up(plan=ranged(1, 4))
    account.hosting.activities = [hostile]
    latest = status(account.context, "demo").autoscaler.latest
    assert len(latest) < 500
    assert latest.isprintable()


def test_status_without_the_permission_to_read_changes_says_so(account):
    account.up(plan=ranged(1, 4))
    account.hosting.refusals["describe_scaling_activities"] = refusal("AccessDeniedException", "not allowed")
    found = status(account.context, "demo").autoscaler
    assert (found.problem, found.latest.startswith("unknown: ")) == ("", True)


def test_a_number_within_the_range_leaves_the_range(account):
    account.up(plan=ranged(1, 4))
    done = scale(account.context, "demo", exactly(4))
    assert (done.before, done.replicas) == (exactly(1), exactly(4))
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 4
    found = status(account.context, "demo").autoscaler
    assert (found.least, found.most, found.problem) == (1, 4, "")
    account.up(plan=ranged(1, 4))
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 4


def test_status_says_that_aws_does_not_keep_to_the_range(account):
    account.up(plan=ranged(1, 4))
    (target,) = account.hosting.scaled.values()
    target["most"] = 8
    found = status(account.context, "demo").autoscaler
    assert (found.least, found.most, found.problem) == (1, 4, "AWS keeps the number within 1..8")
    account.hosting.scaled.clear()
    assert "not registered" in status(account.context, "demo").autoscaler.problem


def test_an_update_of_a_scaled_endpoint_keeps_its_number(account):
    account.up(plan=ranged(1, 4))
    account.hosting.endpoints["tgi-deploy-demo"]["count"] = 3
    scaled = another()
    account.up(plan=replaced(scaled, request=replaced(scaled.request, replicas=Replicas(least=1, most=4))))
    assert account.hosting.endpoints["tgi-deploy-demo"]["config"] == "tgi-deploy-demo-r2"
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 3


@pytest.mark.parametrize(
    ("before", "least", "most", "planned", "after"),
    [(6, 1, 4, 1, 1), (1, 2, 4, 2, 2), (3, 1, 4, 1, 3)],
    ids=["more than the range", "less than planned", "within the range"],
)
def test_a_range_in_place_of_a_number_holds_from_the_update_on(account, before, least, most, planned, after):
    account.up(plan=ranged(before, before, before))
    scaled = another(replicas=planned)
    asked = Replicas(least=least, most=most)
    account.up(plan=replaced(scaled, request=replaced(scaled.request, replicas=asked)))
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == after


def test_a_number_in_place_of_a_range_is_the_number_after_the_update(account):
    account.up(plan=ranged(2, 4, 2))

    def scale_out(name: str) -> None:
        """Add machines under the load of the proof, and be at it when the range is left."""
        endpoint = account.hosting.endpoints["tgi-deploy-demo"]
        if name == "describe_scalable_targets" and endpoint["config"] == "tgi-deploy-demo-r2":
            endpoint.update(count=3, status="Updating", pending="tgi-deploy-demo-r2", left=3)
            account.hosting.after_call = None

    account.hosting.after_call = scale_out
    fixed = another()
    deployment = account.up(plan=replaced(fixed, request=replaced(fixed.request, replicas=exactly(1))))
    assert account.hosting.scaled == {}
    assert (account.hosting.endpoints["tgi-deploy-demo"]["count"], deployment.plan.chosen.replicas) == (1, 1)


def test_the_hub_token_is_passed_on_only_with_consent_and_recorded_nowhere(account):
    gated = plan()
    model = replaced(gated.request.model, model=replaced(gated.request.model.model, gated=True))
    gated = replaced(gated, request=replaced(gated.request, model=model))
    with pytest.raises(InputError) as caught:
        account.up(plan=gated)
    assert caught.value.code == "token_readable"
    assert account.hosting.everything == {}
    account.up(plan=gated, options=SageMakerOptions(create_role=True, hub_token_from_env=True))
    assert account.hosting.models["tgi-deploy-demo-r1"]["PrimaryContainer"]["Environment"]["HF_TOKEN"] == TOKEN
    assert all(TOKEN not in path.read_text() for path in account.around.home.rglob("*") if path.is_file())


def test_a_role_is_needed_and_a_given_one_is_used(account):
    with pytest.raises(InputError) as caught:
        account.up(options=SageMakerOptions())
    assert caught.value.code == "role_missing"
    account.up(options=SageMakerOptions(role=ROLE))
    assert account.hosting.models["tgi-deploy-demo-r1"]["ExecutionRoleArn"] == ROLE
    assert account.hosting.roles == {}


def test_a_role_that_sagemaker_may_not_assume_leaves_nothing(account):
    account.hosting.refusals["create_model"] = refusal("ValidationException", f"Could not assume role {ROLE}.")
    with pytest.raises(DeployError) as caught:
        account.up(options=SageMakerOptions(role=ROLE))
    assert caught.value.code == "role_unusable"
    assert account.hosting.everything == {}


@pytest.mark.parametrize("words", ["Could not assume role", "Invalid value"])
def test_a_refusal_that_quotes_the_hub_token_is_scrubbed(account, words):
    account.hosting.refusals["create_model"] = refusal("ValidationException", f"{words} {ROLE} {TOKEN}.")
    options = SageMakerOptions(role=ROLE, hub_token_from_env=True)
    with pytest.raises(DeployError) as caught:
        account.up(options=options)
    assert TOKEN not in str(caught.value.problem)
    assert words in caught.value.message


def test_an_unreadable_name_of_a_role_is_an_error_of_the_reply(account, monkeypatch):
    monkeypatch.setattr(hosting_api, "ROLE_ARN", "arn:x{}{}")
    with pytest.raises(DeployError, match="Arn"):
        account.up()


def test_an_endpoint_is_found_by_its_tags_on_another_computer(account, tmp_path):
    account.up()
    elsewhere = Account(FakeComputer(home=tmp_path / "other"), account.hosting)
    assert access(elsewhere.context, "demo").url.endswith("/endpoints/tgi-deploy-demo/invocations")
    elsewhere.down()
    assert account.hosting.everything == {}


def test_an_endpoint_that_its_schedule_has_ended_is_brought_up_again(account):
    account.up(ends=WantedEnds(ttl_s=3600))
    del account.hosting.endpoints["tgi-deploy-demo"]
    account.around.clock.seconds += timedelta(hours=2).total_seconds()
    account.up()
    assert (sorted(account.hosting.endpoints), account.hosting.groups) == (["tgi-deploy-demo"], {})
    account.down()
    assert account.hosting.everything == {}
