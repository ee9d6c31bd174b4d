"""The use case `explain`: shows the page about a code of a diagnosis, an error, a warning or a rejection."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.phases import read_edits, read_failures, read_former_codes, read_tool_codes
from tgi_deploy.diagnosis.patterns import pages_from
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.diagnosis.patterns import Page

_MOST_NEAR: Final = 3
_SHOWN: Final = re.compile(r"\[(\w+)\]")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCode:
    """An error, a warning or a rejection, by `kind`."""

    code: str
    kind: str
    meaning: str
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Everything about a code, which can be both a diagnosis and a rejection.

    `plan_edit` is the change to the plan that `up --heal` tries first; empty if no change helps.
    """

    code: str
    page: Page | None
    tool: ToolCode | None
    plan_edit: str = ""


def explain(code: str, engine: str) -> Explanation:
    """Return the explanation of a code for an engine: the bare code, or as in messages, `error[no_capacity]`.

    Raises InputError `unknown_code`.
    """
    known = _known(engine)
    shown = _SHOWN.search(code)
    wanted = (shown[1] if shown else code).strip().lower()
    if wanted not in known:
        raise _unknown(wanted or code, read_former_codes().get(wanted), list(known))
    return known[wanted]


def all_codes(engine: str) -> tuple[Explanation, ...]:
    """Return all codes with text: diagnoses in the table's order, then errors and rejections."""
    return tuple(_known(engine).values())


def _known(engine: str) -> Mapping[str, Explanation]:
    pages, tools, fixes = pages_from(read_failures(engine)), _tool_codes(), read_edits()
    return {
        code: Explanation(
            code=code, page=pages.get(code), tool=tools.get(code), plan_edit=next(iter(fixes.get(code, ())), "")
        )
        for code in dict.fromkeys([*pages, *tools])
    }


def _tool_codes() -> dict[str, ToolCode]:
    return {item["code"]: ToolCode(**item) for item in read_tool_codes()}


def _unknown(code: str, now: str | None, known: Sequence[str]) -> InputError:
    if now:
        return InputError("unknown_code", f"'{code}' is now '{now}'", hint=f"run: tgi-deploy explain {now}")
    near = [item for item in known if code and item.startswith(code)] or difflib.get_close_matches(code[:100], known)
    suggestion = f"did you mean {' or '.join(near[:_MOST_NEAR])}? " if near else ""
    return InputError("unknown_code", f"unknown code '{code}'", hint=f"{suggestion}'tgi-deploy explain' lists all")
