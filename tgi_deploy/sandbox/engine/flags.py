"""The launcher's arguments: parsed like clap, its argument parser, then checked before any download."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.values.engine import Flag


class ExitError(Exception):
    """The launcher exits: 0 after a stop signal or `--help`, 1 for an error, 2 for bad usage, 101 for a panic."""

    def __init__(self, code: int, last_words: str = "") -> None:
        super().__init__(last_words)
        self.code = code


def launcher_error(variant: str) -> ExitError:
    return ExitError(1, f"Error: {variant}")


def invalid(message: str) -> ExitError:
    """Return the launcher's error for a value."""
    return launcher_error(f'ArgumentValidation("{message}")')


# Variables that name the GPUs, in the order of `launcher/src/main.rs`.
DEVICE_VARIABLES: Final = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
# Flags whose position in the source differs from `--help`: each comes after another one.
_AFTER: Final = {
    "kv-cache-dtype": "dtype",
    "prometheus-port": "port",
    "otlp-service-name": "otlp-endpoint",
    "api-key": "cors-allow-origin",
}


class Arguments(Frozen, frozen=True, kw_only=True):
    """`given` names the flags set on the command line or in the environment; the others hold defaults."""

    flags: Mapping[str, Flag]
    values: Mapping[str, Any]
    given: frozenset[str]

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 -- each flag has its own type
        """Return a flag's value; `default` if it has none or the release lacks the flag."""
        value = self.values.get(name)
        return default if value is None else value

    @property
    def input_limit(self) -> int | None:
        """Return `--max-input-tokens`, or the same under its older name."""
        limit: int | None = self.get("max-input-tokens", self.get("max-input-length"))
        return limit

    def debug(self) -> str:
        """Return the arguments as the launcher logs them at startup: everything, including the API key."""
        place = {name: index for index, name in enumerate(self.flags)}
        order = sorted(place, key=lambda name: (place.get(_AFTER.get(name, ""), place[name]), name in _AFTER))
        fields = (f"    {name.replace('-', '_')}: {_shown(self.flags[name], self.values[name])}," for name in order)
        return "\n".join(("Args {", *fields, "}"))


def _shown(flag: Flag, value: object) -> str:
    """Format a value like Rust."""
    if value is None:
        return "[]" if flag.name == "--cors-allow-origin" else "None"
    shown = json.dumps(value, ensure_ascii=False)
    if flag.kind == "enum":
        shown = "".join(part.capitalize() for part in str(value).replace("_", "-").split("-"))
    return shown if flag.switch or flag.default is not None else f"Some(\n        {shown},\n    )"


_PROGRAM: Final = "text-generation-launcher"
_SHORT: Final = {"-p": "--port", "-e": "--env", "-g": "--graceful-termination-timeout"}
_RANGED_BITS: Final = {"uint16": 16, "uint32": 32}
_VALUES: Final = {"bool": ("true", "false")}
_EMPTY: Final = "cannot parse integer from empty string"
_TOO_LARGE: Final = "number too large to fit in target type"
_FLOAT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|nan|infinity)", re.IGNORECASE)


def parse(flags: Mapping[str, Flag], argv: Iterable[str], environ: Mapping[str, str]) -> Arguments:
    """Return the arguments: command line over environment over defaults. Raises ExitError: 2, and 0 for `--help`."""
    typed = {flag.name: [environ[flag.env]] for flag in flags.values() if flag.env and flag.env in environ}
    typed.update(_command_line(flags, list(argv)))
    given = {name.removeprefix("--"): _convert(flags[name], raw) for name, raw in typed.items()}
    table = {name.removeprefix("--"): flag for name, flag in flags.items()}
    defaults = {name: flag.default for name, flag in table.items()}
    return Arguments(flags=table, values={**defaults, **given}, given=frozenset(given))


def _command_line(flags: Mapping[str, Flag], words: list[str]) -> dict[str, list[str]]:
    typed: dict[str, list[str]] = {}
    while words:
        flag, value = _split(flags, words.pop(0))
        if flag.name in typed and not flag.kind.startswith("list"):
            raise _usage(f"the argument '{_signature(flag)}' cannot be used multiple times")
        if flag.switch:
            if value is not None:
                raise _usage(f"unexpected value '{value}' for '{flag.name}' found; no more were expected")
            value = "true"
        elif value is None:
            if words and words[0].startswith("-") and not words[0].startswith("--"):
                raise _unexpected(words[0], flags)
            if not words or words[0].startswith("--"):
                raise _invalid(flag, f"a value is required for '{_signature(flag)}' but none was supplied")
            value = words.pop(0)
        typed.setdefault(flag.name, []).append(value)
    return typed


def _split(flags: Mapping[str, Flag], word: str) -> tuple[Flag, str | None]:
    """Return the flag, and its value if the word holds one."""
    if word in {"--version", "-V"}:
        raise ExitError(0, _PROGRAM)
    if word in {"--help", "-h"}:
        options = (f"      {_signature(flag)}" for flag in flags.values())
        raise ExitError(0, "\n".join([f"Usage: {_PROGRAM} [OPTIONS]", "", "Options:", *options]))
    name, equals, value = word.partition("=")
    if name in flags:
        return flags[name], value if equals else None
    short = _SHORT.get(word[:2], "")
    if short in flags:
        return flags[short], word[2:].removeprefix("=") or None
    raise _unexpected(name if name.startswith("--") and name != "--" else word, flags)


