"""Reads the tables for log analysis: those of an engine, and those of `profiles/diagnosis/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import bounded_files, bounded_json
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_MACHINE: Final = "diagnosis/machine.json"
_TOOL_CODES: Final = "diagnosis/codes.json"


def read_phases(engine: str, *, user_dir: Path | None = None) -> Mapping[str, Any]:
    """Return the tables for logs of an engine on a machine, as plain data; `codes` has all known failures.

    The engine's and the machine's tables are lists with the same names. A user's file replaces ours.

    Raises:
        InputError: `bad_profile` when a file can't be read as a JSON object.
    """
    machine, own = _read(_MACHINE, user_dir), _read(f"engines/{engine}/phases.json", user_dir)
    lists = {key: _joined(machine.get(key), own.get(key)) for key in {**machine, **own}}
    return {**lists, "phases": _phases(machine, own), "codes": read_failures(engine, user_dir=user_dir)}


def _joined(ours: object, own: object) -> object:
    """Return both lists concatenated; for other types the engine's value, if any."""
    return [*ours, *own] if isinstance(ours, list) and isinstance(own, list) else (ours if own is None else own)


def _phases(machine: Mapping[str, Any], own: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the machine's phases, which are complete, each with the engine's patterns added."""
    texts = {item.get("name"): item for item in _objects(own.get("phases"))}
    return [
        {key: _joined(item.get(key), texts.get(item.get("name"), {}).get(key)) for key in item}
        for item in _objects(machine.get("phases"))
    ]


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def logged_engines() -> tuple[str, ...]:
    """Return the engines with log tables."""
    return tuple(sorted(path.parent.name for path in (profiles_dir() / "engines").glob("*/phases.json")))


def read_signs() -> dict[str, list[str]]:
    """Return patterns of typical log lines, by engine. Raises InputError `bad_profile`."""
    return {name: _read(f"engines/{name}/phases.json", None).get("signs", []) for name in logged_engines()}


def read_failures(engine: str, *, user_dir: Path | None = None) -> list[dict[str, Any]]:
    """Return all failures that an engine's logs can show, as plain data, in the table's order.

    The engine's patterns and remedy for a failure are added to those common to all engines. `versions` are the engine
    versions of the patterns. Raises InputError `bad_profile`.
    """
    below = f"engines/{engine}/failures.json"
    own = {item.get("code"): item for item in _codes(below, user_dir)}
    versions = _read(below, user_dir).get("versions", "all")
    # If a line matches two causes, the first table wins.
    tables = _read(_MACHINE, None)["tables"]
    shared = [item for name in tables for item in _codes(f"diagnosis/{name}.json", user_dir)]
    joined = [_failure(item, own.pop(item.get("code"), {})) for item in shared]
    return [{"versions": versions, **item} for item in (*joined, *own.values())]


def _failure(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    # If several patterns match a line, the first wins: the engine's own, with its own remedy.
    texts = [*own.get("signatures", ()), *shared.get("signatures", ())]
    return {**shared, **own, "signatures": texts}


def read_tool_codes() -> list[dict[str, str]]:
    """Return the tool's errors and rejections: code, kind, meaning, remedy. Raises InputError `bad_profile`."""
    return _codes(_TOOL_CODES, None)


def read_former_codes() -> dict[str, str]:
    """Return the codes of earlier versions, each with the one that replaces it. Raises InputError `bad_profile`."""
    former = _read(_TOOL_CODES, None).get("former")
    return former if isinstance(former, dict) else {}


def _codes(below: str, user_dir: Path | None) -> list[dict[str, Any]]:
    document = _read(below, user_dir)
    codes = document.get("codes")
    if not isinstance(codes, list) or _objects(codes) != codes:
        raise _bad(_path(below, user_dir), "it has no list 'codes' of tables")
    return _objects(codes)


def read_edits(*, user_dir: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Return the plan changes that can fix a failure, by its code, in the order to try them.

    Raises:
        InputError: `bad_profile`.
    """
    below = "diagnosis/heal.json"
    edits = _read(below, user_dir).get("edits")
    if not isinstance(edits, dict) or not all(map(_is_list_of_texts, edits.values())):
        raise _bad(_path(below, user_dir), "'edits' is not a table of lists of names")
    return {code: tuple(names) for code, names in edits.items()}


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _read(below: str, user_dir: Path | None) -> dict[str, Any]:
    path = _path(below, user_dir)
    try:
        return bounded_json.parse_object(bounded_files.read_bytes(path, most=bounded_files.MIB))
    except (OSError, ValueError) as error:
        raise _bad(path, str(error)) from error


def _path(below: str, user_dir: Path | None) -> Path:
    if user_dir is not None and (user_dir / below).is_file():
        return user_dir / below
    return profiles_dir() / below


def _bad(path: Path, reason: str) -> InputError:
    return InputError("bad_profile", f"reading the phase table {path}: {reason}", hint="fix the file, or remove it")
