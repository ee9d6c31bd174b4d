"""Convert a release's saved `text-generation-launcher --help` into the flags that changed since another release.

    docker run --rm IMAGE --help > help.txt
    python scripts/refresh_flags.py help.txt --extends 3.3.7 --version 3.3.8 --released 2026-01-31 [--write]

The help does not specify whether a value is a number or a text: a known flag keeps its kind, a new one gets the
likeliest and is printed, to be checked by hand.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from refresh_common import layout, report

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.values.engine import Flag, FlagKind
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OPTION: Final = re.compile(r" {2,6}(?:-(?P<short>\w), )?(?P<name>--[a-z][a-z0-9-]*)(?: <(?P<value>[A-Z0-9_]+)>)?$")
_OF_CLAP: Final = frozenset({"--help", "--version"})
_IMAGE: Final = "ghcr.io/huggingface/text-generation-inference"


def flags_of(help_text: str, known: Mapping[str, Flag]) -> dict[str, Flag]:
    """Return every option of a clap help text, in its order."""
    return {
        name: _flag(name, takes_value, body, known.get(name))
        for name, takes_value, body in _options(help_text)
        if name not in _OF_CLAP
    }


def _options(help_text: str) -> Iterator[tuple[str, bool, str]]:
    """Yield (name, whether it takes a value, the lines below it) of each option."""
    name, takes_value, body = "", False, list[str]()
    for line in help_text.splitlines():
        match = _OPTION.match(line)
        if match is None:
            body.append(line)
            continue
        if name:
            yield name, takes_value, "\n".join(body)
        name, takes_value, body = match["name"], match["value"] is not None, []
    if name:
        yield name, takes_value, "\n".join(body)


def _flag(name: str, takes_value: bool, body: str, known: Flag | None) -> Flag:  # noqa: FBT001 -- a fact read from a line
    env = re.search(r"\[env: (\w+)=", body)
    values = _values(body)
    default = re.search(r"\[default: (.*)\]", body)
    kind = known.kind if known is not None else _likely_kind(takes_value, values, default[1] if default else None)
    return Flag(
        name=name,
        env=env[1] if env else None,
        kind=kind,
        values=values if kind == "enum" else (),
        default=_typed(default[1] if default else None, kind, switch=not takes_value),
        switch=not takes_value,
    )


def _values(body: str) -> tuple[str, ...]:
    short = re.search(r"\[possible values: (.*)\]", body)
    if short:
        return tuple(short[1].split(", "))
    _, _, long = body.partition("Possible values:")
    return tuple(re.findall(r"^ +- ([\w-]+):? ", long.partition("\n\n")[0].partition("[env")[0], re.MULTILINE))


def _likely_kind(takes_value: bool, values: tuple[str, ...], default: str | None) -> FlagKind:  # noqa: FBT001 -- as above
    if not takes_value or set(values) == {"true", "false"}:
        return "bool"
    if values:
        return "enum"
    if default is not None and re.fullmatch(r"\d+", default):
        return "uint"
    return "float" if default is not None and re.fullmatch(r"\d+\.\d+", default) else "string"


def _typed(default: str | None, kind: str, *, switch: bool) -> str | int | float | bool | None:
    if switch:
        return False
    if default is None or kind == "string":
        return default
    if kind.startswith("uint"):
        return int(default)
    return float(default) if kind == "float" else default


def entry(flag: Flag) -> dict[str, Any]:
    """Return a flag as in a release file: only what differs from the defaults."""
    found = {"kind": flag.kind, "env": flag.env, "values": list(flag.values), "default": flag.default}
    if flag.switch:
        found["switch"] = True
    return {key: value for key, value in found.items() if value not in (None, [])}


def difference(old: Mapping[str, Flag], new: Mapping[str, Flag]) -> dict[str, Any]:
    """Return the flags of a release file that extends the release with the `old` ones."""
    changed = {name: entry(flag) for name, flag in new.items() if old.get(name) != flag}
    removed = [name for name in old if name not in new]
    return ({"flags_removed": removed} if removed else {}) | ({"flags": changed} if changed else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("help_text", type=Path)
    parser.add_argument("--extends", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--released", required=True, metavar="YYYY-MM-DD")
    parser.add_argument("--write", action="store_true", help="write the release file instead of only printing it")
    options = parser.parse_args()
    old = open_catalog().release(options.extends).flags
    new = flags_of(options.help_text.read_text(encoding="utf-8"), old)
    for name in new:
        if name not in old:
            print(f"{name} is new: check its kind, {new[name].kind}")
    content = {
        "version": options.version, "released": options.released, "extends": options.extends,
        "image": f"{_IMAGE}:{options.version}", "source": f"--help of {options.version}", **difference(old, new),
    }  # fmt: skip
    path = profiles_dir() / "engines" / "tgi" / "releases" / f"{options.version}.json"
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    report(path, known, layout(content, by_entry=("flags",)), write=options.write)


if __name__ == "__main__":
    main()
