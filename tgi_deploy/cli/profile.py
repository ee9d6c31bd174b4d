"""`profile`: list, show, validate and create named requests; write the file of a deployment."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy import bounded_files, wiring
from tgi_deploy.catalog.shapes import shape_table
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command, group
from tgi_deploy.cli.options import (
    name_option,
    offline_option,
    plan_options,
    profiles_dir_option,
    target_option,
    target_options,
)
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.views.catalog import entry_document, item_text, list_text
from tgi_deploy.errors import InputError
from tgi_deploy.files import write_file
from tgi_deploy.operations.launching.target_options import own_options
from tgi_deploy.operations.planning.deployment_file import deployment_text
from tgi_deploy.operations.planning.option_texts import OptionTexts, resolve
from tgi_deploy.values.names import check_name, default_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.values.model import Profile

_DEPLOYMENT_START: Final = """\
# Bring it up with: tgi-deploy up -f THIS_FILE. The keys are the options of `up`, with _ for -; several deployments
# are tables: [deployments.NAME]. No secrets here: name the variables that hold them.
"""
_DRAFT_START: Final = "# The model's id on the hub (org/name); weights are downloaded from there."
_DRAFT_END: Final = """
# Defaults, unless the command line or the environment sets something else.
[defaults]
# context = 8192
# prefer = "quality"
"""


@command("list", examples=("tgi-deploy profile list", "tgi-deploy profile list --profiles-dir ./profiles --json"))
@profiles_dir_option
def _list(*, profiles_dir: Path | None) -> Result:
    """List the profiles: yours first, then the packaged ones."""
    catalog = wiring.open_catalog(profiles_dir)
    profiles = [catalog.resolve(name) for name in catalog.profile_names()]
    items = [{"name": item.name, "hub_id": item.model.hub_id, "summary": item.summary} for item in profiles]
    return Result(data={"profiles": items}, text=list_text("models", items))


@command("show", examples=("tgi-deploy profile show llama3-13b",))
@click.argument("name", shell_complete=complete.models)
@profiles_dir_option
def _show(*, name: str, profiles_dir: Path | None) -> Result:
    """Show one profile: the model's shape, what to know about it, and its defaults."""
    return _profile_result(wiring.open_catalog(profiles_dir).resolve(name))


@command("validate", examples=("tgi-deploy profile validate ./profiles/models/mine.toml",))
@click.argument("file", type=click.Path(path_type=Path))
def _validate(*, file: Path) -> Result:
    """Check that FILE is a valid profile; an error names the key."""
    profile = _read(file)
    text = f"{file} is a valid profile: {profile.name}, {profile.model.hub_id}"
    return Result(data=_profile_result(profile).data, text=text)


def _read(file: Path) -> Profile:
    """Return the profile in a file, with its defaults checked. Raises InputError."""
    if file.suffix != ".toml":
        raise InputError("bad_profile", f"{str(file)!r} is not a .toml file", hint="a profile is a file like mine.toml")
    with tempfile.TemporaryDirectory(prefix="tgi-deploy-") as folder:
        copy = Path(folder) / "models" / file.name
        copy.parent.mkdir()
        copy.write_bytes(_bytes_of(file))
        return resolve(OptionTexts(model=file.stem), {}, wiring.open_catalog(Path(folder))).model


def _bytes_of(file: Path) -> bytes:
    try:
        return bounded_files.read_bytes(file, most=bounded_files.MIB)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            "unreadable_path", f"reading the profile {str(file)!r} failed: {reason}", hint="check the path"
        ) from error


def draft(profile: Profile) -> str:
    """Return a profile file for a model: its shape filled in, its defaults left to the user."""
    shape = shape_table(profile.model)
    quantization = shape.pop("quantization", None)
    head = {"hub_id": profile.model.hub_id, "summary": profile.summary}
    if profile.notice is not None:
        head["notice"] = profile.notice
    lines = [_DRAFT_START, *_assignments(head if profile.chat else {**head, "chat": False})]
    lines += ["", "[shape]", *_assignments(shape)]
    if quantization is not None:
        lines += ["", "[shape.quantization]", *_assignments(quantization)]
    for repository in profile.quantized:
        lines += ["", "[[quantized]]", *_assignments(entry_document(repository))]
    return "\n".join(lines) + "\n" + _DRAFT_END


def _assignments(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield TOML assignments: strings, numbers, booleans and lists are written as in JSON."""
    return (f"{key} = {json.dumps(value)}" for key, value in table.items() if value is not None)


@command(
    "new",
    examples=(
        "tgi-deploy profile new ./my-model --out mine.toml",
        "tgi-deploy profile new acme/tiny-1b",
        "tgi-deploy profile new acme/tiny-1b@v1.2 --offline",
    ),
)
@click.argument("model")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE instead of stdout.")
@offline_option
@profiles_dir_option
def _new(*, model: str, out: Path | None, offline: bool, profiles_dir: Path | None) -> Result:
    """Draft a profile from MODEL: a hub id (org/name, org/name@revision), or a folder with a config.json.

    The draft holds the model's shape, read from its config.json and the headers of its weights, and the exact
    commit, so it can be planned without the hub.
    """
    profile = wiring.catalog(profiles_dir, offline=offline).resolve(model)
    text = draft(profile)
    if out is not None:
        write_file(out, text, what="the profile")
    return Result(data={"profile": {"name": profile.name, "text": text, "out": out}}, text="" if out else text)


@command(
    "init",
    examples=(
        "tgi-deploy profile init llama3-13b --budget 5 --ttl 8h > deployment.toml",
        "tgi-deploy profile init llama3-8b --region eu-west-1 --out deployment.toml",
    ),
)
@plan_options
@name_option
@target_option
@target_options("up")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE instead of stdout.")
@profiles_dir_option
def _init(
    *,
    texts: OptionTexts,
    name: str | None,
    target: str,
    out: Path | None,
    profiles_dir: Path | None,
    **own: Any,  # noqa: ANN401 -- the targets' options, each with its own type
) -> Result:
    """Write a deployment file for `up -f` from MODEL and the options given here."""
    catalog = wiring.catalog(profiles_dir)
    request = resolve(texts, {}, catalog)
    own_options(wiring.target_named(target), wiring.targets(), own)
    named = name or default_name(request.model.name)
    check_name(named)
    given = {key: value for key, value in own.items() if value}
    text = _DEPLOYMENT_START + deployment_text(
        named, texts, None if target == wiring.target_names()[0] else target, given
    )
    if out is not None:
        write_file(out, text, what="the deployment")
    return Result(data={"deployment": {"name": named, "text": text, "out": out}}, text="" if out else text)


def _profile_result(profile: Profile) -> Result:
    document = entry_document(profile)
    return Result(
        data={"profile": document}, text=item_text({**document["model"], **document, "model": profile.model.hub_id})
    )


profile_command = group(
    "profile",
    help_text="Named requests: a model, what to know about it, and default options.",
    commands=(_list, _show, _validate, _new, _init),
)
