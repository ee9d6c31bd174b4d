"""What the engine's launcher, shard and router reject, implemented a second time: argv in, errors out.

Source: TGI `launcher/src/main.rs`, `server/.../cli.py`, `router/src/server.rs`, read at 3.3.7 and 2.0.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.values.container import Container
    from tgi_deploy.values.engine import Flag

_BITS = {"uint": 64, "uint16": 16, "uint32": 32, "uint64": 64}
_TAKES_DTYPE = {"bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4"}
_ALWAYS_SAID = (
    "--model-id",
    "--num-shard",
    "--max-total-tokens",
    "--max-batch-prefill-tokens",
    "--max-batch-total-tokens",
)


def complaints(command: Container, release: TgiRelease, *, prefills_in_chunks: bool) -> tuple[str, ...]:
    parsed, unparsed = parse(command.args, release.flags)
    if unparsed:
        return unparsed
    missing = tuple(f"{name} is left to guess" for name in _ALWAYS_SAID if name not in parsed)
    return missing or tuple(_refusals(parsed, command, prefills_in_chunks=prefills_in_chunks))


def parse(args: tuple[str, ...], flags: Mapping[str, Flag]) -> tuple[dict[str, str], tuple[str, ...]]:
    parsed: dict[str, str] = {}
    wrong: list[str] = []
    words = iter(args)
    for word in words:
        flag = flags.get(word)
        if flag is None:
            return parsed, (f"unexpected argument {word}",)
        if word in parsed:
            wrong.append(f"{word} cannot be used multiple times")
        parsed[word] = "true" if flag.switch else next(words, "")
        if not flag.switch and not _is_a(flag, parsed[word]):
            wrong.append(f"invalid value {parsed[word]!r} for {word}")
    return parsed, tuple(wrong)


def _is_a(flag: Flag, value: str) -> bool:
    if flag.kind == "enum":
        return value in flag.values
    if flag.kind in _BITS:
        return value.isdecimal() and int(value) < 2 ** _BITS[flag.kind]
    if flag.kind == "list[uint]":
        return all(part.isdecimal() for part in value.split(","))
    if flag.kind == "bool":
        return value in {"true", "false"}
    if flag.kind == "float":
        return float(value) == float(value)
    return bool(value) and not value.startswith("--") and " " not in value


def _refusals(parsed: Mapping[str, str], command: Container, *, prefills_in_chunks: bool) -> Iterator[str]:
    if "--max-input-tokens" in parsed and "--max-input-length" in parsed:
        yield "both names of the input length"
    longest_input = int(parsed.get("--max-input-tokens") or parsed.get("--max-input-length") or 0)
    total, prefill = int(parsed["--max-total-tokens"]), int(parsed["--max-batch-prefill-tokens"])
    batch_total, shards = int(parsed["--max-batch-total-tokens"]), int(parsed["--num-shard"])
    if not 0 < longest_input < total:
        yield "`max_input_tokens` must be < `max_total_tokens`"
    if total > batch_total:
        yield "`max_total_tokens` must be <= `max_batch_total_tokens`"
    if prefill > batch_total:
        yield "`max_batch_prefill_tokens` must be <= `max_batch_total_tokens`"
    if prefill < longest_input and not prefills_in_chunks:
        yield "`max_batch_prefill_tokens` must be >= `max_input_tokens`"
    if shards < 1 or shards != command.accelerators or (shards > 1) != (command.shm_bytes > 0):
        yield "each process is one gpu, and several of them need shared memory"
    yield from _refused_methods(parsed, shards)


def _refused_methods(parsed: Mapping[str, str], shards: int) -> Iterator[str]:
    method = parsed.get("--quantize")
    if method == "exl2" and shards > 1:
        yield "sharding is currently not supported with `exl2` quantization"
    if method is not None and method not in _TAKES_DTYPE and "--dtype" in parsed:
        yield "only 1 can be set between `dtype` and `quantize`"
    if parsed.get("--validation-workers") == "0":
        yield "`validation_workers` must be > 0"
