"""Prometheus text, with the engine's names, counting for real."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

Labels = tuple[tuple[str, str], ...]
_SECONDS: Final = tuple(0.0001 * 1.5**power for power in range(0, 42, 3))
_TOKENS: Final = (1.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10000.0, 50000.0)


@dataclass(slots=True)
class _Histogram:
    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0
    observed: int = 0

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.bounds)

    def observe(self, value: float) -> None:
        self.total += value
        self.observed += 1
        for place, bound in enumerate(self.bounds):
            self.counts[place] += value <= bound

    def lines(self, name: str) -> Iterator[str]:
        for bound, count in zip(self.bounds, self.counts, strict=True):
            yield f'{name}_bucket{{le="{bound:g}"}} {count}'
        yield f'{name}_bucket{{le="+Inf"}} {self.observed}'
        yield f"{name}_sum {self.total:g}"
        yield f"{name}_count {self.observed}"


class Metrics:
    """Counters, gauges and histograms by name. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, int]] = defaultdict(lambda: defaultdict(int))
        self._gauges: dict[str, float] = {}
        self._histograms: dict[str, _Histogram] = {}

    def count(self, name: str, **labels: str) -> None:
        with self._lock:
            self._counters[name][tuple(sorted(labels.items()))] += 1

    def add(self, name: str, change: float) -> None:
        with self._lock:
            self._gauges[name] = self._gauges.get(name, 0.0) + change

    def observe(self, name: str, value: float) -> None:
        bounds = _SECONDS if name.endswith("_duration") else _TOKENS
        with self._lock:
            self._histograms.setdefault(name, _Histogram(bounds)).observe(value)

    def render(self) -> str:
        with self._lock:
            lines = [*self._counter_lines(), *self._gauge_lines(), *self._histogram_lines()]
        return "\n".join(lines) + "\n" if lines else ""

    def _counter_lines(self) -> Iterator[str]:
        for name, series in self._counters.items():
            yield f"# TYPE {name} counter"
            for labels, value in series.items():
                inside = ",".join(f'{key}="{text}"' for key, text in labels)
                yield f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"

    def _gauge_lines(self) -> Iterator[str]:
        for name, value in self._gauges.items():
            yield f"# TYPE {name} gauge"
            yield f"{name} {value:g}"

    def _histogram_lines(self) -> Iterator[str]:
        for name, histogram in self._histograms.items():
            yield f"# TYPE {name} histogram"
            yield from histogram.lines(name)
