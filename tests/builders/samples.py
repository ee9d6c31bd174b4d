"""Selects cases from large sets, always the same ones.

`some` and `SPARSE` leave the rest to THOROUGH=1, `quick` to the group `sandbox`.
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")
THOROUGH: Final = bool(os.environ.get("THOROUGH"))
# Of the moments at which a program may be killed, one in so many is tried. Odd, so that half of those tried are before
# a request where moments before and after a request alternate.
SPARSE: Final = 1 if THOROUGH else 3


def some(cases: Sequence[T], most: int) -> Sequence[T]:
    """Return `most` of the cases."""
    return cases if THOROUGH else Random(1).sample(cases, most)  # noqa: S311 -- the same ones every time


def quick(cases: Iterable[Any], most: int) -> list[Any]:
    """Return all of the cases (a tuple has a value for each parameter); only `most` of them are of the group `core`."""
    every = [*cases]
    chosen = {*Random(1).sample(range(len(every)), most)}  # noqa: S311 -- as above
    slow = [() if at in chosen else pytest.mark.slow for at in range(len(every))]
    rows = (case if isinstance(case, tuple) else (case,) for case in every)
    return [pytest.param(*row, marks=marks) for row, marks in zip(rows, slow, strict=True)]
