from __future__ import annotations

import copy
import json
import re

import pytest

from tgi_deploy.catalog.phases import read_phases
from tgi_deploy.diagnosis.grammar import grammar_from
from tgi_deploy.diagnosis.patterns import STARTUP_PHASES, patterns_from
from tgi_deploy.diagnosis.progress import KINDS
from tgi_deploy.diagnosis.reader import read
from tgi_deploy.errors import InputError

DATA = read_phases("tgi")
WANTED = [
    "gated_no_token",
    "token_forbidden",
    "repo_not_found",
    "revision_not_found",
    "no_weights",
    "disk_full",
    "network",
    "gpu_not_visible",
    "toolkit_missing",
    "driver_too_old",
    "arch_unsupported",
    "nccl_shm",
    "shards_gt_gpus",
    "not_divisible",
    "model_type_unsupported",
    "quant_mismatch",
    "oom_load",
    "oom_warmup_prefill",
    "host_oom_killed",
    "argument_validation",
    "unknown_flag",
    "port_in_use",
    "tokenizer_failed",
]


def test_the_table_has_every_required_code():
    assert set(WANTED) <= {item.code for item in patterns_from(DATA["codes"])}


def test_every_entry_has_a_source():
    texts = [text for page in DATA["codes"] for text in page["signatures"]]
    entries = [*DATA["phases"], *DATA["progress"], *texts, DATA["exits"], *DATA["redactions"]]
    assert all(entry["source"] for entry in entries)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", DATA["date"])


def test_every_code_has_all_parts_of_a_page():
    for page in DATA["codes"]:
        assert page["cause"].endswith("."), page["code"]
        assert page["remedy"].endswith("."), page["code"]
        assert page["prevent"].endswith("."), page["code"]
        assert page["check"], page["code"]
        assert page["commands"], page["code"]


def test_every_kind_of_progress_has_a_line():
    assert {item["kind"] for item in DATA["progress"]} == set(KINDS)
    assert [item["name"] for item in DATA["phases"]] == list(STARTUP_PHASES)


PAGE = DATA["codes"][0]


def page_with(**text):
    return PAGE | {"signatures": [{"source": "x"} | text]}


def broken(**changes):
    return copy.deepcopy(dict(DATA)) | changes


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "phases"),
        (broken(phases=[]), "launching, booting"),
        (broken(phases="x"), "invalid key"),
        (broken(codes=[dict(PAGE, phase="dreaming")]), "dreaming"),
        (broken(codes=[dict(PAGE), dict(PAGE)]), "duplicate code"),
        (broken(codes=[page_with()]), "match"),
        (broken(codes=[page_with(match=["("])]), "bad pattern"),
        (broken(codes=[page_with(match=[])]), "empty"),
        (broken(codes=[page_with(match=[7])]), "non-strings"),
        (broken(codes=[page_with(match=["x"], strength="fair")]), "unknown strength"),
        (broken(codes=[page_with(match=["x"], other_causes=[{"code": "nobody", "distinguish_by": "x"}])]), "nobody"),
        (broken(progress=[{"kind": "mood", "match": "x"}]), "mood"),
        (broken(error_lines=[{"kind": "message", "match": "x"}]), "no kind of error_lines is 'exception'"),
        (broken(exits=dict(DATA["exits"], match="exited")), "group 'code'"),
        (broken(redactions=[{"match": "x"}]), "'by'"),
        (broken(hang={"code": "nobody", "line_s": 10}), "no code 'nobody'"),
    ],
)
def test_a_broken_table_error_names_the_key(data, says):
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        grammar_from(data)
    assert caught.value.code == "bad_profile"


@pytest.mark.parametrize("before", [[], [{"kind": "message", "match": "^never said$"}]])
def test_an_exception_is_reported_by_its_kind_and_not_by_its_row(before):
    table = grammar_from(broken(error_lines=[*before, *DATA["error_lines"]]))
    log = "2025-09-14T08:22:30.1Z ERROR x: it broke\nValueError: Unsupported model\ntype parrot\n"
    assert [item.code for item in read(log, table).findings] == ["model_type_unsupported"]


def test_a_users_table_replaces_the_packaged_one(tmp_path):
    file = tmp_path / "engines" / "tgi" / "phases.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"mine": True}))
    mine = read_phases("tgi", user_dir=tmp_path)
    assert (mine["mine"], mine["codes"], "survived" in mine) == (True, DATA["codes"], False)
    assert read_phases("tgi", user_dir=tmp_path / "elsewhere") == DATA


@pytest.mark.parametrize("text", ["[]", "{", "\udcff"])
def test_an_unreadable_table_is_an_input_error_with_its_path(tmp_path, text):
    file = tmp_path / "engines" / "tgi" / "phases.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError) as caught:
        read_phases("tgi", user_dir=tmp_path)
    assert str(file) in caught.value.message


def test_an_unknown_engine_has_no_table():
    with pytest.raises(InputError):
        read_phases("no-such-engine")
