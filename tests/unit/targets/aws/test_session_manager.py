"""Tunnels by AWS's Session Manager plugin: how it is started, what it prints, and what it reports when it fails."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from tgi_deploy.errors import DeployError
from tgi_deploy.targets.aws.session_manager import SessionManager
from tgi_deploy.targets.reply import Reply
from tgi_deploy.values.serving import TunnelEnd

END = TunnelEnd(place="us-east-1", machine_id="i-1", port=8080)
TOKEN = "made-up-token-0123456789"
SESSION = {"SessionId": "s-1", "TokenValue": TOKEN, "StreamUrl": "wss://example.invalid/s-1", "More": 1}


class Api:
    """A region that opens sessions, or raises `problem`."""

    def __init__(self, problem=None):
        self.asked, self.problem = [], problem
        meta = SimpleNamespace(endpoint_url="https://ssm.us-east-1.amazonaws.com")
        self.sessions = SimpleNamespace(client=lambda *_: SimpleNamespace(meta=meta))

    def ask(self, method, doing, read, *, service, **parameters):
        self.asked.append((service, method, parameters))
        if self.problem:
            raise self.problem
        return read(Reply.of(SESSION))


@pytest.fixture
def plugin(tmp_path):
    """A program that writes down how it was started, and prints what the real one did in the recording."""

    def make(ending="time.sleep(60)", expected="Port 45913 opened for sessionId s-1.\nWaiting for connections...\n"):
        path = tmp_path / "plugin.py"
        path.write_text(
            "import json, os, sys, time\n"
            f"json.dump({{'argv': sys.argv[1:], 'env': dict(os.environ)}}, open({str(tmp_path / 'started')!r}, 'w'))\n"
            f"print({expected!r}, flush=True)\n{ending}\n"
        )
        return (sys.executable, str(path))

    make.started = lambda: json.loads((tmp_path / "started").read_text())
    return make


def test_the_token_is_in_a_variable_and_in_no_argument(plugin):
    api = Api()
    manager = SessionManager(lambda _region: api, plugin=plugin())
    assert manager.local_port(END) == 45913
    started = plugin.started()
    asked = {"Target": "i-1", "DocumentName": "AWS-StartPortForwardingSession", "Parameters": {"portNumber": ["8080"]}}
    assert api.asked == [("ssm", "start_session", asked)]
    variable, region, operation, profile, parameters, endpoint = started["argv"]
    assert (region, operation, profile, endpoint) == (
        "us-east-1", "StartSession", "", "https://ssm.us-east-1.amazonaws.com",
    )  # fmt: skip
    assert json.loads(parameters) == asked
    assert TOKEN not in json.dumps(started["argv"])
    assert json.loads(started["env"][variable]) == {name: SESSION[name] for name in SESSION if name != "More"}
    assert variable not in os.environ


def test_a_tunnel_stays_open_and_one_that_ended_is_opened_again(plugin):
    api = Api()
    manager = SessionManager(lambda _region: api, plugin=plugin())
    assert manager.local_port(END) == manager.local_port(END) == 45913
    assert len(api.asked) == 1
    child = manager._forwards[END].child
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert manager.local_port(END) == 45913
    assert len(api.asked) == 2


def test_its_plugins_end_with_it(plugin):
    manager = SessionManager(lambda _region: Api(), plugin=plugin())
    manager.local_port(END)
    child = manager._forwards[END].child
    del manager
    assert child.wait(5) != 0


def test_a_plugin_that_ends_is_quoted(plugin):
    expected = "Cannot perform start session: invalid character 'A' looking for beginning of value"
    manager = SessionManager(lambda _region: Api(), plugin=plugin(ending="", expected=expected))
    with pytest.raises(DeployError, match=f"opening a tunnel to port 8080 of i-1: {expected}") as raised:
        manager.local_port(END)
    assert raised.value.code == "tunnel_failed"
    assert TOKEN not in str(raised.value)


def test_a_failure_is_not_repeated_at_once():
    api = Api(DeployError("not_managed", "not yet"))
    manager = SessionManager(lambda _region: api, again_s=0.2)
    for _ in range(3):
        with pytest.raises(DeployError, match="not yet"):
            manager.local_port(END)
    assert len(api.asked) == 1
    time.sleep(0.21)
    with pytest.raises(DeployError, match="not yet"):
        manager.local_port(END)
    assert len(api.asked) == 2


def test_without_the_plugin_its_installation_is_named():
    manager = SessionManager(lambda _region: Api(), plugin=("/nowhere/session-manager-plugin",))
    assert "is not installed" in manager.problem()
    with pytest.raises(DeployError, match="No such file") as raised:
        manager.local_port(END)
    assert raised.value.code == "plugin_missing"
    assert raised.value.hint.startswith("install it: https://docs.aws.amazon.com/")


@pytest.mark.parametrize(
    ("expected", "problem"),
    [("1.2.536.0", ""), ("1.3.0.0", ""), ("1.2.535.9", "older than 1.2.536 (1.2.535.9)"), ("", "(no version)")],
)
def test_a_plugin_that_would_show_the_token_is_too_old(tmp_path, expected, problem):
    program = tmp_path / "plugin"
    program.write_text(f"#!/bin/sh\necho {expected}\n")
    program.chmod(0o700)
    found = SessionManager(lambda _region: Api(), plugin=(str(program),)).problem()
    assert found.endswith(problem)
    assert bool(found) == bool(problem)
