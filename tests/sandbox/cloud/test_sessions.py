"""The stub of Session Manager against a recording of AWS's plugin, and where it refuses."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.server import serve as websocket_server

from tgi_deploy.sandbox.sessions.agent import Guest, Session, serve
from tgi_deploy.sandbox.sessions.channel import decoded

RECORDED = json.loads((Path(__file__).parents[2] / "cases/sessions/port.json").read_text())


@pytest.fixture
def echo():
    """A server that answers what it gets with 'pong', and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            link, _ = listener.accept()
            with link:
                link.sendall(b"pong " + link.recv(100))

        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]


@pytest.fixture
def agent(tmp_path):
    servers = []

    def start(**what):
        session = Session(id="s-1", guest=Guest(address="127.0.0.1", folder=tmp_path, environment={}),
                          token="made-up-token", **what)  # fmt: skip
        server = websocket_server(lambda link: serve(link, session), "127.0.0.1", 0)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return connect(f"ws://127.0.0.1:{server.socket.getsockname()[1]}/s-1", proxy=None)

    yield start
    for server in servers:
        server.shutdown()


def test_recorded_plugin_messages_get_the_ports_answer(agent, echo):
    """The plugin opens with its token, shakes hands, opens a stream of smux, sends 'ping', and is interrupted."""
    received = []
    with agent(port=echo) as link:
        for raw in RECORDED["client"][:-2]:
            link.send(raw if raw.startswith("{") else bytes.fromhex(raw))
        while (received[-1].payload[:2] if received else b"") != b"\x01\x01":  # until the port's server has hung up
            received.append(decoded(link.recv(timeout=5)))
        for raw in RECORDED["client"][-2:]:  # the end of the stream, and the interrupt
            link.send(bytes.fromhex(raw))
        with suppress(TimeoutError, ConnectionClosed):
            while True:
                received.append(decoded(link.recv(timeout=1)))
    sent = {message.sequence: message for message in received if message.kind == "output_stream_data"}
    assert [(message.payload_type, message.payload) for _, message in sorted(sent.items())][1:] == [
        (7, b'{"HandshakeTimeToComplete": 0, "CustomerMessage": ""}'),
        (1, b"\x01\x02\x09\x00\x03\x00\x00\x00pong ping"),
        (1, b"\x01\x01\x00\x00\x03\x00\x00\x00"),
    ]
    handshake = json.loads(sent[0].payload)
    assert (sent[0].payload_type, handshake["RequestedClientActions"][0]["ActionParameters"]["SessionType"]) == (
        5,
        "Port",
    )
    acknowledged = [json.loads(message.payload) for message in received if message.kind == "acknowledge"]
    theirs = [decoded(bytes.fromhex(raw)) for raw in RECORDED["client"][1:]]
    assert [(item["AcknowledgedMessageSequenceNumber"], item["AcknowledgedMessageId"]) for item in acknowledged] == [
        (message.sequence, str(message.id)) for message in theirs if message.kind == "input_stream_data"
    ]


def test_without_its_token_nobody_gets_into_a_session(agent):
    with agent(command="echo secret") as link:
        link.send(json.dumps({"TokenValue": "another"}))
        with pytest.raises(ConnectionClosed, match="another session's"):
            link.recv(timeout=5)


@pytest.mark.parametrize("raw", [b"", b"x" * 119, bytes.fromhex(RECORDED["client"][2])[:-1]])
def test_a_truncated_message_is_rejected(raw):
    with pytest.raises(ValueError, match="message"):
        decoded(raw)


def test_a_machine_without_the_role_is_not_connected(cloud):
    machine = cloud.run("#!/bin/bash\ntrue\n")
    ssm = cloud.client("ssm")
    with pytest.raises(ClientError, match="TargetNotConnected"):
        ssm.start_session(Target=machine, DocumentName="AWS-StartInteractiveCommand", Parameters={"command": ["id"]})
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        ssm.send_command(InstanceIds=[machine], DocumentName="AWS-RunShellScript", Parameters={"commands": ["id"]})
