"""Session Manager and Run Command of Systems Manager's API, for machines whose role lets the agent answer."""

from __future__ import annotations

import secrets
import subprocess
import threading
import uuid
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox import roles
from tgi_deploy.sandbox.sessions.agent import Guest, Session, serve
from tgi_deploy.sandbox.wire import AMZ_JSON, Answer, Call, RefusedError, json_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from websockets.sync.server import Server, ServerConnection

_PORT: Final = "AWS-StartPortForwardingSession"
_SHELL: Final = "AWS-StartInteractiveCommand"
_SCRIPT: Final = "AWS-RunShellScript"
# Of GetCommandInvocation: AWS Systems Manager API Reference.
_MOST_OUT, _MOST_ERR = 24_000, 8_000
_COMMAND_S: Final = 600.0


class Sessions:
    """`guest` returns a running machine; None before its agent has registered."""

    def __init__(self, guest: Callable[[str], Guest | None]) -> None:
        self._guest = guest
        self._sessions: dict[str, Session] = {}
        self._commands: dict[str, dict[str, Any]] = {}
        self._server: Server | None = None

    def answer(self, call: Call) -> Answer | None:
        """Return None for calls that are not about sessions or commands."""
        known = {
            "StartSession": self._start,
            "SendCommand": self._send,
            "GetCommandInvocation": self._invocation,
        }
        return known[call.action](call) if call.service == "ssm" and call.action in known else None

    def _start(self, call: Call) -> Answer:
        target, document = call.text("Target"), call.text("DocumentName")
        guest = self._registered(target)
        if guest is None:
            raise RefusedError("TargetNotConnected", f"{target} is not connected.")
        if document not in {_PORT, _SHELL}:
            raise RefusedError("InvalidDocument", f"Document with name {document} does not exist.")
        parameters: Mapping[str, list[str]] = call.params.get("Parameters", {})
        session = Session(
            id=f"sandbox-{secrets.token_hex(9)}",
            guest=guest,
            port=int(parameters["portNumber"][0]) if document == _PORT else None,
            command="" if document == _PORT else parameters["command"][0],
            token=secrets.token_urlsafe(48),
        )
        self._sessions[session.id] = session
        return _reply({
            "SessionId": session.id,
            "TokenValue": session.token,
            "StreamUrl": f"ws://127.0.0.1:{self._port()}/v1/data-channel/{session.id}?role=publish_subscribe",
        })  # fmt: skip

    def _registered(self, instance_id: str) -> Guest | None:
        return self._guest(instance_id) if roles.may_answer_sessions(instance_id) else None

    def _port(self) -> int:
        """Return the port of the data channels' server, started with the first session."""
        if self._server is None:
            from websockets.sync.server import serve as websocket_server  # noqa: PLC0415 -- few deployments have one

            self._server = websocket_server(self._serve, "127.0.0.1", 0)
            threading.Thread(target=self._server.serve_forever, name="data channels", daemon=True).start()
        return int(self._server.socket.getsockname()[1])

    def _serve(self, link: ServerConnection) -> None:
        path = link.request.path if link.request else ""
        serve(link, self._sessions.pop(path.partition("?")[0].rpartition("/")[2], None))

    def _send(self, call: Call) -> Answer:
        (target,) = call.params["InstanceIds"]
        guest = self._registered(target)
        if guest is None:
            raise RefusedError("InvalidInstanceId", f"Instances not in a valid state for account: {target}")
        if call.text("DocumentName") != _SCRIPT:
            raise RefusedError("InvalidDocument", "only AWS-RunShellScript is known here")
        command_id = str(uuid.uuid4())
        self._commands[command_id] = {"Status": "InProgress", "ResponseCode": -1}
        script = "\n".join(call.params["Parameters"]["commands"])
        threading.Thread(target=self._execute, args=(command_id, guest, script), daemon=True).start()
        return _reply({"Command": {"CommandId": command_id, "Status": "Pending"}})

    def _execute(self, command_id: str, guest: Guest, script: str) -> None:
        done = subprocess.run(  # noqa: S603 -- the sandbox's owner asked for it
            ["/bin/bash", "-c", script], cwd=guest.folder, env=dict(guest.environment), stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_COMMAND_S, check=False,
        )  # fmt: skip
        self._commands[command_id] = {
            "Status": "Failed" if done.returncode else "Success",
            "ResponseCode": done.returncode if done.returncode >= 0 else 128 - done.returncode,
            "StandardOutputContent": done.stdout.decode(errors="replace")[:_MOST_OUT],
            "StandardErrorContent": done.stderr.decode(errors="replace")[:_MOST_ERR],
        }

    def _invocation(self, call: Call) -> Answer:
        found = self._commands.get(call.text("CommandId"))
        if found is None:
            raise RefusedError("InvocationDoesNotExist", "")
        return _reply({"CommandId": call.text("CommandId"), "InstanceId": call.text("InstanceId"), **found})


def _reply(document: dict[str, Any]) -> Answer:
    return json_answer(document, content_type=AMZ_JSON)
