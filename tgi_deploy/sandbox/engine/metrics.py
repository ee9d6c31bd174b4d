"""Real counters as Prometheus text: names, types, labels and buckets as in tests/cases/engine/metrics.json."""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

Labels = tuple[tuple[str, str], ...]
# Names and help texts by type, as recorded.
_KINDS: Final = ("counter", "gauge", "histogram", "summary")
_TABLE: Final = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_ABOUT: Final = {name: (kind, about) for kind in _KINDS for name, about in _TABLE[kind].items()}
_QUANTILES: Final = ("0", "0.5", "0.9", "0.95", "0.99", "0.999", "1")
_TOKEN_BUCKETS: Final = 100
_LARGEST_BATCH: Final = 1024


def _token_bounds(most: int) -> list[float]:
    return [most / _TOKEN_BUCKETS * place for place in range(1, _TOKEN_BUCKETS + 1)]


# The default: seconds, each bound 1.5 times the previous one.
_SECONDS: Final = list(accumulate([0.0001 * 1.5] + [1.5] * 34, lambda bound, step: bound * step))


@dataclass(slots=True)
class _Distribution:
    """A histogram. `counts` are per bucket; the last is for values above all bounds."""

    bounds: list[float]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        below = accumulate(self.counts)
        for bound, count in zip([*map(_shown, self.bounds), "+Inf"], below, strict=True):
            yield _line(f"{name}_bucket", (*labels, ("le", bound)), count)


class Metrics:
    """Counters, gauges and distributions by name. Every method may be called from any thread."""

    def __init__(self, input_tokens: int, total_tokens: int) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, int]] = defaultdict(lambda: defaultdict(int))
        self._gauges: dict[str, float] = {}
        self._observed: dict[str, dict[Labels, _Distribution]] = defaultdict(dict)
        self._bounds = {
            "tgi_batch_next_size": [float(size) for size in range(1, _LARGEST_BATCH + 1)],
            "tgi_request_input_length": _token_bounds(input_tokens),
            "tgi_request_generated_tokens": _token_bounds(total_tokens),
            "tgi_request_max_new_tokens": _token_bounds(total_tokens),
        }

    def count(self, name: str, **labels: str) -> None:
        with self._lock:
            self._counters[name][tuple(sorted(labels.items()))] += 1

    def add(self, name: str, change: float) -> float:
        """Return the gauge's new value."""
        with self._lock:
            self._gauges[name] = self._gauges.get(name, 0.0) + change
            return self._gauges[name]

    def observe(self, name: str, value: float, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self._lock:
            series = self._observed[name]
            if key not in series:
                series[key] = _Distribution(self._bounds.get(name, _SECONDS))
            series[key].observe(value)

    def render(self) -> str:
        with self._lock:
            return "".join(f"{block}\n" for block in (*self._simple(), *self._distributions()))

    def _simple(self) -> Iterator[str]:
        for name, series in self._counters.items():
            yield _block(name, [_line(name, labels, count) for labels, count in series.items()])
        for name, value in self._gauges.items():
            yield _block(name, [_line(name, (), value)])

    def _distributions(self) -> Iterator[str]:
        for name, series in self._observed.items():
            summary = name in _TABLE["summary"]
            lines: list[str] = []
            for labels, found in series.items():
                lines += _quantiles(name) if summary else found.lines(name, labels)
                ends = (("sum", found.total), ("count", sum(found.counts)))
                lines += [_line(f"{name}_{end}", labels, value) for end, value in ends]
            yield _block(name, lines)


def _quantiles(name: str) -> Iterator[str]:
    """Return 0: nothing is speculated, so nothing is skipped."""
    return (_line(name, (("quantile", quantile),), 0) for quantile in _QUANTILES)


def _block(name: str, lines: list[str]) -> str:
    kind, about = _ABOUT[name]
    head = [f"# HELP {name} {about}"] if about else []
    return "\n".join([*head, f"# TYPE {name} {kind}", *lines, ""])


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in labels)
    return f"{name}{{{inside}}} {_shown(value)}" if inside else f"{name} {_shown(value)}"


def _shown(value: float) -> str:
    return repr(value).removesuffix(".0")
