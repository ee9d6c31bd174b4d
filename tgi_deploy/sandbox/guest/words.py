"""Arguments of a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def value_of(option: str, words: Sequence[str]) -> str:
    """Return an option's value, as the next argument or after `=`; empty if not given."""
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""
