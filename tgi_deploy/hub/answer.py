"""Validates a hub's description of a model, because its names end up in paths and command lines."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tgi_deploy import bounded_json
from tgi_deploy.catalog.kept_models import COMMIT
from tgi_deploy.errors import InputError
from tgi_deploy.text import printable
from tgi_deploy.values.base import Value

# A petabyte: larger than any file, small enough to calculate with.
_MOST_BYTES: Final = 10**15
_LICENSE: Final = "license:"
_LONGEST_LICENSE: Final = 100


class HubAnswer(Value, frozen=True, kw_only=True):
    """`sizes`: bytes by file path, with `/`."""

    commit: str
    gated: bool
    license: str | None
    sizes: Mapping[str, int]


def read_answer(hub_id: str, content: bytes) -> HubAnswer:
    """Parse the hub's description of a model. Raises InputError `bad_hub_answer`."""
    try:
        info = bounded_json.parse_object(content)
        return HubAnswer(
            commit=_commit(info.get("sha")),
            gated=_switch(info.get("gated")) or _switch(info.get("private")),  # both need a token
            license=_license(info.get("tags")),
            sizes=MappingProxyType(dict(map(_file, _list(info.get("siblings"))))),
        )
    except ValueError as problem:
        raise bad_hub_answer(hub_id, str(problem)) from None


def bad_hub_answer(hub_id: str, problem: str) -> InputError:
    return InputError(
        "bad_hub_answer",
        f"reading {hub_id} from the hub: its answer can't be used: {problem}",
        hint="check HF_ENDPOINT, or use a folder with the model's config.json",
    )


def _commit(value: object) -> str:
    if not isinstance(value, str) or not COMMIT.fullmatch(value):
        raise ValueError("its commit is not 40 hexadecimal digits")
    return value


def _switch(value: object) -> bool:
    """`gated` is false, "auto" or "manual"."""
    if value is not None and not isinstance(value, bool | str):
        raise ValueError("its 'gated' is neither false nor a string")
    return bool(value)


def _license(tags: object) -> str | None:
    if not all(isinstance(tag, str) for tag in _list(tags)):
        raise ValueError("its tags are not strings")
    named = (tag.removeprefix(_LICENSE) for tag in _list(tags) if tag.startswith(_LICENSE) and tag.isprintable())
    return next((name for name in named if 0 < len(name) <= _LONGEST_LICENSE), None)


def _file(entry: object) -> tuple[str, int]:
    """Validate a file, whose name must not lead outside the model's folder."""
    name, size = (entry.get("rfilename"), entry.get("size")) if isinstance(entry, dict) else (None, None)
    if not isinstance(name, str) or not _stays_inside(name):
        raise ValueError(f"it lists an invalid file name, {printable(str(name))}")
    if size is None:
        return name, 0
    if type(size) is not int or not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"it lists an invalid size for {printable(name)}")
    return name, size


def _stays_inside(name: str) -> bool:
    parts = name.split("/")
    return "\0" not in name and not {"", ".", ".."}.intersection(parts)


def _list(value: object) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise ValueError("it has another type where a list is expected")
    return value or []
