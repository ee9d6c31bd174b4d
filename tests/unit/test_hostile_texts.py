"""Locks, records, logs and names beyond all limits."""

from __future__ import annotations

import json
import os

import pytest
import yaml
from builders.logs import GRAMMAR
from builders.samples import quick
from mutations.changes import Raw, dump
from mutations.texts import record
from mutations.trial import trials

from tgi_deploy.diagnosis.lines import read_lines
from tgi_deploy.state import codec


@pytest.fixture
def trial(tmp_path):
    with trials(tmp_path) as found:
        yield found


def lock_of(trial):
    path = trial.home / "file.json"
    assert trial.run("plan", "llama3-8b", "--lock", str(path)) == (0, "ok")
    return path, json.loads(path.read_bytes())


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("plan", "notices", 5),
        ("plan", "notices", "text"),
        ("plan", "notices", [{"a": 1}]),
        ("plan", "extra", Raw("[" * 65 + "]" * 65)),
        ("plan", "extra", Raw("NaN")),
        ("plan", "extra", Raw("9" * 5000)),
        ("plan", "extra", Raw('"\\ud800"')),
    ],
    ids=str,
)
def test_a_lock_out_of_bounds(part, key, value, trial):
    path, lock = lock_of(trial)
    lock[part][key] = value
    path.write_bytes(dump(lock))
    assert trial.run("plan", "--locked", str(path)) == (2, "bad_lock")


@pytest.mark.parametrize("option", ["--locked", "diff", "diagnose", "--cases", "validate"])
def test_a_pipe_is_not_waited_for(option, trial):
    pipe = str(trial.home / "file.toml")
    os.mkfifo(pipe)
    argv = {
        "--locked": ("plan", "--locked", pipe),
        "diff": ("diff", pipe, pipe),
        "diagnose": ("diagnose", pipe),
        "--cases": ("predict", "--cases", pipe),
        "validate": ("profile", "validate", pipe),
    }[option]
    assert trial.run(*argv)[1] == "unreadable_path"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_device_is_not_a_log(device, linked, trial):
    path = trial.home / "file.log"
    path.symlink_to(device)
    assert trial.run("diagnose", str(path) if linked else device) == (2, "unreadable_path")


@pytest.mark.slow
@pytest.mark.parametrize("line", ["x" * 50_000_000, "{" * 1_000_000, '{"log":' * 100_000], ids=["x", "{", "log"])
def test_one_endless_line_is_a_log(line, trial):
    path = trial.home / "file.log"
    path.write_text(line)
    assert trial.run("diagnose", str(path)) == (0, "ok")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", "\u2028"])
def test_only_the_last_lines_of_a_long_log_are_read(end):
    text = end.join(f"line {number}" for number in range(1, 450_001))
    lines = read_lines(text, GRAMMAR)
    assert 50_000 < len(lines) <= 200_000
    assert (lines[-1].text, lines[-1].number) == ("line 450000", 450_000)
    whole = [line for line in lines if line.number == 449_000]
    assert [line.text for line in whole] == ["line 449000"]


@pytest.mark.parametrize("end", quick(["\n", "\r\n", "\u2028"], 1), ids=ascii)
def test_the_last_line_is_always_read(end):
    lines = read_lines("\u2028" * 1_000_000 + "x" * 2_000_000 + " the last" + end, GRAMMAR)
    assert lines[-1].text.endswith("the last")
    assert lines[-1].number == 1_000_001


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("created", "9999-12-31T23:59:59+00:00"),
        ("created", "0001-01-01T00:00:00+00:00"),
        ("expires", 5),
        ("ttl_s", 10**30),
        ("ttl_s", -1),
        ("usd_per_hour", "1E+999999"),
        ("usd_per_hour", "NaN"),
        ("attempt", Raw("1e400")),
        ("attempt", "9" * 5000),
        ("plan", Raw("[" * 5000 + "]" * 5000)),
        ("name", "\ud800"),
    ],
    ids=str,
)
def test_a_record_out_of_bounds(key, value):
    with pytest.raises(ValueError, match=r"\S") as caught:
        codec.decode(dump(record() | {key: value}))
    assert not isinstance(caught.value, UnicodeError)


def test_a_variable_name_too_long_is_rejected_first(trial):
    argv = ("render", "llama3-8b", "--as", "compose", "--env")
    assert trial.run(*argv, f"{'A' * 5000}=1") == (2, "bad_env")
    assert trial.run(*argv, f"{'A' * 256}=1") == (2, "bad_env")


def test_the_longest_variable_name_reads_back(trial, capsys):
    path = trial.home / "file.json"
    name = "A" * 255
    assert trial.run("render", "llama3-8b", "--as", "compose", "--env", f"{name}=1", "--out", str(path)) == (0, "ok")
    assert name in json.dumps(yaml.safe_load(path.read_text()))
