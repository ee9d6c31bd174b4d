"""Splits log text into plain messages, without colors, forwarders' prefixes, JSON wrapping, or secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import bounded_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.diagnosis.grammar import LogGrammar

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Terminal escapes whose escape character was lost in a viewer.
_ESCAPES_IN_WORDS: Final = re.compile(r"(?:\\u001b|\\x1b|\\033|\^\[|#033)\[[0-9;]*m")
_LEVEL_WORD: Final = r"(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b"
_NO_UNIT: Final = r"(?![Ee]rror:|docker:|warning:)"
_UNIT: Final = rf"{_NO_UNIT}(?P<unit>[\w@.:-]+?)(?:\[\d+\])?:(?: |$)"
_DAY: Final = r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT[\d:.,]+(?:[+-]\d\d:?\d\d|Z))"
_PREFIXES: Final = (
    # "[   12.345678] run-engine[812]: ", as the journal writes to a console; the kernel's own lines name no unit.
    re.compile(r"(?P<console>\[)\s*\d+\.\d+\] (?:(?P<unit>[\w@.:-]+)\[\d+\]:(?: |$))?"),
    # "Nov 21 10:00:00 host unit[812]: " and "2026-11-21T10:00:00+0000 host unit[812]: ", as journalctl prints.
    re.compile(rf"{_DAY} (?!\s*{_LEVEL_WORD})[\w.-]+ {_UNIT}"),
    # The unit alone, as in "tgi-deploy-engine[812]: ".
    re.compile(r"(?P<unit>[a-z][\w@.-]*)\[\d+\]:(?: |$)"),
    # Compose and kubectl: "engine-1  | ", "[pod/engine-0/engine] ".
    re.compile(r"[a-z][\w.-]*\s*\|(?: |$)"),
    re.compile(r"\[pod/[\w./-]+\] "),
    # Engines with several processes in one log: "(Worker pid=812) INFO …".
    re.compile(rf"\([\w-]+ pid=\d+\) (?={_LEVEL_WORD})"),
    # CRI and `docker logs -t`: their own timestamp before the line's.
    re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] "),
    re.compile(rf"\d{{4}}-\d\d-\d\dT[\d:.]{{18,}}(?:Z|[+-]\d\d:\d\d) (?!\s*{_LEVEL_WORD})"),
    re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)\s+(?=\d{4}-\d\d-\d\dT|\{)"),
    # Cloud logs copied from a web page: "  | 2026-11-21T10:00:00.123Z" without a space.
    re.compile(r"\|?\s*\d{4}-\d\d-\d\dT[\d:.]+Z(?=\S)"),
)
_SYSTEM_UNITS: Final = frozenset({"kernel", "systemd", "cloud-init", "dockerd", "containerd", "docker", "systemd-oomd"})
# Daemons next to the engine, whose errors are not the engine's.
_OTHER_UNITS: Final = frozenset(
    {"sshd", "CRON", "cron", "amazon-ssm-agent", "snapd", "chronyd", "dhclient", "audit", "polkitd", "rsyslogd", "sudo"}
)
_MAX_PREFIXES: Final = 4
_MAX_NESTED: Final = 3
# The message is at the ends of a long line; in between are users' prompts and images.
_HEAD_CHARS: Final = 6144
_TAIL_CHARS: Final = 2048
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
# Without it, a message that comes again, as health checks do, is known already.
_LEADING_STAMP: Final = re.compile(rf"(?P<stamp>{_STAMP.pattern})(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s+(?:\|\s*)?")
_STAMPED: Final = re.compile(rf"(?:{_LEADING_STAMP.pattern})?(?P<level>{_LEVEL_WORD})")
# The dumped stderr of a process that died begins with its own log records; the rest shows how it died.
_LOGURU: Final = re.compile(rf"{_STAMPED.pattern}\s+\| \S+:\S+:\d+ - ")
# Daemons written in Go, and pretty-printed JSON records.
_LOGFMT: Final = re.compile(r"^(?:time=\"?[\d:TZ.+-]+\"? level=|\"level\":\s*\")(?P<level>\w+)(?: |\",?$)")
_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "ERROR", "FATAL": "ERROR", "PANIC": "ERROR"}
# Lines that never continue the previous record.
_INDEPENDENT: Final = re.compile(
    r"Traceback \(most recent call last\)|thread '[^']*' (?:\(\d+\) )?panicked|Error: |error: |docker: |Error response"
    r"|\[tgi-deploy\] |exec /\S+: |terminate called|\[rank\d+\]|\[[EWF]\d{3,}|NVRM: |\w[\w.-]*:\d+:\d+ \[\d+\] NCCL "
    r"|Out of memory: |oom-kill:|Memory cgroup out of memory|Linux version "
)
# The line breaks of `str.splitlines`. (The engine's own formats are in its grammar.)
_BREAKS: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_BREAK: Final = re.compile(rf"\r\n|[{_BREAKS}]")
# Each takes a hundred bytes and 15 microseconds. The 16 MiB read of a log are 160,000 lines of a real one.
_MOST_LINES: Final = 200_000
# Enough of a text's end to find it in a later one.
_MARK_CHARS: Final = 1000
_SECRETS: Final = (
    (re.compile(r"\bhf_(?!transfer\b|hub\b)[A-Za-z0-9]{8,}"), "hf_***"),
    (re.compile(r"(?i)\b(bearer) \S+"), r"\1 ***"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """A log line. `number` is its line number in the raw text from 1; 0: in an earlier part.

    `level` is that of its record, or None; `inherited`: the record began on an earlier line. `system`: written by the
    machine (kernel, systemd, docker, cloud-init), not the engine. `after` is the level of the record before an
    independent line. `at_s`: seconds, of any clock. `message` is the text without its time and quoted requests.
    """

    number: int
    text: str
    level: str | None = None
    inherited: bool = False
    system: bool = False
    after: str | None = None
    at_s: float | None = None
    message: str = ""


def log_lines(text: str, grammar: LogGrammar) -> tuple[str, ...]:
    """Return the non-empty lines. A JSON record becomes its level and message; multi-line messages are split."""
    return tuple(line.text for line in read_lines(text, grammar))


def read_lines(text: str, grammar: LogGrammar) -> tuple[LogLine, ...]:
    """Return the lines with number, level and source."""
    end, before = _end_of(text.removeprefix("\ufeff"))
    return tuple(_lines(redacted(_ESCAPES.sub("", end), grammar), grammar, before))


def _end_of(text: str) -> tuple[str, int]:
    """Cut off the beginning if there are too many lines; return the rest and the number of lines cut."""
    text, before = text.rstrip(_BREAKS), 0
    while _count_breaks(text) > _MOST_LINES:
        half = len(text) // 2
        found = _BREAK.search(text, half)  # half a line could be half a secret
        cut = found.end() if found else 1 + max(text.rfind(mark, 0, half) for mark in _BREAKS)
        before += _count_breaks(text[:cut])
        text = text[cut:]
    return text, before


def _count_breaks(text: str) -> int:
    return sum(map(text.count, _BREAKS)) - text.count("\r\n")


def written_since(before: str, text: str) -> str:
    """Return the part of a console after `before`, matched by its end, because a console keeps only its last part."""
    end = before[-_MARK_CHARS:]
    return text[text.rfind(end) + len(end) :] if end and end in text else text


def redacted(text: str, grammar: LogGrammar) -> str:
    """Return a log or a line without keys and tokens; the line before can mark one as secret."""
    for pattern, replacement in (*grammar.redactions, *_SECRETS):
        text = pattern.sub(replacement, text)
    return text


@dataclass(frozen=True, kw_only=True, slots=True)
class _Raw:
    text: str
    level: str | None
    system: bool
    stamp: str | None


def _lines(text: str, grammar: LogGrammar, earlier: int) -> Iterator[LogLine]:
    before: str | None = None
    for number, line in enumerate(text.splitlines(), start=earlier + 1):
        raw = _unwrapped(line if line.endswith("}") else _shortened(line))
        level, inherited = _level_of(raw, before)
        quoted = before == "ERROR" and _LOGURU.match(raw.text) is not None
        after, before = before, before if quoted else level
        for at, part in enumerate(raw.text.splitlines()):
            bare = redacted(_shortened(part.strip()), grammar)
            if bare:
                yield LogLine(
                    number=number,
                    text=bare,
                    level=None if raw.system else level,
                    inherited=inherited or at > 0,
                    system=raw.system,
                    after=after,
                    at_s=_seconds(raw.stamp),
                    message=_message(bare, grammar),
                )


def _shortened(text: str) -> str:
    return text if len(text) <= _HEAD_CHARS + _TAIL_CHARS else f"{text[:_HEAD_CHARS]} … {text[-_TAIL_CHARS:]}"


def _level_of(raw: _Raw, before: str | None) -> tuple[str | None, bool]:
    """Return the level. A line without one belongs to the record before it, unless it is independent."""
    if raw.level is not None:
        return raw.level, False
    if raw.system or (before != "ERROR" and _INDEPENDENT.match(raw.text.lstrip())):
        return None, False
    return before, before is not None


def _message(text: str, grammar: LogGrammar) -> str:
    """Return the message without its time, and without the spans before it, which can quote users' requests."""
    quoting, stamp = grammar.spans.search(text), _LEADING_STAMP.match(text)
    return text[max(quoting.end() if quoting else 0, stamp.end() if stamp else 0) :]


