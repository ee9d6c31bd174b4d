"""`up -f`: plans all deployments of a file, then brings them up one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from tgi_deploy.cli import down
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.progress import connected
from tgi_deploy.cli.stopping import stoppable
from tgi_deploy.cli.up import Asking, shown_before
from tgi_deploy.errors import InputError
from tgi_deploy.values.base import plain, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tgi_deploy.api import FileOutcome
    from tgi_deploy.values.base import Result as ApiResult
    from tgi_deploy.values.change_results import UpFileData

# Options of a run, not of a deployment; everything else belongs in the file.
OF_A_RUN: Final = frozenset(
    {"file", "prune", "sandbox", "profiles_dir", "templates_dir", "wait", "ready", "on_failure", "heal", "dry_run",
     "preflight", "replan", "yes"}
)  # fmt: skip


def up_of_file(path: Path | None, where: Mapping[str, Any], given: Mapping[str, Any], *, prune: bool) -> Result:
    """Bring up the deployments in a file. `where` are the arguments of the client, `given` the options of the run."""
    if path is None:
        raise InputError("conflicting_options", "--prune needs a deployment file", hint="name it with -f")
    _check_in_file()
    yes, dry_run, on_failure = given["yes"], given["dry_run"], given["on_failure"]
    with connected(**where) as (client, progress), stoppable() as stops:
        asks = Asking(client, progress, ask=not (yes or dry_run), yes=yes, sandbox=where["sandbox"])
        found = client.up_file(
            path,
            prune=prune,
            on_plan=asks.on_plan,
            confirm=asks.confirm,
            confirm_removal=down.question(progress, dry_run=dry_run, yes=yes),
            on_failure=asks.on_failure if on_failure == "ask" else on_failure,
            on_interrupt=asks.on_interrupt,
            stops=stops,
            **{name: given[name] for name in ("wait", "ready", "heal", "dry_run", "preflight", "replan")},
        )
    shown = [problem for item in found.outcome.deployments for problem in shown_before(item)]
    result = printed(found, "\n".join(_texts(found, dry_run=dry_run)), already_shown=shown)
    left = found.outcome.pruned.left if found.outcome.pruned else None
    return replaced(result, data={**found.to_dict(), "pruned": plain(left.data)}) if left else result


def _texts(found: ApiResult[UpFileData, FileOutcome], *, dry_run: bool) -> Iterator[str]:
    """Yield the text of each deployment, then that of the removal."""
    from tgi_deploy.cli.views.deployment import up_text  # noqa: PLC0415 -- not needed for --help
    from tgi_deploy.cli.views.receipt import left_text  # noqa: PLC0415 -- startup time

    yield from (up_text(item.outcome).rstrip("\n") for item in found.outcome.deployments)
    pruned = found.outcome.pruned
    if pruned and pruned.left:
        yield left_text(pruned.left.left)
    elif pruned and pruned.result:
        yield down.down_text(pruned.result.outcome, pruned.names, pruned.places, dry_run=dry_run)


def _check_in_file() -> None:
    """Raise InputError `conflicting_options` for an option of a deployment, which belongs in the file."""
    ctx = click.get_current_context()
    for param in ctx.command.params:
        typed = ctx.get_parameter_source(param.name or "") == ParameterSource.COMMANDLINE
        if typed and param.name not in OF_A_RUN and param.expose_value:
            word = param.opts[0] if isinstance(param, click.Option) else "MODEL"
            raise InputError(
                "conflicting_options", f"-f and {word} exclude each other: the file defines the deployment",
                hint=f"leave out {word}, or write it in the file",
            )  # fmt: skip
