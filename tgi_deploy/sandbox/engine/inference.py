"""The service behind the routes: admission, validation, generation at the GPU's speed, counting."""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.engine.bodies import ApiError
from tgi_deploy.sandbox.engine.generator import Generation, Query, Step, Tokenizer, forced_text, generate
from tgi_deploy.sandbox.engine.logs import CLIENT
from tgi_deploy.sandbox.engine.situation import Fault, Situation, fake_hash

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_DEFAULT_MODEL: Final = "bigscience/bloom-560m"
_OLD_DEFAULT_NEW_TOKENS: Final = 100
# The requested number is capped at this before it is compared with the capacity.
_MOST_NEW_TOKENS: Final = 1024
# The metrics of `Generation.parts_s`.
_DURATIONS: Final = (
    "duration", "validation_duration", "queue_duration", "inference_duration", "mean_time_per_token_duration"
)  # fmt: skip
# Shares of a batch step, as recorded on a CPU.
_STEP_PARTS: Final = {"inference": 1.0, "forward": 0.53, "decode": 0.09, "filter": 0.02}
_BANDWIDTH_SHARE: Final = 0.6
_COMPUTE_SHARE: Final = 0.4
_LEAST_STEP_S: Final = 0.004
# Length from which a prompt triggers the faults of long prompts: above a question, below every plan's maximum.
_LONG_PROMPT_TOKENS: Final = 256
# Weights are float32 on a CPU (server, models/causal_lm.py), so a token moves twice the bytes.
_CPU_BANDWIDTH_GB_S: Final = 20.0
_CPU_TFLOPS: Final = 1.0
_FAILED: Final = "Request failed during generation: Server error: "
# Names and help texts by type, as recorded.
_METRICS: Final = json.loads(Path(__file__).with_name("metrics.json").read_text(encoding="utf-8"))
_ABOUT: Final = {name: (kind, about) for kind in _METRICS if kind != "source" for name, about in _METRICS[kind].items()}
_QUANTILES: Final = ("0", "0.5", "0.9", "0.95", "0.99", "0.999", "1")
# The default bounds: seconds, each 1.5 times the previous one.
_SECONDS: Final = list(accumulate([0.0001 * 1.5] + [1.5] * 34, lambda bound, step: bound * step))


