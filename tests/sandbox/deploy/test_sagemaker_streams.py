"""No answer is cut off: streams of 100 s stay open while their endpoint is updated, rolled back and scaled out.

In a separate sandbox, in which time passes slowly enough that a stream takes as long as on a real machine.
"""

from __future__ import annotations

import json
import threading
import time

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from builders.sandboxed import Program

from tgi_deploy.sandbox import control

SPEED = 20.0
STREAMS = 2
# So that at any moment one of them has just begun.
APART_S = 5
LEAST_S = 100
NAME = "tgi-deploy-demo"
UP = (
    "up", "llama3-8b", "--name", "demo", "--target", "sagemaker", "--region", "us-east-1", "--instance", "ml.g6.xlarge",
    "--ready", "fast", "--yes",
)  # fmt: skip
# One text that a grammar forces, which takes the engine about 200 s.
ANSWER = " ".join(["word"] * 2200)
GRAMMAR = {"type": "json", "value": {"properties": {"text": {"const": ANSWER}}}}
BODY = {"inputs": "on", "parameters": {"grammar": GRAMMAR}, "stream": True}


@pytest.fixture
def program(tmp_path, monkeypatch, capsys):
    home = tmp_path / "state"
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(home))
    info = control.start(home / "sandbox", speed=SPEED)
    yield Program(url=info.endpoint_url, access_key=info.access_key, home=home, capsys=capsys)
    control.stop(home / "sandbox")


class Streams(threading.Thread):
    """Reads one stream after another. `lasted_s`: how long each took, in the engine's time."""

    def __init__(self, program):
        super().__init__(daemon=True)
        self.runtime = program.client(
            "sagemaker-runtime", config=Config(retries={"total_max_attempts": 1}, read_timeout=120)
        )
        self.ending = threading.Event()
        self.lasted_s, self.cut = [], []

    def run(self):
        while not self.ending.is_set():
            since = time.monotonic()
            try:
                answer = self.runtime.invoke_endpoint_with_response_stream(
                    EndpointName=NAME, Body=json.dumps(BODY), ContentType="application/json"
                )["Body"]
                text = b"".join(event["PayloadPart"]["Bytes"] for event in answer)
                assert b'"generated_text":"' in text
            except (ClientError, EventStreamError, KeyError, AssertionError) as error:
                self.cut.append(repr(error))
            self.lasted_s.append((time.monotonic() - since) * SPEED)


def done(program, *words):
    ran = program.here(*words)
    assert ran.code == 0, ran.json["errors"]
    return ran.json


@pytest.mark.slow
def test_streams_of_100_s_outlive_an_update_a_rollback_and_a_larger_number(program):
    program.fault(name="slow-pull", pull_mb_per_s=1e6, times=1000)  # not what is tested here
    done(program, *UP)
    crowd = [Streams(program) for _ in range(STREAMS)]
    for streams in crowd:
        streams.start()
        time.sleep(APART_S)
    done(program, *UP, "--engine-version", "3.3.4")
    done(program, "rollback", "demo", "--yes")
    done(program, "scale", "demo", "2")
    for streams in crowd:
        streams.ending.set()
        streams.join(60)
    assert [streams.cut for streams in crowd] == [[]] * STREAMS
    lasted_s = [seconds for streams in crowd for seconds in streams.lasted_s]
    assert min(lasted_s) > LEAST_S
    assert len(lasted_s) >= 2 * STREAMS
    fewer = done(program, "scale", "demo", "1")
    assert "answers_cut" in {item["code"] for item in fewer["warnings"]}
