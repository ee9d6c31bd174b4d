"""What protects an endpoint that serves when an update of it is abandoned, and the next endpoint of its name."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from builders.samples import quick
from fakes.cloud import KilledError
from fakes.computer import FakeComputer, plan
from fakes.hosting_account import FIRST, ROLE, Account, another, exactly, ranged

from tgi_deploy.errors import DeployError, LeftBehindError, NotHealthyError
from tgi_deploy.operations.deploying.scaling import scale
from tgi_deploy.targets.sagemaker.commands import removal_command
from tgi_deploy.targets.sagemaker.options import SageMakerOptions
from tgi_deploy.values.ends import WantedEnds

if TYPE_CHECKING:
    from pathlib import Path


ONE = {"tgi-deploy-demo-r1"}


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(FakeComputer(home=tmp_path / "state"))


def schedule_of(account: Account) -> Any:
    (group,) = account.hosting.groups.values()
    return group["schedule"]


@pytest.mark.parametrize("before", [None, 7200])
@pytest.mark.parametrize("asked", [3600, 72000])
def test_a_failed_update_leaves_the_limits_of_what_serves(account, before, asked):
    account.up(ends=WantedEnds(ttl_s=before))
    account.around.engine.model_id = "somebody/else"
    with pytest.raises(NotHealthyError):
        account.up(plan=another(), ends=WantedEnds(ttl_s=asked))
    schedule = schedule_of(account)
    assert schedule.get("StartDate") == account.around.store.load("demo").ends.expires_at
    assert (schedule.get("State") == "DISABLED") == (before is None)
    account.down()
    assert account.hosting.everything == {}


@pytest.mark.parametrize("then", [plan(), another("9")], ids=["the former plan", "a third plan"])
def test_a_killed_update_that_is_not_resumed_leaves_the_limits_of_what_serves(account, then):
    account.up()
    account.kill_at(8)  # the schedule is there, the endpoint is being moved
    with pytest.raises(KilledError):
        account.up(plan=another(), ends=WantedEnds(ttl_s=3600))
    assert schedule_of(account)["StartDate"] is not None
    account.kill_at(None)
    account.up(plan=then)
    assert schedule_of(account).get("State") == "DISABLED"


def test_a_failed_update_renews_the_lease_of_what_serves(account):
    account.up(ends=WantedEnds(lease_s=3600))
    account.around.engine.model_id = "somebody/else"
    account.around.clock.seconds += 3500
    with pytest.raises(NotHealthyError):
        account.up(plan=another(), ends=WantedEnds(lease_s=3600))
    left = schedule_of(account)["StartDate"] - account.around.clock.now()
    assert timedelta(seconds=3500) < left <= timedelta(hours=1)


@pytest.mark.parametrize("options", [SageMakerOptions(create_role=True), SageMakerOptions(role=ROLE)])
@pytest.mark.parametrize("ttl_s", [None, 18000])
def test_a_schedule_that_an_unrecorded_endpoint_has_left_does_not_end_the_next_one(account, tmp_path, options, ttl_s):
    account.up(ends=WantedEnds(ttl_s=3600), options=options)
    account.hosting.endpoints.clear()
    second = Account(FakeComputer(home=tmp_path / "other", ids=7), account.hosting)
    second.around.clock.seconds += 100000
    schedules = []

    def after(name: str) -> None:
        if name == "create_endpoint":
            schedules.extend(group["schedule"].get("StartDate") for group in account.hosting.groups.values())

    account.hosting.after_call = after
    end = second.up(options=options, ends=WantedEnds(ttl_s=ttl_s)).ends.expires_at
    assert schedules == [end]
    second.down()
    assert account.hosting.everything == {}


@pytest.mark.parametrize("cause", ["the wrong model", "no ping"])
def test_an_update_that_is_not_proved_is_put_back_with_as_many_machines_as_before(account, cause):
    account.up(plan=ranged(2, 2, 2))
    scale(account.context, "demo", exactly(3))
    if cause == "no ping":
        account.hosting.fails["tgi-deploy-demo-r2"] = "The primary container did not pass the ping health check."
    else:
        account.around.engine.model_id = "somebody/else"
    with pytest.raises(DeployError):
        account.up(plan=another(replicas=4))
    endpoint = account.hosting.endpoints["tgi-deploy-demo"]
    assert (endpoint["config"], endpoint["count"]) == ("tgi-deploy-demo-r1", 3)
    assert account.around.store.load("demo").plan.chosen.replicas == 3


def test_a_killed_update_that_is_not_resumed_leaves_as_many_machines_as_before(account):
    account.up()
    account.kill_at(5)
    with pytest.raises(KilledError):
        account.up(plan=another(replicas=4))
    account.kill_at(None)
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 4
    account.up()
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 1
    assert account.hosting.everything == FIRST


def test_going_back_that_takes_too_long_points_at_nothing_that_removes_what_serves(account):
    account.up()
    account.around.engine.model_id = "somebody/else"

    def never_back(_name: str) -> None:
        if account.hosting.calls.count("update_endpoint") == 2:
            account.hosting.endpoints["tgi-deploy-demo"].update(left=2)

    account.hosting.after_call = never_back
    with pytest.raises(LeftBehindError) as caught:
        account.up(plan=another())
    hint = caught.value.hint or ""
    assert "'tgi-deploy rollback demo' finishes" in hint
    assert "same 'down'" not in hint
    account.hosting.after_call, account.around.engine.model_id = None, plan().request.model.name
    account.up(origin="rollback")
    assert account.hosting.everything == FIRST


def test_the_command_that_removes_a_revision_by_hand_deletes_the_endpoint_only_while_it_serves_that_revision():
    command = removal_command("endpoint", "tgi-deploy-demo-r2", "sagemaker:us-east-1") or ""
    condition, _, rest = command.partition(" && ")
    assert "--query EndpointConfigName" in condition
    assert condition.endswith('" = tgi-deploy-demo-r2 ]')
    assert rest == (
        "aws sagemaker delete-endpoint --endpoint-name tgi-deploy-demo --region us-east-1; "
        "aws sagemaker delete-endpoint-config --endpoint-config-name tgi-deploy-demo-r2 --region us-east-1"
    )


CHANGES_UNTIL_BACK = 17  # role and schedule, model, alarm, configuration, the move, and the way back


@pytest.mark.parametrize("call", quick(range(1, CHANGES_UNTIL_BACK), 3))
@pytest.mark.parametrize("origin", ["up", "rollback"])
def test_a_failing_update_that_is_killed_leaves_what_was_on_record(account, call, origin):
    account.up()
    account.around.engine.model_id = "somebody/else"
    account.kill_at(call)
    with pytest.raises(KilledError):
        account.up(plan=another(replicas=4), ends=WantedEnds(ttl_s=3600))
    account.kill_at(None)
    account.around.engine.model_id = plan().request.model.name
    account.up(origin=origin)
    assert (account.hosting.models.keys(), account.hosting.configs.keys()) == (ONE, ONE)
    assert account.hosting.endpoints["tgi-deploy-demo"]["count"] == 1
    assert all(group.get("schedule", {}).get("State", "DISABLED") == "DISABLED"
               for group in account.hosting.groups.values())  # fmt: skip
    account.down()
    assert account.hosting.everything == {}
