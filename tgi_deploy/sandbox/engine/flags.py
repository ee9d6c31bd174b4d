"""The launcher's arguments: parsed like its argument parser (clap) does, then checked before any download."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from tgi_deploy.sandbox.engine.failures import (
    ArgumentValidationError,
    HelpAskedError,
    LauncherError,
    PanicError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from tgi_deploy.values.engine import Flag

Value = str | int | float | bool | tuple[str, ...] | tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """`given` names the flags set on the command line or in the environment; the others hold defaults."""

    flags: Mapping[str, Flag]
    values: Mapping[str, Value]
    given: frozenset[str]

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        return None if value is None else str(value)

    def number(self, name: str) -> int | None:
        value = self.values.get(name)
        return value if isinstance(value, int) else None

    def required_number(self, name: str, default: int) -> int:
        """Return a flag's value; `default` is for releases without the flag."""
        value = self.number(name)
        return default if value is None else value

    def fraction(self, name: str, default: float) -> float:
        value = self.values.get(name)
        return float(value) if isinstance(value, int | float) else default

    def on(self, name: str) -> bool:
        return self.values.get(name) is True

    @property
    def input_limit(self) -> int | None:
        """Return `--max-input-tokens`, or the same under its older name."""
        limit = self.number("max-input-tokens")
        return self.number("max-input-length") if limit is None else limit

    def sharded(self) -> bool | None:
        value = self.values.get("sharded")
        return value if isinstance(value, bool) else None

    def debug(self) -> str:
        """Return the arguments as the launcher logs them at startup: everything, including the API key."""
        return "\n".join(("Args {", *self._fields(), "}"))

    def _fields(self) -> Iterator[str]:
        for name in _in_source_order(self.flags):
            yield from _field(name.replace("-", "_"), self.flags[name], self.values[name])


# Flags whose position in the source differs from `--help`: each comes after another one.
_AFTER: Final = {
    "kv-cache-dtype": "dtype",
    "prometheus-port": "port",
    "otlp-service-name": "otlp-endpoint",
    "api-key": "cors-allow-origin",
}


def _in_source_order(names: Collection[str]) -> list[str]:
    order = [name for name in names if name not in _AFTER or _AFTER[name] not in names]
    for name in names:
        if _AFTER.get(name) in order:
            order.insert(order.index(_AFTER[name]) + 1, name)
    return order


def _field(name: str, flag: Flag, value: Value) -> Iterator[str]:
    if value is None:
        yield f"    {name}: {'[]' if name == 'cors_allow_origin' else None},"
    elif flag.switch or flag.default is not None:
        yield f"    {name}: {_literal(flag, value)},"
    else:
        yield f"    {name}: Some("
        yield f"        {_literal(flag, value)},"
        yield "    ),"


def _literal(flag: Flag, value: Value) -> str:
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
_SHORT: Final = {"p": "port", "e": "env", "g": "graceful-termination-timeout"}
_RANGED_BITS: Final = {"uint16": 16, "uint32": 32}
_UNRANGED_LIMIT: Final = 2**64
_FLOAT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|nan|infinity)", re.IGNORECASE)


def parse(flags: Mapping[str, Flag], argv: Iterable[str], environ: Mapping[str, str]) -> Arguments:
    """Return the arguments: command line over environment over defaults.

    Raises:
        UsageError: with the launcher's message, exit 2.
        HelpAskedError: for `--help` and `--version`.
    """
    table = {_bare(flag.name): flag for flag in flags.values()}
    typed = _command_line(table, list(argv))
    given: dict[str, Value] = {}
    for name, flag in table.items():
        raw = typed.get(name)
        if raw is None and flag.env is not None and flag.env in environ:
            raw = [environ[flag.env]]
        if raw is not None:
            given[name] = _convert(flag, name, raw)
    defaults = {name: cast("Value", flag.default) for name, flag in table.items()}
    return Arguments(flags=table, values={**defaults, **given}, given=frozenset(given))


def _bare(name: str) -> str:
    return name.removeprefix("--")