def _signature(flag: Flag) -> str:
    return flag.name if flag.switch else f"{flag.name} <{flag.name[2:].upper().replace('-', '_')}>"


def _unexpected(word: str, flags: Mapping[str, Flag]) -> ExitError:
    close = difflib.get_close_matches(word, flags, n=1, cutoff=0.75) if word.startswith("--") else []
    tip = f"\n  tip: a similar argument exists: '{close[0]}'" if close else ""
    every = "|".join(map(_signature, flags.values()))
    return _usage(f"unexpected argument '{word}' found", tip, f"\nUsage: {_PROGRAM} <{every}>")


def _usage(message: str, *details: str) -> ExitError:
    parts = [f"error: {message}", *filter(None, details), "", "For more information, try '--help'."]
    return ExitError(2, "\n".join(parts))


def _invalid(flag: Flag, problem: str, reason: str = "") -> ExitError:
    """Return the error of a value, with the possible ones unless there is a reason."""
    values = "" if reason else ", ".join(_VALUES.get(flag.kind, flag.values))
    return _usage(f"{problem}: {reason}" if reason else problem, f"  [possible values: {values}]" if values else "")


def _convert(flag: Flag, raw: list[str]) -> object:
    if not flag.kind.startswith("list["):
        return _single(flag, flag.kind, raw[-1])
    kind = flag.kind.removeprefix("list[").removesuffix("]")
    return tuple(_single(flag, kind, item) for text in raw for item in text.split(","))


def _single(flag: Flag, kind: str, raw: str) -> object:
    problem, most = f"invalid value '{raw}' for '{_signature(flag)}'", 2 ** _RANGED_BITS.get(kind, 64) - 1
    if kind == "string" or raw in _VALUES.get(kind, flag.values):
        return raw == "true" if kind == "bool" else raw
    if kind in {"bool", "enum"}:
        raise _invalid(flag, problem)
    if kind == "float":
        if _FLOAT.fullmatch(raw):
            return float(raw)
        raise _invalid(flag, problem, "invalid float literal")
    if not re.fullmatch(r"\+?[0-9]+", raw):
        raise _invalid(flag, problem, "invalid digit found in string" if raw else _EMPTY)
    if int(raw) > most:
        raise _invalid(flag, problem, f"{int(raw)} is not in 0..={most}" if kind in _RANGED_BITS else _TOO_LARGE)
    return int(raw)


def validate(arguments: Arguments) -> None:
    """Apply the launcher's rules for values. Raises ExitError with its message."""
    get, given_input = arguments.get, arguments.input_limit
    total, batch_total = get("max-total-tokens"), get("max-batch-total-tokens")
    if {"max-input-tokens", "max-input-length"} <= arguments.given:
        raise invalid(
            f"Both `max_input_tokens` ({get('max-input-tokens')}) and `max_input_length` ({get('max-input-length')}) "
            "are set. Please define only `max_input_tokens` as `max_input_length is deprecated for naming consistency."
        )
    if given_input is not None and total is not None and given_input >= total:
        raise invalid(f"`max_input_tokens`({given_input}) must be < `max_total_tokens`({total})")
    if batch_total is not None and total is not None and total > batch_total:
        raise invalid(f"`max_total_tokens` must be <= `max_batch_total_tokens`. Given: {total} and {batch_total}")
    if get("validation-workers") == 0:
        raise invalid("`validation_workers` must be > 0")


def validate_adapters(arguments: Arguments) -> None:
    """Check the form of adapters, which happens after the download. Raises ExitError."""
    for adapter in arguments.get("lora-adapters", "").split(","):
        if adapter.count("@") > 1:
            raise invalid(f"Invalid LoRA adapter format: {adapter}")


def resolve_shards(arguments: Arguments, devices: int | None) -> int:
    """Return how many processes the launcher starts. `--sharded false --num-shard n` is n, despite the help text.

    `devices`: how many a variable names, None without one. Raises ExitError.
    """
    wanted, sharded = arguments.get("num-shard"), arguments.get("sharded")
    if sharded and wanted is None and devices is None:
        what = f"--num-shard and {'/'.join(DEVICE_VARIABLES)} are not set"
        raise ExitError(101, f"thread 'main' panicked at launcher/src/main.rs:\n{what}")
    if sharded and wanted is None and (devices or 0) <= 1:
        raise launcher_error(f'NotEnoughCUDADevices("`sharded` is true but only found {devices} CUDA devices")')
    if sharded and wanted is not None and wanted <= 1:
        raise invalid("`sharded` is true but `num_shard` <= 1")
    found = 1 if sharded is False else devices or 1
    count: int = found if wanted is None else wanted
    if count < 1:
        raise invalid("`num_shard` cannot be < 1")
    if count > 1 and arguments.get("quantize") == "exl2":
        raise invalid("Sharding is currently not supported with `exl2` quantization")
    return count
