"""Validates a profile's file, and drafts one for a model."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import bounded_files
from tgi_deploy.catalog.shapes import shape_table
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts, resolve
from tgi_deploy.values.base import Value, as_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.model import Profile

_START: Final = "# The model's id on the hub (org/name); weights are downloaded from there."
_END: Final = """
# Defaults, unless the command line or the environment sets something else.
[defaults]
# context = 8192 prefer = "quality"
"""


def read_profile(file: Path, open_catalog: Callable[[Path], Catalog]) -> Profile:
    """Return the profile in a file, with validated defaults. Raises InputError."""
    if file.suffix != ".toml":
        raise InputError("bad_profile", f"{str(file)!r} is not a .toml file", hint="a profile is a file like mine.toml")
    with tempfile.TemporaryDirectory(prefix="tgi-deploy-") as folder:
        copy = Path(folder) / "models" / file.name
        copy.parent.mkdir()
        copy.write_bytes(_bytes_of(file))
        try:
            return resolve(OptionTexts(model=file.stem), {}, open_catalog(Path(folder))).model
        except InputError as error:
            raise _named(error, f"models/{file.name}", str(file)) from error.__cause__


def _named(error: InputError, copy: str, file: str) -> InputError:
    """Return the error with the user's path in place of the copy's."""
    return error.copy(message=error.message.replace(copy, file), hint=error.hint and error.hint.replace(copy, file))


def _bytes_of(file: Path) -> bytes:
    try:
        return bounded_files.read_bytes(file, most=bounded_files.MIB)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            "unreadable_path", f"reading the profile {str(file)!r} failed: {reason}", hint="check the path"
        ) from error


def draft(profile: Profile) -> str:
    """Return the text of a profile: the model's full shape, and defaults for the user to fill in."""
    shape = shape_table(profile.model)
    quantization = shape.pop("quantization", None)
    head = {"hub_id": profile.model.hub_id, "summary": profile.summary}
    if profile.notice is not None:
        head["notice"] = profile.notice
    lines = [_START, *_assignments(head if profile.chat else {**head, "chat": False})]
    lines += ["", "[shape]", *_assignments(shape)]
    if quantization is not None:
        lines += ["", "[shape.quantization]", *_assignments(quantization)]
    for repository in profile.quantized:
        lines += ["", "[[quantized]]", *_assignments(entry_document(repository))]
    return "\n".join(lines) + "\n" + _END


def _assignments(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield TOML assignments. TOML strings, numbers, booleans and lists look like those of JSON."""
    return (f"{key} = {json.dumps(value)}" for key, value in table.items() if value is not None)


def entry_document(entry: Value) -> dict[str, Any]:
    """Return a catalog entry as nested dicts by field name."""
    return {name: _field(name, item) for name, item in as_dict(entry).items()}


def _field(name: str, value: object) -> object:
    if "compute_capability" in name and isinstance(value, tuple):
        return ".".join(map(str, value))
    return _plain(value)


def _plain(value: object) -> object:
    if isinstance(value, Value):
        return entry_document(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