class Inference:
    """One served model. Safe to call from many threads. `out_of_memory` is set when a prefill crashes the shard."""

    def __init__(self, situation: Situation) -> None:
        arguments, limits, checkpoint = situation.arguments, situation.limits, situation.checkpoint
        release, faults, host = situation.release, situation.faults, situation.host
        self.situation = situation
        self.metrics = Metrics(limits.max_input_tokens, limits.max_total_tokens)
        self.tokenizer = Tokenizer(vocab_size=checkpoint.model.vocab_size, begins=checkpoint.begins)
        self.api_key: str | None = arguments.get("api-key")
        supplied = arguments.get("tokenizer-config-path") is not None
        self.template = (checkpoint.chat or supplied) and Fault.NO_CHAT_TEMPLATE not in faults
        version, commit = release.reported_version or release.version, fake_hash(f"TGI {release.version}")
        self.about = {
            "model_id": _DEFAULT_MODEL if Fault.WRONG_MODEL in faults else checkpoint.model_id,
            "version": version,
            "sha": commit,
            "docker_label": f"sha-{commit[:7]}",
            "system_fingerprint": f"{version}-sha-{commit[:7]}",
        }
        fake_name = f"{host.gpus}-nvidia-{host.accelerator.name.lower()}"
        self.compute_type = situation.environ.get("COMPUTE_TYPE") or fake_name
        self.out_of_memory = threading.Event()
        self.dead = threading.Event()
        self._slots = threading.BoundedSemaphore(arguments.get("max-concurrent-requests", 128))

    def has(self, flag: str) -> bool:
        """Return whether the release has a flag, which also identifies routes and fields of the same release."""
        return flag in self.situation.arguments.flags

    @contextmanager
    def admitted(self, query: Query) -> Iterator[None]:
        """Occupy a slot for a concurrent request. Raises ApiError `overloaded` if none is free."""
        count = self.metrics.add
        count("tgi_request_count")
        try:
            self._acquire_slot()
            if count("tgi_batch_current_size", 1) > 1:
                count("tgi_batch_concat", label='reason="backpressure"')
            try:
                yield
            finally:
                count("tgi_batch_current_size", -1)
                self._slots.release()
        except ApiError as error:
            count("tgi_request_failure", label=f'err="{error.kind}"')
            if error.kind == "generation":
                count("tgi_batch_inference_failure", label='method="prefill"')
            self.situation.log.refused(query, error.bare)
            raise

    def _acquire_slot(self) -> None:
        if Fault.OVERLOADED in self.situation.faults or not self._slots.acquire(blocking=False):
            raise ApiError("overloaded", "Model is overloaded")
        for name in ("tgi_queue_size", "tgi_batch_current_max_tokens"):  # a request is batched at once
            self.metrics.add(name, 0)

    def answer(self, query: Query) -> Generation:
        """Return the whole generation."""
        generations = [generation for generation, _ in self.stream(query, streaming=False)]
        return generations[-1]

    def stream(self, query: Query, *, streaming: bool = True) -> Generator[tuple[Generation, Step]]:
        """Yield each step with the generation that it belongs to."""
        started = time.perf_counter()
        with self.admitted(query):
            generation = self._prepare(query, started, streaming=streaming)
            for step in self._steps(generation):
                yield generation, step

    def log_dead_shard(self) -> None:
        reason = "Server error: error trying to connect: Connection refused (os error 111)"
        self.situation.log.router(reason, level="ERROR", source=CLIENT, line=45, spans=[("health", {})] * 4)

    def _prepare(self, query: Query, started: float, *, streaming: bool) -> Generation:
        """Validate a request. Raises ApiError `validation`."""
        given = query.parameters
        _check(query, self.situation, streaming=streaming)
        pieces = self.tokenizer.encode(query.inputs)
        if given.truncate is not None:
            pieces = pieces[-given.truncate :]
        drawn = secrets.randbits(64) if given.seed is None else given.seed
        generation = Generation(
            query=query, pieces=pieces, max_new_tokens=self._new_tokens(len(pieces), given.max_new_tokens),
            seed=drawn if query.samples else None, forced=None if given.grammar is None else forced_text(given.grammar),
            started=started, validated=time.perf_counter() - started,
        )  # fmt: skip
        self.metrics.observe("tgi_request_input_length", len(pieces))
        self.metrics.observe("tgi_request_max_new_tokens", generation.max_new_tokens)
        return generation

    def _new_tokens(self, used: int, wanted: int | None) -> int:
        """Return the number of new tokens. Checks the sum first, with the requested number capped. Raises ApiError."""
        limits = self.situation.limits
        left = limits.max_total_tokens - used
        if wanted is not None and (wanted := min(wanted, _MOST_NEW_TOKENS)) > left:
            rule = f"`inputs` tokens + `max_new_tokens` must be <= {limits.max_total_tokens}"
            given = f"Given: {used} `inputs` tokens and {wanted} `max_new_tokens`"
            raise ApiError("validation", f"{rule}. {given}")
        if used > limits.max_input_tokens:
            rule = f"`inputs` must have less than {limits.max_input_tokens} tokens"
            raise ApiError("validation", f"{rule}. Given: {used}")
        default = left if self.situation.release.chunked_prefill else min(left, _OLD_DEFAULT_NEW_TOKENS)
        return default if wanted is None else wanted

    def _steps(self, generation: Generation) -> Generator[Step]:
        """Yield tokens at the GPU's speed. Counts the request when it is finished."""
        situation, prompt_tokens, observe = self.situation, len(generation.pieces), self.metrics.observe
        model, host, shards = situation.checkpoint.model, situation.host, situation.num_shard
        tflops = _CPU_TFLOPS if host.on_cpu else host.accelerator.fp16_tflops or 100.0
        observe("tgi_batch_next_size", 1)
        operations = prompt_tokens * 2 * model.parameters
        self._work("prefill", operations / (tflops * 1e12 * shards * _COMPUTE_SHARE))
        if Fault.OOM_SERVING in situation.faults and prompt_tokens >= _LONG_PROMPT_TOKENS:
            self.out_of_memory.set()
            raise ApiError("generation", f"{_FAILED}CUDA out of memory")
        bandwidth_gb_s = _CPU_BANDWIDTH_GB_S if host.on_cpu else host.accelerator.bandwidth_gb_s * _BANDWIDTH_SHARE
        step_s = max(_LEAST_STEP_S, situation.checkpoint.stored_bytes / shards / (bandwidth_gb_s * 1e9))
        for step in generate(generation, self.tokenizer):
            self._work("decode", step_s)
            generation.steps.append(step)
            yield step
        generation.inferred = time.perf_counter() - generation.started - generation.validated
        times = generation.parts_s()
        self.metrics.add("tgi_request_success")
        observe("tgi_request_generated_tokens", len(generation.steps))
        observe("tgi_request_skipped_tokens", 0)
        for name, seconds in zip(_DURATIONS, times, strict=True):
            observe(f"tgi_request_{name}", seconds)
        situation.log.answered(generation.query, times, generation.seed)

    def _work(self, method: str, real_s: float) -> None:
        """Record one step of the batch, which consists of the forward pass and small remainders."""
        label = f'method="{method}"'
        self.metrics.add("tgi_batch_inference_count", label=label)
        time.sleep(real_s / self.situation.pace.speed)
        if self.dead.is_set():
            raise ApiError("generation", f"{_FAILED}transport error")
        self.metrics.add("tgi_batch_inference_success", label=label)
        for part, share in _STEP_PARTS.items():
            self.metrics.observe(f"tgi_batch_{part}_duration", real_s * share, label)


