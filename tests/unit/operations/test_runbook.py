from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime

import click
import pytest
from builders import plans, records
from fakes.computer import FakeComputer, candidate, offer, plan, request

from tgi_deploy.catalog.alerts import read_alerts
from tgi_deploy.cli.main import ROOT
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.operations.watching.lookup import known
from tgi_deploy.operations.watching.runbook import Subject, known_subject, planned_subject, runbook
from tgi_deploy.values.base import as_dict, as_value, plain, replaced
from tgi_deploy.values.container import HostAccess
from tgi_deploy.values.deployment import ResourceRecord
from tgi_deploy.values.plan_document import Choice, PlanDocument
from tgi_deploy.values.plan_options import ENDS, PLAN_OPTIONS
from tgi_deploy.values.request import Replicas
from tgi_deploy.values.resource import KEPT
from tgi_deploy.wiring import target_for, target_named


def planned(**asked):
    made = plan(**asked)
    return Subject(name="demo", target=target_for(made), plan=plan_document(made))


def with_plan(subject, **changes):
    return replace(subject, plan=replaced(subject.plan, **changes))


def of_ones_own():
    there = candidate(offer=offer(region="local", market="owned", usd_per_hour=None))
    return planned(chosen=there, hardware="1xL40S", markets=("owned",), regions=("local",))


def page(subject):
    return runbook(subject, read_alerts("tgi"), Tgi())


def blocks(text):
    """The lines of all fenced blocks."""
    parts = text.split("```")[1::2]
    return [line for part in parts for line in part.replace(" \\\n", " ").strip("\n").splitlines()]


def commands(text, program):
    return [line.partition("   #")[0].strip() for line in blocks(text) if line.startswith(f"{program} ")]


def test_every_tgi_deploy_command_parses():
    found = commands(page(planned()), "tgi-deploy")
    assert len({line.split()[1] for line in found}) >= 10
    for line in found:
        with ROOT.make_context("tgi-deploy", shlex.split(line)[1:], resilient_parsing=False) as ctx:
            name, sub, args = ROOT.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
            assert isinstance(sub, click.Command), name
            if not isinstance(sub, click.Group):
                sub.make_context(name, args, parent=ctx)


def test_the_docker_command_runs_the_planned_engine():
    subject = planned()
    (line,) = commands(page(subject), "docker run")
    words = shlex.split(line)
    engine = subject.plan.engine
    assert words[words.index(engine.image) + 1 :] == list(engine.args)
    assert f"127.0.0.1:{engine.port}:80" in words
    assert words[words.index("--gpus") + 1]


def test_every_alert_has_three_complete_commands():
    text = page(planned())
    for alert in read_alerts("tgi"):
        assert len(alert.commands) == 3
        assert f"### {alert.name} ({alert.severity})" in text
    for place in ("{name}", "{url}", "{model}", "{concurrency}", "{slow_token_s}"):
        assert place not in text


def test_the_up_command_repeats_the_request():
    (line, *_) = commands(page(planned(flags={"--max-batch-size": "4"}, markets=("spot",))), "tgi-deploy up")
    for expected in ("--budget 5", "--context 8192", "--set max-batch-size=4", "--market spot", "--name demo"):
        assert expected in line


def test_a_recorded_deployment_lists_resources_and_removal_commands(around):
    context = around.context()
    deployment = up(context, request(wait=True)).deployment
    text = page(known_subject(context, context.store.load("demo")))
    for resource in deployment.resources:
        assert f"`{resource.attributes['id']}`" in text
    removals = [line for line in commands(text, "aws ec2") if "terminate" in line or "delete" in line]
    assert [line.split()[2] for line in removals] == [
        "terminate-instances", "delete-launch-template", "delete-security-group",
    ]  # fmt: skip
    assert f"curl -s {deployment.endpoint}/generate" in text
    assert "Values=demo" in text
    assert "ADDRESS" not in text


