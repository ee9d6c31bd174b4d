"""Names of deployments: a grammar that every artifact and every resource can carry."""

from __future__ import annotations

import re
from typing import Final

from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted

_LONGEST: Final = 40
_NAME: Final = re.compile(rf"[a-z][a-z0-9-]{{1,{_LONGEST - 2}}}[a-z0-9]")


def check_name(name: str) -> None:
    """Raise InputError `bad_name` unless every artifact and resource can carry the name."""
    if not is_name(name):
        raise InputError(
            "bad_name",
            f"{quoted(name)} can't name a deployment",
            hint="use 3 to 40 lower-case letters, digits and hyphens, first a letter, no hyphen at the end",
        )


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def default_name(model: str) -> str:
    """A deployment's name made of a model's: lower case, digits and hyphens, 3 to 40 characters."""
    words = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")
    words = words if words[:1].isalpha() else f"m-{words}"
    return words[:_LONGEST].strip("-").ljust(3, "x")
