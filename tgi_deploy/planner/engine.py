"""The engine's command line, finished: every limit explicit, every flag checked against the exact release.

The launcher's and router's own validation rules (TGI `launcher/src/main.rs`, `router/src/server.rs`, read at 3.3.7)
are applied here, before anything is rented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.planner.types import EngineCommand, EngineSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.planner.types import ArchitectureRule, EngineRelease, Flag, ModelClass, Requirements
    from tgi_deploy.values.model import ModelSpec

STOP_TIMEOUT_S: Final = 120  # the engine drains for up to 90 s before it ends
SHM_BYTES: Final = 1024**3  # Docker's 64 MB is too small for NCCL; 1 GiB is enough
DEFAULT_PREFILL_TOKENS: Final = 4096
_PREFILL_STEPS: Final = (4096, 2048, 1024, 512)
_GRAPH_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_LARGEST_DEFAULT_GRAPH: Final = 32
_MIN_CONCURRENT_REQUESTS: Final = 128

_GLOB_CHARACTERS: Final = "*?["
_LARGEST: Final = {"uint16": 65_535, "uint32": 4_294_967_295}
_WORD: Final = 18_446_744_073_709_551_615

# Flags a wish may not pin, and what to use instead.
_NOT_PINNABLE: Final = {
    "--model-id": "name the model on the command line",
    "--revision": "name the revision in the profile",
    "--port": "use --port",
    "--hostname": "the container always listens on all of its own addresses",
    "--api-key": "a secret never stands on a command line; set API_KEY in the environment of the machine",
    "--ngrok-authtoken": "a secret never stands on a command line",
    "--num-shard": "use --num-shard",
    "--sharded": "use --num-shard",
    "--quantize": "use --quantize",
    "--env": "it only logs; run nvidia-smi on the machine instead",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Token limits of a configuration. `prefill_choices`: largest first; the first that fits is taken."""

    max_input_tokens: int
    max_total_tokens: int
    prefill_choices: tuple[int, ...]


