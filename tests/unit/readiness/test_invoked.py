"""The client of an engine behind its cloud's API, which reaches one route only."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from builders.engines import PLANNING
from fakes.computer import FakeClock

from tgi_deploy.errors import DeployError, NotHealthyError
from tgi_deploy.readiness.invoked import InvokedEngine
from tgi_deploy.readiness.proof import Endpoint, ExpectedService, prove
from tgi_deploy.values.probing import ProbeRequest, Promise

ENGINE = PLANNING[0]
PROMISE = Promise(
    model_id="example-org/example-13b", input_tokens=64, output_tokens=32, concurrency=2, max_input_tokens=512,
    max_total_tokens=1024,
)  # fmt: skip
LAST = {"token": {"text": "."}, "generated_text": "yes.", "details": {"generated_tokens": 2}}


@dataclass
class Cloud:
    """Answers as the real engine does at its one route. `parts` cuts streams into pieces of so many bytes."""

    serves: bool = True
    parts: int = 7
    status: int = 200
    asked: list[tuple[dict[str, Any], bool]] = field(default_factory=list)

    def invoke(self, body: bytes, streamed: bool) -> Any:  # noqa: FBT001 -- of InvokedEngine
        asked = json.loads(body)
        self.asked.append((asked, streamed))
        if self.status != 200:
            return self.status, iter([b'{"error":"overloaded","error_type":"overloaded"}'])
        if "messages" in asked:
            return 200, iter([b'{"choices":[{"message":{"role":"assistant","content":"yes"}}]}'])
        if not streamed:
            return 200, iter([json.dumps([{"generated_text": "yes.", "details": {"generated_tokens": 2}}]).encode()])
        first = {"token": {"text": "yes"}, "generated_text": None}
        text = b"".join(b"data:" + json.dumps(event).encode() + b"\n\n" for event in (first, LAST))
        return 200, iter([text[at : at + self.parts] for at in range(0, len(text), self.parts)])

    @property
    def client(self) -> InvokedEngine:
        return InvokedEngine(engine=ENGINE, invocable=ENGINE, answers=lambda: self.serves, invoke=self.invoke)


def probe(step: str) -> ProbeRequest:
    return next(item for item in ENGINE.probes(PROMISE) if item.step == step)


def test_a_proof_through_the_cloud_skips_what_can_not_be_asked_and_says_so():
    cloud = Cloud()
    report = prove(Endpoint(client=cloud.client, engine=ENGINE), ExpectedService(promise=PROMISE), clock=FakeClock())
    assert [step.name for step in report.steps] == ["health", "generate", "stream", "chat"]
    assert [item.code for item in report.warnings] == ["info_unproved"]
    assert report.answer == "yes."


@pytest.mark.parametrize("step", ["generate", "longest", "repeat"])
def test_a_whole_answer_does_not_begin_with_the_prompt(step):
    cloud = Cloud()
    reply = cloud.client.ask(probe(step))
    assert reply.body["generated_text"] == "yes."
    ((asked, streamed),) = cloud.asked
    assert asked["parameters"]["return_full_text"] is False
    assert streamed is asked["stream"] is (step == "longest")  # services wait a minute for a whole answer


@pytest.mark.parametrize("parts", [1, 7, 10_000])
def test_a_stream_is_read_wherever_its_parts_end(parts):
    seen: list[str] = []
    reply = Cloud(parts=parts).client.ask(probe("stream"), seen.append)
    assert [json.loads(event)["token"]["text"] for event in reply.events] == ["yes", "."]
    assert tuple(seen) == reply.events
    assert len(reply.arrivals_ms) == 2


def test_the_engines_own_error_is_its_answer():
    reply = Cloud(status=429).client.ask(probe("generate"))
    assert (reply.status, reply.body["error_type"]) == (429, "overloaded")


def test_health_is_what_the_clouds_own_check_says():
    assert Cloud(serves=False).client.health().status == 503
    assert Cloud().client.ask(probe("health")).status == 200


def test_a_cloud_that_does_not_answer_is_a_probe_not_an_error():
    def fail() -> bool:
        raise DeployError("cloud_unreachable", "no answer")

    client = InvokedEngine(engine=ENGINE, invocable=ENGINE, answers=fail, invoke=Cloud().invoke)
    assert (client.health().outcome, client.health().why) == ("no_tunnel", "no answer")


def test_what_has_no_route_is_refused():
    assert not Cloud().client.reaches(probe("info"))
    with pytest.raises(NotHealthyError, match="does not forward such requests"):
        Cloud().client.ask(probe("info"))


def test_an_endless_answer_is_cut_off():
    def endless(_body: bytes, _streamed: bool) -> Any:  # noqa: FBT001 -- of InvokedEngine
        return 200, iter(lambda: b"x" * 2**20, None)

    client = InvokedEngine(engine=ENGINE, invocable=ENGINE, answers=lambda: True, invoke=endless)
    with pytest.raises(NotHealthyError, match="too long"):
        client.ask(probe("generate"))
