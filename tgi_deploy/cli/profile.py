"""`profile`: lists, shows, validates and creates named requests; writes deployment files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tgi_deploy.api import Client
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command, group
from tgi_deploy.cli.options import (
    name_option,
    offline_option,
    out_option,
    profiles_dir_option,
    request_options,
    target_option,
    target_options,
)
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.views.catalog import item_text, list_text
from tgi_deploy.files import write_file
from tgi_deploy.values.base import nested, replaced
from tgi_deploy.values.catalog_results import DeploymentTextData, ProfileTextData

if TYPE_CHECKING:
    from tgi_deploy.values.catalog_results import ProfileData, TextData


@command("list", examples=("tgi-deploy profile list", "tgi-deploy profile list --profiles-dir ./profiles --json"))
@profiles_dir_option
def _list(*, profiles_dir: Path | None) -> Result:
    """List the profiles: yours first, then the packaged ones."""
    found = Client(profiles_dir=profiles_dir).profile_list()
    return printed(found, list_text("models", found.data.profiles))


@command("show", examples=("tgi-deploy profile show llama3-13b",))
@click.argument("name", shell_complete=complete.models)
@profiles_dir_option
def _show(*, name: str, profiles_dir: Path | None) -> Result:
    """Show one profile: the model's shape, what to know about it, and its defaults."""
    found = Client(profiles_dir=profiles_dir).profile_show(name)
    return printed(found, _profile_text(found.data))


@command("validate", examples=("tgi-deploy profile validate ./profiles/models/mine.toml",))
@click.argument("file", type=click.Path(path_type=Path))
def _validate(*, file: Path) -> Result:
    """Check that FILE is a valid profile; an error names the key."""
    found = Client().profile_validate(file)
    profile = found.outcome
    return printed(found, f"{file} is a valid profile: {profile.name}, {profile.model.hub_id}")


@command(
    "new",
    examples=(
        "tgi-deploy profile new ./my-model --out mine.toml",
        "tgi-deploy profile new acme/tiny-1b",
        "tgi-deploy profile new acme/tiny-1b@v1.2 --offline",
    ),
)
@click.argument("model")
@out_option
@offline_option
@profiles_dir_option
def _new(*, model: str, out: Path | None, offline: bool, profiles_dir: Path | None) -> Result:
    """Draft a profile from MODEL: a hub id (org/name, org/name@revision), or a folder with a config.json.

    The draft has the model's shape, read from its config.json and the headers of its weights, and the exact commit, so
    that plans need no hub.
    """
    found = Client(profiles_dir=profiles_dir, offline=offline).profile_new(model)
    text = _written(found.data.profile, out, "the profile")
    return replaced(printed(found, "" if out else text.text), data=ProfileTextData(profile=text))


@command(
    "init",
    examples=(
        "tgi-deploy profile init llama3-13b --budget 5 --ttl 8h > deployment.toml",
        "tgi-deploy profile init llama3-8b --region eu-west-1 --out deployment.toml",
    ),
)
@request_options
@name_option
@target_option
@target_options("up")
@out_option
@profiles_dir_option
def _init(
    *,
    model: str,
    request: dict[str, Any],
    name: str | None,
    target: str,
    out: Path | None,
    profiles_dir: Path | None,
    **own: Any,  # noqa: ANN401 -- the targets' options, each with its own type
) -> Result:
    """Write a deployment file for `up -f` from MODEL and the options given here."""
    client = Client(profiles_dir=profiles_dir, target=target)
    found = client.profile_init(model, name=name, **request, **own)
    text = _written(found.data.deployment, out, "the deployment")
    return replaced(printed(found, "" if out else text.text), data=DeploymentTextData(deployment=text))


def _written(found: TextData, out: Path | None, what: str) -> TextData:
    """Write a text to the file `out`, if one was named."""
    if out is None:
        return found
    write_file(out, found.text, what=what)
    return replaced(found, out=str(out))


def _profile_text(data: ProfileData) -> str:
    profile = nested(data.profile)
    return item_text({**profile["model"], **profile, "model": profile["model"]["hub_id"]})


profile_command = group(
    "profile",
    help_text="Named requests: a model, what to know about it, and default options.",
    commands=(_list, _show, _validate, _new, _init),
)
