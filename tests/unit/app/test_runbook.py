from __future__ import annotations

import json
import shlex

import click
import pytest
from fakes.surroundings import plan, request

from tgi_deploy.app.documents import plan_document
from tgi_deploy.app.runbook import Subject, recorded_subject, runbook
from tgi_deploy.app.up import up
from tgi_deploy.catalog.alerts import read_alerts
from tgi_deploy.cli.main import ROOT
from tgi_deploy.errors import InputError


def planned(**wishes):
    return Subject(name="demo", plan=plan_document(plan(**wishes)))


def page(subject):
    return runbook(subject, read_alerts())


def blocks(text):
    """The lines of all fenced blocks."""
    parts = text.split("```")[1::2]
    return [line for part in parts for line in part.replace(" \\\n", " ").strip("\n").splitlines()]


def commands(text, program):
    return [line.partition("   #")[0].strip() for line in blocks(text) if line.startswith(f"{program} ")]


def test_every_command_of_ours_can_be_parsed():
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
    engine = subject.plan["engine"]
    assert words[words.index(engine["image"]) + 1 :] == list(engine["args"])
    assert f"127.0.0.1:{engine['port']}:80" in words
    assert words[words.index("--gpus") + 1]


def test_every_alert_has_three_commands_and_no_place_left_to_fill():
    text = page(planned())
    for alert in read_alerts():
        assert len(alert.commands) == 3
        assert f"### {alert.name} ({alert.severity})" in text
    for place in ("{name}", "{url}", "{model}", "{concurrency}", "{slow_token_s}"):
        assert place not in text


def test_the_up_command_wishes_the_same_again():
    (line, *_) = commands(page(planned(flags={"--max-batch-size": "4"}, markets=("spot",))), "tgi-deploy up")
    for said in ("--budget 5", "--context 8192", "--set max-batch-size=4", "--market spot", "--name demo"):
        assert said in line


def test_a_recorded_deployment_names_its_things_and_their_removal(around):
    context = around.context()
    deployment = up(context, request(wait=True)).deployment
    text = page(recorded_subject(context, "demo"))
    for resource in deployment.resources:
        assert f"`{resource.attributes['id']}`" in text
    removals = [line for line in commands(text, "aws ec2") if "terminate" in line or "delete" in line]
    assert [line.split()[2] for line in removals] == [
        "terminate-instances", "delete-launch-template", "delete-security-group",
    ]  # fmt: skip
    assert f"curl -s {deployment.endpoint}/generate" in text
    assert "Values=demo" in text
    assert "ADDRESS" not in text


def test_an_unknown_deployment(around):
    with pytest.raises(InputError, match="no deployment 'demo'"):
        recorded_subject(around.context(), "demo")


def test_a_plan_read_back_from_a_record_gives_the_same_page():
    """On disk prices are numbers, not decimals."""
    subject = planned()
    again = Subject(name="demo", plan=json.loads(json.dumps(subject.plan, default=float)))
    assert page(again) == page(subject)
