"""The report files of `smoke`: checked before anything is brought up; a failed write does not lose results."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tgi_deploy.cli import ci_reports
from tgi_deploy.cli.frame import run
from tgi_deploy.cli.main import ROOT
from tgi_deploy.errors import NotHealthyError, Problem
from tgi_deploy.files import check_writable
from tgi_deploy.operations.deploying import smoke as use_case
from tgi_deploy.operations.deploying.smoke import Case, Job, Proved, Smoked

OK = Smoked(job=Job(model="phi3-mini", name="smoke-1"), exit_code=0, cases=(Case(name="loading"),), took_s=1.0)
FAILED = Smoked(
    job=Job(model="qwen", name="smoke-2"),
    exit_code=5,
    cases=(Case(name="loading", problem=Problem(code="engine_failed", message="it ended")),),
    took_s=1.0,
)


@pytest.fixture
def program(monkeypatch, capsys):
    """Run the command line with given results; return the exit code, the `--json` output, and whether the smoke ran."""
    began = []

    def call(*words, results=(OK,), meanwhile=lambda: None):
        def smoked(*_arguments, **_options):
            began.append(words)
            meanwhile()
            return results

        monkeypatch.setattr(use_case, "smoke", smoked)
        monkeypatch.setattr(use_case, "deployed", lambda *_: ())
        code = run(ROOT, ["smoke", "phi3-mini", "--yes", *words, "--json"])
        return code, json.loads(capsys.readouterr().out), began

    return call


@pytest.fixture
def summary(monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return tmp_path / "summary.md"


def test_an_unwritable_report_is_rejected_first(program, tmp_path):
    code, document, began = program("--junit", str(tmp_path / "nowhere" / "smoke.xml"))
    (error,) = document["errors"]
    assert (code, error["code"]) == (2, "unwritable_file")
    assert "--junit" in error["hint"]
    assert not began


def test_an_unwritable_summary_is_rejected_first(program, summary):
    summary.mkdir()
    code, document, began = program("--github")
    (error,) = document["errors"]
    assert (code, error["code"]) == (2, "unwritable_file")
    assert "GITHUB_STEP_SUMMARY" in error["hint"]
    assert not began


def test_an_unrequested_summary_is_ignored(program, summary):
    summary.mkdir()
    assert program()[0] == 0


@pytest.mark.parametrize(("results", "expected"), [((OK,), 2), ((OK, FAILED), 5)])
def test_a_folder_deleted_meanwhile_does_not_lose_results(program, tmp_path, summary, results, expected):
    folder = tmp_path / "reports"
    folder.mkdir()
    code, document, _ = program(
        "--junit", str(folder / "smoke.xml"), "--github", results=results, meanwhile=folder.rmdir
    )
    assert code == document["exit_code"] == expected
    assert [item["model"] for item in document["data"]["results"]] == [item.job.model for item in results]
    assert document["errors"][-1]["code"] == "unwritable_file"
    assert summary.read_text(encoding="utf-8").startswith("### Smoke")


def test_checking_a_file_does_not_change_it(tmp_path):
    new, old = tmp_path / "new.xml", tmp_path / "old.xml"
    old.write_text("from before", encoding="utf-8")
    for path in (new, old):
        check_writable(path, what="the report")
    assert not new.exists()
    assert old.read_text(encoding="utf-8") == "from before"


def test_checking_a_pipe_does_not_close_it(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    reports = ci_reports.Reports(junit=pipe)
    reports.check()
    assert reports.write([OK]) == ()
    reader.join(timeout=60)
    assert ET.fromstring(read[0]).find("testsuite").get("name") == "phi3-mini"  # noqa: S314 -- what was just written


def test_a_summary_is_added_to(tmp_path):
    path = tmp_path / "summary.md"
    path.write_text("before\n", encoding="utf-8")
    assert ci_reports.Reports(summary=path).write([OK]) == ()
    assert path.read_text(encoding="utf-8").startswith("before\n### Smoke")


def test_proofs_of_deployments_have_reports(monkeypatch, capsys, tmp_path):
    error = NotHealthyError("info_failed", "checking", hint="look", data={"step": "info"})
    found = (Proved(smoked=FAILED, error=error), Proved(smoked=OK))
    monkeypatch.setattr(use_case, "deployed", lambda *_: ("one", "two"))
    monkeypatch.setattr(use_case, "prove_all", lambda *_: found)
    report = tmp_path / "smoke.xml"
    code = run(ROOT, ["smoke", "one", "two", "--junit", str(report), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (code, [item["code"] for item in document["errors"]]) == (5, ["info_failed"])
    assert document["data"]["step"] == "info"
    suites = ET.fromstring(report.read_text(encoding="utf-8"))  # noqa: S314 -- what was just written
    assert [suite.get("failures") for suite in suites] == ["1", "0"]


def test_models_on_one_docker_host_run_one_after_another(program):
    code, document, began = program("--target", "docker", "-j", "2")
    assert (code, document["errors"][0]["code"]) == (2, "conflicting_options")
    assert not began


def test_a_failed_removal_is_reported_with_the_earlier_failure(program):
    left = Problem(code="left_behind", message="it is still there")
    both = replace(FAILED, exit_code=6, cases=(*FAILED.cases, Case(name="removal", problem=left)))
    code, document, _ = program(results=(both,))
    assert (code, [item["code"] for item in document["errors"]]) == (6, ["engine_failed", "left_behind"])


def test_hints_name_only_options_that_smoke_has(monkeypatch, capsys):
    monkeypatch.setattr(use_case, "deployed", lambda *_: ())
    assert run(ROOT, ["smoke", "phi3-mini", "--json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["code"] == "confirmation_needed"
    assert "--yes" in error["hint"]
    assert "--dry-run" not in error["hint"]


def test_without_a_summary_file_github_needs_none(monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    reports = ci_reports.Reports.of(junit=None, github=True)
    assert (reports.summary, reports.annotations) == (None, True)
