"""Real counters as Prometheus text: names, types, labels and buckets as in tests/cases/engine/metrics.json.

prometheus_client can't write it: it appends `_total` to counters, and has no summaries with quantiles.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

Labels = tuple[tuple[str, str], ...]
# Names and help texts by type, as recorded.
_TABLE: Final = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_ABOUT: Final = {name: (kind, about) for kind in _TABLE if kind != "source" for name, about in _TABLE[kind].items()}
_QUANTILES: Final = ("0", "0.5", "0.9", "0.95", "0.99", "0.999", "1")
_TOKEN_BUCKETS: Final = 100


def _token_bounds(most: int) -> list[float]:
    return [most / _TOKEN_BUCKETS * place for place in range(1, _TOKEN_BUCKETS + 1)]


# The default: seconds, each bound 1.5 times the previous one.
_SECONDS: Final = list(accumulate([0.0001 * 1.5] + [1.5] * 34, lambda bound, step: bound * step))


class _Distribution:
    """A histogram. `counts` are per bucket; the last is for values above all bounds."""

    def __init__(self, bounds: list[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        if _ABOUT[name][0] == "summary":  # all 0: nothing is speculated, so nothing is skipped
            yield from (_line(name, (("quantile", quantile),), 0) for quantile in _QUANTILES)
        else:
            bounds = [*map(_shown, self.bounds), "+Inf"]
            for bound, count in zip(bounds, accumulate(self.counts), strict=True):
                yield _line(f"{name}_bucket", (*labels, ("le", bound)), count)
        yield _line(f"{name}_sum", labels, self.total)
        yield _line(f"{name}_count", labels, sum(self.counts))


class Metrics:
    """Counters, gauges and distributions by name. Every method may be called from any thread."""

    def __init__(self, input_tokens: int, total_tokens: int) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(int))
        self._observed: dict[str, dict[Labels, _Distribution]] = defaultdict(dict)
        self._bounds = {
            "tgi_batch_next_size": [float(size) for size in range(1, 1025)],
            "tgi_request_input_length": _token_bounds(input_tokens),
            "tgi_request_generated_tokens": _token_bounds(total_tokens),
            "tgi_request_max_new_tokens": _token_bounds(total_tokens),
        }

    def add(self, name: str, change: float = 1, **labels: str) -> float:
        """Return the new value of the counter or gauge."""
        key = tuple(sorted(labels.items()))
        with self._lock:
            self._values[name][key] += change
            return self._values[name][key]

    def observe(self, name: str, value: float, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self._lock:
            series = self._observed[name]
            if key not in series:
                series[key] = _Distribution(self._bounds.get(name, _SECONDS))
            series[key].counts[bisect_left(series[key].bounds, value)] += 1
            series[key].total += value

    def render(self) -> str:
        with self._lock:
            simple = [
                _block(name, (_line(name, labels, value) for labels, value in series.items()))
                for name, series in self._values.items()
            ]
            return "".join(simple) + "".join(
                _block(name, (line for labels, found in series.items() for line in found.lines(name, labels)))
                for name, series in self._observed.items()
            )


def _block(name: str, lines: Iterator[str]) -> str:
    kind, about = _ABOUT[name]
    head = [f"# HELP {name} {about}"] if about else []
    return "\n".join([*head, f"# TYPE {name} {kind}", *lines, "", ""])


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in labels)
    return f"{name}{{{inside}}} {_shown(value)}" if inside else f"{name} {_shown(value)}"


def _shown(value: float) -> str:
    return repr(value).removesuffix(".0")
