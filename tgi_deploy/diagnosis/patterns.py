"""Known failures as values: a page for each code, and the patterns of the texts that show it.

They come as plain data from `profiles/diagnosis/*.json`; here they are checked and compiled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

STARTUP_PHASES: Final = ("launching", "booting", "pulling", "downloading", "loading", "warming_up", "ready")
# How much a text shows: it names the cause; several causes share it; it wraps whatever went wrong before.
STRENGTHS: Final = {"exact": 0, "vague": 2, "wrapper": 4}
_ALWAYS: Final = frozenset({"name", "model"})
_FIELD: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """What to do. `commands`: the one that needs most facts first; `{name}` stands for a fact."""

    text: str
    commands: tuple[str, ...] = ()

    @property
    def general(self) -> tuple[str, ...]:
        """Return the commands that need no number of the case at hand."""
        return tuple(item for item in self.commands if _fields(item) <= _ALWAYS)

    def filled(self, facts: Mapping[str, str]) -> tuple[str, str | None]:
        """Return the sentence, and the first command whose facts are all known."""
        command = next((item for item in self.commands if _fields(item) <= facts.keys()), None)
        return _filled(self.text, facts), None if command is None else _filled(command, facts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Everything that `explain` and the runbooks show of a code."""

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
        """The commands of its remedy that need no number of the case at hand, to be pasted."""
        return tuple(_filled(command, {}) for command in self.remedy.general)

    @property
    def checks(self) -> tuple[str, ...]:
        """The commands that check for it, to be pasted."""
        return tuple(_filled(command, {}) for command in self.check)


@dataclass(frozen=True, kw_only=True, slots=True)
class Twin:
    """Another cause of the same text, and what distinguishes the two."""

    code: str
    apart: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FailurePattern:
    """The text of a known failure.

    The failure belongs to the phase `home` and can occur from `since` to `phase`. `phases`: the text means this cause
    in these phases only (empty: in any). `info`: also a quiet line shows it. `serving`: it can occur in an engine that
    serves, without ending it. `frame`: the place in the source shows it. `request`: a request fails, not the engine.
    `machine`: it is the machine that ended, whatever the engine was doing. `forbids_ready`: an engine that writes it
    while it starts does not run where it should, even if it answers. `final`: the next start would fail in the same
    way, so the machine does not try again. `small` holds what counts when a number in the text is small. A line that
    matches `unless` is about something else.
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
    twins: tuple[Twin, ...] = ()
    small: Small | None = None
    unless: re.Pattern[str] | None = None

    @property
    def vague(self) -> bool:
        return self.strength > STRENGTHS["exact"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Small:
    """Another cause and remedy where the number in the pattern's group `group` is at most `at_most`."""

    group: str
    at_most: int
    cause: str
    remedy: Remedy


def pages_from(codes: Iterable[Mapping[str, Any]]) -> dict[str, Page]:
    """Return every page by its code, in the table's order.

    Raises:
        InputError: `bad_phase_table` for a page of no known phase, or a code that comes twice.
    """
    pages: dict[str, Page] = {}
    for item in codes:
        page = _page(item)
        if page.code in pages:
            raise bad_table(f"code {page.code} comes twice")
        pages[page.code] = page
    return pages


def patterns_from(codes: Sequence[Mapping[str, Any]]) -> tuple[FailurePattern, ...]:
    """Return the failure texts in the table's order.

    Raises:
        InputError: `bad_phase_table` for an unknown phase, strength or twin.
    """
    pages = pages_from(codes)
    found = tuple(_pattern(pages[item["code"]], text) for item in codes for text in item["signatures"])
    for pattern in found:
        for twin in pattern.twins:
            if twin.code not in pages:
                raise bad_table(f"signature of {pattern.code}: there is no code {twin.code!r}")
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
        twins=tuple(Twin(code=twin["code"], apart=twin["apart"]) for twin in item.get("twins", ())),
        small=None if small is None else _small(small),
        unless=any_of(item["unless"], re.IGNORECASE) if "unless" in item else None,
    )


def _small(item: Mapping[str, Any]) -> Small:
    return Small(group=item["group"], at_most=int(item["at_most"]), cause=item["cause"], remedy=_remedy(item))


def _remedy(item: Mapping[str, Any]) -> Remedy:
    return Remedy(text=item["remedy"], commands=tuple(item.get("commands", ())))


def _phase(code: str, name: str) -> str:
    if name not in STARTUP_PHASES:
        raise bad_table(f"{code}: unknown phase {name!r}")
    return name


def any_of(patterns: Sequence[Any], flags: int = 0) -> re.Pattern[str]:
    """Return one pattern for a list. Raises InputError `bad_phase_table` for an empty list or anything but text."""
    if not patterns or not all(isinstance(text, str) and text for text in patterns):
        raise bad_table("a list of patterns is empty or holds something else than text")
    return re.compile("|".join(f"(?:{text})" for text in patterns), flags)


def most_signs(text: str, signs: Mapping[str, Sequence[str]], otherwise: str) -> str:
    """Return the name whose signs a text has most of; `otherwise` where none has more than that one."""
    counts = {name: len(any_of(found).findall(text)) for name, found in signs.items()}
    most = max(counts, key=lambda name: (counts[name], name == otherwise))
    return most if counts[most] else otherwise


def bad_table(reason: str) -> InputError:
    return InputError(
        "bad_phase_table",
        f"reading the engine's phase table: {reason}",
        hint="mend phases.json, or the files of profiles/diagnosis",
    )


def _fields(text: str) -> set[str]:
    return set(_FIELD.findall(text))


def _filled(text: str, facts: Mapping[str, str]) -> str:
    """Put facts in their places; an unknown one becomes its name in capitals, as in a usage line."""
    return _FIELD.sub(lambda match: facts.get(match[1], match[1].upper()), text)
