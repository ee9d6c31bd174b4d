"""The published accuracy is what the constants give, and stays within its limits."""

from __future__ import annotations

import csv
import importlib
import math
import time
from pathlib import Path

import pytest

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.operations.deploying.service import SLOWEST_FACTOR

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def scripts():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        names = ("accuracy", "speed_rows", "speed_fit", "fit_performance", "plain_roofline")
        yield {name: importlib.import_module(name) for name in names}


@pytest.fixture(scope="module")
def rows(scripts):
    return scripts["speed_rows"].read()


@pytest.fixture(scope="module")
def core(rows):
    return [item for item in rows if item.core]


@pytest.fixture(scope="module")
def own(scripts, rows):
    logs = scripts["speed_rows"].log_predictions(rows, scripts["speed_rows"].current())
    return dict(zip((item.row["id"] for item in rows), logs, strict=True))


@pytest.fixture(scope="module")
def left_out(scripts):
    return scripts["accuracy"].read_left_out()


def scored(scripts, rows, logs):
    return scripts["speed_rows"].score(rows, [logs[item.row["id"]] for item in rows])


def test_current_engines_are_within_the_limits(scripts, core, own):
    found = scored(scripts, core, own)
    assert found.rows == 560
    assert found.median <= 0.11
    assert found.mean <= 0.19
    assert found.close >= 0.80
    assert scored(scripts, [item for item in core if item.row["metric"] == "ttft_ms"], own).median <= 0.20


def test_no_accelerator_is_far_off(scripts, core, own):
    for name in {item.gpu for item in core}:
        assert scored(scripts, [item for item in core if item.gpu == name], own).median <= 0.20, name


def test_old_tgi_is_within_its_limit(scripts, rows, own):
    assert scored(scripts, [item for item in rows if not item.core], own).mean <= 0.40


@pytest.mark.parametrize("key", ["accelerator", "source", "group"])
def test_left_out_figures_are_near_the_fitted_ones(scripts, core, own, left_out, key):
    fitted, without = scored(scripts, core, own), scored(scripts, core, left_out[key])
    assert without.mean - fitted.mean <= 0.03
    assert without.median - fitted.median <= 0.03


@pytest.mark.parametrize("key", ["accelerator", "source", "group"])
def test_intervals_hold_four_fifths_of_left_out_rows(scripts, core, left_out, key):
    assert 0.75 <= scripts["accuracy"].coverage(core, scripts["speed_rows"].current(), left_out[key]) <= 0.85


def test_the_plain_roofline_is_beaten(scripts, core, own):
    plain = {item.row["id"]: math.log(scripts["plain_roofline"].median(item.case)) for item in core}
    ours, theirs = scored(scripts, core, own), scored(scripts, core, plain)
    assert ours.mean < 0.6 * theirs.mean
    assert ours.median < 0.7 * theirs.median


def test_no_published_measurement_would_be_called_implausibly_slow(scripts, rows, own):
    """Whatever `up` refuses as slower than any start on the planned accelerators is slower than all of them."""
    constants = scripts["speed_rows"].current()
    slowest = 0.0
    for item in rows:
        metric, value, predicted = item.row["metric"], float(item.row["value"]), math.exp(own[item.row["id"]])
        if metric == "tpot_ms":
            slowest = max(slowest, value / predicted)
        elif metric in {"decode_tok_s_per_user", "decode_tok_s_total", "max_throughput_tok_s"}:
            slowest = max(slowest, predicted / value)
    slow_end = constants.interval("tpot_ms", "closed_loop")[1]
    assert 1.5 < slowest / slow_end < SLOWEST_FACTOR / 1.5


def test_the_document_holds_the_table_of_today(scripts, rows, left_out):
    accuracy = scripts["accuracy"]
    text = accuracy.DOCUMENT.read_text(encoding="utf-8")
    assert accuracy.updated(text, accuracy.report(rows, left_out)) == text


def test_every_row_names_its_source(rows):
    with (profiles_dir() / "performance" / "sources.csv").open(encoding="utf-8") as file:
        known = {item["source"]: item for item in csv.DictReader(file)}
    assert {item.row["source"] for item in rows} == set(known)
    assert all(item["where"] and item["family"] for item in known.values())


def test_the_fit_finds_a_known_minimum(scripts):
    solved = scripts["speed_fit"].solved([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0])
    assert solved == pytest.approx([1 / 11, 7 / 11])


def test_quantiles_lie_between_order_statistics(scripts):
    quantile = scripts["fit_performance"].quantile
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([0, 10], 0.1) == pytest.approx(1)


def test_the_file_of_constants_is_as_the_fit_writes_it(scripts):
    path = profiles_dir() / "performance" / "constants.json"
    written = scripts["fit_performance"].written(scripts["speed_rows"].current().document)
    assert written == path.read_text(encoding="utf-8")


def test_a_prediction_takes_less_than_a_tenth_of_a_millisecond(scripts, rows):
    best = min(_seconds(scripts, rows) for _ in range(3))
    assert best / len(rows) < 100e-6 * 3  # room for a busy machine


def _seconds(scripts, rows):
    started = time.perf_counter()
    scripts["speed_rows"].log_predictions(rows, scripts["speed_rows"].current())
    return time.perf_counter() - started
