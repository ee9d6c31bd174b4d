from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest

from tgi_deploy.cli.ci_reports import Reports
from tgi_deploy.cli.output import write_stderr
from tgi_deploy.cli.views.smoke import smoked_text, verdict
from tgi_deploy.cli.views.smoke_reports import github_annotations, github_summary, junit
from tgi_deploy.errors import LeftResource, Problem
from tgi_deploy.operations.deploying.smoke import Case, Job, Smoked

OK = Smoked(
    job=Job(model="phi3-mini", name="smoke-phi3-mini-1"),
    exit_code=0,
    cases=(Case(name="loading", took_s=20.25), Case(name="removal")),
    took_s=61.5,
    usd=0.0123,
    chosen={"instance_type": "g6.xlarge"},
)
FAILED = Smoked(
    job=Job(model="org/odd|name", name="smoke-odd-1"),
    exit_code=5,
    cases=(
        Case(
            name="loading",
            took_s=3.0,
            problem=Problem(code="engine_failed", message="100% of <memory>: gone\x07", hint="less"),
            details=("line & two",),
        ),
        Case(name="warming_up", skipped=True),
    ),
    took_s=9.0,
)


def test_junit_keeps_every_valid_xml_character():
    root = ET.fromstring(junit([OK, FAILED]))  # noqa: S314 -- what was just written here
    passed, failed = root.findall("testsuite")
    assert (passed.get("tests"), passed.get("failures"), passed.get("skipped")) == ("2", "0", "0")
    assert (failed.get("tests"), failed.get("failures"), failed.get("skipped")) == ("2", "1", "1")
    assert passed.find("testcase").get("time") == "20.250"
    failure = failed.find("testcase/failure")
    assert failure.get("type") == "engine_failed"
    assert failure.get("message") == "100% of <memory>: gone"
    assert failure.text.endswith("hint: less\nline & two")
    assert failed.findall("testcase")[1].find("skipped") is not None
    assert root.get("time") == "70.500"


def test_junit_has_time_machine_and_cost():
    began = datetime(2026, 11, 23, 8, 0, 5, tzinfo=UTC)
    suite = ET.fromstring(junit([replace(OK, began=began)])).find("testsuite")  # noqa: S314 -- see above
    assert suite.get("timestamp") == "2026-11-23T08:00:05"
    found = {item.get("name"): item.get("value") for item in suite.findall("properties/property")}
    assert found == {"deployment": "smoke-phi3-mini-1", "machine": "g6.xlarge", "usd": "0.0123"}


@pytest.mark.parametrize("annotations", [True, False])
def test_progress_is_grouped_in_a_workflow_log(annotations, capsys):
    with Reports(annotations=annotations).grouped("smoke phi3-mini"):
        write_stderr("smoke-1: booting\n")
    lines = capsys.readouterr().err.splitlines()
    assert lines == (["::group::smoke phi3-mini", "smoke-1: booting", "::endgroup::"] if annotations else lines[:1])


def test_any_model_name_is_escaped_in_reports():
    odd = replace(FAILED, job=Job(model="a\x07b\udc80\ufffe/c", name="smoke-abc-1"))
    suite = ET.fromstring(junit([odd]).encode()).find("testsuite")  # noqa: S314 -- what was just written here
    assert suite.get("name") == "ab/c"
    assert suite.find("testcase").get("classname") == "smoke.ab/c"
    assert github_summary([odd]).encode()


def test_annotations_are_one_line_each_and_escaped():
    lines = github_annotations([OK, FAILED]).splitlines()
    assert lines[0] == "::notice title=smoke phi3-mini::ok in 62 s for $0.0123"
    assert lines[1].startswith("::error title=smoke org/odd|name%3A engine_failed::100%25 of <memory>: gone")
    assert "%0Ahint: less%0Aline & two" in lines[1]
    assert len(lines) == 2


def test_an_owned_machine_has_no_price():
    assert github_annotations([replace(OK, usd=None)]).endswith("::ok in 62 s\n")


def test_the_summary_is_a_table_with_the_failures_below():
    text = github_summary([OK, FAILED])
    assert "| phi3-mini | ✅ ok | g6.xlarge | 62 s | $0.0123 |" in text
    assert r"| org/odd\|name | ❌ loading: engine_failed | - | 9 s | - |" in text
    assert "```\nhint: less\nline & two\n```" in text


def test_leftovers_are_reported_with_their_command():
    thing = LeftResource(kind="instance", id="i-1", region="us-east-1", command="tgi-deploy down smoke-odd-1")
    text = smoked_text([OK, replace(FAILED, exit_code=6, left=(thing,))])
    assert "instance i-1 in us-east-1" in text
    assert text.splitlines()[-1].strip() == "tgi-deploy down smoke-odd-1"
    assert "i-1" in github_summary([replace(FAILED, exit_code=6, left=(thing,))])


def test_text():
    text = smoked_text([OK, FAILED])
    assert "phi3-mini" in text.splitlines()[1]
    assert verdict(FAILED) == "loading: engine_failed"
