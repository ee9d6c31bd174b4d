"""The progress of one engine start, as counters and in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.text import duration

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping

    from tgi_deploy.diagnosis.lines import LogLine


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Counters from the lines of one start. `received_mb`: downloaded of an image; `eta_s`: the engine's estimate.

    `assumed`: the engine could not measure its token capacity and assumed one. `last_wait` is the last line in which a
    shard only waited, `first_wait_at_s` the time of the first.
    """

    image: str = ""
    received_mb: int = 0
    model: str | None = None
    files_done: int = 0
    files_total: int = 0
    files_present: bool = False
    eta_s: float | None = None
    shard_count: int = 0
    shards_started: int = 0
    shards_ready: int = 0
    highest_wait: int = 0
    waits: int = 0
    first_wait_at_s: float | None = None
    last_wait: LogLine | None = None
    kv_capacity_tokens: int | None = None
    assumed: bool = False
    max_total_tokens: int | None = None
    prefill_tokens: int | None = None

    @property
    def steps(self) -> int:
        """A number that increases with all progress except downloaded bytes."""
        measured = self.kv_capacity_tokens is not None
        return self.files_done + self.files_present + self.shards_started + self.shards_ready + measured

    @property
    def ranks(self) -> int:
        """The number of shards, as far as the log shows them: a console keeps only the end of a long wait."""
        return self.shard_count or max(1, self.shards_started, self.highest_wait)

    def waited_s(self, line_s: float) -> float:
        """Return how long the shards have waited, by the lines' timestamps, else by their number, one per `line_s`."""
        last = self.last_wait.at_s if self.last_wait else None
        if last is not None and self.first_wait_at_s is not None and last > self.first_wait_at_s:
            return last - self.first_wait_at_s
        return self.waits / self.ranks * line_s

    def carried(self) -> Progress:
        """Return what remains valid if a later part of the log lacks the beginning. Counters restart."""
        return Progress(
            model=self.model,
            shard_count=self.shard_count,
            kv_capacity_tokens=self.kv_capacity_tokens,
            assumed=self.assumed,
            max_total_tokens=self.max_total_tokens,
            prefill_tokens=self.prefill_tokens,
        )

    def facts(self) -> dict[str, str]:
        """Return the facts for remedies."""
        found = {
            "model": self.model,
            "num_shard": self.shard_count or self.shards_started or None,
            "prefill": self.prefill_tokens,
            "context": self.max_total_tokens,
        }
        return {name: str(value) for name, value in found.items() if value is not None}


def advanced(progress: Progress, kind: str, match: re.Match[str], line: LogLine) -> Progress:
    """Return the progress after a line of this kind."""
    return _UPDATES[kind](progress, match, line)


def _image(progress: Progress, match: re.Match[str], _line: LogLine) -> Progress:
    return replace(progress, image=match["image"])


def _received(progress: Progress, match: re.Match[str], _line: LogLine) -> Progress:
    return replace(progress, received_mb=int(match["mb"]))


def _model(progress: Progress, match: re.Match[str], _line: LogLine) -> Progress:
    return replace(progress, model=match["model"])


def _files(progress: Progress, match: re.Match[str], _line: LogLine) -> Progress:
    eta_s = _seconds(match) if match["hours"] else None
    return replace(progress, files_done=int(match["done"]), files_total=int(match["total"]), eta_s=eta_s)


def _files_present(progress: Progress, _match: re.Match[str], _line: LogLine) -> Progress:
    return replace(progress, files_present=True)


def _shard_count(progress: Progress, match: re.Match[str], _line: LogLine) -> Progress:
    return replace(progress, shard_count=int(match["count"]))


def _shard_started(progress: Progress, _match: re.Match[str], _line: LogLine) -> Progress:
    return replace(progress, shards_started=progress.shards_started + 1)


def _shard_ready(progress: Progress, _match: re.Match[str], _line: LogLine) -> Progress:
    return replace(progress, shards_ready=progress.shards_ready + 1)


def _shard_waiting(progress: Progress, match: re.Match[str], line: LogLine) -> Progress:
    return replace(
        progress,
        highest_wait=max(progress.highest_wait, int(match["rank"] or 0) + 1),
        waits=progress.waits + 1,
        first_wait_at_s=progress.first_wait_at_s if progress.waits else line.at_s,
        last_wait=line,
    )