def checked_pins(release: EngineRelease, pins: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """The user's flags, `--name` → value, each checked against the release. Raises InputError."""
    checked: dict[str, str] = {}
    for name, value in pins:
        flag_name = "--" + name.removeprefix("--").replace("_", "-")
        flag = release.flags.get(flag_name)
        if flag is None:
            raise _unknown_flag(release, flag_name)
        if flag_name in _NOT_PINNABLE:
            raise InputError("flag_not_allowed", f"--set {flag_name} is not allowed", hint=_NOT_PINNABLE[flag_name])
        _check_value(release, flag, value)
        checked[flag_name] = value
    return checked


def _unknown_flag(release: EngineRelease, name: str) -> InputError:
    import difflib  # noqa: PLC0415 -- only on the way to an error

    near = difflib.get_close_matches(name, release.flags, n=1)
    hint = f"did you mean {near[0]}?" if near else f"see `tgi-deploy catalog show {release.version}`"
    return InputError("unknown_flag", f"TGI {release.version} has no flag {name!r}", hint=hint)


def _check_value(release: EngineRelease, flag: Flag, value: str) -> None:
    wrong = _value_problem(flag, value)
    if wrong:
        raise InputError(
            "bad_flag_value", f"--set {flag.name}={value!r}: {wrong}", hint=f"as TGI {release.version} takes it"
        )


def _value_problem(flag: Flag, value: str) -> str | None:
    if flag.values and flag.kind != "bool":
        return None if value in flag.values else f"choose one of {', '.join(flag.values)}"
    if flag.kind == "bool":
        return None if value in {"true", "false"} else "write true or false"
    if flag.kind.startswith("uint"):
        return None if _is_whole(flag.kind, value) else f"should be a whole number from 0 to {_largest(flag.kind)}"
    if flag.kind == "float":
        return _number_problem(flag, value)
    if flag.kind == "list[uint]":
        listed = all(_is_whole(flag.kind, part) for part in value.split(","))
        return None if listed else "should be whole numbers with commas, without spaces"
    return None if value.isprintable() and value else "should be printable and not empty"


def _is_whole(kind: str, text: str) -> bool:
    most = _largest(kind)
    return text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most


def _largest(kind: str) -> int:
    """What the launcher's own type holds; a count without a width is the processor's word."""
    return _LARGEST.get(kind, _WORD)


def _number_problem(flag: Flag, value: str) -> str | None:
    if not _is_number(value):
        return "should be a number"
    if flag.name == "--cuda-memory-fraction" and not 0 < float(value) <= 1:
        return "should be above 0, and 1 at most"
    return None


def _is_number(text: str) -> bool:
    whole, _, fraction = text.removeprefix("-").partition(".")
    return (whole + fraction).isascii() and (whole + fraction).isdigit()


def attention_for(model: ModelSpec, model_class: ModelClass, release: EngineRelease, rule: ArchitectureRule) -> str:
    """Which attention kernels the release picks for this model and card (`padded`: none of them)."""
    if not model_class.flash:
        return "padded"
    if "ATTENTION" in rule.env:
        return rule.env["ATTENTION"]
    if not release.default_attention:
        return "paged"
    if model.head_dim not in release.flash_head_dims or model_class.paged_only:
        return "flashdecoding"
    return release.default_attention


def prefills_in_chunks(release: EngineRelease, model_class: ModelClass, attention: str) -> bool:
    return release.chunked_prefill and model_class.prefill_chunking and attention in {"flashinfer", "flashdecoding"}


def limits_for(context_tokens: int, pins: Mapping[str, str], *, chunked: bool) -> Limits:
    """Token limits for a context. Without chunking a prompt is prefilled whole, so the batch must hold it."""
    total = int(pins.get("--max-total-tokens", context_tokens))
    pinned_input = pins.get("--max-input-tokens", pins.get("--max-input-length"))
    max_input = int(pinned_input) if pinned_input is not None else total - 1
    pinned_prefill = pins.get("--max-batch-prefill-tokens")
    if pinned_prefill is not None:
        choices: tuple[int, ...] = (int(pinned_prefill),)
    elif chunked:
        choices = tuple(step for step in _PREFILL_STEPS if step < total) or (total,)
    else:
        choices = (max(max_input, DEFAULT_PREFILL_TOKENS) if max_input >= DEFAULT_PREFILL_TOKENS else max_input,)
    return Limits(max_input_tokens=max_input, max_total_tokens=total, prefill_choices=choices)


def check_limits(wish: Requirements, limits: Limits, pins: Mapping[str, str], *, chunked: bool) -> None:
    """The launcher's and router's own comparisons, and the wish's promises, as InputError `contradictory_limits`."""
    for problem in (*_contradictions(limits, pins, chunked=chunked), *_broken_promises(wish, limits, pins)):
        raise InputError("contradictory_limits", f"the limits contradict each other: {problem}",
                         hint="drop one of the --set flags, or change --context or --concurrency")  # fmt: skip


def _contradictions(limits: Limits, pins: Mapping[str, str], *, chunked: bool) -> Iterator[str]:
    total, max_input = limits.max_total_tokens, limits.max_input_tokens
    prefill = min(limits.prefill_choices)
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


def _broken_promises(wish: Requirements, limits: Limits, pins: Mapping[str, str]) -> Iterator[str]:
    promised, longest = wish.input_tokens + wish.output_tokens, wish.model.model.max_position_embeddings
    if limits.max_total_tokens < promised:
        yield f"--max-total-tokens {limits.max_total_tokens} is less than a promised request of {promised} tokens"
    if limits.max_input_tokens < wish.input_tokens:
        yield f"--max-input-tokens {limits.max_input_tokens} is less than the promised {wish.input_tokens}"
    admitted = int(pins.get("--max-concurrent-requests", wish.concurrency))
    if admitted < wish.concurrency:
        yield f"--max-concurrent-requests {admitted} is fewer than the promised {wish.concurrency} at once"
    if limits.max_total_tokens > max(longest, wish.context_tokens):
        yield f"--max-total-tokens {limits.max_total_tokens} is more than the {longest} the model was made for"


def graph_batches(concurrency: int, *, supported: bool) -> tuple[int, ...]:
    """Decode batches to capture as CUDA graphs: the engine's default list, longer when more run at once."""
    if not supported:
        return (0,)
    largest = max(_LARGEST_DEFAULT_GRAPH, concurrency)
    return tuple(batch for batch in _GRAPH_BATCHES if batch <= largest)


def concurrent_requests(concurrency: int) -> int:
    return max(_MIN_CONCURRENT_REQUESTS, 4 * concurrency)


def build_command(
    release: EngineRelease,
    settings: EngineSettings,
    pins: Mapping[str, str],
    *,
    env: Mapping[str, str],
    port: int,
    gated: bool,
) -> EngineCommand:
    """The finished command: settings by meaning first, then the user's own flags."""
    by_env = {name: value for name, value in pins.items() if _split_by_entry_point(value)}
    args = [*_setting_args(release, settings, pins), *_pin_args(release, pins, by_env)]
    told = {release.flags[name].env or name: value for name, value in by_env.items()}
    return EngineCommand(
        name=release.name,
        version=release.version,
        image=release.image,
        args=tuple(args),
        env=dict(sorted({**release.cache_env, **env, **told}.items())),
        settings=settings,
        gpus=settings.num_shard,
        shm_bytes=SHM_BYTES if settings.num_shard > 1 else 0,
        port=port,
        stop_timeout_s=STOP_TIMEOUT_S,
        secret_env=("HF_TOKEN",) if gated else (),
        metrics_path=release.metrics_path,
        request_counters=release.request_counters,
    )


def _setting_args(release: EngineRelease, settings: EngineSettings, pins: Mapping[str, str]) -> Iterator[str]:
    for names, value in _wanted(settings):
        name = next((name for name in names if name in release.flags), None)
        if value is not None and name is not None and not any(known in pins for known in names):
            yield name
            yield value


def _wanted(settings: EngineSettings) -> Iterator[tuple[tuple[str, ...], str | None]]:
    """Settings by meaning: the flag's names, newest first, and the value (None: leave it out)."""
    yield ("--model-id",), settings.model_id
    yield ("--revision",), settings.revision
    yield ("--num-shard",), str(settings.num_shard)
    yield ("--quantize",), settings.quantize
    yield ("--dtype",), settings.dtype
    yield ("--max-input-tokens", "--max-input-length"), str(settings.max_input_tokens)
    yield ("--max-total-tokens",), str(settings.max_total_tokens)
    yield ("--max-batch-prefill-tokens",), str(settings.max_batch_prefill_tokens)
    yield ("--max-batch-total-tokens",), str(settings.max_batch_total_tokens)
    yield ("--max-concurrent-requests",), str(settings.max_concurrent_requests)
    yield ("--cuda-graphs",), ",".join(map(str, settings.cuda_graphs))
    yield ("--usage-stats",), "off"


def _split_by_entry_point(value: str) -> bool:
    """The image's entry point forwards its arguments unquoted: such a value reaches the launcher only by variable."""
    return any(char.isspace() or char in _GLOB_CHARACTERS for char in value)


def _pin_args(release: EngineRelease, pins: Mapping[str, str], by_env: Mapping[str, str]) -> Iterator[str]:
    for name, value in sorted(pins.items()):
        if name in by_env:
            continue
        if not release.flags[name].switch:
            yield name
            yield value
        elif value == "true":
            yield name
