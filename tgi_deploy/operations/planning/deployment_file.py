"""Reads and writes the file for `up -f`: one or several deployments, with the options of `up` as keys."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.text import printable, quoted
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.names import check_name, default_name
from tgi_deploy.values.plan_options import PLAN_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tgi_deploy.values.options import Option

Kind = Literal["number", "text", "texts", "switch"]

_START: Final = """\
# Bring it up with: tgi-deploy up -f THIS_FILE. The keys are the options of `up`, with _ for -; several deployments
# are tables: [deployments.NAME]. No secrets here: name the variables that hold them.
"""
_NUMBERS: Final = frozenset({"amount", "whole", "number"})
_SCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Final[Mapping[Kind, Mapping[str, Any]]] = {
    "number": {"type": ["number", "string"]},
    "text": {"type": ["string", "number"]},
    "texts": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "switch": {"type": "boolean"},
}


class Key(NamedTuple):
    """A key of a deployment: an option's name, with `_` for `-`."""

    name: str
    help: str
    kind: Kind = "text"
    choices: tuple[str, ...] = ()


_HEAD: Final = (
    Key("model", "A profile's name, a hub id, or a directory with a config.json."),
    Key("target", "Where the deployment runs."),
    Key("strategy", "How an update replaces a machine.", choices=("rolling", "recreate")),
)
_NAME: Final = Key("name", "Name of the deployment, if it is the only one.  [default: the model's]")
_OWNER: Final = Key("owner", "Owner of these deployments, whoever runs the command; `--prune` deletes by owner.")


class FileDeployment(Frozen, frozen=True, kw_only=True):
    """One deployment. `own` has its target's options by name. `target` and `strategy` are None for the default."""

    name: str
    texts: OptionTexts
    target: str | None
    strategy: str | None
    own: Mapping[str, Any]


class DeploymentFile(Frozen, frozen=True, kw_only=True):
    """A parsed file. `owner` is empty if the file names none."""

    owner: str
    deployments: tuple[FileDeployment, ...]


def deployment_keys(options: Sequence[Option]) -> tuple[Key, ...]:
    """Return the keys of a deployment. `options` are those that the targets add to `up`."""
    return (
        *_HEAD,
        *(
            Key(
                row.name,
                row.help,
                "switch"
                if not row.metavar
                else "texts"
                if row.repeats
                else "number"
                if row.reader in _NUMBERS
                else "text",
                row.choices,
            )
            for row in PLAN_OPTIONS
        ),
        *(
            Key(item.name, item.help, "switch" if not item.metavar else "texts" if item.repeats else "text")
            for item in options
        ),
    )


def read_deployments(text: str, path: str, options: Sequence[Option]) -> DeploymentFile:
    """Parse a file. Keys at the top apply to each of its `deployments`.

    Raises InputError `bad_deployment_file` with the file, the key and what was expected, and `bad_name`.
    """
    reader = _Reader(printable(path), {key.name: key for key in deployment_keys(options)})
    try:
        table = tomllib.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:  # ValueError: also a number with more digits than Python parses
        raise reader.wrong("", f"is not TOML: {error}", "see https://toml.io for its grammar") from None
    several = table.pop("deployments", None)
    owner = reader.text_of(_OWNER, table.pop("owner", ""), "")
    if several is None:
        return DeploymentFile(owner=owner, deployments=(reader.deployment(table.pop("name", None), table, ""),))
    if (
        not isinstance(several, Mapping)
        or not several
        or not all(isinstance(item, Mapping) for item in several.values())
    ):
        raise reader.wrong("deployments", "should be a table for each deployment", "write [deployments.NAME]")
    reader.check_keys(table, "")
    found = (reader.deployment(name, {**table, **item}, f"deployments.{name}") for name, item in several.items())
    return DeploymentFile(owner=owner, deployments=tuple(found))


