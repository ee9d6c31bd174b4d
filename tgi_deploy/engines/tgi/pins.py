"""Validates the user's flags and the resulting token limits like the launcher and the router.

Their rules (TGI `launcher/src/main.rs`, `router/src/server.rs`, read at 3.3.7) are applied before anything is rented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.engines.flag_values import value_problem
from tgi_deploy.errors import Problem
from tgi_deploy.values.base import Value
from tgi_deploy.values.engine import RequestEdit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.values.engine import EngineSettings, Flag, Load
    from tgi_deploy.values.model import ModelSpec

_LARGEST_ROPE_FACTOR: Final = 1000.0
_PREFILL_STEPS: Final = (4096, 2048, 1024, 512)

# Flags that can't be set, and the alternative.
_NOT_PINNABLE: Final = {
    "--model-id": "name the model on the command line",
    "--revision": "name the revision in the profile",
    "--port": "use --port",
    "--hostname": "the container always listens on all its addresses",
    "--api-key": "secrets must not be on a command line; set API_KEY in the machine's environment",
    "--ngrok-authtoken": "secrets must not be on a command line",
    "--num-shard": "use --num-shard",
    "--sharded": "use --num-shard",
    "--quantize": "use --quantize",
    "--env": "it only logs; run nvidia-smi on the machine instead",
}


# Setting changes that fix failures, by the names in `profiles/diagnosis/heal.json`.
_LESS_PREFILL: Final = "less_prefill"
EDITS: Final = (_LESS_PREFILL,)


class Limits(Value, frozen=True, kw_only=True):
    """Token limits of a configuration. `prefill_tokens` is the maximum of prompt tokens per step."""

    max_input_tokens: int
    max_total_tokens: int
    prefill_tokens: int


def flag_problems(pins: Mapping[str, str], release: TgiRelease) -> Iterator[Problem]:
    """Yield what the release's parser would reject."""
    for name, value in pins.items():
        flag = release.flags.get(name)
        if flag is None:
            yield _unknown_flag(release, name)
        elif name in _NOT_PINNABLE:
            yield Problem(
                code="flag_not_allowed", message=f"--set {name} is not allowed", hint=_NOT_PINNABLE[name]
            )  # fmt: skip
        else:
            yield from _bad_value(release, flag, value)


def _unknown_flag(release: TgiRelease, name: str) -> Problem:
    import difflib  # noqa: PLC0415 -- only on the way to an error

    near = difflib.get_close_matches(name, release.flags, n=1)
    hint = f"did you mean {near[0]}?" if near else f"see `tgi-deploy catalog show {release.version}`"
    return Problem(code="unknown_flag", message=f"TGI {release.version} has no flag {name!r}", hint=hint)


def _bad_value(release: TgiRelease, flag: Flag, value: str) -> Iterator[Problem]:
    wrong = value_problem(flag, value)
    if wrong is None and flag.name == "--cuda-memory-fraction" and not 0 < float(value) <= 1:
        wrong = "should be above 0 and at most 1"
    if wrong is not None:
        message = f"--set {flag.name}={value!r}: {wrong}"
        hint = f"'tgi-deploy catalog show {release.version}' lists the flags with their values"
        yield Problem(code="bad_flag_value", message=message, hint=hint)


def longest_context(model: ModelSpec, pins: Mapping[str, str]) -> int:
    """Return the model's context length times the factor of a pinned rope scaling.

    A factor alone means linear scaling, a type alone the factor 1 (TGI `launcher/src/main.rs`).
    """
    try:
        factor = float(pins.get("--rope-factor", "1"))
    except ValueError:
        return model.max_position_embeddings
    return int(model.max_position_embeddings * min(max(1.0, factor), _LARGEST_ROPE_FACTOR))


