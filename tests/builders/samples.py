"""Selects cases from large sets: a fixed sample, or all of them with THOROUGH=1."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
THOROUGH: Final = bool(os.environ.get("THOROUGH"))


def some(cases: Sequence[T], most: int) -> Sequence[T]:
    """Return `most` of the cases."""
    return cases if THOROUGH else Random(1).sample(cases, most)  # noqa: S311 -- the same ones every time
