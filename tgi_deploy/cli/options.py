"""Options that several commands share.

The options of a plan are the rows of `values/plan_options.py`. Their values stay text, which
`operations/planning/option_texts.py` parses.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.api import target_names
from tgi_deploy.api import target_options as options_of_targets
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import SectionOption, wrap_command
from tgi_deploy.values.options import PLACES
from tgi_deploy.values.plan_options import PLAN_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.cli.output import Result
    from tgi_deploy.values.plan_options import PlanOption

    CommandFunction = Callable[..., Result]
    Decorator = Callable[[CommandFunction], CommandFunction]

FILE: Final = click.Path(path_type=Path)


def _option(*names: str, section: str, **settings: Any) -> Decorator:  # noqa: ANN401 -- the signature of click
    return click.option(*names, cls=SectionOption, section=section, **settings)


_COMPLETERS: Final = {
    "--instance": complete.instance_types,
    "--hardware": complete.hardware,
    "--region": complete.regions,
    "--engine-version": complete.engine_versions,
}


def _plan_option(row: PlanOption) -> Decorator:
    """Return the option whose raw text becomes a key of `request`, under the name of the row's field."""
    kind: dict[str, Any] = {"metavar": row.metavar, "multiple": row.repeats} if row.metavar else {"is_flag": True}
    completer = complete.words(*row.choices) if row.choices else _COMPLETERS.get(row.flag)
    return _option(
        row.flag, row.field, section=row.section, help=row.help, shell_complete=completer, into="request", **kind
    )


_MODEL: Final = click.argument("model", shell_complete=complete.models)
_MODEL_OR_FILE: Final = click.argument("model", required=False, shell_complete=complete.models)


def with_request(function: CommandFunction) -> CommandFunction:
    """Add every option of a plan; the function receives the given ones as `request`."""
    for row in reversed(PLAN_OPTIONS):
        function = _plan_option(row)(function)
    return function


def request_options(function: CommandFunction) -> CommandFunction:
    """Add MODEL and every option of a plan; the function receives `model`, and the given options as `request`."""
    return _MODEL(with_request(function))


def request_options_or_file(function: CommandFunction) -> CommandFunction:
    """Do the same for a command that may read its request from a file: MODEL is then None."""
    return _MODEL_OR_FILE(with_request(function))


def check_model(model: str | None, *instead: object) -> str:
    """Return MODEL, which may only be missing if one of `instead` is given. Raises click.MissingParameter."""
    if model is None and all(item is None for item in instead):
        raise click.MissingParameter(ctx=click.get_current_context(), param_hint="'MODEL'", param_type="argument")
    return model or ""


profiles_dir_option: Final = _option(
    "--profiles-dir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="TGI_DEPLOY_PROFILES_DIR",
    section=PLACES,
    help="Your own profiles; they override the built-in ones.",
)
offline_option: Final = _option(
    "--offline",
    is_flag=True,
    envvar="TGI_DEPLOY_OFFLINE",
    section=PLACES,
    help="Don't contact the hub; use only built-in and cached models.",
)
templates_dir_option: Final = _option(
    "--templates-dir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="TGI_DEPLOY_TEMPLATES_DIR",
    section=PLACES,
    help="Your own templates; they override the built-in ones.",
)
sandbox_option: Final = _option(
    "--sandbox",
    is_flag=True,
    envvar="TGI_DEPLOY_SANDBOX",
    section=PLACES,
    help="Use the local cloud; it starts when needed.",
)
target_option: Final = _option(
    "--target",
    type=click.Choice(target_names()),
    default=target_names()[0],
    envvar="TGI_DEPLOY_TARGET",
    show_default=True,
    section=PLACES,
    help="Where the deployment runs.",
)


def target_options(name: str) -> Decorator:
    """Add the options that targets add to the command of that name."""

    def add(function: CommandFunction) -> CommandFunction:
        for item in reversed(options_of_targets(name)):
            kind: dict[str, Any] = {"metavar": item.metavar} if item.metavar else {"is_flag": True}
            function = _option(item.flag, section=item.section, help=item.help, multiple=item.repeats, **kind)(function)
        return function

    return add


name_option: Final = _option(
    "--name", metavar="NAME", section=PLACES, help="Name of the deployment.  [default: the profile's name]"
)
name_argument: Final = click.argument("name", shell_complete=complete.deployments)
strategy_option: Final = click.option(
    "--strategy",
    type=click.Choice(("rolling", "recreate")),
    help="Start the new machine before (rolling) or after (recreate) the old one is removed.  "
    "[default: rolling if possible]",
)
yes_option: Final = _option("--yes", "-y", is_flag=True, section="Output", help="Don't ask for confirmation.")

out_option: Final = click.option("--out", type=FILE, metavar="FILE", help="Write to FILE instead of stdout.")

_LOOK_IN: Final = _option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    section=PLACES,
    shell_complete=complete.regions,
    help="Regions to search in addition to recorded ones; repeatable, or 'all'.  [default: the configured one]",
)
_LOOK_AT: Final = _option(
    "--target",
    type=click.Choice(target_names()),
    default=target_names()[0],
    envvar="TGI_DEPLOY_TARGET",
    show_default=True,
    section=PLACES,
    help="Where to search: in its regions, or on its host.",
)


def ready_option(function: CommandFunction) -> CommandFunction:
    return click.option(
        "--ready",
        type=click.Choice(("fast", "full")),
        default="full",
        show_default=True,
        help="What to verify: 'fast': the right engine answers; 'full': it handles the largest planned request.",
    )(function)


def cloud_options(function: CommandFunction) -> CommandFunction:
    """Add --region, --target and --sandbox; the function receives a `client`, which shows its progress."""
    return asking_cloud_options(
        wrap_command(lambda *, client, progress, **given: function(client=client, **given), function)  # noqa: ARG005 -- such a command has no questions
    )


def asking_cloud_options(function: CommandFunction) -> CommandFunction:
    """Do the same for a command with questions: it also receives `progress`, which pauses for a question."""

    def with_client(*, target: str, regions: tuple[str, ...], sandbox: bool, **given: Any) -> Result:  # noqa: ANN401 -- the command's own parameters
        from tgi_deploy.cli.progress import connected  # noqa: PLC0415 -- not needed for --help

        with connected(target=target, region=regions, sandbox=sandbox) as (client, progress):
            return function(client=client, progress=progress, **given)

    return _LOOK_IN(_LOOK_AT(sandbox_option(wrap_command(with_client, function))))
