"""`smoke`: prove a deployment; or bring up models, prove them and delete them, for CI."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy import wiring
from tgi_deploy.cli import complete
from tgi_deploy.cli.ci_reports import Reports
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import (
    plan_option_words,
    profiles_dir_option,
    ready_option,
    sandbox_option,
    target_option,
    target_options,
    yes_option,
)
from tgi_deploy.cli.outcome import failure
from tgi_deploy.cli.output import Result, write_stderr
from tgi_deploy.cli.progress import acting, need_answer
from tgi_deploy.cli.stopping import heeded
from tgi_deploy.errors import InputError, Problem, warning
from tgi_deploy.text import one_line
from tgi_deploy.values.base import plain, replaced
from tgi_deploy.values.plan_options import END_FIELDS, OPTION, variable_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.smoke import Job, Smoked

# Smoke machines end themselves even if the CI runner dies with its disk.
_TTL: Final = ("--ttl", "1h")
_ENDS: Final = frozenset(OPTION[name].flag for name in END_FIELDS)


@command(
    "smoke",
    examples=(
        "tgi-deploy smoke llama3-8b phi3-mini --budget 2 --ttl 30m --yes -j 2 --junit smoke.xml",
        "tgi-deploy smoke tinyllama-1.1b --sandbox --yes",
        "tgi-deploy smoke my-deployment",
    ),
)
@click.argument(
    "names", metavar="NAME|MODEL...", nargs=-1, required=True, shell_complete=complete.deployments_or_models
)
@plan_option_words
@target_option
@target_options("smoke")
@ready_option
@click.option("-j", "--jobs", "at_once", type=click.IntRange(1, 32), default=1, metavar="N", help="How many at a time.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JUnit XML.")
@click.option("--github", is_flag=True, help="Write annotations to stderr and a table to $GITHUB_STEP_SUMMARY.")
@profiles_dir_option
@sandbox_option
@yes_option
def smoke_command(*, names: tuple[str, ...], plan_words: tuple[str, ...], **given: Any) -> Result:  # noqa: ANN401 -- the options, each with its own type
    """Prove that a deployment answers; or bring up a MODEL, prove it and delete it, whatever happens.

    A deployment is found by its record or its tags; a running one is never brought up a second time.
    """
    from tgi_deploy.operations.deploying.smoke import deployed  # noqa: PLC0415 -- help is printed without what acts

    reports = Reports.of(given)
    reports.check()
    with acting(
        sandbox=given["sandbox"], profiles_dir=given["profiles_dir"], regions=_places(given["target"], plan_words)
    ) as context:
        there = deployed(context, names)
        models = [name for name in dict.fromkeys(names) if name not in there]
        if there and models:
            raise InputError(
                "bad_usage",
                f"{', '.join(there)} exists and {', '.join(models)} would be brought up: one run can't do both",
                hint="prove deployments in one run, and smoke models in another",
            )
        if there:
            return _prove(context, there, given, reports)
    return _bring_up(models, plan_words, given, reports)


def _places(target: str, plan_words: Sequence[str]) -> tuple[str, ...]:
    """Return where to search for a deployment without a record."""
    named = tuple(value for flag, value in pairwise(plan_words) if flag == "--region")
    return wiring.target_named(target).locations(named)


def _bring_up(models: Sequence[str], plan_words: tuple[str, ...], given: dict[str, Any], reports: Reports) -> Result:
    alone = wiring.target_named(given["target"]).facts.one_at_a_time
    if alone and given["at_once"] > 1:
        raise InputError(
            "conflicting_options",
            f"-j with --target {given['target']}: {alone}",
            hint="leave out -j: they run one after another",
        )
    catalog = wiring.catalog(given["profiles_dir"])
    for model in models:
        catalog.resolve(model)  # an unknown name is an error before the first machine is rented
    if not given["yes"]:
        need_answer("bringing models up", dry_run=False)
        click.confirm(f"Bring up, prove and remove {', '.join(models)}?", abort=True, err=True)
    return _smoke(models, plan_words, given, reports)


def _prove(context: Context, names: Sequence[str], given: dict[str, Any], reports: Reports) -> Result:
    from tgi_deploy.cli.views.smoke import proofs_document, proofs_text  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.deploying.smoke import overall, prove_all  # noqa: PLC0415 -- help is printed without what acts

    catalog = wiring.catalog(given["profiles_dir"])
    found = prove_all(context, names, given["ready"], lambda release: catalog.release(release).reported_as)
    results = [item.smoked for item in found]
    proofs = {item.smoked.job.name: item.proof for item in found if item.proof}
    failed = [failure(item.error) for item in found if item.error]
    unwritten = reports.write(results)
    return Result(
        data={**(plain(failed[0].data) if failed else {}), **proofs_document(proofs)},
        text=proofs_text(proofs),
        warnings=(
            *(warning("unencrypted", item.unencrypted) for item in found if item.unencrypted),
            *(item for one in proofs.values() for item in one.warnings),
        ),
        exit_code=overall(results) or (InputError.exit_code if unwritten else 0),
        errors=(*(item for result in failed for item in result.errors), *unwritten),
    )


def _smoke(models: Sequence[str], plan_words: tuple[str, ...], given: dict[str, Any], reports: Reports) -> Result:
    from tgi_deploy.cli.views.smoke import smoked_document, smoked_text  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.deploying.smoke import overall, smoke  # noqa: PLC0415 -- help is printed without what acts

    jobs = [_job(model, plan_words, given) for model in models]
    if given["sandbox"]:
        wiring.sandbox_start()
    programs = wiring.child_programs(_print_line)
    with _passing_on(programs.stop), reports.grouped(f"smoke {one_line(' '.join(models))}"):
        results = smoke(programs, jobs, at_once=given["at_once"], clock=wiring.clock())
    unwritten = reports.write(results)
    return Result(
        data=smoked_document(results),
        text=smoked_text(results),
        exit_code=overall(results) or (InputError.exit_code if unwritten else 0),
        errors=(*_errors(results), *unwritten),
    )


def _job(model: str, plan_words: tuple[str, ...], given: dict[str, Any]) -> Job:
    from tgi_deploy.operations.deploying.smoke import Job, smoke_name  # noqa: PLC0415 -- help is printed without what acts

    words = list(plan_words)
    facts = wiring.target_named(given["target"]).facts
    refused = {name for item in facts.refuses for name in item.options}
    if "ttl" not in refused and not _has_end(words, os.environ):
        words.extend(_TTL)
    for option in ("profiles_dir", *(item.name for item in wiring.target_options("smoke"))):
        value, flag = given[option], f"--{option.replace('_', '-')}"
        if value:
            words.extend((flag,) if value is True else (flag, str(value)))
    return Job(
        model=model,
        name=smoke_name(model, os.urandom(3).hex()),
        plan_words=(*words, "--ready", given["ready"]),
        everywhere=("--target", given["target"], *(("--sandbox",) if given["sandbox"] else ())),
        machine_kind=facts.machine_kind,
    )


def _has_end(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether an option or the environment sets a limit that ends the machines."""
    return not _ENDS.isdisjoint(words) or any(environ.get(variable_of(option)) for option in _ENDS)


def _print_line(words: Sequence[str], line: str) -> None:
    """Print an output line of a run, prefixed with its deployment."""
    name = words[words.index("--name") + 1] if "--name" in words else words[1]
    write_stderr(f"{name}: {one_line(line.removeprefix(f'{name}: '))}\n")


@contextmanager
def _passing_on(stop: Any) -> Iterator[None]:  # noqa: ANN401 -- a callable
    """On Ctrl-C or SIGTERM, stop the runs, which remove what they created; the reports are still written."""

    def arrive(_number: int, _frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, arrive) for number in heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _errors(results: Sequence[Smoked]) -> Iterator[Problem]:
    for result in results:
        for _, problem in result.failures:
            yield replaced(problem, message=f"{result.job.model}: {problem.message}")