def _unwrapped(line: str) -> _Raw:
    bare, unit = _without_prefixes(_ESCAPES_IN_WORDS.sub("", line) if "[" in line else line)
    system = unit in _SYSTEM_UNITS
    if unit in _OTHER_UNITS:
        return _Raw(text=bare, level="INFO", system=False, stamp=None)
    if bare.startswith("{") and bare.endswith("}"):
        unpacked = _unpacked(bare, 0)
        if unpacked is not None:
            return unpacked
    stamped, logfmt = _STAMPED.match(bare), _LOGFMT.match(bare)
    if stamped is not None:
        return _Raw(text=bare, level=_level(stamped["level"]), system=system, stamp=stamped["stamp"])
    if logfmt is not None:
        return _Raw(text=bare, level=_level(logfmt["level"]), system=False, stamp=None)
    return _Raw(text=bare, level=None, system=system, stamp=None)


def _without_prefixes(line: str) -> tuple[str, str]:
    """Return the line and the unit that wrote it, if a prefix names one."""
    unit, bare = "", line.strip()
    for _ in range(_MAX_PREFIXES):
        match = next((found for found in (prefix.match(bare) for prefix in _PREFIXES) if found), None)
        if match is None:
            break
        groups = match.groupdict()
        unit = groups.get("unit") or ("kernel" if groups.get("console") and not unit else unit)
        bare = bare[match.end() :].lstrip()
    return bare, unit


