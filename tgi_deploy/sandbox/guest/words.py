"""The words of a command line, whoever's it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def value_of(option: str, words: Sequence[str]) -> str:
    """What follows the option, as the next word or behind `=`; empty where it is not given."""
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""
