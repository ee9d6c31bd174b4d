"""Deployment names, whose grammar is valid in every artifact and resource."""

from __future__ import annotations

import re
from typing import Final

from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted

_LONGEST: Final = 40
_NAME: Final = re.compile(rf"[a-z][a-z0-9-]{{0,{_LONGEST - 2}}}[a-z0-9]")


def check_name(name: str) -> None:
    """Raise InputError `bad_name` unless the name is valid in every artifact and resource."""
    if not is_name(name):
        raise InputError(
            "bad_name",
            f"{quoted(name)} can't name a deployment",
            hint="use 2 to 40 lower-case letters, digits and hyphens, starting with a letter, without a final hyphen",
        )


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def default_name(model: str) -> str:
    """Return a deployment name derived from a model's."""
    words = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")
    words = words if words[:1].isalpha() else f"m-{words}"
    return words[:_LONGEST].strip("-").ljust(2, "x")
