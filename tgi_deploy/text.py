"""Formats numbers and texts for people. An unknown number is a dash, never a zero."""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from typing import Final

DASH: Final = "-"
TIMES: Final = "\u00d7"
MAX_WORD: Final = 120
MAX_LINE: Final = 600
_GIB: Final = 1024**3
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_UNITS_S: Final = ((86400, "d"), (_HOUR_S, "h"), (_MINUTE_S, "m"), (1, "s"))
_THOUSAND: Final = 1000
_CENT: Final = Decimal("0.01")
_EXACT: Final = Decimal("0.0001")


def usd(amount: Decimal | float | None, *, estimated: bool = False) -> str:
    """Format as `$1.861`, with two to four decimals; `about $0.4668` for estimates such as spot prices."""
    if amount is None:
        return DASH
    exact = Decimal(str(amount))
    short = exact.quantize(_CENT)
    shown = f"{short:,}" if short == exact or exact >= _THOUSAND else f"{exact.quantize(_EXACT).normalize():,f}"
    return f"{'about ' if estimated else ''}${shown}"


def rate(usd_per_hour: Decimal | float | None, *, estimated: bool = False) -> str:
    """Format as `$1.861/h`, or `about $0.4668/h`."""
    return f"{usd(usd_per_hour, estimated=estimated)}/h"


def dated(price_date: str, *, estimated: bool = False) -> str:
    """Return `listed 2026-07-20`, or `estimated 2026-07-20`: a price's date, empty without one."""
    return f"{'estimated' if estimated else 'listed'} {price_date}" if price_date else ""


def usd_spent(amount: Decimal | None, *, estimated: bool = False) -> str:
    """Format a cost in whole cents, rounded up, so that only a cost of zero is `$0.00`."""
    if amount is None:
        return DASH
    return f"{'about ' if estimated else ''}${amount.quantize(_CENT, ROUND_UP):,}"


def usd_exact(amount: float | None) -> str:
    """Format with three decimals, for columns."""
    return DASH if amount is None else f"${amount:,.3f}"


def cents(amount: float | None, *, estimated: bool = False) -> str:
    return DASH if amount is None else f"{'about ' if estimated else ''}${amount:,.2f}"


def count(number: float | None) -> str:
    return DASH if number is None else f"{number:,.0f}"


def gib(size_bytes: float) -> str:
    return f"{size_bytes / _GIB:,.2f} GiB"


def duration(seconds: float) -> str:
    """Format with readable precision: `45 s`, `12 min`, `3 h 20 min`."""
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    minutes = round(seconds / _MINUTE_S)
    if seconds < 2 * _HOUR_S:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def option_duration(seconds: int) -> str:
    """Format as an option's value: 5400 is 1h30m."""
    words = []
    for size, unit in _UNITS_S:
        number, seconds = divmod(seconds, size)
        if number:
            words.append(f"{number}{unit}")
    return "".join(words) or "0s"


def tick(value: float) -> str:
    """Format a number on an axis: `0.5`, `20`, `5k`."""
    return f"{value / _THOUSAND:g}k" if value >= _THOUSAND else f"{value:g}"


def plural(number: int, noun: str, many: str = "") -> str:
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"


def quoted(value: str, limit: int = 60) -> str:
    """Quote a value for a message, shortened and with control characters escaped."""
    return repr(value if len(value) <= limit else value[:limit] + "…")


def printable(name: str, limit: int = 200) -> str:
    """Make an untrusted name, of a file or a key, safe and short enough for a terminal."""
    shown = name if name.isprintable() else ascii(name)[1:-1]
    return shown if len(shown) <= limit else f"{shown[:limit]}…"


def one_line(text: str, *, limit: int = MAX_LINE, word_limit: int = MAX_WORD) -> str:
    """Return `text` on one line, with control characters escaped and long words and lines cut in the middle."""
    words = (_cut(_visible(word), word_limit) for word in text.split())
    return _cut(" ".join(words), limit)


def hint_line(text: str) -> str:
    """Return a hint on one line. Its words stay whole: a command in it is pasted."""
    return one_line(text, word_limit=MAX_LINE)


def encodable(text: str) -> str:
    """Return `text` without the lone surrogates of undecodable arguments and file names."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _visible(word: str) -> str:
    if word.isprintable():
        return word
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in encodable(word))


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]}…{text[head + 1 - limit :]}"


def words_of(value: object) -> list[str]:
    """Return flags with their values, a table as NAME=VALUE, anything else unchanged."""
    if isinstance(value, dict):
        return [f"{name}={item}" for name, item in value.items()]
    if not isinstance(value, list | tuple):
        return ["nothing" if value is None else str(value)]
    grouped: list[str] = []
    for word in map(str, value):
        if word.startswith("--") or not grouped:
            grouped.append(word)
        else:
            grouped[-1] += f" {word}"
    return grouped
