"""What a hub answers about a model: checked, because it names files here, there and in a command line."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tgi_deploy import bounded_json
from tgi_deploy.catalog.kept_models import COMMIT
from tgi_deploy.errors import InputError
from tgi_deploy.text import printable
from tgi_deploy.values.base import Value

# A petabyte: more than any file has, and small enough to calculate with.
_MOST_BYTES: Final = 10**15
_LICENSE: Final = "license:"
_LONGEST_LICENSE: Final = 100


class HubAnswer(Value, frozen=True, kw_only=True):
    """`sizes`: of every file in bytes, by its path with `/`."""

    commit: str
    gated: bool
    license: str | None
    sizes: Mapping[str, int]


def read_answer(hub_id: str, content: bytes) -> HubAnswer:
    """Read the hub's description of a model. Raises InputError `bad_hub_answer`."""
    try:
        info = bounded_json.parse_object(content)
        return HubAnswer(
            commit=_commit(info.get("sha")),
            gated=_switch(info.get("gated")) or _switch(info.get("private")),  # both need a token, everywhere
            license=_license(info.get("tags")),
            sizes=MappingProxyType(dict(map(_file, _list(info.get("siblings"))))),
        )
    except ValueError as problem:
        raise bad_hub_answer(hub_id, str(problem)) from None


def bad_hub_answer(hub_id: str, problem: str) -> InputError:
    return InputError(
        "bad_hub_answer",
        f"Reading {hub_id} from the hub: its answer can't be used: {problem}.",
        hint="Check HF_ENDPOINT, or give a directory with the model's config.json.",
    )


def _commit(value: object) -> str:
    if not isinstance(value, str) or not COMMIT.fullmatch(value):
        raise ValueError("its commit is not 40 hexadecimal digits")
    return value


def _switch(value: object) -> bool:
    """`gated` is false, "auto" or "manual"."""
    if value is not None and not isinstance(value, bool | str):
        raise ValueError("whether the model is gated is not a word")
    return bool(value)


def _license(tags: object) -> str | None:
    if not all(isinstance(tag, str) for tag in _list(tags)):
        raise ValueError("its tags are not texts")
    named = (tag.removeprefix(_LICENSE) for tag in _list(tags) if tag.startswith(_LICENSE) and tag.isprintable())
    return next((name for name in named if 0 < len(name) <= _LONGEST_LICENSE), None)


def _file(entry: object) -> tuple[str, int]:
    """A name stays in the model's folder, whatever is made of it."""
    name, size = (entry.get("rfilename"), entry.get("size")) if isinstance(entry, dict) else (None, None)
    if not isinstance(name, str) or not _stays_inside(name):
        raise ValueError(f"it lists a file that can't be one, {printable(str(name))}")
    if size is None:
        return name, 0
    if type(size) is not int or not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"it lists no possible size for {printable(name)}")
    return name, size


def _stays_inside(name: str) -> bool:
    parts = name.split("/")
    return "\0" not in name and not {"", ".", ".."}.intersection(parts)


def _list(value: object) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise ValueError("it holds something else where a list should be")
    return value or []
