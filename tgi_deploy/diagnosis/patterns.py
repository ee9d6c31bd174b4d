"""Known failures: a page per code, and the patterns that show it.

Validates and compiles plain data from `profiles/diagnosis/*.json`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

STARTUP_PHASES: Final = ("launching", "booting", "pulling", "downloading", "loading", "warming_up", "ready")
# Strength of a pattern: it names the cause; several causes share it; it wraps an earlier error.
STRENGTHS: Final = {"exact": 0, "vague": 2, "wrapper": 4}
_ALWAYS: Final = frozenset({"name", "model"})
_FIELD: Final = re.compile(r"\{(\w+)\}")
# An option of a command line with its value, if it has one; and those of the remedies that add to the user's.
_OPTION: Final = re.compile(r""" (--[a-z-]+)(?: (?!-)(?:'[^']*'|"[^"]*"|[^\s'"])+)?""")
_ADDED: Final = frozenset({"--set", "--env", "--region"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """What to do. `commands`: the one that needs the most facts first; `{name}` is a placeholder for a fact."""

    text: str
    commands: tuple[str, ...] = ()

    @property
    def general(self) -> tuple[str, ...]:
        """The commands that don't need case-specific numbers."""
        return tuple(item for item in self.commands if _fields(item) <= _ALWAYS)

    def filled(self, facts: Mapping[str, str]) -> tuple[str, str | None]:
        """Return the sentence and the first command whose facts are known; its options replace those of `model`."""
        command = next((item for item in self.commands if _fields(item) <= facts.keys()), None)
        if command is None:
            return _filled(self.text, facts), None
        given = _without_replaced(facts.get("model", "MODEL"), command)
        return _filled(self.text, facts), _filled(command, {**facts, "model": given})


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The content of `explain` and the runbook for a code."""

    code: str
    phase: str
    title: str
    cause: str
    remedy: Remedy
    check: tuple[str, ...]
    costs: str
    prevent: str
    versions: str
    since: str
    sources: tuple[str, ...]

    @property
    def general_commands(self) -> tuple[str, ...]:
        """The pasteable commands of its remedy that don't need case-specific numbers."""
        return tuple(_filled(command, {}) for command in self.remedy.general)

    @property
    def checks(self) -> tuple[str, ...]:
        """The pasteable commands that check for it."""
        return tuple(_filled(command, {}) for command in self.check)


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherCause:
    """Another cause of the same text, and how to distinguish the two."""

    code: str
    distinguish_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FailurePattern:
    """A pattern of a known failure.

    The failure belongs to the phase `home` and can occur from `since` to `phase`. `phases`: the phases in which the
    text means this cause (empty: all). `info`: info lines also show it. `serving`: it can occur while serving without
    ending the engine. `frame`: a source location shows it. `request`: a request fails, not the engine. `machine`: the
    machine ended. `forbids_ready`: during startup it means that the engine does not run on the planned hardware, even
    if it answers. `final`: the next start would fail the same way, so the machine does not try again. `small`: cause
    and remedy for a small number in the text. `unless`: lines that match this are unrelated.
    """

    code: str
    home: str
    since: str
    phase: str
    pattern: re.Pattern[str]
    strength: int
    phases: frozenset[str]
    info: bool
    serving: bool
    frame: bool
    request: bool
    machine: bool
    forbids_ready: bool
    final: bool
    cause: str
    remedy: Remedy
    other_causes: tuple[OtherCause, ...] = ()
    small: SmallNumber | None = None
    unless: re.Pattern[str] | None = None

    @property
    def vague(self) -> bool:
        return self.strength > STRENGTHS["exact"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallNumber:
    """Another cause and remedy if the number in the pattern's group `group` is at most `at_most`."""

    group: str
    at_most: int
    cause: str
    remedy: Remedy


def pages_from(codes: Iterable[Mapping[str, Any]]) -> dict[str, Page]:
    """Return the pages by code, in the table's order.

    Raises:
        InputError: `bad_profile` for an unknown phase or a duplicate code.
    """
    pages: dict[str, Page] = {}
    for item in codes:
        page = _page(item)
        if page.code in pages:
            raise bad_table(f"duplicate code {page.code}")
        pages[page.code] = page
    return pages


def patterns_from(codes: Sequence[Mapping[str, Any]]) -> tuple[FailurePattern, ...]:
    """Return the failure patterns in the table's order.

    Raises:
        InputError: `bad_profile` for an unknown phase, strength or other cause.
    """
    pages = pages_from(codes)
    found = tuple(_pattern(pages[item["code"]], text) for item in codes for text in item["signatures"])
    for pattern in found:
        for other in pattern.other_causes:
            if other.code not in pages:
                raise bad_table(f"signature of {pattern.code}: unknown code {other.code!r}")
    return found


def _page(item: Mapping[str, Any]) -> Page:
    return Page(
        code=item["code"],
        phase=_phase(item["code"], item["phase"]),
        title=item["title"],
        cause=item["cause"],
        remedy=_remedy(item),
        check=tuple(item["check"]),
        costs=item["costs"],
        prevent=item["prevent"],
        versions=item.get("versions", "all"),
        since=_phase(item["code"], item.get("since", item["phase"])),
        sources=tuple(dict.fromkeys(text["source"] for text in item["signatures"])),
    )


def _pattern(page: Page, item: Mapping[str, Any]) -> FailurePattern:
    strength = item.get("strength", "exact")
    if strength not in STRENGTHS:
        raise bad_table(f"signature of {page.code}: unknown strength {strength!r}")
    small = item.get("small")
    return FailurePattern(
        code=page.code,
        home=page.phase,
        since=page.since,
        phase=_phase(page.code, item.get("phase", page.phase)),
        pattern=any_of(item["match"], re.IGNORECASE),
        strength=STRENGTHS[strength],
        phases=frozenset(_phase(page.code, name) for name in item.get("phases", ())),
        info=bool(item.get("info", False)),
        serving=bool(item.get("serving", False)),
        frame=bool(item.get("frame", False)),
        request=bool(item.get("request", False)),
        machine=bool(item.get("machine", False)),
        forbids_ready=bool(item.get("forbids_ready", False)),
        final=bool(item.get("final", False)),
        cause=item.get("cause", page.cause),
        remedy=_remedy(item) if "remedy" in item else page.remedy,
        other_causes=tuple(
            OtherCause(code=other["code"], distinguish_by=other["distinguish_by"])
            for other in item.get("other_causes", ())
        ),
        small=None if small is None else _small(small),
        unless=any_of(item["unless"], re.IGNORECASE) if "unless" in item else None,
    )


def _small(item: Mapping[str, Any]) -> SmallNumber:
    return SmallNumber(group=item["group"], at_most=int(item["at_most"]), cause=item["cause"], remedy=_remedy(item))


def _remedy(item: Mapping[str, Any]) -> Remedy:
    return Remedy(text=item["remedy"], commands=tuple(item.get("commands", ())))


def _phase(code: str, name: str) -> str:
    if name not in STARTUP_PHASES:
        raise bad_table(f"{code}: unknown phase {name!r}")
    return name


def any_of(patterns: Sequence[Any], flags: int = 0) -> re.Pattern[str]:
    """Return one pattern for a list. Raises InputError `bad_profile` for an empty list or anything but text."""
    if not patterns or not all(isinstance(text, str) and text for text in patterns):
        raise bad_table("a list of patterns is empty or has non-strings")
    return re.compile("|".join(f"(?:{text})" for text in patterns), flags)


def most_signs(text: str, signs: Mapping[str, Sequence[str]], otherwise: str) -> str:
    """Return the name whose patterns match a text most often; `otherwise` unless another matches more often."""
    counts = {name: len(any_of(found).findall(text)) for name, found in signs.items()}
    most = max(counts, key=lambda name: (counts[name], name == otherwise))
    return most if counts[most] else otherwise


def bad_table(reason: str) -> InputError:
    return InputError(
        "bad_profile",
        f"reading the engine's phase table: {reason}",
        hint="fix phases.json, or the files in profiles/diagnosis",
    )


def _without_replaced(given: str, command: str) -> str:
    """Return the user's words without the options that a command sets itself."""
    own = {found[1] for found in _OPTION.finditer(command)} - _ADDED
    return _OPTION.sub(lambda found: "" if found[1] in own else found[0], given)


def _fields(text: str) -> set[str]:
    return set(_FIELD.findall(text))


def _filled(text: str, facts: Mapping[str, str]) -> str:
    """Fill in the facts; an unknown one becomes its name in capitals, as in a usage line."""
    return _FIELD.sub(lambda match: facts.get(match[1], match[1].upper()), text)