def _unpacked(line: str, depth: int) -> _Raw | None:
    """Unpack a JSON record: the message may be nested in `fields`; Docker's files have `log`."""
    try:
        record = bounded_json.parse_object(line)
    except ValueError:
        return None
    packed = record.get("log", record.get("MESSAGE"))
    if isinstance(packed, str) and depth < _MAX_NESTED:
        inner = _ESCAPES.sub("", packed).strip()
        if inner.startswith("{") and inner.endswith("}"):
            return _unpacked(inner, depth + 1)
        return _unwrapped(inner)
    fields = record.get("fields")
    message = fields.get("message") if isinstance(fields, dict) else record.get("message")
    if not isinstance(message, str):
        return None
    return _Raw(
        text=_with_level(record, _ESCAPES.sub("", message)),
        level=_level(str(record.get("level", "INFO"))),
        system=False,
        stamp=_stamp_in(record),
    )


def _with_level(record: dict[str, Any], message: str) -> str:
    """Return the message, with the level if it is an error, as in the text format."""
    return f"ERROR {message}" if str(record.get("level")).upper() == "ERROR" else message


def _level(word: str) -> str:
    return _LEVELS.get(word.upper(), word.upper())


def _stamp_in(record: dict[str, Any]) -> str | None:
    match = _STAMP.match(str(record.get("timestamp", "")))
    return match[0] if match else None


def _seconds(stamp: str | None) -> float | None:
    if stamp is None:
        return None
    try:
        return (datetime.fromisoformat(stamp.replace("T", " ")) - datetime.min).total_seconds()  # noqa: DTZ901 -- differences alone count
    except ValueError:
        return None