class _Reader(NamedTuple):
    path: str
    keys: Mapping[str, Key]

    def deployment(self, name: object, table: Mapping[str, Any], where: str) -> FileDeployment:
        self.check_keys(table, where)
        found = {key: self._value(self.keys[key], value, where) for key, value in table.items()}
        if not found.get("model"):
            raise self.wrong(where, "has no model", 'write model = "llama3-13b", or another profile or hub id')
        named = self.text_of(_NAME, name, where) if name is not None else default_name(str(found["model"]))
        check_name(named)
        rows = {row.name: row.field for row in PLAN_OPTIONS}
        return FileDeployment(
            name=named,
            target=found.pop("target", None),
            strategy=found.pop("strategy", None),
            texts=OptionTexts(
                model=found.pop("model"), **{rows[key]: found.pop(key) for key in list(found) if key in rows}
            ),
            own=found,
        )

    def check_keys(self, table: Mapping[str, Any], where: str) -> None:
        unknown = next((key for key in table if key not in self.keys), None)
        if unknown is None:
            return
        close = difflib.get_close_matches(unknown[:100], self.keys, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise self.wrong(
            _path(where, unknown), "is not a key of a deployment",
            f"{hint}'tgi-deploy up --help' lists the options, with _ for -",
        )  # fmt: skip

    def _value(self, key: Key, value: object, where: str) -> Any:  # noqa: ANN401 -- a text, several, or a switch
        if key.kind == "switch":
            if not isinstance(value, bool):
                raise self.wrong(_path(where, key.name), "should be true or false")
            return value
        if key.kind == "texts":
            return tuple(self.text_of(key, item, where) for item in (value if isinstance(value, list) else [value]))
        return self.text_of(key, value, where)

    def text_of(self, key: Key, value: object, where: str) -> str:
        """Return a value in the form of an option."""
        if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
            raise self.wrong(_path(where, key.name), f"should be a {'number' if key.kind == 'number' else 'string'}")
        try:
            text = str(value)
        except ValueError:  # more digits than Python prints
            raise self.wrong(_path(where, key.name), "is too large") from None
        if key.choices and text not in key.choices:
            raise self.wrong(_path(where, key.name), f"is {quoted(text)}", f"write {' or '.join(key.choices)}")
        return text

    def wrong(
        self, where: str, what: str, hint: str = "'tgi-deploy profile init MODEL' writes a file to start from"
    ) -> InputError:
        return InputError(
            "bad_deployment_file", f"reading {self.path}: {f'{where} ' if where else 'it '}{what}", hint=hint
        )


def _path(where: str, key: str) -> str:
    return ".".join(filter(None, (where, printable(key))))


def schema(options: Sequence[Option], targets: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of the file."""
    keys = {key.name: _property(key, targets) for key in deployment_keys(options)}
    tables = {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/deployment"}}
    return {
        "$schema": _SCHEMA,
        "title": "The file of `tgi-deploy up -f`",
        "type": "object",
        "properties": {
            "owner": _property(_OWNER, ()),
            "name": _property(_NAME, ()),
            "deployments": {"description": "A table for each deployment; the keys above apply to all.", **tables},
            **keys,
        },
        "additionalProperties": False,
        "anyOf": [{"required": ["model"]}, {"required": ["deployments"]}],
        "$defs": {"deployment": {"type": "object", "properties": keys, "additionalProperties": False}},
    }


def _property(key: Key, targets: Sequence[str]) -> dict[str, Any]:
    choices = targets if key.name == "target" else key.choices
    return {"description": key.help, **({"enum": list(choices)} if choices else _TYPES[key.kind])}


def deployment_text(name: str, texts: OptionTexts, target: str | None, own: Mapping[str, Any]) -> str:
    """Return the text of a file with one deployment and its options; `target` None means the default target."""
    rows = {row.name: getattr(texts, row.field) for row in PLAN_OPTIONS}
    numbers = frozenset(row.name for row in PLAN_OPTIONS if row.reader in _NUMBERS)
    given = {"model": texts.model, "name": name, "target": target, **rows, **own}
    lines = [f"{key} = {_toml(value, number=key in numbers)}" for key, value in given.items() if value]
    return _START + "\n".join(lines) + "\n"


def _toml(value: str | bool | Iterable[str], *, number: bool) -> str:  # noqa: FBT001 -- a switch's own value
    """Format a value as TOML. Its strings, booleans and lists look like those of JSON."""
    if number and isinstance(value, str) and value.replace(".", "", 1).isdecimal() and value.isascii():
        return str(Decimal(value))
    return json.dumps(value, ensure_ascii=False)
