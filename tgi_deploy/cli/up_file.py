"""`up -f`: the deployments of a file, planned together and brought up one after the other."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import click
from click.core import ParameterSource

from tgi_deploy import wiring
from tgi_deploy.api import Client
from tgi_deploy.cli import down
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.progress import Progress, command_line
from tgi_deploy.cli.stopping import left_result, stoppable
from tgi_deploy.cli.up import up_command
from tgi_deploy.errors import DeployError, InputError, LeftBehindError
from tgi_deploy.files import read_file
from tgi_deploy.operations.deploying.bring_up import UpOptions, check_startable
from tgi_deploy.operations.launching.target_options import own_options, refuse
from tgi_deploy.operations.planning.deployment_file import read_deployments
from tgi_deploy.operations.removing.down import down as remove
from tgi_deploy.operations.removing.stopping import run_again
from tgi_deploy.operations.results.changing import down_result
from tgi_deploy.operations.watching.fleet import names_of_owner
from tgi_deploy.values.base import changed_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.operations.planning.deployment_file import DeploymentFile, FileDeployment
    from tgi_deploy.values.plan import Plan

# Options of a run, not of a deployment; everything else belongs in the file.
OF_A_RUN: Final = frozenset(
    {"file", "prune", "sandbox", "profiles_dir", "templates_dir", "wait", "ready", "on_failure", "heal", "dry_run",
     "preflight", "replan", "yes"}
)  # fmt: skip


def up_of_file(path: Path | None, given: Mapping[str, Any], *, prune: bool) -> Result:
    """Bring up the deployments of a file; `given` are the options of the run."""
    if path is None:
        raise InputError("conflicting_options", "--prune needs a deployment file", hint="name it with -f")
    _check_in_file()
    described = read_deployments(read_file(path, what="the deployments"), str(path), wiring.target_options("up"))
    if prune and not described.owner:
        raise InputError(
            "bad_deployment_file", f"reading {path}: --prune deletes by owner, and the file names none",
            hint='write owner = "NAME" at the top and bring the file up; then --prune works',
        )  # fmt: skip
    run = _Run(path, described, given)
    places: list[str] = []
    for item in described.deployments:
        places.extend(run.places(item, run.planned(item)))
    results: list[Result] = []
    for item in described.deployments:
        results.append(run.brought_up(item, stand=len(results)))
        if results[-1].exit_code:
            return _together(results, Result())
    return _together(results, run.pruned(tuple(dict.fromkeys(places))) if prune else Result())


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


class _Run(NamedTuple):
    """One run over a file. `given` are its options."""

    path: Path
    file: DeploymentFile
    given: Mapping[str, Any]

    def planned(self, item: FileDeployment) -> Plan:
        """Plan a deployment and check it, without looking at what exists. Raises InputError, NoPlanError."""
        words = self._words(item)
        with self._named(item):
            target = wiring.target_named(words["target"])
            own = own_options(target, wiring.targets(), words)
            refuse(target, words, os.environ)
            UpOptions(target=target, own=own, name=item.name).check(force=False, heal=words["heal"])
            client = Client(target=target.name, profiles_dir=words["profiles_dir"])
            made = client.plan(**changed_fields(item.texts)).outcome
            check_startable(target, made)
        return made

    def places(self, item: FileDeployment, plan: Plan) -> tuple[str, ...]:
        target = wiring.target_named(self._words(item)["target"])
        return plan.request.regions if target.facts.regions else target.locations(())

    def brought_up(self, item: FileDeployment, *, stand: int) -> Result:
        """Do what `up` does with the same options; `stand` deployments of the file are already up."""
        up = up_command.callback
        if up is None:
            raise AssertionError("a command has a function")
        request = changed_fields(item.texts)
        with self._named(item, stand=stand):
            found = up(model=request.pop("model"), request=request, **self._words(item), file=None, prune=False)
            return cast("Result", found)

    def pruned(self, places: tuple[str, ...]) -> Result:
        """Show the owner's deployments that the file does not name, ask, and delete them."""
        sandbox, kept = self.given["sandbox"], {item.name for item in self.file.deployments}
        again = f"tgi-deploy up -f {self.path} --prune"
        with Progress() as progress, stoppable() as stops:
            setup = wiring.Setup(progress=progress, command=command_line(), sandbox=sandbox, regions=places)
            context = wiring.context(setup)
            names = [name for name in names_of_owner(context, self.file.owner) if name not in kept]
            if not names:
                return Result()
            ask = down.question(progress, dry_run=self.given["dry_run"], yes=self.given["yes"])
            try:
                found = down_result(
                    context,
                    run_again(
                        context, stops, lambda guarded: remove(guarded, names, ask), doing=again,
                        advice=f"what is left keeps its record: '{again}' resumes where it stopped",
                    ),
                )  # fmt: skip
            except LeftBehindError as error:
                progress.stop()
                return left_result(error)
        return printed(found, down.down_text(found.outcome, names, places, dry_run=self.given["dry_run"]))

    def _words(self, item: FileDeployment) -> dict[str, Any]:
        """Return the options to `up` besides those of the plan."""
        apart = {"name": item.name, "strategy": item.strategy, "owner": self.file.owner}
        return {**self.given, **item.own, **apart, "target": item.target or self.given["target"]}

    @contextmanager
    def _named(self, item: FileDeployment, *, stand: int = 0) -> Iterator[None]:
        """Name in errors the deployment, and those of the file that are up."""
        try:
            yield
        except DeployError as error:
            before = ", ".join(done.name for done in self.file.deployments[:stand])
            words = f"of the same file, {before} are up: the same command resumes where it stopped"
            raise error.copy(
                message=f"'{item.name}' of {self.path}: {error.message}",
                hint=error.hint_and(words) if stand else error.hint,
            ) from error


def _together(results: Sequence[Result], removed: Result) -> Result:
    """Return the results as one, with the data of each in the order of the file."""
    every = (*results, removed)
    return Result(
        data={"deployments": [item.data for item in results], "pruned": removed.data or None},
        text="\n".join(item.text.rstrip("\n") for item in every if item.text),
        warnings=tuple(problem for item in every for problem in item.warnings),
        exit_code=every[-2].exit_code or removed.exit_code,
        errors=tuple(problem for item in every for problem in item.errors),
        failure_text=removed.failure_text,
        already_shown=frozenset().union(*(item.already_shown for item in every)),
    )