def _command_line(table: Mapping[str, Flag], argv: list[str]) -> dict[str, list[str]]:
    typed: dict[str, list[str]] = {}
    position = 0
    while position < len(argv):
        name, inline = _split(table, argv[position])
        position += 1
        flag = table[name]
        if name in typed and not flag.kind.startswith("list"):
            raise _usage(f"the argument '{_signature(flag, name)}' cannot be used multiple times")
        if flag.switch:
            typed[name] = [_switched_on(name, inline)]
            continue
        if inline is None:
            if position >= len(argv) or argv[position].startswith("-"):
                raise _missing_value(table, flag, name, argv[position:])
            inline = argv[position]
            position += 1
        typed.setdefault(name, []).append(inline)
    return typed


def _split(table: Mapping[str, Flag], token: str) -> tuple[str, str | None]:
    if token in {"--help", "-h", "--version", "-V"}:
        raise HelpAskedError(_PROGRAM if token in {"--version", "-V"} else _help(table))
    if token.startswith("--") and len(token) > len("--"):
        name, equals, value = token[2:].partition("=")
        if name in table:
            return name, value if equals else None
        raise _unexpected(f"--{name}", table)
    short = _SHORT.get(token[1:2]) if token.startswith("-") else None
    if short is not None and short in table:
        return short, token[2:].removeprefix("=") or None
    raise _unexpected(token, table)


def _help(table: Mapping[str, Flag]) -> str:
    lines = [f"Usage: {_PROGRAM} [OPTIONS]", "", "Options:"]
    lines += [f"      {_signature(flag, name)}" for name, flag in table.items()]
    return "\n".join(lines)


def _signature(flag: Flag, name: str) -> str:
    return f"--{name}" if flag.switch else f"--{name} <{name.upper().replace('-', '_')}>"


def _switched_on(name: str, inline: str | None) -> str:
    if inline is not None:
        raise _usage(f"unexpected value '{inline}' for '--{name}' found; no more were expected")
    return "true"


def _missing_value(table: Mapping[str, Flag], flag: Flag, name: str, rest: list[str]) -> UsageError:
    if rest and not rest[0].startswith("--"):
        return _unexpected(rest[0], table)
    values = _possible_values(flag)
    return _usage(f"a value is required for '{_signature(flag, name)}' but none was supplied", values)


def _unexpected(token: str, table: Mapping[str, Flag]) -> UsageError:
    close = difflib.get_close_matches(_bare(token), table, n=1, cutoff=0.75) if token.startswith("--") else []
    tip = f"\n  tip: a similar argument exists: '--{close[0]}'" if close else ""
    every = "|".join(_signature(flag, name) for name, flag in table.items())
    return _usage(f"unexpected argument '{token}' found", tip, f"\nUsage: {_PROGRAM} <{every}>")


def _usage(message: str, *details: str) -> UsageError:
    parts = [f"error: {message}", *(detail for detail in details if detail)]
    return UsageError("\n".join([*parts, "", "For more information, try '--help'."]))


def _possible_values(flag: Flag) -> str:
    values = ("true", "false") if flag.kind == "bool" else flag.values
    return f"  [possible values: {', '.join(values)}]" if values else ""


def _convert(flag: Flag, name: str, raw: list[str]) -> Value:
    if not flag.kind.startswith("list"):
        return _single(flag, name, raw[-1])
    items = [item for text in raw for item in text.split(",")]
    return tuple(_unsigned(flag, name, item) for item in items) if flag.kind == "list[uint]" else tuple(items)


def _single(flag: Flag, name: str, raw: str) -> Value:
    if flag.kind == "string" or (flag.kind == "enum" and raw in flag.values):
        return raw
    if flag.kind == "bool" and raw in {"true", "false"}:
        return raw == "true"
    if flag.kind == "float" and _FLOAT.fullmatch(raw):
        return float(raw)
    if flag.kind in {"bool", "enum", "float"}:
        raise _invalid(flag, name, raw, "invalid float literal" if flag.kind == "float" else None)
    return _unsigned(flag, name, raw)


