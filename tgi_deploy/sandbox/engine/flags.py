"""The launcher's arguments: parsed as clap, its argument parser, does, then checked before any download."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tgi_deploy.values.engine import Flag


class ExitError(Exception):
    """The launcher exits: 0 after a stop signal or for `--help`, 1 as it gives up, 2 for usage, 101 for a panic."""

    def __init__(self, code: int, last_words: str = "") -> None:
        super().__init__(last_words)
        self.code = code


def given_up(variant: str) -> ExitError:
    return ExitError(1, f"Error: {variant}")


def invalid(message: str) -> ExitError:
    """Return the launcher's error for a value."""
    return given_up(f'ArgumentValidation("{message}")')


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
        order = [name for name in self.flags if _AFTER.get(name) not in self.flags]
        for name in self.flags:
            if name not in order:
                order.insert(order.index(_AFTER[name]) + 1, name)
        fields = (line for name in order for line in _field(name, self.flags[name], self.values[name]))
        return "\n".join(("Args {", *fields, "}"))


def _field(name: str, flag: Flag, value: object) -> Iterator[str]:
    member = name.replace("-", "_")
    if value is None:
        yield f"    {member}: {'[]' if name == 'cors-allow-origin' else None},"
    elif flag.switch or flag.default is not None:
        yield f"    {member}: {_literal(flag, value)},"
    else:
        yield from (f"    {member}: Some(", f"        {_literal(flag, value)},", "    ),")


def _literal(flag: Flag, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if flag.kind == "enum":
        return "".join(part.capitalize() for part in str(value).replace("_", "-").split("-"))
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_literal(flag, item) for item in value) + "]"
    return str(value)


_PROGRAM: Final = "text-generation-launcher"
_SHORT: Final = {"-p": "port", "-e": "env", "-g": "graceful-termination-timeout"}
_RANGED_BITS: Final = {"uint16": 16, "uint32": 32}
_FLOAT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|nan|infinity)", re.IGNORECASE)


def parse(flags: Mapping[str, Flag], argv: Iterable[str], environ: Mapping[str, str]) -> Arguments:
    """Return the arguments: command line over environment over defaults. Raises ExitError: 2, and 0 for `--help`."""
    table = {flag.name.removeprefix("--"): flag for flag in flags.values()}
    typed = _command_line(table, list(argv))
    for name, flag in table.items():
        if name not in typed and flag.env is not None and flag.env in environ:
            typed[name] = [environ[flag.env]]
    given = {name: _convert(table[name], name, raw) for name, raw in typed.items()}
    defaults = {name: flag.default for name, flag in table.items()}
    return Arguments(flags=table, values={**defaults, **given}, given=frozenset(given))


def _command_line(table: Mapping[str, Flag], words: list[str]) -> dict[str, list[str]]:
    typed: dict[str, list[str]] = {}
    while words:
        name, value = _split(table, words.pop(0))
        flag = table[name]
        if name in typed and not flag.kind.startswith("list"):
            raise _usage(f"the argument '{_signature(flag, name)}' cannot be used multiple times")
        if flag.switch:
            if value is not None:
                raise _usage(f"unexpected value '{value}' for '--{name}' found; no more were expected")
            value = "true"
        elif value is None:
            if not words or words[0].startswith("-"):
                if words and not words[0].startswith("--"):
                    raise _unexpected(words[0], table)
                problem = f"a value is required for '{_signature(flag, name)}' but none was supplied"
                raise _usage(problem, _possible_values(flag))
            value = words.pop(0)
        typed.setdefault(name, []).append(value)
    return typed


def _split(table: Mapping[str, Flag], token: str) -> tuple[str, str | None]:
    """Return the flag's name, and its value if the word holds one."""
    if token in {"--version", "-V"}:
        raise ExitError(0, _PROGRAM)
    if token in {"--help", "-h"}:
        options = (f"      {_signature(flag, name)}" for name, flag in table.items())
        raise ExitError(0, "\n".join([f"Usage: {_PROGRAM} [OPTIONS]", "", "Options:", *options]))
    name, equals, value = token.removeprefix("--").partition("=")
    if token.startswith("--") and name in table:
        return name, value if equals else None
    short = _SHORT.get(token[:2], "")
    if short in table:
        return short, token[2:].removeprefix("=") or None
    raise _unexpected(f"--{name}" if token.startswith("--") and name else token, table)


def _signature(flag: Flag, name: str) -> str:
    return f"--{name}" if flag.switch else f"--{name} <{name.upper().replace('-', '_')}>"