def _kv_cache(progress: Progress, match: re.Match[str], _line: LogLine) -> Progress:
    return _with_capacity(progress, int(match["blocks"]) * int(match["size"]))


def _batch_tokens(progress: Progress, match: re.Match[str], _line: LogLine) -> Progress:
    return progress if progress.assumed else _with_capacity(progress, int(match["tokens"].replace(",", "")))


def _batch_tokens_assumed(progress: Progress, _match: re.Match[str], _line: LogLine) -> Progress:
    return replace(progress, assumed=True)


def _with_capacity(progress: Progress, tokens: int) -> Progress:
    """Set the capacity. Ranks can differ; the router uses the smallest."""
    known = progress.kv_capacity_tokens
    return replace(progress, kv_capacity_tokens=tokens if known is None else min(known, tokens))


def _prefill_tokens(progress: Progress, match: re.Match[str], _line: LogLine) -> Progress:
    return replace(progress, prefill_tokens=int(match["tokens"]))


def _max_total_tokens(progress: Progress, match: re.Match[str], _line: LogLine) -> Progress:
    return replace(progress, max_total_tokens=int(match["tokens"]))


_UPDATES: Final[Mapping[str, Callable[[Progress, re.Match[str], LogLine], Progress]]] = {
    "image": _image,
    "received": _received,
    "model": _model,
    "files": _files,
    "files_present": _files_present,
    "shard_count": _shard_count,
    "shard_started": _shard_started,
    "shard_ready": _shard_ready,
    "shard_waiting": _shard_waiting,
    "kv_cache": _kv_cache,
    "batch_tokens": _batch_tokens,
    "batch_tokens_assumed": _batch_tokens_assumed,
    "prefill_tokens": _prefill_tokens,
    "max_total_tokens": _max_total_tokens,
}
# An engine that continues its download has recovered from earlier download errors.
RECOVERS: Final = "files"
KINDS: Final = tuple(_UPDATES)


def _seconds(match: re.Match[str]) -> float:
    """Return the whole seconds of a duration in Python's format: `0:00:30`, `1 day, 2:03:04`."""
    hours = int(match["days"] or 0) * 24 + int(match["hours"])
    return float((hours * 60 + int(match["minutes"])) * 60 + int(match["seconds"]))


def fraction_of(phase: str, progress: Progress) -> float | None:
    """Return the fraction of the phase that is done, or None."""
    if phase == "downloading" and progress.files_present:
        return 1.0
    if phase == "downloading" and progress.files_total:
        return min(1.0, progress.files_done / progress.files_total)
    count = progress.shard_count or progress.shards_started
    return min(1.0, progress.shards_ready / count) if phase == "loading" and count else None


def detail_of(
    phase: str, progress: Progress, *, amount_mb: float = 0.0, quiet_s: float = 0.0, left_s: float = 0.0
) -> str:
    """Describe the progress within the phase.

    `amount_mb` is the approximate total, `quiet_s` the age of the last line, `left_s` the planned rest of the phase; 0
    if unknown.
    """
    if phase == "pulling":
        return _pulled(progress, amount_mb)
    if phase == "downloading":
        return _downloaded(progress, quiet_s, left_s)
    count = progress.shard_count or progress.shards_started
    if phase == "loading" and count:
        return f"{progress.shards_ready} of {count} shards ready"
    if progress.kv_capacity_tokens is not None:
        return f"KV cache holds {progress.kv_capacity_tokens} tokens"
    return ""


def _pulled(progress: Progress, amount_mb: float) -> str:
    if not progress.received_mb:
        return progress.image
    of = f" of about {amount_mb:,.0f}" if amount_mb else ""
    return f"{progress.received_mb:,}{of} MB"


def _downloaded(progress: Progress, quiet_s: float, left_s: float) -> str:
    """Describe the download; the engine's estimate is as old as its last line."""
    if progress.files_present:
        return "weights are already cached"
    files = f"{progress.files_done} of {progress.files_total} files" if progress.files_total else ""
    if files and progress.files_done >= progress.files_total:
        return files
    left = left_s if progress.eta_s is None else progress.eta_s - quiet_s
    return ", ".join(filter(None, (files, f"about {duration(left)} left" if left > 0 else "")))
