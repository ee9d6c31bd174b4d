"""A stub server as a separate process, and parts to run one inside the test."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SMALL = "HuggingFaceTB/SmolLM2-135M-Instruct"
DEADLINE_S = 90
PARAMETERS = 150_848


class Watched(io.StringIO):
    """A log that sets an event after a text has appeared some number of times."""

    def __init__(self, fragment, count, event):
        super().__init__()
        self._fragment, self._left, self._event = fragment, count, event

    def write(self, text):
        self._left -= self._fragment in text
        if self._left <= 0:
            self._event.set()
        return super().write(text)


@pytest.fixture(scope="session")
def watched():
    return Watched


@dataclass
class Engine:
    """A running stub server. `log` grows while it runs."""

    process: subprocess.Popen
    port: int
    lines: list = field(default_factory=list)
    reader: threading.Thread = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self):
        return "".join(self.lines)

    def wait_for(self, fragment):
        self._until(lambda: fragment in self.log, f"no {fragment!r} in:\n{self.log}")

    def wait_until_ready(self):
        self.wait_for("Connected")
        self.wait_until_answering()

    def wait_until_answering(self):
        """The line comes before the socket is bound."""
        self._until(lambda: not self.refuses(), "nothing listens")

    def _until(self, holds, complaint):
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            ended = self.process.poll() is not None and not self.reader.is_alive() and not holds()
            assert not ended, f"it ended with {self.process.returncode}:\n{self.log}"
            assert time.monotonic() < deadline, complaint
            time.sleep(0.01)

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read().decode()

    def refuses(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) != 0

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self):
        return self.process.wait(DEADLINE_S)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def started(*launcher_args, options=(), environ=None, speed=2000):
    port = free_port()
    command = [
        sys.executable, "-m", "tgi_deploy.sandbox.engine", "--version", "3.3.7", "--listen", f"127.0.0.1:{port}",
        "--accelerator", "L40S", "--speed", str(speed), *options, "--", *launcher_args,
    ]  # fmt: skip
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        command,
        cwd=root,
        env={"PATH": os.environ["PATH"], "NO_COLOR": "1", **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    engine = Engine(process, port)
    reader = threading.Thread(target=lambda: engine.lines.extend(iter(process.stdout.readline, "")))
    engine.reader = reader
    reader.start()
    try:
        yield engine
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(DEADLINE_S)
        reader.join(DEADLINE_S)
        process.stdout.close()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A minimal local model folder with all its files."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    shutil.copytree(Path(__file__).parents[2] / "cases/engine/tiny", folder)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    header = json.dumps({"w": {"dtype": "F32", "shape": [PARAMETERS], "data_offsets": [0, 4 * PARAMETERS]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(4 * PARAMETERS)
    (folder / "model.safetensors").write_bytes(weights)
    return folder


@pytest.fixture(scope="session")
def start_engine():
    """`with start_engine("--max-total-tokens", "64", options=[…]) as engine`: a small model is served by default."""

    def start(*args, shards=1, **settings):
        model = () if "--model-id" in args else ("--model-id", SMALL)
        return started(*model, *(("--num-shard", str(shards)) if shards else ()), *args, **settings)

    return start
