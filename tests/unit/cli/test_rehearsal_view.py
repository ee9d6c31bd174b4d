"""The output of a rehearsal."""

from __future__ import annotations

from decimal import Decimal

import click

from tgi_deploy.cli.rehearse import rehearsal_text
from tgi_deploy.operations.results.trials import rehearsal_result
from tgi_deploy.values.change_results import EndingData, LeftoverData, MomentData, RehearsalData, RehearsedMachine


def a_rehearsal(**changes):
    values = {
        "name": "demo",
        "model": "acme/demo-1b",
        "machine": RehearsedMachine(instance_type="g6.xlarge", region="us-east-1", market="on-demand"),
        "seed": 4,
        "faults": (),
        "timeline": (
            MomentData(at_s=0, code="command", text="tgi-deploy up"),
            MomentData(at_s=130.4, code="x", text="pulling"),
        ),
        "calls": {"DescribeInstances": 12, "RunInstances": 1},
        "machine_seconds": 600,
        "usd": Decimal("0.3101"),
        "endings": (
            EndingData(
                command="up", exit_code=5, code="engine_failed", message="it is too big", hint="take a bigger one"
            ),
            EndingData(command="down", exit_code=0),
        ),
        "left": (),
        "safe": True,
    }
    return RehearsalData(**(values | changes))


def text(rehearsal):
    return click.unstyle(rehearsal_text(rehearsal))


def test_the_timeline_has_minutes_and_seconds():
    lines = text(a_rehearsal()).splitlines()
    assert lines[0].startswith("Rehearsal of demo")
    assert "faults: none" in lines[0]
    assert "      0:00  tgi-deploy up" in lines
    assert "      2:10  pulling" in lines


def test_the_rehearsal_shows_the_output_of_up():
    result = text(a_rehearsal())
    assert "up: exit 5, error[engine_failed]\n    it is too big\n    hint: take a bigger one" in result
    assert "down: exit 0" in result


def test_the_rehearsal_shows_calls_cost_and_leftovers():
    result = text(a_rehearsal())
    assert "Calls  13: DescribeInstances 12, RunInstances 1" in result
    assert "Money  $0.3101 for 10 minutes of machines" in result
    assert result.endswith("Left   nothing\n")


def test_leftovers_are_named():
    rehearsal = a_rehearsal(left=(LeftoverData(kind="instance", id="i-1"),))
    assert text(rehearsal).endswith("Left   1 resource\n  instance i-1\n")


def test_leftovers_are_an_error():
    left = a_rehearsal(left=(LeftoverData(kind="instance", id="i-1"),), safe=False)
    found = rehearsal_result(left)
    assert (found.exit_code, found.errors[0].code) == (6, "left_behind")
    assert found.to_dict()["left"] == [{"kind": "instance", "id": "i-1"}]
