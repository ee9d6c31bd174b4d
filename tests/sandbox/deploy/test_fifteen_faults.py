"""Fifteen faults: what `up` reports for each, what still costs money, and that nothing is left after a removal."""

from __future__ import annotations

import re
import shlex
import tomllib
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.engines import post
from builders.records import is_untouched
from builders.samples import some
from builders.waiting import eventually
from disruptions.checks import Account
from msgspec.structs import replace

from tgi_deploy.cli.main import ROOT
from tgi_deploy.operations.deploying import up as bringing_up
from tgi_deploy.readiness.http import HttpEngine
from tgi_deploy.values.results import COMMAND

FOLDER = Path(__file__).parents[2] / "cases" / "faults"
CASES = {
    path.stem: {"options": [], "exit": 5, "ready": "fast"} | tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted(FOLDER.glob("*.toml"))
}
KEPT = [name for name, case in CASES.items() if case.get("kept")]
UP = ("up", "tinyllama-1.1b", "--budget", "6", "--name", "one", "--yes", "--no-preflight")


@cache
def account_of(url, access_key):
    return Account(SimpleNamespace(url=url, access_key=access_key))


def prepare(program, monkeypatch, case):
    """Inject the fault, and shorten a phase's deadline so that the test does not wait long."""
    shorter = case.get("deadline_s", {})
    usual = bringing_up.estimate

    def urgent(candidate, **how):
        return tuple(
            replace(item, deadline_s=shorter[item.phase], limit_s=shorter[item.phase])
            if item.phase in shorter
            else item
            for item in usual(candidate, **how)
        )

    monkeypatch.setattr(bringing_up, "estimate", urgent)
    program.fault(**case["fault"])


def bring_up(program, case, *words):
    return program.run(*UP, "--ready", case["ready"], *case["options"], "--sandbox", *words)


def check_told(result, case):
    """Check phase, code, evidence and remedy against the case."""
    assert result.code == case["exit"], result.out + result.err
    (error,) = result.json["errors"]
    data = result.json["data"]
    assert error["code"] in case["code"]
    assert data["phase"] in case["phase"]
    assert data["finding"] == case.get("finding")
    assert case["evidence"] in data["evidence"]
    assert case["command"] in data["command"]
    assert data["remedy"]
    assert error["hint"]
    if data["finding"]:
        assert data["cause"]
        assert f"tgi-deploy explain {data['finding']}" in error["hint"]


def check_command(command):
    """Check that this program or a shell accepts the suggested command; otherwise click fails."""
    program, *words = shlex.split(command)
    if program == "tgi-deploy":
        taken = ROOT.make_context("tgi-deploy", words, resilient_parsing=False)
        name, member, rest = ROOT.resolve_command(taken, words)
        assert member.make_context(name, list(rest), parent=taken).params
    else:
        assert program in {"curl", "docker"}


def nothing_is_left(program):
    account = account_of(program.url, program.access_key)
    return account.leftovers() == []


@pytest.mark.parametrize("name", CASES)
def test_each_fault_is_reported_and_nothing_is_left(program, monkeypatch, name):
    case = CASES[name]
    prepare(program, monkeypatch, case)
    result = bring_up(program, case, "--on-failure", "remove", "--json")
    check_told(result, case)
    data = result.json["data"]
    assert (data["outcome"], data["still_billed"]) == ("removed", None)
    assert data["receipt"]["status"] == "removed"
    assert Decimal(data["receipt"]["cost"]["usd"]) > 0
    assert is_untouched(data["receipt"])
    assert nothing_is_left(program)
    check_command(data["command"])


@pytest.mark.parametrize("name", some(KEPT, 1))
def test_a_kept_machine_is_printed_with_cost_and_limits(program, monkeypatch, name):
    case = CASES[name]
    prepare(program, monkeypatch, case)
    result = bring_up(program, case, "--on-failure", "keep")
    assert result.code == case["exit"]
    block = result.err[result.err.index("error[") :].splitlines()
    labels = [line.split()[0] for line in block[1:] if line.startswith("  ") and line[2] != " "]
    assert labels == ["phase", "evidence", "do", "more", "costs"]
    assert block[1].split(maxsplit=1)[1] in [phase.replace("_", " ") for phase in case["phase"]]
    (machine,) = account_of(program.url, program.access_key).alive()
    reported = " ".join(" ".join(block).split())
    (seen,) = program.here("status", "one").json["data"]["deployments"]
    assert f"costs ${seen['recorded']['usd_per_hour']:.4f} an hour" in reported
    assert f"an hour: {machine} in us-east-1 is still running; 'tgi-deploy down --sandbox one' removes it" in reported
    examined = program.here("diagnose", "one").json["data"]["findings"][0]
    assert examined["code"] == case["finding"]
    assert " ".join(examined["remedy"].replace(COMMAND, " ").split()) in reported
    assert program.here("down", "one", "--yes").code == 0
    assert nothing_is_left(program)


@pytest.mark.parametrize("place", ["up", "diagnose"])
def test_the_printed_remedy_works_when_pasted(program, place):
    """It repeats the given options, and replaces the machine that was kept."""
    program.fault(name="engine", engine="oom-load", times=1)
    given = "up qwen2.5-7b --name bad --budget 3 --ttl 1h --sandbox"
    kept = program.run(*given.split(), "--yes", "--on-failure", "keep")
    assert kept.code == 5, kept.err
    text = kept.err if place == "up" else program.run("diagnose", "bad", "--sandbox").out
    line = re.search(r"tgi-deploy (up .*?)(?:  |\n|$)", text)[1]
    fixed = program.run(*shlex.split(line), "--yes")
    assert fixed.code == 0, (line, fixed.err)
    assert "bad is ready at" in fixed.out
    assert "tokens/s (accelerated by the sandbox)" in fixed.out
    (seen,) = program.here("status", "bad").json["data"]["deployments"]
    assert (seen["recorded"]["phase"], [end["reason"] for end in seen["ends"]]) == ("ready", ["ttl"])
    assert program.here("down", "bad", "--yes").code == 0
    assert nothing_is_left(program)


def test_a_later_crash_is_explained_even_after_recovery(program, monkeypatch):
    case = CASES["08-crash-in-the-proof"]
    prepare(program, monkeypatch, case)
    result = bring_up(program, {**case, "ready": "fast"}, "--json")
    assert result.code == 0, result.out + result.err
    url = result.json["data"]["deployment"]["endpoint"]
    long = {"inputs": "word " * 400, "parameters": {"max_new_tokens": 4}}
    assert HttpEngine(url).ask(post("/generate", long)).status == 424
    findings = eventually(lambda: program.here("diagnose", "one").json["data"]["findings"], pause_s=0.2)
    assert findings[0]["code"] == case["finding"]
    assert case["command"] in " ".join(findings[0]["commands"])
    assert program.here("down", "one", "--yes").code == 0
    assert nothing_is_left(program)
