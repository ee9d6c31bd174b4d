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

# Names and help texts by type, as recorded.
_TABLE: Final = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_ABOUT: Final = {name: (kind, about) for kind in _TABLE if kind != "source" for name, about in _TABLE[kind].items()}
_QUANTILES: Final = ("0", "0.5", "0.9", "0.95", "0.99", "0.999", "1")
# The default bounds: seconds, each 1.5 times the previous one.
_SECONDS: Final = list(accumulate([0.0001 * 1.5] + [1.5] * 34, lambda bound, step: bound * step))


class Metrics:
    """Counters, gauges and distributions by name. Every method may be called from any thread."""

    def __init__(self, input_tokens: int, total_tokens: int) -> None:
        self._lock = threading.Lock()
        # By name and labels: a number, or the sum of a distribution and a count for each bucket and for values beyond.
        self._series: dict[str, dict[str, list[float]]] = defaultdict(dict)
        by_input, by_total = ([most / 100 * place for place in range(1, 101)] for most in (input_tokens, total_tokens))
        self._bounds = {
            "tgi_batch_next_size": [float(size) for size in range(1, 1025)],
            "tgi_request_input_length": by_input,
            "tgi_request_generated_tokens": by_total,
            "tgi_request_max_new_tokens": by_total,
        }

    def add(self, name: str, change: float = 1, **label: str) -> float:
        """Return the new value of the counter or gauge, which has at most one label."""
        key = _labels(label)
        with self._lock:
            found = self._series[name].setdefault(key, [0])
            found[0] += change
            return found[0]

    def observe(self, name: str, value: float, **label: str) -> None:
        bounds, key = self._bounds.get(name, _SECONDS), _labels(label)
        with self._lock:
            found = self._series[name].get(key) or self._series[name].setdefault(key, [0] * (len(bounds) + 2))
            found[0] += value
            found[1 + bisect_left(bounds, value)] += 1

    def render(self) -> str:
        with self._lock:
            return "".join(line for name, series in self._series.items() for line in self._block(name, series))

    def _block(self, name: str, series: dict[str, list[float]]) -> Iterator[str]:
        kind, about = _ABOUT[name]
        yield f"# HELP {name} {about}\n" if about else ""
        yield f"# TYPE {name} {kind}\n"
        for labels, (total, *counts) in series.items():
            if not counts:
                yield f"{name}{_braced(labels)} {_shown(total)}\n"
                continue
            if kind == "summary":  # all 0: nothing is speculated, so nothing is skipped
                yield from (f'{name}{{quantile="{quantile}"}} 0\n' for quantile in _QUANTILES)
            else:
                bounds = [*map(_shown, self._bounds.get(name, _SECONDS)), "+Inf"]
                for bound, count in zip(bounds, accumulate(counts), strict=True):
                    upper = f'le="{bound}"'
                    yield f"{name}_bucket{_braced(labels, upper)} {count}\n"
            yield f"{name}_sum{_braced(labels)} {_shown(total)}\n{name}_count{_braced(labels)} {sum(counts)}\n"
        yield "\n"


def _labels(label: dict[str, str]) -> str:
    return "".join([f'{key}="{value}"' for key, value in label.items()])


def _braced(*labels: str) -> str:
    inside = ",".join(filter(None, labels))
    return f"{{{inside}}}" if inside else ""


def _shown(value: float) -> str:
    return repr(value).removesuffix(".0")
