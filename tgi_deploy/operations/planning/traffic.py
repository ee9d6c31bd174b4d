"""Reads a recorded load, a CSV of requests, into arrivals per second and distributions of lengths.

Public traces can be used unchanged: Azure's (`TIMESTAMP,ContextTokens,GeneratedTokens`, both years) and BurstGPT's
(`Timestamp,Model,Request tokens,Response tokens,…`). Rows are read one at a time: a week of Azure's has 27 million.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.values.request import Lengths, RecordedLoad

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "second": ("second", "timestamp", "time"),
    "input_tokens": ("input_tokens", "contexttokens", "request tokens"),
    "output_tokens": ("output_tokens", "generatedtokens", "response tokens"),
}
_WINDOW_S: Final = 60
_BUSY: Final = 0.95
_MOST_BYTES: Final = 4_000_000_000
_LONGEST_LINE: Final = 10_000
_LONGEST_REQUEST: Final = 100_000_000
_LATEST_S: Final = 1e12


def read_traffic(path: Path) -> RecordedLoad:
    """Return the load in a file. Raises InputError `bad_traffic` with the line, or `unreadable_path`."""
    try:
        if not path.is_file() and path.exists():
            raise _bad(f"{path.name} is not a file", "give a CSV file")
        if path.stat().st_size > _MOST_BYTES:
            raise _bad(f"{path.name} is larger than 4 GB", "use a part of it: the busiest hour is enough")
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            return _summary(path.name, csv.reader(iter(partial(lines.readline, _LONGEST_LINE), "")))
    except OSError as error:
        raise InputError("unreadable_path", f"--traffic {path}: {error.strerror}", hint="check the path") from None
    except csv.Error as error:
        raise _bad(
            f"{path.name} is not a CSV file: {error}", "write the columns second,input_tokens,output_tokens"
        ) from None


def _summary(name: str, rows: Iterator[list[str]]) -> RecordedLoad:
    places = _places(name, next(rows, []))
    minutes: Counter[int] = Counter()
    inputs: Counter[int] = Counter()
    outputs: Counter[int] = Counter()
    first, last, skipped = math.inf, -math.inf, 0
    for number, row in enumerate(rows, start=2):
        second, asked, answered = _request(name, number, row, places)
        if not asked or not answered:
            skipped += 1  # a failed request, which the traces contain without tokens
            continue
        first, last = min(first, second), max(last, second)
        minutes[int(second // _WINDOW_S)] += 1
        inputs[asked] += 1
        outputs[answered] += 1
    if not minutes:
        raise _bad(f"{name} has no requests", "each line is a request: second,input_tokens,output_tokens")
    return RecordedLoad(
        requests=minutes.total(),
        skipped=skipped,
        seconds=last - first,
        arrivals_per_s=_busy_minute(minutes, last - first) / _WINDOW_S,
        input_tokens=_lengths(inputs),
        output_tokens=_lengths(outputs),
    )


def _places(name: str, header: Iterable[str]) -> tuple[int, int, int]:
    columns = [column.strip().lower() for column in header]
    found = [
        next((columns.index(known) for known in names if known in columns), -1) for names in _COLUMNS.values()
    ]  # fmt: skip
    if -1 in found:
        missing = tuple(_COLUMNS)[found.index(-1)]
        raise _bad(
            f"the first line of {name} has no column {missing}",
            "write the columns second,input_tokens,output_tokens; Azure's and BurstGPT's traces can be used unchanged",
        )
    return found[0], found[1], found[2]


def _request(name: str, number: int, row: list[str], places: tuple[int, int, int]) -> tuple[float, int, int]:
    try:
        second, asked, answered = (row[place].strip() for place in places)
        request = _second(second), _tokens(asked), _tokens(answered)
    except (IndexError, ValueError, OverflowError):
        raise _bad(
            f"line {number} of {name} is not a request", "a line is a time and two counts of tokens: 12.5,1024,256"
        ) from None
    return request


def _second(text: str) -> float:
    """Parse seconds, or a timestamp: Azure's traces have them with seven decimals."""
    if "-" in text[1:] and ":" in text:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    second = float(text)
    if not 0 <= second <= _LATEST_S:
        raise ValueError(text)
    return second


def _tokens(text: str) -> int:
    tokens = float(text)
    if not 0 <= tokens <= _LONGEST_REQUEST:
        raise ValueError(text)
    return int(tokens)


def _busy_minute(minutes: Counter[int], seconds: float) -> float:
    """Return the 95th percentile of the requests per minute; for less than two minutes, their mean."""
    if seconds < 2 * _WINDOW_S:
        return minutes.total() * _WINDOW_S / max(1.0, seconds)
    quiet = max(minutes) - min(minutes) + 1 - len(minutes)
    return _quantile(Counter(minutes.values()) + Counter({0: quiet}), _BUSY)


def _lengths(counts: Counter[int]) -> Lengths:
    mean = sum(length * number for length, number in counts.items()) / counts.total()
    return Lengths(mean=max(1, round(mean)), p95=_quantile(counts, _BUSY), most=max(counts))


def _quantile(counts: Counter[int], share: float) -> int:
    """Return the smallest value that a `share` of the counted values does not exceed."""
    left = share * counts.total()
    for value in sorted(counts):
        left -= counts[value]
        if left <= 0:
            return value
    return max(counts)


def _bad(problem: str, hint: str) -> InputError:
    return InputError("bad_traffic", f"--traffic: {problem}", hint=hint)
