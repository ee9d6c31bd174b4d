"""The use case `up -f`: plans all deployments in a file, then brings them up one after another."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.files import read_file
from tgi_deploy.operations.deploying.bring_up import UpOptions, check_startable
from tgi_deploy.operations.launching.target_options import own_options, reject_unsupported
from tgi_deploy.operations.planning.deployment_file import read_deployments
from tgi_deploy.values.base import Frozen, Result
from tgi_deploy.values.change_results import UpFileData

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.errors import LeftBehindError
    from tgi_deploy.operations.deploying.up import UpOutcome
    from tgi_deploy.operations.planning.deployment_file import DeploymentFile, FileDeployment
    from tgi_deploy.operations.removing.down import DownOutcome
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.change_results import DownData, UpData
    from tgi_deploy.values.options import Option
    from tgi_deploy.values.plan import Plan


class Pruned(Frozen, frozen=True, kw_only=True):
    """The result of removing these names in these locations, or the error with the resources that are left."""

    names: tuple[str, ...]
    places: tuple[str, ...]
    result: Result[DownData, DownOutcome] | None = None
    left: LeftBehindError | None = None


class FileOutcome(Frozen, frozen=True, kw_only=True):
    """The results in the order of the file; `pruned` is None if there was nothing to delete."""

    deployments: tuple[Result[UpData, UpOutcome], ...]
    pruned: Pruned | None = None


def read_described(path: Path, options: Sequence[Option], *, prune: bool) -> DeploymentFile:
    """Return the content of a file. Raises InputError, also for `prune` without an owner in the file."""
    described = read_deployments(read_file(path, what="the deployments"), str(path), options)
    if prune and not described.owner:
        raise InputError(
            "bad_deployment_file", f"reading {path}: --prune deletes by owner, but the file names none",
            hint='write owner = "NAME" at the top and bring the file up; then --prune works',
        )  # fmt: skip
    return described


def check_described(
    item: FileDeployment,
    target: Target,
    targets: Sequence[Target],
    run: Mapping[str, object],
    environ: Mapping[str, str],
) -> None:
    """Check a deployment's options together with those of the run, before planning. Raises InputError."""
    own = own_options(target, targets, item.own)
    reject_unsupported(target, {**item.own, **run}, environ)
    UpOptions(target=target, own=own, name=item.name).check(force=False, heal=False)


def places_of(target: Target, made: Plan) -> tuple[str, ...]:
    """Return the locations where a plan's deployment may be. Raises InputError if it can't be brought up."""
    check_startable(target, made)
    return target.locations(made.request.regions if target.facts.regions else ())


@contextmanager
def named(item: FileDeployment, path: Path, before: Sequence[FileDeployment] = ()) -> Iterator[None]:
    """Add the name of the deployment to errors, and those of the file's deployments that are already up."""
    try:
        yield
    except DeployError as error:
        up = ", ".join(done.name for done in before)
        words = f"already up from this file: {up}; the same command resumes where it stopped"
        raise error.copy(
            message=f"'{item.name}' of {path}: {error.message}", hint=error.hint_and(words) if before else error.hint
        ) from error


def file_result(done: Sequence[Result[UpData, UpOutcome]], pruned: Pruned | None) -> Result[UpFileData, FileOutcome]:
    """Return the combined result. Leftovers of a removal are an error of the result, with exit code 6."""
    removed, left = (pruned.result, pruned.left) if pruned else (None, None)
    return Result(
        data=UpFileData(deployments=tuple(item.data for item in done), pruned=removed.data if removed else None),
        outcome=FileOutcome(deployments=tuple(done), pruned=pruned),
        warnings=(*(problem for item in done for problem in item.warnings), *(removed.warnings if removed else ())),
        errors=(left.problem,) if left else (),
        exit_code=left.exit_code if left else 0,
    )