def _unexpected(token: str, table: Mapping[str, Flag]) -> ExitError:
    close = difflib.get_close_matches(token[2:], table, n=1, cutoff=0.75) if token.startswith("--") else []
    tip = f"\n  tip: a similar argument exists: '--{close[0]}'" if close else ""
    every = "|".join(_signature(flag, name) for name, flag in table.items())
    return _usage(f"unexpected argument '{token}' found", tip, f"\nUsage: {_PROGRAM} <{every}>")


def _usage(message: str, *details: str) -> ExitError:
    parts = [f"error: {message}", *filter(None, details), "", "For more information, try '--help'."]
    return ExitError(2, "\n".join(parts))


def _possible_values(flag: Flag) -> str:
    values = ("true", "false") if flag.kind == "bool" else flag.values
    return f"  [possible values: {', '.join(values)}]" if values else ""


def _convert(flag: Flag, name: str, raw: list[str]) -> object:
    if not flag.kind.startswith("list"):
        return _single(flag, name, raw[-1])
    items = [item for text in raw for item in text.split(",")]
    return tuple(_unsigned(flag, name, item) for item in items) if flag.kind == "list[uint]" else tuple(items)


def _single(flag: Flag, name: str, raw: str) -> object:
    if flag.kind == "string" or (flag.kind == "enum" and raw in flag.values):
        return raw
    if flag.kind == "bool" and raw in {"true", "false"}:
        return raw == "true"
    if flag.kind == "float" and _FLOAT.fullmatch(raw):
        return float(raw)
    if flag.kind in {"bool", "enum", "float"}:
        raise _invalid(flag, name, raw, "invalid float literal" if flag.kind == "float" else "")
    return _unsigned(flag, name, raw)


def _unsigned(flag: Flag, name: str, raw: str) -> int:
    digits, bits = raw.removeprefix("+"), _RANGED_BITS.get(flag.kind, 64)
    if not raw:
        raise _invalid(flag, name, raw, "cannot parse integer from empty string")
    if not (digits.isascii() and digits.isdigit()):
        raise _invalid(flag, name, raw, "invalid digit found in string")
    if int(digits) >= 2**bits:
        ranged = f"{int(digits)} is not in 0..={2**bits - 1}"
        raise _invalid(
            flag, name, raw, ranged if flag.kind in _RANGED_BITS else "number too large to fit in target type"
        )
    return int(digits)


def _invalid(flag: Flag, name: str, raw: str, reason: str) -> ExitError:
    message = f"invalid value '{raw}' for '{_signature(flag, name)}'"
    return _usage(f"{message}: {reason}") if reason else _usage(message, _possible_values(flag))


def validate(arguments: Arguments) -> None:
    """Apply the launcher's rules for values. Raises ExitError with its message."""
    given_input, total = arguments.input_limit, arguments.get("max-total-tokens")
    batch_total = arguments.get("max-batch-total-tokens")
    if {"max-input-tokens", "max-input-length"} <= arguments.given:
        raise invalid(
            f"Both `max_input_tokens` ({arguments.get('max-input-tokens')}) and `max_input_length` "
            f"({arguments.get('max-input-length')}) are set. Please define only `max_input_tokens` as "
            "`max_input_length is deprecated for naming consistency."
        )
    if given_input is not None and total is not None and given_input >= total:
        raise invalid(f"`max_input_tokens`({given_input}) must be < `max_total_tokens`({total})")
    if batch_total is not None and total is not None and total > batch_total:
        raise invalid(f"`max_total_tokens` must be <= `max_batch_total_tokens`. Given: {total} and {batch_total}")
    if arguments.get("validation-workers") == 0:
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
    wanted: int | None = arguments.get("num-shard")
    if arguments.get("sharded"):
        if wanted is None and devices is None:
            raise ExitError(
                101,
                "thread 'main' panicked at launcher/src/main.rs:\n"
                "--num-shard and CUDA_VISIBLE_DEVICES/NVIDIA_VISIBLE_DEVICES/ZE_AFFINITY_MASK are not set",
            )
        if wanted is not None and wanted <= 1:
            raise invalid("`sharded` is true but `num_shard` <= 1")
        if wanted is None and (devices or 0) <= 1:
            raise given_up(f'NotEnoughCUDADevices("`sharded` is true but only found {devices} CUDA devices")')
    found = 1 if arguments.get("sharded") is False else devices or 1
    count = found if wanted is None else wanted
    if count < 1:
        raise invalid("`num_shard` cannot be < 1")
    if count > 1 and arguments.get("quantize") == "exl2":
        raise invalid("Sharding is currently not supported with `exl2` quantization")
    return count