def _unsigned(flag: Flag, name: str, raw: str) -> int:
    digits = raw.removeprefix("+")
    if not raw:
        raise _invalid(flag, name, raw, "cannot parse integer from empty string")
    if not (digits.isascii() and digits.isdigit()):
        raise _invalid(flag, name, raw, "invalid digit found in string")
    value = int(digits)
    bits = _RANGED_BITS.get(flag.kind)
    if bits is not None and value >= 2**bits:
        raise _invalid(flag, name, raw, f"{value} is not in 0..={2**bits - 1}")
    if value >= _UNRANGED_LIMIT:
        raise _invalid(flag, name, raw, "number too large to fit in target type")
    return value


def _invalid(flag: Flag, name: str, raw: str, reason: str | None = None) -> UsageError:
    ending = f": {reason}" if reason else ""
    values = "" if reason else _possible_values(flag)
    return _usage(f"invalid value '{raw}' for '{_signature(flag, name)}'{ending}", values)


def validate(arguments: Arguments) -> None:
    """Apply the launcher's rules for values.

    Raises:
        ArgumentValidationError: with the launcher's message.
    """
    _validate_token_limits(arguments)
    if arguments.number("validation-workers") == 0:
        raise ArgumentValidationError("`validation_workers` must be > 0")


def _validate_token_limits(arguments: Arguments) -> None:
    if {"max-input-tokens", "max-input-length"} <= arguments.given:
        raise ArgumentValidationError(
            f"Both `max_input_tokens` ({arguments.number('max-input-tokens')}) and `max_input_length` "
            f"({arguments.number('max-input-length')}) are set. Please define only `max_input_tokens` as "
            "`max_input_length is deprecated for naming consistency."
        )
    given_input, total = arguments.input_limit, arguments.number("max-total-tokens")
    if given_input is not None and total is not None and given_input >= total:
        problem = f"`max_input_tokens`({given_input}) must be < `max_total_tokens`({total})"
        raise ArgumentValidationError(problem)
    batch_total = arguments.number("max-batch-total-tokens")
    if batch_total is not None and total is not None and total > batch_total:
        raise ArgumentValidationError(
            f"`max_total_tokens` must be <= `max_batch_total_tokens`. Given: {total} and {batch_total}"
        )


def validate_adapters(arguments: Arguments) -> None:
    """Check the form of adapters, which happens after the download.

    Raises:
        ArgumentValidationError: with the launcher's message.
    """
    for adapter in (arguments.text("lora-adapters") or "").split(","):
        if adapter.count("@") > 1:
            raise ArgumentValidationError(f"Invalid LoRA adapter format: {adapter}")


def resolve_shards(arguments: Arguments, devices: int | None) -> int:
    """Return how many processes the launcher starts. `--sharded false --num-shard n` is n, despite the help text.

    Raises:
        LauncherError: `NotEnoughCUDADevices` or `ArgumentValidation`.
        PanicError: with neither a number nor a variable that names devices.
    """
    wanted = arguments.number("num-shard")
    count = _shards_if_sharded(wanted, devices) if arguments.sharded() else _shards(arguments, wanted, devices)
    if count < 1:
        raise ArgumentValidationError("`num_shard` cannot be < 1")
    if count > 1 and arguments.text("quantize") == "exl2":
        raise ArgumentValidationError("Sharding is currently not supported with `exl2` quantization")
    return count


def _shards_if_sharded(wanted: int | None, devices: int | None) -> int:
    if wanted is not None:
        if wanted <= 1:
            raise ArgumentValidationError("`sharded` is true but `num_shard` <= 1")
        return wanted
    if devices is None:
        raise PanicError(
            "thread 'main' panicked at launcher/src/main.rs:\n"
            "--num-shard and CUDA_VISIBLE_DEVICES/NVIDIA_VISIBLE_DEVICES/ZE_AFFINITY_MASK are not set"
        )
    if devices <= 1:
        raise LauncherError(f'NotEnoughCUDADevices("`sharded` is true but only found {devices} CUDA devices")')
    return devices


def _shards(arguments: Arguments, wanted: int | None, devices: int | None) -> int:
    if wanted is not None:
        return wanted
    return 1 if arguments.sharded() is False else devices or 1
