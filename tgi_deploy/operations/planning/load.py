"""The requested load: lengths, and requests in flight or arrivals per second, from options or a traffic file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.request import DEFAULT_TPOT_MS, DEFAULT_TTFT_MS, Lengths

if TYPE_CHECKING:
    from tgi_deploy.operations.planning.option_texts import Settings
    from tgi_deploy.values.request import RecordedLoad

DEFAULT_INPUT_TOKENS: Final = 1024
DEFAULT_OUTPUT_TOKENS: Final = 256
DEFAULT_CONCURRENCY: Final = 8
DEFAULT_CONTEXT_TOKENS: Final = 8192
_MOST_REQUESTS: Final = 100_000


class AskedLoad(Frozen, frozen=True, kw_only=True):
    """The resolved load of a request. `arrivals_per_s` is None if the load is given as requests in flight."""

    input_tokens: Lengths
    output_tokens: Lengths
    context_tokens: int
    concurrency: int
    arrivals_per_s: float | None


def asked_load(settings: Settings, longest: int, model: str) -> AskedLoad:
    """Return the load. Options take precedence over a traffic file. Raises InputError.

    `longest` is the maximum context of `model`.
    """
    recorded = _recorded(settings)
    asked_input, asked_output = settings.read("input_tokens"), settings.read("output_tokens")
    if recorded is not None:
        asked_input, asked_output = asked_input or recorded.input_tokens, asked_output or recorded.output_tokens
    input_tokens, output_tokens, context = _tokens(settings, asked_input, asked_output, longest, model)
    arrivals = _arrivals_per_s(settings, recorded)
    return AskedLoad(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        context_tokens=context,
        concurrency=_concurrency(settings, arrivals, output_tokens.mean),
        arrivals_per_s=arrivals,
    )


def _recorded(settings: Settings) -> RecordedLoad | None:
    path = settings.get("traffic").value
    if path is None:
        return None
    from tgi_deploy.operations.planning.traffic import read_traffic  # noqa: PLC0415 -- most plans read no record

    return read_traffic(Path(path))


def _tokens(
    settings: Settings, asked_input: Lengths | None, asked_output: Lengths | None, longest: int, model: str
) -> tuple[Lengths, Lengths, int]:
    """Return input, output and context lengths. Defaults are adjusted to fit explicit values, never the reverse."""
    asked = settings.get("context").value is not None
    inputs = asked_input or Lengths(mean=DEFAULT_INPUT_TOKENS, most=DEFAULT_INPUT_TOKENS)
    outputs = asked_output or Lengths(mean=DEFAULT_OUTPUT_TOKENS, most=DEFAULT_OUTPUT_TOKENS)
    context = settings.read("context") or min(longest, max(DEFAULT_CONTEXT_TOKENS, inputs.most + outputs.most))
    if context > longest:
        raise InputError(
            "context_too_long",
            f"--context {context} exceeds the {longest} tokens that {model} supports",
            hint=f"use --context {longest} or less",
        )
    output_tokens, input_tokens = outputs.mean, inputs.mean
    if asked_output is None:
        room = context // 4 if asked_input is None else context - input_tokens
        output_tokens = min(output_tokens, max(1, room))
    if asked_input is None:
        input_tokens = min(input_tokens, max(1, context - output_tokens))
    if input_tokens + output_tokens > context:
        what = f"--context {context}" if asked else f"the model's {context} tokens"
        raise InputError(
            "request_exceeds_context",
            f"{input_tokens} input and {output_tokens} output tokens are more than {what}",
            hint="shorten the request or raise --context",
        )
    return _shortened(inputs, input_tokens), _shortened(outputs, output_tokens), context


def _shortened(lengths: Lengths, mean: int) -> Lengths:
    return lengths if lengths.mean == mean else Lengths(mean=mean, most=mean)


def _arrivals_per_s(settings: Settings, recorded: RecordedLoad | None) -> float | None:
    rate: float | None = settings.read("rps")
    in_flight = settings.get("concurrency")
    if rate is not None and in_flight.source == "flag" and in_flight.value is not None:
        raise InputError(
            "conflicting_options", "--rps and --concurrency exclude each other",
            hint="--rps is requests arriving per second, --concurrency requests in flight",
        )  # fmt: skip
    if rate is not None or in_flight.value is not None:
        return rate
    return None if recorded is None else recorded.arrivals_per_s


def _concurrency(settings: Settings, arrivals_per_s: float | None, output_tokens: int) -> int:
    """Return the requests in flight; for arrivals, by Little's law at the limits of the service level."""
    if arrivals_per_s is None:
        return settings.read("concurrency") or DEFAULT_CONCURRENCY
    ttft_ms = settings.read("ttft_ms") or DEFAULT_TTFT_MS
    tpot_ms = settings.read("tpot_ms") or DEFAULT_TPOT_MS
    in_flight = arrivals_per_s * (ttft_ms + output_tokens * tpot_ms) / 1000
    return max(1, min(_MOST_REQUESTS, math.ceil(in_flight)))
