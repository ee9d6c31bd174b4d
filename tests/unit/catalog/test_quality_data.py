"""The classes of quantization methods follow from the published scores."""

from __future__ import annotations

import pytest

from tgi_deploy.values.quality import is_below
from tgi_deploy.wiring import open_catalog

TABLE = open_catalog().quality


def test_near_lossless_methods_stay_within_the_class_on_average() -> None:
    judged = [item for item in TABLE.methods if item.grade == "near-lossless"]
    assert len(judged) > 2
    for item in judged:
        assert item.deltas
        assert -sum(delta.points for delta in item.deltas) / len(item.deltas) <= TABLE.near_lossless_points


def test_some_4_bit_scores_fall_by_more_than_near_lossless() -> None:
    for item in TABLE.methods:
        if item.grade == "4-bit" and item.order == min(one.order for one in TABLE.methods if one.grade == "4-bit"):
            assert min(delta.points for delta in item.deltas) < -TABLE.near_lossless_points


def test_every_score_has_source_and_date() -> None:
    assert all(delta.source.startswith("https://") and delta.date for item in TABLE.methods for delta in item.deltas)


@pytest.mark.parametrize(
    ("method", "lost_bits", "grade", "order"),
    [
        ("none", 0, "exact", 0), ("awq", 0, "exact", 0), ("fp8", 8, "near-lossless", 1),
        ("gptq", 8, "near-lossless", 1),
        ("awq", 12, "4-bit", 2), ("bitsandbytes-nf4", 12, "4-bit", 3), ("bitsandbytes-fp4", 12, "4-bit", 4),
        ("unheard-of", 8, "near-lossless", 1), ("unheard-of", 12, "4-bit", 2),
    ],
)  # fmt: skip
def test_the_class_of_a_method(method: str, lost_bits: float, grade: str, order: int) -> None:
    found = TABLE.of(method, lost_bits)
    assert (found.grade, found.order) == (grade, order)


def test_floors() -> None:
    floors = ("exact", "near-lossless", "auto", "any")
    assert [is_below("near-lossless", floor) for floor in floors] == [True, False, False, False]
    assert [is_below("4-bit", floor) for floor in floors] == [True, True, True, False]
