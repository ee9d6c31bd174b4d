"""Preflight of `up`: errors stop it before anything is created, warnings and unknown results do not."""

from __future__ import annotations

import pytest
from builders.plans import candidate, engine
from fakes.computer import on, plan, request
from fakes.inspection import ARN, BOUNDARY, BOUNDARY_ARN, FakeInspector, survey_of

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.reconcile.errors import PermissionDeniedError
from tgi_deploy.targets.ec2.inspection import AccountPolicy, Identity, Usage
from tgi_deploy.values.base import replaced

MOST_CALLS = 8


def bring_up(around, inspector, wanted=None, **changes):
    return up(
        around.context(targets=around.targets(survey=survey_of(inspector))),
        request(wanted or plan(chosen=G), **changes),
    )


G = on("g6e.xlarge", quota="L-DB2E81BA")
P = on("p4d.24xlarge", quota="L-417A185B")
DENYING = FakeInspector(verdicts={"ec2:RunInstances": "denied"})
FULL = FakeInspector(limit=8.0, machines=(Usage(instance_type="g6e.2xlarge", vcpus=None),))


def test_a_clean_preflight_continues_with_few_calls(around):
    inspector = FakeInspector()
    outcome = bring_up(around, inspector)
    assert outcome.changed
    assert {item.severity for item in outcome.proposal.findings} == {"ok"}
    assert len(inspector.asked) == MOST_CALLS
    assert sorted(inspector.asked) == [
        "addresses subnet-a",
        "ec2:CreateLaunchTemplate",
        "ec2:CreateSecurityGroup",
        "ec2:RunInstances",
        "identity",
        "quota L-DB2E81BA",
        "route subnet-a vpc-1",
        "usage g* vt* on-demand",
    ]


def with_secret(around, inspector):
    return bring_up(around, inspector, settings={"hub_token_from_env": True}, environ={"HF_TOKEN": "hf_planted"})


def test_a_launch_that_creates_a_role_checks_its_boundary(around):
    inspector = FakeInspector()
    assert "boundary" in {item.code for item in with_secret(around, inspector).proposal.findings}
    assert f"policy {BOUNDARY.name}" in inspector.asked


def test_without_the_boundary_nothing_is_created_and_the_command_for_it_is_printed(around):
    with pytest.raises(DeployError) as caught:
        with_secret(around, FakeInspector(boundary=None))
    assert caught.value.code == "boundary_missing"
    assert BOUNDARY.creation in caught.value.hint
    assert around.world.creations == []


def test_a_different_boundary_is_reported_with_the_command_that_updates_it(around):
    changed = AccountPolicy(arn=BOUNDARY_ARN, document={"Version": "2012-10-17", "Statement": []})
    assert with_secret(around, FakeInspector(boundary=changed)).changed
    (line,) = [line for line in around.recorder.lines if line.startswith("boundary_differs ")]
    assert BOUNDARY.renewal(BOUNDARY_ARN) in line


def test_the_dry_run_uses_the_parameters_of_the_launch(around):
    inspector = FakeInspector()
    deployment = bring_up(around, inspector).deployment
    launch = inspector.launches[0]
    assert (launch.instance_type, launch.subnet, launch.market) == ("g6e.xlarge", "subnet-a", "on-demand")
    assert launch.tags == {"tgi-deploy:deployment": "demo", "tgi-deploy:id": deployment.id}


