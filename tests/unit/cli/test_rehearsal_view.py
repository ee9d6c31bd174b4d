"""What a rehearsal looks like."""

from __future__ import annotations

from decimal import Decimal

import click
from fakes.surroundings import plan

from tgi_deploy.cli.rehearse import rehearsal_document, rehearsal_text
from tgi_deploy.operations.deploying.rehearse import Ending, Leftover, Moment, Rehearsal


def a_rehearsal(**changes):
    values = {
        "name": "demo",
        "seed": 4,
        "troubles": (),
        "timeline": (
            Moment(at_s=0, code="command", text="tgi-deploy up"),
            Moment(at_s=130.4, code="x", text="pulling"),
        ),
        "calls": {"DescribeInstances": 12, "RunInstances": 1},
        "machine_seconds": 600,
        "usd": Decimal("0.3101"),
        "endings": (
            Ending(command="up", exit_code=5, code="engine_failed", message="it is too big", hint="take a bigger one"),
            Ending(command="down", exit_code=0),
        ),
        "left": (),
    }
    return Rehearsal(**(values | changes))


def text(rehearsal):
    return click.unstyle(rehearsal_text(rehearsal, plan()))


def test_the_timeline_has_minutes_and_seconds():
    lines = text(a_rehearsal()).splitlines()
    assert lines[0].startswith("Rehearsal of demo")
    assert "faults: none" in lines[0]
    assert "      0:00  tgi-deploy up" in lines
    assert "      2:10  pulling" in lines


def test_it_says_what_one_would_have_seen():
    said = text(a_rehearsal())
    assert "up: exit 5, error[engine_failed]\n    it is too big\n    hint: take a bigger one" in said
    assert "down: exit 0" in said


def test_calls_money_and_what_is_left():
    said = text(a_rehearsal())
    assert "Calls  13: DescribeInstances 12, RunInstances 1" in said
    assert "Money  $0.3101 for 10 minutes of machines" in said
    assert said.endswith("Left   nothing\n")


def test_what_is_left_is_named():
    rehearsal = a_rehearsal(left=(Leftover(kind="instance", id="i-1"),))
    assert text(rehearsal).endswith("Left   1 thing\n  instance i-1\n")
    document = rehearsal_document(rehearsal, plan())
    assert (document["safe"], document["left"]) == (False, [{"kind": "instance", "id": "i-1"}])


def test_the_document_has_an_ending_for_each_command():
    document = rehearsal_document(a_rehearsal(), plan())
    assert [item["exit_code"] for item in document["endings"]] == [5, 0]
    assert document["endings"][1]["code"] is None
    assert document["machine"]["market"] == "on-demand"