def limits_for(
    load: Load, pins: Mapping[str, str], *, chunked: bool, most_prefill: int | None = None
) -> tuple[Limits, ...]:
    """Return token limits for a context, the most generous first, to use the first that fit.

    `most_prefill`: the maximum of prompt tokens per step with chunked prefill. Without chunking, prompts are prefilled
    whole. If the longest takes too much memory, the prompt gets half the context, more than with the launcher's
    defaults.
    """
    total = int(pins.get("--max-total-tokens", load.context_tokens))
    pinned_input = pins.get("--max-input-tokens", pins.get("--max-input-length"))
    pinned_prefill = pins.get("--max-batch-prefill-tokens")
    longest = int(pinned_input) if pinned_input is not None else total - 1
    if pinned_prefill is not None:
        choices = [(longest, int(pinned_prefill))]
    elif chunked:
        most = min(total - 1, most_prefill or total)
        choices = [(longest, step) for step in _PREFILL_STEPS if step <= most] or [(longest, total)]
    else:
        choices = [(longest, longest)]
        if pinned_input is None and load.input_tokens <= total // 2 < longest:
            choices.append((total // 2, total // 2))
    return tuple(
        Limits(max_input_tokens=max_input, max_total_tokens=total, prefill_tokens=prefill)
        for max_input, prefill in choices
    )


def limit_problems(
    limits: Limits, pins: Mapping[str, str], load: Load, model: ModelSpec, *, chunked: bool
) -> Iterator[Problem]:
    """Yield limits that the launcher or router would reject, or that break a promise."""
    for problem in (*_contradictions(limits, pins, chunked=chunked), *_broken_promises(limits, pins, load, model)):
        yield Problem(
            code="contradictory_limits",
            message=f"the limits contradict each other: {problem}",
            hint="drop one of the --set flags, or change --context or --concurrency",
        )


def _contradictions(limits: Limits, pins: Mapping[str, str], *, chunked: bool) -> Iterator[str]:
    total, max_input = limits.max_total_tokens, limits.max_input_tokens
    prefill = limits.prefill_tokens
    if "--max-input-tokens" in pins and "--max-input-length" in pins:
        yield "both --max-input-tokens and --max-input-length are set"
    if max_input < 1:
        yield f"--max-input-tokens {max_input} leaves no room for a prompt"
    if max_input >= total:
        yield f"--max-input-tokens {max_input} must be below --max-total-tokens {total}"
    if prefill < 1 or (not chunked and prefill < max_input):
        yield f"--max-batch-prefill-tokens {prefill} must be at least --max-input-tokens {max_input}"
    batch_total = int(pins.get("--max-batch-total-tokens", max(total, prefill)))
    if batch_total < max(total, prefill):
        yield f"--max-batch-total-tokens {batch_total} must be at least {max(total, prefill)}"
    if pins.get("--validation-workers") == "0":
        yield "--validation-workers must be above 0"
    if pins.get("--max-batch-size") == "0":
        yield "--max-batch-size must be above 0"


def _broken_promises(limits: Limits, pins: Mapping[str, str], load: Load, model: ModelSpec) -> Iterator[str]:
    promised, longest = load.request_tokens, model.max_position_embeddings
    if limits.max_total_tokens < promised:
        yield f"--max-total-tokens {limits.max_total_tokens} is less than a planned request of {promised} tokens"
    if limits.max_input_tokens < load.input_tokens:
        yield f"--max-input-tokens {limits.max_input_tokens} is less than the planned {load.input_tokens}"
    admitted = int(pins.get("--max-concurrent-requests", load.concurrency))
    if admitted < load.concurrency:
        yield f"--max-concurrent-requests {admitted} is fewer than the planned {load.concurrency} at once"
    if limits.max_total_tokens > max(longest, load.context_tokens):
        yield f"--max-total-tokens {limits.max_total_tokens} is more than the {longest} that the model supports"


def edit(name: str, settings: EngineSettings) -> RequestEdit:
    """Return a change of `EDITS`: half the prefill batch needs half the warm-up memory."""
    if name != _LESS_PREFILL:
        raise ValueError(f"unknown change {name!r}")
    return RequestEdit(flag="max-batch-prefill-tokens", value=str(max(1, settings.max_batch_prefill_tokens // 2)))