def test_the_clouds_own_commands_act_on_the_sandbox():
    subject = planned()
    text = runbook(subject, read_alerts("tgi"), Tgi(), sandbox=True)
    starts = [block.splitlines()[1] for block in text.split("```")[1::2] if "\naws " in block]
    assert starts
    assert all(line.startswith('eval "$(tgi-deploy sandbox start)"') for line in starts)
    assert "eval" not in page(subject)


def test_every_price_of_a_runbook_has_its_date():
    subject = planned()
    chosen = subject.plan.chosen
    guess = as_value(as_dict(chosen) | {"price_date": "2025-06-28", "estimated": True}, Choice)
    subject = with_plan(subject, chosen=replaced(chosen, price_date="2026-07-20"), fallbacks=(guess,))
    lines = page(subject).splitlines()
    assert any(line.startswith("**$") and line.endswith("(listed 2026-07-20):") for line in lines)
    (other,) = (line for line in lines if line.startswith(f"- `{guess.instance_type}`"))
    assert ": about $" in other
    assert other.endswith("an hour (estimated 2025-06-28)")


def test_a_recorded_plan_gives_the_same_page():
    """Prices were numbers once."""
    subject = planned()
    plan_ = json.loads(json.dumps(plain(subject.plan)))
    again = Subject(name="demo", target=subject.target, plan=as_value(plan_, PlanDocument))
    assert page(again) == page(subject)


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ({"env": {"NCCL_P2P_DISABLE": "1"}}, "--env NCCL_P2P_DISABLE=1"),
        ({"disk_gib": 300}, "--disk 300"),
        ({"port": 9000}, "--port 9000"),
        ({"allow_turing": True}, "--allow-turing"),
        ({"utilization": 0.5}, "--utilization 0.5"),
        ({"arrivals_per_s": 2.5}, "--rps 2.5"),
        ({"input_p95": 3000}, "--input-tokens 1024:3000"),
        ({"replicas": Replicas(least=1, most=4)}, "--replicas 1..4"),
        ({"quality": "exact"}, "--quality exact"),
    ],
)
def test_the_up_command_includes_the_complete_request(requested, expected):
    subject = planned()
    subject = with_plan(subject, requirements=replaced(subject.plan.requirements, **requested))
    (line, *_) = commands(page(subject), "tgi-deploy up")
    assert expected in line


def test_every_field_of_a_request_is_covered():
    reported = {
        *(row.lands for row in PLAN_OPTIONS if row.lands not in {"", ENDS}),
        "model",
        "markets",
        "flags",
        "env",
        "allow_turing",
        "input_p95",
        "output_p95",
    }
    assert set(as_dict(planned().plan.requirements)) == reported


def test_an_owned_machine_is_brought_up_on_docker():
    requested = of_ones_own()
    (line, *_) = commands(page(requested), "tgi-deploy up")
    assert "--hardware 1xL40S" in line
    assert "--target docker" in line
    assert "--region" not in line


def test_a_local_model_is_given_by_path_and_mounted():
    subject = of_ones_own()
    model = replaced(subject.plan.model, id="mine", served_id="/models/my own")
    engine = replaced(subject.plan.engine, args=("--model-id", "/models/my own", "--num-shard", "1"))
    asked = replaced(subject.plan.requirements, model="mine")
    text = page(with_plan(subject, model=model, engine=engine, requirements=asked))
    assert "tgi-deploy up '/models/my own' " in text
    assert "tgi-deploy plan '/models/my own' " in text
    (line,) = commands(text, "docker run")
    words = shlex.split(line)
    assert words[words.index("--mount") + 1] == "type=bind,source=/models/my own,target=/model,readonly"
    assert words[words.index(engine.image) + 1 :] == ["--model-id", "/model", "--num-shard", "1"]


