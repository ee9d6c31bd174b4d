"""Turns a command's failure into a `Result` and writes results. `--help` does not import this."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy import __version__
from tgi_deploy.cli.frame import PROGRAM, UnknownCommandError
from tgi_deploy.cli.output import Result, silence, write_result
from tgi_deploy.data_files import state_home
from tgi_deploy.errors import DefectError, DeployError, InputError, InterruptedByUserError, NoFeasiblePlanError, Problem
from tgi_deploy.values.base import plain, replaced

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tgi_deploy.cli.frame import Invocation

# Commands whose text is a log, an answer, the output of a program, or a file: it is printed unchanged.
_QUOTING: Final = frozenset({"ask", "exec", "logs", "render"})


def write(result: Result, invocation: Invocation) -> int:
    """Write the result and return the exit code."""
    if invocation.given:
        result = _pasted(result, invocation)
    try:
        write_result(invocation.command, result, as_json=invocation.as_json)
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        silence(sys.stdout)
        sys.stderr.write(f"error[output_failed]: writing the result failed: {error.strerror}\n")
        return result.exit_code or DeployError.exit_code
    except KeyboardInterrupt:
        return InterruptedByUserError.exit_code
    return result.exit_code


def _pasted(result: Result, invocation: Invocation) -> Result:
    """Return the result with the options of this command in the commands that it suggests."""
    from tgi_deploy.values.pasted import Pasted  # noqa: PLC0415 -- needed only for these options

    pasted = Pasted(**invocation.given)
    result = replaced(
        result,
        warnings=tuple(map(pasted.problem, result.warnings)),
        errors=tuple(map(pasted.problem, result.errors)),
        failure_text=pasted.text(result.failure_text),
    )
    if invocation.command in _QUOTING:
        return result
    return replaced(result, data=pasted.data(plain(result.data)), text=pasted.text(result.text))


def result_of(error: Exception, command_name: str) -> Result:
    """Return the result of a failed command. An unexpected exception is a defect."""
    if isinstance(error, click.Abort | EOFError):
        return interrupted()
    if isinstance(error, click.ClickException):
        return _usage_failure(error, command_name)
    if isinstance(error, DeployError):
        return crash(error) if isinstance(error, DefectError) else failure(error)
    return crash(DefectError(error))


def failure(error: DeployError) -> Result:
    result = Result(data=error.data, exit_code=error.exit_code, errors=(error.problem,))
    if isinstance(error, NoFeasiblePlanError):
        return replaced(result, text=_no_plan(error))
    if error.failure is None:
        return result
    from tgi_deploy.cli.views.failure import failure_text  # noqa: PLC0415 -- needed only for a failed `up`

    return replaced(result, failure_text=failure_text(error.problem, error.failure))


def _no_plan(error: NoFeasiblePlanError) -> str:
    from tgi_deploy.cli.views.plan import files_text, no_plan_text  # noqa: PLC0415 -- only then
    from tgi_deploy.values.plan import NoPlanError  # noqa: PLC0415 -- startup time

    if not isinstance(error, NoPlanError):
        return ""
    files = files_text(error.data.get("files", {}))
    return no_plan_text(error.made, error.commands) + (f"\n{files}" if files else "")


def _usage_failure(error: click.ClickException, command_name: str) -> Result:
    """Return a usage error from click as a result: a stable code, one line, and a hint at the help."""
    hint = f"run '{' '.join([PROGRAM, *command_name.split(), '--help'])}'"
    close = _nearest_of(error)
    now = _instead_of(error, command_name)
    if now:
        hint = f"it was removed: use {now}"
    elif close:
        hint = f"did you mean {' or '.join(repr(name) for name in close)}? Otherwise {hint}"
    item = Problem(code=_usage_code(error), message=_usage_message(error), hint=hint)
    return Result(exit_code=InputError.exit_code, errors=(item,))


def _usage_code(error: click.ClickException) -> str:
    codes: tuple[tuple[type[click.ClickException], str], ...] = (
        (UnknownCommandError, "unknown_command"),
        (click.NoSuchOption, "unknown_option"),
        (click.MissingParameter, "missing_argument"),
        (click.BadParameter, "bad_option_value"),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), "bad_usage")


def _usage_message(error: click.ClickException) -> str:
    message = error.message if isinstance(error, click.NoSuchOption) else error.format_message()
    return message[:1].lower() + message[1:].rstrip(".")


def _instead_of(error: click.ClickException, command_name: str) -> str | None:
    """Return the replacement of a removed option; None for any other error."""
    from tgi_deploy.values.options import REMOVED_OPTIONS  # noqa: PLC0415 -- needed only for a usage error

    option = (command_name, error.option_name) if isinstance(error, click.NoSuchOption) else None
    return next((row.now for row in REMOVED_OPTIONS if (row.command, row.flag) == option), None)


def _nearest_of(error: click.ClickException) -> Sequence[str]:
    if isinstance(error, UnknownCommandError):
        return error.close
    return error.possibilities or () if isinstance(error, click.NoSuchOption) else ()


def interrupted() -> Result:
    item = Problem(
        code="interrupted",
        message="interrupted before the end",
        hint=f"'{PROGRAM} list' shows what exists; running the same command again resumes where it stopped",
    )
    return Result(exit_code=InterruptedByUserError.exit_code, errors=(item,))


def crash(error: DefectError) -> Result:
    """Return a crash as a result: one line, the known resources, and a crash file for the developers."""
    path = _write_crash_file(error.cause)
    report = f"please report this defect with the file {path}" if path else "please report this defect"
    return Result(
        data={**error.data, "crash_file": str(path) if path else None},
        exit_code=error.exit_code,
        errors=(error.copy(hint=error.hint_and(report)).problem,),
    )


def _write_crash_file(error: Exception) -> Path | None:
    """Write the traceback to a file that only the user can read. Return None if none can be written."""
    import traceback  # noqa: PLC0415 -- needed only for a defect

    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = state_home() / "crashes" / f"crash-{stamp}-{os.getpid()}.txt"
    text = f"tgi-deploy {__version__}, Python {sys.version}\n\n{''.join(traceback.format_exception(error))}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError:
        return None
    return path
