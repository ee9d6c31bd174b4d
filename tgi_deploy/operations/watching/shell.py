"""The use case `exec`: runs a command on a deployment's machine through a local program such as `docker`."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.watching.logs import locate
from tgi_deploy.targets.protocol import Shell
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from tgi_deploy.operations.context import Context

_SIGNALED = 128


class Finished(Frozen, frozen=True, kw_only=True):
    """The result of a command. Its output is None if it went to this program's streams."""

    exit_code: int
    stdout: str | None = None
    stderr: str | None = None


def run_there(
    context: Context, name: str, words: tuple[str, ...], *, terminal: bool = False, captured: bool = False
) -> Finished:
    """Run a command on a deployment's machine; without one, an interactive shell.

    Raises InputError `unknown_deployment`, DeployError `no_machine`, `no_shell`.
    """
    _, place, machine_id = locate(context, name)
    target = context.target_at(place)
    if not isinstance(target, Shell):
        # A command for the real cloud finds nothing in a local one.
        by_hand = "" if context.loopback else "; " + target.facts.shell_by_hand.format(place=place, id=machine_id)
        raise _no_shell(name, target.facts.no_shell, f"'tgi-deploy logs {name}' prints its log{by_hand}")
    child = target.child(place, machine_id, words, terminal=terminal)
    try:
        ended = subprocess.run(child, capture_output=captured, check=False)  # noqa: S603 -- the user asked for it
    except OSError as error:
        reason = f"starting {child[0]!r} on this computer failed: {error.strerror}"
        raise _no_shell(name, reason, f"install the {child[0]!r} command; no daemon is needed here") from error
    code = ended.returncode if ended.returncode >= 0 else _SIGNALED - ended.returncode
    return Finished(exit_code=code, stdout=_text(ended.stdout), stderr=_text(ended.stderr))


def _text(output: bytes | None) -> str | None:
    return None if output is None else output.decode(errors="replace")


def _no_shell(name: str, reason: str, hint: str) -> DeployError:
    return DeployError("no_shell", f"running a command on '{name}': {reason}", hint=hint)
