"""Access to machines without an open port, through AWS Systems Manager: forwarded ports, a shell, and single commands.

AWS's own Session Manager plugin transports the data of ports and shells. It acknowledges, multiplexes and signs it, and
encrypts it again if the account requires that: https://github.com/aws/session-manager-plugin.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import NotYetError
from tgi_deploy.targets.protocol import Finished

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.serving import TunnelEnd

PLUGIN: Final = ("session-manager-plugin",)
INSTALLATION: Final = (
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
)
# The first version that reads a session's token from a variable (its release notes).
_OLDEST: Final = (1, 2, 536)
_VARIABLE: Final = "AWS_SSM_START_SESSION_RESPONSE"
_PORT: Final = "AWS-StartPortForwardingSession"
_SHELL: Final = "AWS-StartInteractiveCommand"
_SCRIPT: Final = "AWS-RunShellScript"
# From its sessionmanagerplugin/session/portsession/muxportforwarding.go.
_OPENED: Final = re.compile(r"Port (\d+) opened for sessionId ")
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# The states of GetCommandInvocation (AWS Systems Manager API Reference).
_UNDER_WAY: Final = frozenset({"Pending", "InProgress", "Delayed"})
_ENDED: Final = frozenset({"Success", "Failed"})
_ROOT_SHELL: Final = "if command -v sudo >/dev/null; then exec sudo -i; else exec bash; fi"
_POLL_S: Final = 0.5
_OPEN_S: Final = 30.0
_END_S: Final = 3.0
_VERSION_S: Final = 10.0
_KEPT_LINES: Final = 20
_SHOWN_CHARS: Final = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class _Forward:
    """A running plugin that forwards the local `port`."""

    child: subprocess.Popen[str]
    port: int


class SessionManager:
    """Thread-safe. Forwarded ports stay open until the process ends or this object is deleted.

    `api` returns a region's API. `plugin` is the program with its first arguments. For `again_s` after a failure, the
    same error is raised without another request.
    """

    def __init__(self, api: Callable[[str], Api], *, plugin: Sequence[str] = PLUGIN, again_s: float = 5.0) -> None:
        self._api = api
        self._plugin = tuple(plugin)
        self._again_s = again_s
        self._lock = threading.Lock()
        self._forwards: dict[TunnelEnd, _Forward] = {}
        self._failures: dict[TunnelEnd, tuple[float, DeployError]] = {}
        weakref.finalize(self, _end_all, self._forwards)

    def local_port(self, end: TunnelEnd) -> int:
        """Return the local port of the tunnel to `end`, opening it if needed.

        Raises DeployError `plugin_missing`, `not_managed`, `tunnel_failed`, or the cloud's error.
        """
        with self._lock:
            known = self._forwards.get(end)
            if known is not None and known.child.poll() is None:
                return known.port
            failed_at, error = self._failures.get(end, (0.0, None))
            if error is not None and time.monotonic() - failed_at < self._again_s:
                raise error
            try:
                self._forwards[end] = self._forward(end)
            except DeployError as problem:
                self._failures[end] = (time.monotonic(), problem)
                raise
            return self._forwards[end].port

    def _forward(self, end: TunnelEnd) -> _Forward:
        started = self._start(end.place, end.machine_id, _PORT, {"portNumber": [str(end.port)]})
        # In a separate session: Ctrl-C must not end the tunnel, which this program may need in order to clean up.
        child = started(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                        errors="replace", start_new_session=True)  # fmt: skip
        output, ports = deque[str](maxlen=_KEPT_LINES), Queue[int | None]()
        threading.Thread(target=_read, args=(child, output, ports), name="tunnel", daemon=True).start()
        try:
            port = ports.get(timeout=_OPEN_S)
        except Empty:
            port = None
        if port is None:
            _end(child)
            raise _failed(end, "".join(output))
        return _Forward(child=child, port=port)

    def shell(self, region: str, machine_id: str) -> int:
        """Run a shell as root on the terminal of this program; return the plugin's exit code."""
        child = self._start(region, machine_id, _SHELL, {"command": [_ROOT_SHELL]})()
        while True:
            with suppress(KeyboardInterrupt):  # the plugin receives it, too, and forwards it
                return child.wait()

    def run(self, region: str, machine_id: str, words: Sequence[str]) -> Finished:
        """Run a command as root, and return its output, of which the cloud keeps the beginning.

        Raises DeployError `not_managed`, or `command_unfinished` if the machine never reports its end.
        """
        api, doing = self._api(region), f"running a command on {machine_id}"
        asked = {"DocumentName": _SCRIPT, "Parameters": {"commands": [shlex.join(words)]}}
        command = api.change("send_command", doing, _command_id, service="ssm", once=True, InstanceIds=[machine_id],
                             **asked)  # fmt: skip
        while True:
            api.retrier.clock.sleep(_POLL_S)
            with suppress(NotYetError):
                state, ended = api.ask("get_command_invocation", doing, _ended, service="ssm", CommandId=command,
                                       InstanceId=machine_id)  # fmt: skip
                if state in _ENDED:
                    return ended
                if state not in _UNDER_WAY:
                    raise DeployError(
                        "command_unfinished",
                        f"{doing} in {region}: {state}",
                        hint="'tgi-deploy status NAME' shows whether the machine still runs",
                    )

    def _start(
        self, region: str, machine_id: str, document: str, parameters: Mapping[str, list[str]]
    ) -> Callable[..., subprocess.Popen[Any]]:
        """Start a session; return a function that starts its plugin. As in AWS's CLI, a variable holds the token."""
        api = self._api(region)
        asked = {"Target": machine_id, "DocumentName": document, "Parameters": dict(parameters)}
        session = api.ask("start_session", f"opening a session to {machine_id}", _session, service="ssm", **asked)
        endpoint = api.sessions.client("ssm", region).meta.endpoint_url
        words = (*self._plugin, _VARIABLE, region, "StartSession", "", json.dumps(asked), endpoint)
        return partial(_spawn, words, env={**os.environ, _VARIABLE: session})

    def problem(self) -> str:
        """Return why the plugin can't be used here; empty if it can."""
        try:
            output = subprocess.run(  # noqa: S603 -- a fixed program
                [*self._plugin, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return f"the program {self._plugin[0]!r} is not installed"
        found = _VERSION.search(output)
        if found is None or tuple(map(int, found.groups())) < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            return f"the program {self._plugin[0]!r} is older than {oldest} ({output.strip()[:40] or 'no version'})"
        return ""


def _command_id(reply: Reply) -> str:
    return reply.part("Command").text("CommandId")


def _ended(reply: Reply) -> tuple[str, Finished]:
    """Return the state of a command, and its result so far."""
    out, err = (reply.optional_text(f"Standard{name}Content") for name in ("Output", "Error"))
    return reply.text("Status"), Finished(exit_code=reply.integer("ResponseCode"), stdout=out, stderr=err)


def _session(reply: Reply) -> str:
    """Return the session in the plugin's format. Its token grants access, so it must never be shown."""
    names = ("SessionId", "TokenValue", "StreamUrl")
    return json.dumps({name: reply.text(name) for name in names})


def _spawn(words: Sequence[str], **how: Any) -> subprocess.Popen[Any]:  # noqa: ANN401 -- Popen's own
    try:
        return subprocess.Popen(words, **how)  # noqa: S603 -- a fixed program, and its own arguments
    except OSError as error:
        raise plugin_missing(f"starting {words[0]!r} on this computer failed: {error.strerror}") from error


def plugin_missing(reason: str) -> DeployError:
    return DeployError(
        "plugin_missing", f"a tunnel needs AWS's Session Manager plugin: {reason}", hint=f"install it: {INSTALLATION}"
    )


def _read(child: subprocess.Popen[str], output: deque[str], ports: Queue[int | None]) -> None:
    """Pass on the port once it is open, and keep reading, because a full pipe would stop the plugin."""
    with child.stdout or StringIO() as lines:
        for line in lines:
            output.append(line)
            if found := _OPENED.search(line):
                ports.put(int(found[1]))
    ports.put(None)


def _failed(end: TunnelEnd, output: str) -> DeployError:
    reason = " ".join(output.split())[-_SHOWN_CHARS:] or f"the plugin opened no port within {_OPEN_S:.0f} s"
    return DeployError(
        "tunnel_failed",
        f"opening a tunnel to port {end.port} of {end.machine_id}: {reason}",
        hint="run the command again; if it fails again, update the Session Manager plugin",
    )


def _end_all(forwards: dict[TunnelEnd, _Forward]) -> None:
    for forward in forwards.values():
        _end(forward.child)


def _end(child: subprocess.Popen[str]) -> None:
    """Interrupt a plugin, so that it also ends the session on the machine."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.wait(_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
