"""Every option from every source: accepted and rejected values, and its name in messages."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, get_args

import pytest
from builders.requests import shared_catalog

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import (
    OptionTexts,
    Setting,
    duration_s,
    positive_decimal,
    resolve,
    wanted_ends,
    whole_number,
)
from tgi_deploy.text import quoted
from tgi_deploy.values.plan_options import ENDS, OPTION, PLAN_OPTIONS
from tgi_deploy.values.quality import QualityFloor
from tgi_deploy.values.request import Preference, ServiceLevel


def typed(value: str) -> Setting:
    return Setting(value=value, source="flag")


def requested(environ: dict[str, str] | None = None, **settings: Any) -> Any:
    return resolve(OptionTexts(**({"model": "llama3.1-8b"} | settings)), environ or {}, shared_catalog())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", "5"),
        ("0.5", "0.5"),
        (".5", "0.5"),
        ("1.8768", "1.8768"),
        (" 5 ", "5"),
        ("007", "7"),
        ("1000000", "1000000"),
    ],
)
def test_amounts_of_money(text: str, value: str) -> None:
    assert positive_decimal(typed(text), "--budget", unit="US dollars") == Decimal(value)


@pytest.mark.parametrize(
    "text",
    ["", " ", "0", "0.0", "-1", "+1", "1e3", "1,5", "1_000", "NaN", "inf", "$5", "5USD", "5 $", "٣", "1.", "1000001",
     "0.0000000001", "5\n", "1" * 70_000, "; rm -rf /"],
)  # fmt: skip
def test_invalid_amounts_of_money(text: str) -> None:
    if text == "5\n":
        assert positive_decimal(typed(text), "--budget", unit="US dollars") == 5
        return
    with pytest.raises(InputError) as refused:
        positive_decimal(typed(text), "--budget", unit="US dollars")
    assert refused.value.code == "bad_option_value"
    assert refused.value.hint
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("$5", "leave the currency out: write --budget 5"),
        ("5$", "leave the currency out: write --budget 5"),
        ("€5.5", "leave the currency out: write --budget 5.5"),
        ("5USD", "leave the currency out: write --budget 5"),
        ("5 eur", "leave the currency out: write --budget 5"),
        ("5,50", "write --budget 5.50: the decimal separator is a point"),
        ("1,000", "write --budget 1000: no separators between thousands"),
        ("NaN", "write --budget 5, for example: a plain positive number of US dollars"),
        ("inf", "write --budget 5, for example: a plain positive number of US dollars"),
        ("", "write --budget 5, for example: a plain positive number of US dollars"),
        ("-5", "write --budget 5, for example: a plain positive number of US dollars"),
        ("five dollars", "leave the currency out: write --budget 5, for example"),
    ],
)
def test_the_hint_suggests_the_intended_amount(text: str, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        positive_decimal(typed(text), "--budget", unit="US dollars")
    assert str(refused.value.hint).startswith(hint)


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"context": "32k"}, "write --context 32768: digits only"),
        ({"context": "8,192"}, "write --context 8192, for example"),
        ({"port": "99999"}, "write --port 8080, for example"),
        ({"num_shard": "two"}, "write --num-shard 2, for example"),
        ({"disk": "0"}, "write --disk 200, for example"),
        ({"ttft_ms": "0.2s"}, "write --ttft-ms 500, for example: a plain positive number of milliseconds"),
        ({"utilization": "50%"}, "write --utilization 0.3, for example: a plain positive number up to 1"),
        ({"market": "SPOT"}, "did you mean spot?"),
        ({"market": "on demand"}, "did you mean on-demand?"),
        ({"quantize": "AWQ"}, "did you mean awq?"),
        ({"input_tokens": "3000:700"}, "write the mean first: --input-tokens 700:3000"),
        ({"prefer": "cheap"}, "choose one of cost, quality, speed, value"),
    ],
)
def test_the_hint_matches_the_source_of_the_value(settings: dict[str, str], hint: str) -> None:
    with pytest.raises(InputError) as refused:
        requested(**settings)
    assert str(refused.value.hint).startswith(hint)


@pytest.mark.parametrize(("name", "value"), [("ENGINE_VERSION", "9.9"), ("INSTANCE", "g99.xlarge")])
def test_an_unknown_name_from_the_environment_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(InputError, match=rf"^TGI_DEPLOY_{name}: there is no"):
        requested({f"TGI_DEPLOY_{name}": value})
    with pytest.raises(InputError, match=r"^there is no"):
        requested(**{name.lower(): value})


def test_zero_is_reported_as_too_small() -> None:
    with pytest.raises(InputError, match="'0' is not more than 0"):
        requested(budget="0")


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("64", 64), ("08", 8)])
def test_whole_numbers(text: str, value: int) -> None:
    assert whole_number(typed(text), "--num-shard", most=64) == value


@pytest.mark.parametrize("text", ["", "0", "65", "-1", "1.0", "one", "²", "٣", " 4", "1" * 5000])
def test_invalid_whole_numbers(text: str) -> None:
    with pytest.raises(InputError, match="--num-shard") as refused:
        whole_number(typed(text), "--num-shard", most=64)
    assert refused.value.code == "bad_option_value"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("1d12h", 129_600), ("45m30s", 2730), ("300s", 300), ("2H", 7200), (" 5m ", 300)],
)
def test_durations(text: str, seconds: int) -> None:
    assert duration_s(typed(text), "--ttl") == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "2 h", "h2", "30m1h", "-2h", "1.5h", "2w", "299s", "0h"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(InputError) as refused:
        duration_s(typed(text), "--ttl")
    assert refused.value.code == "bad_option_value"


@pytest.mark.parametrize(
    ("text", "hint"), [("90", "--ttl 90m or 90h"), ("0", "--ttl 2h, 90m"), ("2w", "--ttl 2h, 90m")]
)
def test_a_duration_without_a_unit_gets_a_hint(text: str, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        duration_s(typed(text), "--ttl")
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize(
    ("settings", "environ", "seconds"),
    [
        ({}, {}, None),
        ({"ttl": "2h"}, {}, 7200),
        ({"max_spend": "10"}, {}, 18_000),
        ({"ttl": "2h", "max_spend": "10"}, {}, 7200),
        ({"ttl": "9h", "max_spend": "10"}, {}, 18_000),
        ({}, {"TGI_DEPLOY_TTL": "3h"}, 10_800),
        ({"ttl": "2h"}, {"TGI_DEPLOY_TTL": "3h"}, 7200),
        ({"max_spend": "0.17"}, {}, 306),
    ],
)
def test_the_earlier_limit_applies(settings: dict[str, str], environ: dict[str, str], seconds: int | None) -> None:
    assert wanted_ends(OptionTexts(model="x", **settings), environ).lifetime_s(Decimal(2)) == seconds  # type: ignore[arg-type]


def test_a_max_spend_too_small_for_a_start_is_rejected() -> None:
    """Five minutes cost more than that."""
    with pytest.raises(InputError) as refused:
        wanted_ends(OptionTexts(model="x", max_spend="0.16"), {}).lifetime_s(Decimal(2))
    assert refused.value.code == "bad_option_value"
    assert "288 s at $2 an hour" in refused.value.message
    assert "at least $0.17" in str(refused.value.hint)


@pytest.mark.parametrize("settings", [{"ttl": "soon"}, {"max_spend": "-1"}])
def test_an_invalid_limit_is_rejected_before_planning(settings: dict[str, str]) -> None:
    with pytest.raises(InputError):
        requested(**settings)


def test_defaults_apply_to_a_bare_request() -> None:
    found = requested()
    assert (found.input_tokens, found.output_tokens, found.concurrency, found.context_tokens) == (1024, 256, 8, 8192)
    assert found.budget_usd_per_hour is None
    assert (found.prefer, found.quantize, found.markets) == ("cost", "auto", ("on-demand",))
    assert (found.engine_version, found.regions, found.port) == ("3.3.7", ("us-east-1",), 8080)


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"context": "4096"}, (4096, 1024, 256)),
        ({"context": "1024"}, (1024, 768, 256)),
        ({"context": "256"}, (256, 192, 64)),
        ({"context": "2"}, (2, 1, 1)),
        ({"input_tokens": "12000"}, (12_256, 12_000, 256)),
        ({"output_tokens": "9000"}, (10_024, 1024, 9000)),
        ({"context": "2048", "output_tokens": "2000"}, (2048, 48, 2000)),
        ({"context": "2048", "input_tokens": "1900"}, (2048, 1900, 148)),
    ],
)
def test_explicit_values_override_defaults(settings: dict[str, str], tokens: tuple[int, int, int]) -> None:
    found = requested(**settings)
    assert (found.context_tokens, found.input_tokens, found.output_tokens) == tokens


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("BUDGET", "2.5", "budget_usd_per_hour", Decimal("2.5")),
        ("PREFER", "speed", "prefer", "speed"),
        ("QUANTIZE", "awq", "quantize", "awq"),
        ("NUM_SHARD", "4", "num_shard", 4),
        ("INSTANCE", "g6.xlarge", "instance_type", "g6.xlarge"),
        ("HARDWARE", "1xL4", "hardware", "1xL4"),
        ("REGION", "eu-west-1,eu-west-2", "regions", ("eu-west-1", "eu-west-2")),
        ("MARKET", "any", "markets", ("on-demand", "spot")),
        ("CONTEXT", "2048", "context_tokens", 2048),
        ("INPUT_TOKENS", "100", "input_tokens", 100),
        ("OUTPUT_TOKENS", "100", "output_tokens", 100),
        ("CONCURRENCY", "2", "concurrency", 2),
        ("TTFT_MS", "250.5", "ttft_ms", 250.5),
        ("TPOT_MS", "40", "tpot_ms", 40.0),
        ("MIN_TOKENS_PER_S", "400", "min_tokens_per_s", 400.0),
        ("UTILIZATION", "0.25", "utilization", 0.25),
        ("ENGINE_VERSION", "3.2.0", "engine_version", "3.2.0"),
        ("PORT", "9000", "port", 9000),
    ],
)
def test_settings_from_the_environment(name: str, value: str, field: str, expected: object) -> None:
    assert getattr(requested({f"TGI_DEPLOY_{name}": value}), field) == expected


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("flag", "--num-shard"),
        ("environment", "TGI_DEPLOY_NUM_SHARD"),
        ("profile", "--num-shard (from the profile)"),
        ("default", "--num-shard (from the default)"),
    ],
)
def test_a_message_names_the_source_of_the_value(source: Any, named: str) -> None:
    assert Setting(value="x", source=source).named("--num-shard") == named


def test_an_empty_variable_counts_as_unset() -> None:
    assert requested({"TGI_DEPLOY_BUDGET": "", "TGI_DEPLOY_REGION": ""}).budget_usd_per_hour is None


def test_regions_are_deduplicated_and_all_selects_all() -> None:
    assert requested(regions=("us-west-2", "us-west-2")).regions == ("us-west-2",)
    assert requested(regions=("us-west-2", "all")).regions == shared_catalog().regions()


def test_a_shown_value_is_short_and_printable() -> None:
    assert quoted("a\x1b[31m\nb") == "'a\\x1b[31m\\nb'"
    assert len(quoted("x" * 70_000)) < 80


@pytest.mark.parametrize(
    "settings",
    [
        {"port": "0"},
        {"port": "65536"},
        {"market": "reserved"},
        {"set": ("=1",)},
        {"set": ("--=1",)},
        {"concurrency": "100001"},
        {"ttft_ms": "0"},
        {"tpot_ms": "fast"},
        {"min_tokens_per_s": "-5"},
        {"utilization": "1.5"},
        {"utilization": "0"},
    ],
)
def test_other_invalid_values_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        requested(**settings)
    assert refused.value.hint


def test_env_options_reach_the_engine():
    assert requested(env=("NCCL_P2P_DISABLE=1", "A=b=c")).env == (("NCCL_P2P_DISABLE", "1"), ("A", "b=c"))


def test_the_disk_option_sets_the_size():
    assert (requested().disk_gib, requested(disk="500").disk_gib) == (None, 500)
    assert requested({"TGI_DEPLOY_DISK": "200"}).disk_gib == 200


def test_option_choices_match_the_request() -> None:
    kinds = {"prefer": Preference, "slo": ServiceLevel, "quality": QualityFloor}
    for name, kind in kinds.items():
        row = OPTION[name]
        assert {*row.choices, row.default} == set(get_args(kind))


def test_every_row_fills_a_field_of_the_request() -> None:
    found = requested()
    for row in PLAN_OPTIONS:
        assert row.lands in {"", ENDS} or hasattr(found, row.lands), row.flag
