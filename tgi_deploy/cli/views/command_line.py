"""The command line that a wish was, with something changed: what a hint offers to paste."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from tgi_deploy.cli.frame import PROGRAM

if TYPE_CHECKING:
    from tgi_deploy.operations.planning.wish import Wish

_FLAG_OF_FIELD: Final = {"regions": "region"}


def with_option(command: str, wish: Wish, option: str) -> str:
    """`command` with the wish's own options, of which those that `option` sets again are left out."""
    changed = shlex.split(option)
    replaced = {word for word in changed if word.startswith("--")}
    kept = [word for flag, words in _given(wish) if flag not in replaced for word in words]
    return shlex.join([PROGRAM, *command.split(), wish.model, *kept, *changed])


def _given(wish: Wish) -> list[tuple[str, list[str]]]:
    """Each option that was given: its flag, and the words that set it."""
    options = []
    for field in fields(wish):
        value = getattr(wish, field.name)
        if field.name == "model" or not value:
            continue
        flag = f"--{_FLAG_OF_FIELD.get(field.name, field.name).replace('_', '-')}"
        options.append((flag, _words(flag, value)))
    return options


def _words(flag: str, value: bool | str | tuple[str, ...]) -> list[str]:  # noqa: FBT001 -- a switch's own value
    if isinstance(value, bool):
        return [flag]
    values = value if isinstance(value, tuple) else (value,)
    return [word for item in values for word in (flag, item)]