@pytest.mark.parametrize(
    ("inspector", "code", "words"),
    [
        (DENYING, "permission_denied", f"ec2:RunInstances is not allowed for {ARN}"),
        (FakeInspector(limit=0.0), "quota_exceeded", "limit 0, in use 0"),
        (FULL, "quota_exceeded", "in use 8"),
        (FakeInspector(leads_to=""), "no_egress_route", "no default route"),
        (FakeInspector(who=Identity(account="1", arn=ARN, skew_s=900.0)), "clock_skew", "900 s"),
        (FakeInspector(who=DeployError("no_credentials", "nobody", hint="h")), "no_credentials", "nobody"),
    ],
)  # fmt: skip
def test_an_error_stops_before_confirmation_and_creation(around, inspector, code, words):
    with pytest.raises(DeployError) as caught:
        bring_up(around, inspector, confirm=lambda _proposal: pytest.fail("asked"))
    assert (caught.value.code, caught.value.exit_code) == (code, 1)
    assert words in caught.value.message
    assert "--no-preflight" in caught.value.hint
    assert any(item["code"] == code for item in caught.value.data["findings"])
    assert around.world.creations == []
    assert around.store.load("demo") is None


def test_a_quota_for_one_machine_is_enough_if_the_old_one_is_removed_first(around):
    bring_up(around, FakeInspector())
    full = FakeInspector(limit=4.0, machines=(Usage(instance_type="g6e.xlarge", vcpus=None),))
    serving = replaced(around.store.load("demo").in_state("serving"), status="ready")
    around.store.save(serving, expected_serial=serving.serial)
    changed = plan(chosen=candidate(offer=G.offer, engine=engine(quantize="awq")))
    with pytest.raises(DeployError) as caught:
        bring_up(around, full, changed, exact=True, wait=True)
    assert caught.value.code == "quota_exceeded"
    assert "--strategy recreate needs no second machine" in caught.value.hint
    recreated = bring_up(around, full, changed, exact=True, wait=True, strategy="recreate")
    assert recreated.deployment.active == 2


def test_a_quota_too_small_prints_the_increase_request(around):
    machines = (Usage(instance_type="g6e.2xlarge", vcpus=None), Usage(instance_type="vt1.3xlarge", vcpus=12))
    with pytest.raises(DeployError) as caught:
        bring_up(around, FakeInspector(limit=20.0, machines=machines))
    command = (
        "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-DB2E81BA "
        "--desired-value 24 --region us-east-1"
    )
    assert command in caught.value.hint


def test_a_quota_too_small_is_a_warning_if_a_fallback_uses_another_quota(around):
    outcome = bring_up(around, FakeInspector(limit=0.0), plan(P, chosen=G))
    assert outcome.changed
    assert any(line.startswith("quota_exceeded ") and "fallbacks" in line for line in around.recorder.lines)


@pytest.mark.parametrize("field", ["limit", "machines", "free", "leads_to"])
@pytest.mark.parametrize(
    "error",
    [PermissionDeniedError("x is not allowed", action="x:Y"), DeployError("request_refused", "no such service")],
)
def test_an_unknown_result_is_a_warning(around, field, error):
    outcome = bring_up(around, FakeInspector(**{field: error}))
    assert outcome.changed
    warned = [item for item in outcome.proposal.findings if item.severity == "warning"]
    # A limit applies even if its usage is unknown.
    assert [item.code == "not_checked" for item in warned] == ([] if field == "machines" else [True])


def test_a_failed_dry_run_is_a_warning(around):
    outcome = bring_up(around, FakeInspector(verdicts={"ec2:RunInstances": DeployError("throttled", "slow")}))
    assert outcome.changed
    assert [item.code for item in outcome.proposal.findings if item.severity == "warning"] == ["not_checked"]


def test_a_full_subnet_is_reported(around):
    outcome = bring_up(around, FakeInspector(free=0))
    assert outcome.changed
    assert any(line.startswith("subnet_full ") for line in around.recorder.lines)


def test_preflight_is_skipped_on_request_and_for_existing_machines(around):
    inspector = FakeInspector(limit=0.0)
    assert bring_up(around, inspector, preflight=False).changed
    assert not bring_up(around, inspector).changed
    assert inspector.asked == []


def test_a_dry_run_runs_the_preflight(around):
    outcome = bring_up(around, FakeInspector(free=0), dry_run=True)
    assert [item.code for item in outcome.proposal.findings if item.severity == "warning"] == ["subnet_full"]
    assert around.world.creations == []
