"""Sweeps: ranges, one plan per value, and an error row for an invalid value."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tgi_deploy.cli.views.sweep import CSV_COLUMNS
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.planning.sweep import SWEPT, plan_each, read_sweep
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Plan

REQUEST = OptionTexts(model="llama3-8b", budget="5")


@pytest.mark.parametrize(
    ("text", "setting", "values"),
    [
        ("concurrency=1,2,4,8,16", "concurrency", ("1", "2", "4", "8", "16")),
        ("context=2048..16384*2", "context", ("2048", "4096", "8192", "16384")),
        ("context=2048..16383*2", "context", ("2048", "4096", "8192")),
        ("budget=1..10+1", "budget", tuple(map(str, range(1, 11)))),
        ("budget=0.5..2+0.5", "budget", ("0.5", "1", "1.5", "2")),
        ("budget=0.1..0.3+0.1", "budget", ("0.1", "0.2", "0.3")),
        ("--input-tokens=128, 256", "input-tokens", ("128", "256")),
        ("num_shard=1,2,1", "num-shard", ("1", "2")),
        ("concurrency=1,10..30+10,100", "concurrency", ("1", "10", "20", "30", "100")),
        ("budget=100..1000*10", "budget", ("100", "1000")),
        ("engine-version=3.3.5,3.3.7", "engine-version", ("3.3.5", "3.3.7")),
        ("budget=5..5+1", "budget", ("5",)),
    ],
)
def test_sweeps_are_parsed(text, setting, values):
    sweep = read_sweep(text)
    assert (sweep.setting, sweep.values) == (setting, values)


@pytest.mark.parametrize(
    "text",
    [
        "", "=", "budget", "colour=1", "budget=", "budget=1,,2", "budget=1..2", "budget=1..2-1", "budget=2..1+1",
        "budget=1..2+0", "context=1..2*1", "context=1..2*0.5", "context=0..2*2", "context=1..10000+1",
        "context=1..999999999*1.000001", "budget=a..b+1", "model=a,b", "budget=..+",
    ],
)  # fmt: skip
def test_invalid_sweeps(text):
    with pytest.raises(InputError) as raised:
        read_sweep(text)
    assert raised.value.code == "bad_option_value"
    assert raised.value.hint


@pytest.mark.slow
def test_every_row_is_the_plan_of_its_value(catalog):
    sweep = read_sweep("min-tokens-per-s=1,8,64,400000")
    rows = plan_each(REQUEST, sweep, catalog, {})
    for value, row in zip(sweep.values, rows, strict=True):
        made = plan(replaced(REQUEST, min_tokens_per_s=value), catalog, {})
        assert row.value == value
        assert row.chosen == (plan_document(made).chosen if isinstance(made, Plan) else None)
    assert rows[0].chosen is not None
    assert rows[-1].chosen is None
    assert rows[-1].code == "throughput_too_low"


def test_the_swept_value_overrides_every_other_source(catalog):
    environ = {"TGI_DEPLOY_BUDGET": "0.1", "TGI_DEPLOY_REGION": "eu-west-1"}
    rows = plan_each(replaced(REQUEST, budget="0.2"), read_sweep("budget=5"), catalog, environ)
    assert rows[0].chosen is not None
    assert rows[0].chosen.region == "eu-west-1"


@pytest.mark.parametrize("setting", SWEPT)
def test_every_setting_is_a_field_of_the_request(setting):
    assert hasattr(REQUEST, SWEPT[setting])


def test_a_row_without_a_choice_has_the_first_rejection_of_plan(catalog, tool):
    (row,) = plan_each(replaced(REQUEST, budget=None), read_sweep("budget=0.1"), catalog, {})
    lines = tool("plan", "llama3-8b", "--budget", "0.1")[1].splitlines()
    refused = lines[next(at for at, line in enumerate(lines) if line.startswith("Rejected")) + 1]
    machine, _, price = row.reason.partition(", 1 shard, none: ")
    assert refused.startswith(f"  {row.code} (")
    assert f": {machine}: {price.partition(',')[0]}" in refused


def test_an_invalid_value_is_a_row_with_its_error(catalog):
    rows = plan_each(REQUEST, read_sweep("context=4096,99999999"), catalog, {})
    assert rows[0].chosen is not None
    assert (rows[1].chosen, rows[1].code) == (None, "context_too_long")


def test_a_request_invalid_for_every_value_is_an_error(catalog):
    with pytest.raises(InputError) as raised:
        plan_each(replaced(REQUEST, quantize="zip"), read_sweep("budget=1,2"), catalog, {})
    assert raised.value.code == "bad_option_value"


def test_the_table(tool):
    exit_code, out, _ = tool("plan", "llama3-13b", "--sweep", "budget=0.2,2")
    header, cheap, note, dear, _ = out.splitlines()
    assert exit_code == 0
    assert header.split() == [
        "BUDGET",
        "INSTANCE",
        "TYPE",
        "ACCELERATORS",
        "WEIGHTS",
        "$/H",
        "TTFT",
        "TPOT",
        "TOKENS/S",
        "$/1M",
    ]
    assert dear.startswith("0.2 over_budget: ")
    assert cheap.split()[:4] == ["2", "g5.xlarge", "1/1", "A10G"]
    assert note == "prices listed 2026-07-20"
    assert all(len(line) <= 100 for line in out.splitlines() if line != dear)


def test_the_json(tool):
    document = json.loads(tool("plan", "llama3-13b", "--sweep", "budget=0.2,2", "--json")[1])
    assert document["data"]["setting"] == "budget"
    dear, cheap = document["data"]["rows"]
    assert dear.keys() == cheap.keys() == {
        "value", "chosen", "usd_per_hour", "performance", "kv_capacity_tokens", "code", "reason",
    }  # fmt: skip
    assert (dear["chosen"], dear["code"]) == (None, "over_budget")
    assert (cheap["chosen"]["instance_type"], cheap["code"]) == ("g5.xlarge", None)


def test_csv_and_json_have_the_same_rows(tool, tmp_path):
    args = ("plan", "llama3-13b", "--sweep", "budget=0.2,2")
    rows = json.loads(tool(*args, "--json", "--csv", "table.csv")[1])["data"]["rows"]
    written = (tmp_path / "table.csv").read_text()
    assert tool(*args, "--csv", "-")[1] == written
    dear, cheap = csv.DictReader(io.StringIO(written))
    assert list(cheap) == ["budget", *CSV_COLUMNS[1:]]
    assert (dear["instance_type"], dear["usd_per_hour"], dear["code"]) == ("", "", "over_budget")
    assert float(cheap["usd_per_hour"]) == rows[1]["usd_per_hour"]
    assert float(cheap["tpot_ms"]) == rows[1]["performance"]["tpot_ms"]
    assert (cheap["price_date"], cheap["estimated"]) == (rows[1]["chosen"]["price_date"], "False")


def test_rows_have_the_dates_of_their_prices_if_these_differ(tool):
    lines = tool("plan", "llama3-13b", "--sweep", "market=on-demand,spot")[1].splitlines()
    assert [line.split()[-1] for line in lines[1::2]] == ["OF", "2026-07-20", "2025-06-28"]


def test_csv_on_stdout_and_json_exclude_each_other(tool):
    exit_code, out, _ = tool("plan", "llama3-13b", "--sweep", "budget=2", "--csv", "-", "--json")
    assert exit_code == 2
    assert json.loads(out)["errors"][0]["code"] == "conflicting_options"


def test_an_owned_machine_has_no_price(tool):
    out = tool("plan", "llama3-8b", "--hardware", "1xRTX-4090", "--sweep", "concurrency=1,2", "--json")[1]
    assert [row["usd_per_hour"] for row in json.loads(out)["data"]["rows"]] == [None, None]
