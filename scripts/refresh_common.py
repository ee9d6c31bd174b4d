"""Helpers of the refresh scripts: catalog files with one entry per line, so that a refresh gives a readable diff."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def today() -> str:
    return dt.datetime.now(tz=dt.UTC).date().isoformat()


def load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def layout(content: Mapping[str, Any], *, by_entry: tuple[str, ...]) -> str:
    """Return JSON with a line for each top-level key, and for each entry of the tables or lists named in `by_entry`."""
    lines = []
    for key, value in content.items():
        if key in by_entry:
            lines.append(f" {_json(key)}: {_entries(value)}")
        else:
            lines.append(f" {_json(key)}: {_json(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _entries(value: Mapping[str, Any] | list[Any]) -> str:
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"  {_json(item)}" for item in value) + "\n ]"
    return "{\n" + ",\n".join(f"  {_json(key)}: {_json(item)}" for key, item in value.items()) + "\n }"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def report(path: Path, old: str, new: str, *, write: bool) -> None:
    """Print what a refresh changes, by lines, and write it with `--write`."""
    before, after = old.splitlines(), new.splitlines()
    known, found = set(before), set(after)
    print(f"{path}: {len(found - known)} lines changed or added, {len(known - found)} removed")
    for line in after:
        if line not in known:
            print(f"  + {line.strip()[:160]}")
    if write and old != new:
        path.write_text(new, encoding="utf-8")
