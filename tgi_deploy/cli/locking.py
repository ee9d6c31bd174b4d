"""Locks on the command line: written by `plan --lock`, reprinted by `plan --locked`, deployed by `up --lock`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.cli.output import Result
from tgi_deploy.errors import DeployError, Problem, warning
from tgi_deploy.files import write_file
from tgi_deploy.values.base import plain

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.lock import Lock
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.plan_document import PlanDocument

LOCK_FILE: Final = click.Path(path_type=Path)


def write_lock(path: Path, texts: OptionTexts, plan: Plan, printed: PlanDocument, catalog: Catalog) -> None:
    """Write the lock of `plan`, with its printed form. Raises InputError `unwritable_file`."""
    from tgi_deploy.operations.planning.lock import lock_document, lock_text  # noqa: PLC0415 -- only locks need it

    document = lock_document(
        plan,
        texts,
        os.environ,
        catalog.release(plan.request.engine_version),
        printed=plain(printed),
    )
    write_file(path, lock_text(document), what="the lock", option="--lock")


def locked_result(path: Path, catalog: Catalog) -> Result:
    """Return the plan as printed when it was locked, and a warning if today's plan for the same request differs."""
    from tgi_deploy.cli.views.plan_summary import summary_text  # noqa: PLC0415 -- only locks need it
    from tgi_deploy.operations.planning.lock import open_lock  # noqa: PLC0415 -- only locks need it

    lock = open_lock(path)
    notices = tuple(warning("notice", text) for text in lock.plan.notices)
    return Result(
        data={"plan": lock.plan, "lock": {"model": lock.model, "engine": lock.engine, "catalogue": lock.catalogue}},
        text=summary_text(lock.plan),
        warnings=(*notices, *_staleness(lock, catalog)),
        already_shown=frozenset({"notice"}),
    )


def _staleness(lock: Lock, catalog: Catalog) -> tuple[Problem, ...]:
    from tgi_deploy.operations.planning.locked import changes, current  # noqa: PLC0415 -- only locks need it

    try:
        found = changes(lock, current(lock, catalog))
    except DeployError as error:
        return (warning("stale_plan", f"the locked request can't be planned again: {error.message}"),)
    if not found:
        return ()
    text = "; ".join(map(str, found))
    return (warning("stale_plan", f"today's plan for the same request differs: {text}"),)
