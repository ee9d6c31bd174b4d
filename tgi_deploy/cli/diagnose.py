"""`diagnose`: finds the cause of a failure in a log."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from tgi_deploy import bounded_files
from tgi_deploy.api import logged_engines
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.errors import InputError, warning
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from tgi_deploy.api import Client

_RUNNING: Final = "running"
# The cause is near the end of a log; anything earlier than this is not read.
_MAX_BYTES: Final = 16 * 1024**2
_OF_THE_SHELL: Final = re.compile(r"/dev/fd/([0-9]{1,4})")
_HOW: Final = "docker logs NAME 2>&1 | tgi-deploy diagnose -"
_EMPTY: Final = warning("empty_log", f"the log is empty; containers log to stdout and stderr: {_HOW}")


@command(
    "diagnose",
    examples=(
        "tgi-deploy diagnose llama3-13b",
        "tgi-deploy diagnose -",
        "tgi-deploy diagnose engine.log --json",
    ),
)
@click.argument("source", metavar="NAME|FILE|-", shell_complete=complete.deployments_or_files)
@click.option(
    "--engine", type=click.Choice(logged_engines()), help="The engine that wrote the log.  [default: detected]"
)
@cloud_options
def diagnose_command(*, client: Client, source: str, engine: str | None) -> Result:
    """Find the cause of a failure in a log, with evidence and remedy.

    A file, or '-' for standard input, needs no cloud; for a deployment, the tool reads its machine's
    console, state and plan. A found cause is not an error: the exit code is 0.
    """
    if source == "-":
        return _of_text(client, source, engine, *_from_stdin())
    if Path(source).is_file() or ("/" in source and Path(source).exists()):
        return _of_text(client, source, engine, *_from_file(Path(source)))
    if "/" in source or source.endswith((".log", ".txt", ".jsonl", ".json")):
        raise InputError("unreadable_path", f"reading the log {source}: no such file", hint="check its path")
    if engine is not None:
        raise InputError(
            "conflicting_options",
            "--engine is only for log files: a deployment's record names its engine",
            hint="leave it out",
        )
    return _of_deployment(client, source)


def _of_text(client: Client, source: str, engine: str | None, text: str, before: int) -> Result:
    """Diagnose a log. `before` is the number of log lines before `text`."""
    from tgi_deploy.cli.views.diagnosis import diagnosis_text  # noqa: PLC0415 -- not needed for --help

    found = client.diagnose_log(text, engine=engine, source=source, lines_before=before)
    result = printed(found, diagnosis_text(found.data))
    return result if text.strip() else replaced(result, text="The log is empty.\n", warnings=(_EMPTY,))


def _of_deployment(client: Client, name: str) -> Result:
    from tgi_deploy.cli.views.diagnosis import diagnosis_text  # noqa: PLC0415 -- not needed for --help

    found = client.diagnose(name)
    machine = found.outcome.machine
    ended = "" if machine.state == _RUNNING else f"The machine {machine.description}.\n"
    return printed(found, diagnosis_text(found.data) + ended)


def _from_stdin() -> tuple[str, int]:
    if sys.stdin is None:
        raise InputError("no_input", "reading the log from standard input: it is closed", hint=f"pipe it in: {_HOW}")
    return _last_part(sys.stdin.buffer)


def _from_file(path: Path) -> tuple[str, int]:
    try:
        with _opened(path) as file:
            return _last_part(file)
    except OSError as error:
        raise InputError(
            "unreadable_path",
            f"reading the log {path}: {error.strerror}",
            hint=f"name a readable file, or '-' to read from a pipe: {_HOW}",
        ) from error


def _opened(path: Path) -> BinaryIO:
    """Open a file, or a pipe from the shell (`<(docker logs NAME)`), which is read like standard input."""
    made = _OF_THE_SHELL.fullmatch(str(path))
    if made and stat.S_ISFIFO(os.fstat(int(made[1])).st_mode):
        return os.fdopen(os.dup(int(made[1])), "rb")
    return bounded_files.open_regular(path)


def _last_part(stream: BinaryIO) -> tuple[str, int]:
    """Return the end of a log, and the number of lines before it."""
    kept, before = b"", 0
    while chunk := stream.read(_MAX_BYTES):
        joined = kept + chunk
        cut = max(0, len(joined) - _MAX_BYTES)
        before += joined.count(b"\n", 0, cut)
        kept = joined[cut:]
    return _decoded(kept), before


def _decoded(data: bytes) -> str:
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
    return data.decode(encoding, errors="replace")