def _check(query: Query, situation: Situation, *, streaming: bool) -> None:
    """Check single values, in the order of TGI's `router/src/validation.rs`. Raises ApiError `validation`."""
    given, get, longest = query.parameters, situation.arguments.get, situation.limits.max_input_tokens
    best_of, most_best_of = given.best_of or 1, get("max-best-of", 2)
    stops, most_stops = len(given.stop), get("max-stop-sequences", 4)
    top, most_top, cut = given.top_n_tokens or 0, get("max-top-n-tokens", 5), given.truncate
    several, details = best_of > 1, given.decoder_input_details
    rules = {
        f"`best_of` must be > 0 and <= {most_best_of}. Given: {best_of}": best_of > most_best_of,
        "`best_of` != 1 is not supported when streaming tokens": several and streaming,
        "you must use sampling when `best_of` is > 1": several and not query.samples,
        "`seed` must not be set when `best_of` > 1": several and given.seed is not None,
        "`temperature` must be strictly positive": not _positive(given.temperature),
        "`repetition_penalty` must be strictly positive": not _positive(given.repetition_penalty),
        "`frequency_penalty` must be >= -2.0 and <= 2.0": not -2 <= (given.frequency_penalty or 0) <= 2,  # noqa: PLR2004
        "`top_p` must be > 0.0 and < 1.0": not _positive(given.top_p, 1),
        "`typical_p` must be > 0.0 and < 1.0": not _positive(given.typical_p, 1),
        "`top_k` must be strictly positive": not _positive(given.top_k),
        "`max_new_tokens` must be strictly positive": not _positive(given.max_new_tokens),
        f"`truncate` must be strictly positive and less than {longest}. Given: {cut}": not _positive(cut, longest + 1),
        f"`stop` supports up to {most_stops} stop sequences. Given: {stops}": stops > most_stops,
        f"`top_n_tokens` must be >= 0 and <= {most_top}. Given: {top}": top > most_top,
        "`decoder_input_details` == true is not supported when streaming tokens": streaming and details,
        "grammar is not supported": given.grammar is not None and get("disable-grammar-support"),
        "`inputs` cannot be empty": not query.inputs,
    }
    for words, broken in rules.items():
        if broken:
            raise ApiError("validation", words)


def _positive(value: float | None, below: float = math.inf) -> bool:
    return value is None or 0 < value < below


class Metrics:
    """Counters, gauges and distributions by name, as Prometheus text. Every method may be called from any thread.

    Names, types, labels and buckets are as in tests/cases/engine/metrics.json. prometheus_client can't write them: it
    appends `_total` to counters, and has no summaries with quantiles.
    """

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

    def add(self, name: str, change: float = 1, label: str = "") -> float:
        """Return the new value of the counter or gauge. `label`: as in the text, such as `method="decode"`."""
        with self._lock:
            found = self._series[name].setdefault(label, [0])
            found[0] += change
            return found[0]

    def observe(self, name: str, value: float, label: str = "") -> None:
        bounds = self._bounds.get(name, _SECONDS)
        with self._lock:
            series = self._series[name]
            found = series.get(label) or series.setdefault(label, [0] * (len(bounds) + 2))
            found[0] += value
            found[1 + bisect_left(bounds, value)] += 1

    def render(self) -> str:
        with self._lock:
            return "".join(line for name, series in self._series.items() for line in self._block(name, series))

    def _block(self, name: str, series: dict[str, list[float]]) -> Iterator[str]:
        kind, about = _ABOUT[name]
        yield f"# HELP {name} {about}\n" if about else ""
        yield f"# TYPE {name} {kind}\n"
        for label, (total, *counts) in series.items():
            if not counts:
                yield f"{name}{_braced(label)} {_shown(total)}\n"
                continue
            if kind == "summary":  # all 0: nothing is speculated, so nothing is skipped
                yield from (f'{name}{{quantile="{quantile}"}} 0\n' for quantile in _QUANTILES)
            else:
                bounds = [*map(_shown, self._bounds.get(name, _SECONDS)), "+Inf"]
                for bound, count in zip(bounds, accumulate(counts), strict=True):
                    upper = f'le="{bound}"'
                    yield f"{name}_bucket{_braced(label, upper)} {count}\n"
            yield f"{name}_sum{_braced(label)} {_shown(total)}\n{name}_count{_braced(label)} {sum(counts)}\n"
        yield "\n"


def _braced(*labels: str) -> str:
    inside = ",".join(filter(None, labels))
    return f"{{{inside}}}" if inside else ""


def _shown(value: float) -> str:
    return repr(value).removesuffix(".0")
