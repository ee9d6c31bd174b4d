"""`rehearse` in a separate sandbox: safe, repeatable, and without effect on the user's state."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.cli.rehearse import FAULTS
from tgi_deploy.sandbox import faults
from tgi_deploy.sandbox.rehearsal import SCENARIOS

WORDS = ("rehearse", "llama3-13b", "--budget", "5", "--json")


def chance(seed):
    return random.Random(seed)  # noqa: S311 -- a repeatable choice


def run(capsys, *words):
    code = frame.run(ROOT, [*WORDS, *words])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_rehearse_lists_the_faults_of_the_sandbox():
    assert [item.name for item in SCENARIOS] == list(FAULTS)


def test_every_rehearsal_fault_uses_sandbox_faults_and_is_reproducible_by_seed():
    for scenario in SCENARIOS:
        documents = scenario.documents(chance("3 x"))
        assert documents or scenario.machine_fault, scenario.name
        for document in (*documents, *([scenario.machine_fault] if scenario.machine_fault else [])):
            assert faults.read_fault(document)
        assert "\n" not in scenario.description
        assert scenario.documents(chance("3 x")) == documents, scenario.name


def test_a_typo_gets_a_suggestion(capsys):
    code, answer, _ = run(capsys, "--fault", "capacity,trottle")
    assert (code, answer["errors"][0]["code"]) == (2, "bad_option_value")
    assert answer["errors"][0]["hint"] == "did you mean throttle?"


def test_an_impossible_fault_is_rejected(capsys):
    code, answer, _ = run(capsys, "--fault", "spot-reclaim")
    assert (code, answer["errors"][0]["code"]) == (2, "fault_not_applicable")


def test_the_same_seed_gives_the_same_run_and_leaves_nothing(capsys):
    """Two runs, each in a separate cloud; the user's home is unchanged."""
    home = os.environ["TGI_DEPLOY_HOME"]
    stories = []
    for _ in range(2):
        code, answer, err = run(capsys, "--fault", "capacity,dead-host", "--seed", "5")
        assert code == 0, err
        assert answer["data"]["safe"]
        assert answer["data"]["left"] == []
        (ending,) = answer["data"]["endings"]
        assert (ending["exit_code"], ending["code"]) == (1, "machine_died")
        assert "i-0" not in json.dumps(answer["data"]["timeline"])
        assert answer["data"]["calls"]["RunInstances"] >= 2
        assert 0 < answer["data"]["usd"] < 1
        stories.append((answer["data"]["timeline"], answer["data"]["usd"]))
    assert stories[0] == stories[1]
    assert os.environ["TGI_DEPLOY_HOME"] == home
    assert not (Path(home) / "sandbox").exists()
