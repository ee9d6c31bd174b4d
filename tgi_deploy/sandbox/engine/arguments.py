"""The launcher's arguments after parsing, by flag name without dashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

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
