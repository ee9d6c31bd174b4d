"""`up -f` by the command line: deployments of a file, the same file again, and one that the file no longer names."""

from __future__ import annotations

import pytest

BOTH = """
owner = "search-team"
budget = 5
ttl = "2h"

[deployments.chat]
model = "qwen2.5-7b"

[deployments.small]
model = "smollm2-135m"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "deployment.toml"
    path.write_text(BOTH, encoding="utf-8")
    return path


def up(program, file, *words):
    return program.here("up", "-f", str(file), "--yes", "--ready", "fast", *words)


def calls_that_change(program):
    words = ("Create", "Run", "Delete", "Terminate", "Authorize", "Modify")
    return [call for call in program.all_calls() if call["action"].startswith(words)]


def test_a_file_is_applied_idempotently_and_pruned(program, file):
    first = up(program, file).json["data"]
    assert [item["deployment"]["name"] for item in first["deployments"]] == ["chat", "small"]
    made = len(calls_that_change(program))
    again = up(program, file).json["data"]
    assert [item["changed"] for item in again["deployments"]] == [False, False]
    assert len(calls_that_change(program)) == made
    assert {item["owner"] for item in program.here("costs").json["data"]["owners"]} == {"search-team"}

    program.here("up", "smollm2-135m", "--budget", "5", "--name", "mine", "--yes", "--ready", "fast")
    file.write_text(BOTH.partition("[deployments.small]")[0], encoding="utf-8")
    kept = up(program, file).json["data"]
    assert (kept["pruned"], len(program.instances())) == (None, 3)
    assert up(program, file, "--prune", "--dry-run").json["data"]["pruned"]["declined"]
    assert up(program, file, "--prune").json["data"]["pruned"]["removed"] == ["small"]
    assert [item["name"] for item in program.instances()] == ["chat", "mine"]


def test_a_deployment_without_a_plan_stops_all_of_them_before_the_first(program, file):
    file.write_text(BOTH + "budget = 0.01\n", encoding="utf-8")
    result = up(program, file)
    assert result.code == 3
    assert program.instances() == []


def test_a_failure_names_the_deployment_and_those_already_up(program, file):
    file.write_text(BOTH + 'subnet = "subnet-0123456789abcdef0"\n', encoding="utf-8")
    (error,) = up(program, file).json["errors"]
    assert error["message"].startswith(f"'small' of {file}: ")
    assert "already up from this file: chat; the same command resumes where it stopped" in error["hint"]
    assert [item["name"] for item in program.instances()] == ["chat"]