def test_docker_resources_are_removed_with_docker_commands():
    plan_ = planned().plan
    things = tuple(
        ResourceRecord(
            key=kind,
            kind=kind,
            place="docker",
            state="created",
            spec="",
            request_number=1,
            attributes={"id": id_},
            notes=notes,
        )
        for kind, id_, notes in (("volume", "tgi-deploy-cache", {KEPT: "weights"}), ("container", "0123456789ab", {}))
    )
    plan_ = replaced(plan_, chosen=replaced(plan_.chosen, market="owned"))
    made = records.deployment(target="docker", place="docker", status="ready", resources=things)
    text = page(Subject(name="demo", target=target_named("docker"), plan=plan_, deployment=made))
    removals = [line for line in blocks(text) if line.startswith(("docker rm", "docker volume"))]
    assert removals == ["docker rm --force 0123456789ab"], "'down' keeps the weights, too"
    _has_dockers_own_commands(text, "docker")


def test_a_page_before_up_has_docker_commands_by_container_name():
    text = page(of_ones_own())
    _has_dockers_own_commands(text, "docker")
    assert "docker rm --force tgi-deploy-demo" in blocks(text)


def test_another_docker_host_is_named_in_every_command():
    made = records.deployment(target="docker", place="docker:tcp://box:2376", status="ready")
    _has_dockers_own_commands(page(replace(of_ones_own(), deployment=made)), "docker --host tcp://box:2376")


def _has_dockers_own_commands(text, docker):
    """Check for Docker commands to inspect, to remove, and to verify, without any cloud command."""
    lines = [line.partition("   #")[0] for line in blocks(text)]
    label = "--filter label=tgi-deploy:deployment=demo"
    for expected in ("logs --tail 200", "inspect", "exec", "restart"):
        assert any(line.startswith(f"{docker} {expected} ") and "tgi-deploy-demo" in line for line in lines), expected
    assert [line for line in lines if line.startswith(f"{docker} ps --all {label}")]
    assert f"{docker} ps --all --quiet {label}" in lines
    assert {"tgi-deploy list --target docker", "tgi-deploy gc --target docker"} <= {line.strip() for line in lines}
    assert not [line for line in lines if line.startswith("aws ")]
    assert "aws " not in text.partition("## Remove it")[2]


def test_every_limit_of_a_machine_is_listed(around):
    deployment = up(around.context(), request(wait=True)).deployment
    around.store.save(
        records.ending(deployment, idle_s=1800, lease_s=3600, lease_until=datetime(2026, 1, 9, 4, tzinfo=UTC)),
        expected_serial=deployment.serial,
    )
    text = page(known_subject(around.context(), around.store.load("demo")))
    assert "It terminates at 2026-01-09T04:00+00:00, unless its lease is renewed before." in text
    assert "It terminates 1800 s after its last request." in text
    assert "does not terminate automatically" not in text


def test_every_limit_of_a_plan_is_listed():
    made = plan()
    subject = planned_subject(made, plans.deployable(ttl_s=7200, idle_s=600, lease_s=3600), target_named("ec2"))
    assert subject.ends == (
        "automatically 7200 s after its launch",
        "3600 s after its lease was last renewed",
        "600 s after its last request",
    )  # fmt: skip


def test_the_up_command_repeats_the_limits(around):
    made = planned_subject(plan(), plans.deployable(ttl_s=7200, idle_s=600, lease_s=5401), target_named("ec2"))
    (line, second) = [line for line in commands(page(made), "tgi-deploy up") if "--name" in line]
    assert line.endswith(f" --ttl 2h --lease 1h30m1s --idle-timeout 10m --name {made.name}")
    assert second == f"{line}-2"
    deployment = up(around.context(), request(wait=True)).deployment
    around.store.save(records.ending(deployment, ttl_s=5400), expected_serial=deployment.serial)
    assert " --ttl 1h30m --name demo" in page(known_subject(around.context(), around.store.load("demo")))


