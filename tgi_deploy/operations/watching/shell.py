"""The use case `exec`: runs a command on a deployment's machine, through its cloud or a program such as `docker`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.watching.logs import locate
from tgi_deploy.targets.protocol import Finished, RemoteShell, Shell

if TYPE_CHECKING:
    from tgi_deploy.operations.context import Context
    from tgi_deploy.targets.protocol import Target

_SIGNALED = 128


def run_there(
    context: Context, name: str, words: tuple[str, ...], *, terminal: bool = False, captured: bool = False
) -> Finished:
    """Run a command on a deployment's machine; without one, an interactive shell.

    Raises InputError `unknown_deployment`, DeployError `machine_missing`, `no_shell`, `not_managed`.
    """
    _, place, machine_id = locate(context, name)
    target = context.target_at(place)
    if not isinstance(target, Shell):
        return _run_by_cloud(target, place, machine_id, words, terminal=terminal, captured=captured)
    child = target.child(place, machine_id, words, terminal=terminal)
    try:
        done = subprocess.run(child, capture_output=captured, check=False)  # noqa: S603 -- the command comes from the user
    except OSError as error:
        reason = f"starting {child[0]!r} on this computer failed: {error.strerror}"
        raise _no_shell(name, reason, f"install the {child[0]!r} command; no daemon is needed here") from error
    code = done.returncode if done.returncode >= 0 else _SIGNALED - done.returncode
    return Finished(exit_code=code, stdout=_text(done.stdout), stderr=_text(done.stderr))


def _run_by_cloud(
    target: Target, place: str, machine_id: str, words: tuple[str, ...], *, terminal: bool, captured: bool
) -> Finished:
    if not isinstance(target, RemoteShell):
        raise DeployError(
            "no_shell",
            f"running a command on {machine_id}: {place} does not allow access to its machines",
            hint="read the log with 'tgi-deploy logs NAME'",
        )
    ended = target.run(place, machine_id, words, terminal=terminal)
    return ended if captured else _shown(ended)


def _shown(ended: Finished) -> Finished:
    """Write the output of a command to this program's streams."""
    for stream, text in ((sys.stdout, ended.stdout), (sys.stderr, ended.stderr)):
        stream.write(text or "")
        stream.flush()
    return Finished(exit_code=ended.exit_code)


def _text(output: bytes | None) -> str | None:
    return None if output is None else output.decode(errors="replace")


def _no_shell(name: str, reason: str, hint: str) -> DeployError:
    return DeployError("no_shell", f"running a command on '{name}': {reason}", hint=hint)