def test_a_page_of_a_hosted_engine_has_no_routes_of_its_own():
    text = page(planned_subject(plan(), plans.deployable(), target_named("sagemaker")))
    assert not [line for line in blocks(text) if line.startswith(("curl", "docker"))]
    assert all(" --target sagemaker" in line for line in commands(text, "tgi-deploy up"))
    assert "## Alerts" not in text
    revision = replaced(records.deployment().current, options={"role": "arn:aws:iam::1:role/x y"})
    made = records.deployment(target="sagemaker", place="sagemaker:us-east-1").with_revision(revision)
    subject = Subject(name="demo", target=target_named("sagemaker"), plan=plan_document(plan()), deployment=made)
    assert " --role 'arn:aws:iam::1:role/x y' --name demo" in page(subject)
    assert "tgi-deploy scale demo 2" in page(subject)


def without_nvidia(around):
    """A recorded deployment on another vendor's accelerators."""
    access = HostAccess(devices=("/dev/kfd", "/dev/dri"), groups=("video",), remark="ROCm")
    deployment = up(around.context(), request(wait=True)).deployment
    spec = deployment.current.spec
    container = replaced(spec.container, host=access)
    return deployment.with_revision(replaced(deployment.current, spec=replaced(spec, container=container)))


def test_non_nvidia_accelerators_are_passed_like_on_the_host(around):
    text = page(known_subject(around.context(), without_nvidia(around)))
    (line,) = commands(text, "docker run")
    words = shlex.split(line)
    assert "--gpus" not in words
    assert words[words.index("--device") + 1] == "/dev/kfd"


def test_pages_for_other_vendors_have_no_nvidia_commands(around):
    for access, there in ((None, True), (HostAccess(runtime="habana", remark="Gaudi"), False)):
        text = page(replace(of_ones_own(), host=access))
        assert ("nvidia-smi" in text) is there


@pytest.fixture
def by_tags(around, tmp_path):
    """The page of a deployment on a computer without its record."""
    up(around.context(), request(wait=True))
    second = FakeComputer(home=tmp_path / "second", world=around.world, clock=around.clock)
    return page(known_subject(second.context(), known(second.context(), "demo")))


def test_a_page_from_tags_has_only_the_facts_in_tags(by_tags, around):
    recorded = around.store.load("demo")
    assert "from tags, because this computer has no record" in by_tags
    assert "| model | `example-org/example-13b` |" in by_tags
    assert "| machine | `g6e.xlarge` in us-east-1, on-demand |" in by_tags
    assert f"**${recorded.usd_per_hour:.4f} an hour** for its machine." in by_tags
    assert "| load | 8 requests at once of 1024 + 256 tokens;" in by_tags
    for absent in ("predicted", "docker run", "tgi-deploy up", "--sweep", "should become ready", "None", "{{"):
        assert absent not in by_tags.partition("\n## ")[2].partition("## Alerts")[0], absent


def test_a_page_from_tags_lists_resources_and_removal_commands(by_tags, around):
    removals = [line for line in commands(by_tags, "aws ec2") if "terminate" in line or "delete" in line]
    ids = [item.attributes["id"] for item in reversed(around.store.load("demo").resources)]
    assert [line.split()[4] for line in removals] == ids
    assert "curl -s http://127.0.0.1:8080/generate" in by_tags


def test_alerts_from_tags_omit_predicted_thresholds(by_tags):
    found = {alert.name for alert in read_alerts("tgi") if f"### {alert.name} " in by_tags}
    assert {alert.name for alert in read_alerts("tgi")} - found == {"SlowTokens"}
    for place in ("{name}", "{url}", "{model}", "{concurrency}", "{slow_token_s}"):
        assert place not in by_tags


def test_every_command_of_a_page_from_tags_parses(by_tags):
    for line in commands(by_tags, "tgi-deploy"):
        with ROOT.make_context("tgi-deploy", shlex.split(line)[1:], resilient_parsing=False) as ctx:
            name, sub_, args = ROOT.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
            sub_.make_context(name, args, parent=ctx)
