"""READY means that the engine runs on the planned accelerators: real logs without a GPU, and slow answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from builders import engines
from loopback_engine import CHAT, INFO, PLAIN
from waiting_fakes import ENGINE, GRAMMAR, OK, REFUSED, WARM, FakeClock, story

from tgi_deploy.diagnosis.reader import read
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import NotHealthyError
from tgi_deploy.readiness.proof import Endpoint, ExpectedService, prove
from tgi_deploy.values.base import replaced
from tgi_deploy.values.probing import HttpReply

RECORDED = Path(__file__).parents[2] / "cases" / "diagnosis"
MARKERS = "[tgi-deploy] phase=booting\n[tgi-deploy] phase=pulling image=tgi:3.3.7\n[tgi-deploy] phase=starting-engine\n"
ON_CPU = (RECORDED / "real-cpu-start" / "log.txt").read_text(encoding="utf-8").partition("generate")[0]
AS_JSON = (RECORDED / "real-cpu-start-json" / "log.jsonl").read_text(encoding="utf-8").partition("Terminating")[0]
STARTED = ON_CPU[: ON_CPU.rindex("\n") + 1]
STARTED_AS_JSON = AS_JSON[: AS_JSON.rindex("\n") + 1]
LAUNCHER_WARNS = STARTED[: STARTED.index("Forcing attention")]
SHARD_WARNS = (
    "2026-11-22T13:49:06Z  WARN text_generation_launcher: Could not import Flash Attention enabled models: {}\n"
)


def refused(**script):
    tale = story(**script)
    with pytest.raises(NotHealthyError) as caught:
        tale.wait()
    return tale, caught.value


@pytest.mark.parametrize("log", [STARTED, STARTED_AS_JSON], ids=["text", "json"])
@pytest.mark.parametrize("markers", [MARKERS, ""], ids=["ec2", "docker"])
def test_an_engine_that_answers_from_the_cpu_is_not_ready(log, markers):
    _, error = refused(consoles=[(0, markers + log)], probes=[(0, OK)])
    assert (error.code, error.exit_code, error.data["finding"]) == ("wrong_device", 5, "gpu_not_visible")
    assert "Found no NVIDIA driver" in error.data["evidence"]
    assert "runs on the CPU" in error.message
    assert "nvidia-smi" in error.hint


def test_the_wait_ends_with_the_first_line_that_shows_it():
    tale, error = refused(consoles=[(0, MARKERS), (60, MARKERS + LAUNCHER_WARNS)])
    assert (error.code, error.data["phase"], tale.elapsed_s) == ("wrong_device", "downloading", 60)


@pytest.mark.parametrize("why", ["System cpu doesn't support flash/paged attention", "CUDA is not available"])
def test_a_shards_import_warnings_show_it(why):
    _, error = refused(consoles=[(0, ENGINE + "Starting shard rank=0\n" + SHARD_WARNS.format(why))])
    assert error.code == "wrong_device"


def test_a_log_that_comes_after_the_first_answer_is_still_read():
    """Consoles lag: the console is read again before READY if it has not shown the KV cache."""
    tale = story(consoles=[(0, ENGINE), (101, MARKERS + STARTED)], probes=[(0, REFUSED), (100, OK)])
    with pytest.raises(NotHealthyError) as caught:
        tale.wait()
    assert caught.value.code == "wrong_device"


def test_a_window_without_the_warning_keeps_the_finding():
    before = read(MARKERS + LAUNCHER_WARNS, GRAMMAR)
    window = STARTED[STARTED.index("Starting Webserver") - 60 :]
    assert read(window[window.index("\n") + 1 :], GRAMMAR, before=before).forbids_ready is not None


def test_a_new_start_on_the_accelerator_is_ready():
    assert story(consoles=[(0, MARKERS + STARTED + WARM)], probes=[(0, OK)]).wait().kv_capacity_tokens == 9000


@pytest.mark.parametrize(
    "line",
    [
        SHARD_WARNS.format("GPU with CUDA capability 7 5 is not supported for Flash Attention V2"),
        "2026-11-22T13:49:06Z  WARN text_generation_launcher: Could not import Mamba: No module named 'mamba_ssm'\n",
        "2026-11-22T13:49:06Z  WARN x: Cannot determine GPU compute capability: RuntimeError: Error 802: not yet\n",
    ],
)
def test_other_warnings_of_a_start_do_not_forbid_it(line):
    assert story(consoles=[(0, ENGINE + line + WARM)], probes=[(0, OK)]).wait().kv_capacity_tokens == 9000


def test_user_text_does_not_prevent_readiness():
    result = SHARD_WARNS.format("System cpu doesn't support flash/paged attention")
    assert read(WARM + "router: Connected\n" + result, GRAMMAR).forbids_ready is None
    assert read(result, GRAMMAR).forbids_ready is None, "no start is in sight"


def test_a_default_is_not_a_measured_kv_cache():
    assert read(STARTED, GRAMMAR).progress.kv_capacity_tokens is None
    measured = STARTED.replace("Model does not support automatic max batch total tokens", "Using prefill chunking")
    assert read(measured, GRAMMAR).progress.kv_capacity_tokens == 16000
    at = STARTED.index("Setting max batch total tokens")
    before = read(STARTED[:at], GRAMMAR)
    assert read(STARTED[at - 60 :], GRAMMAR, before=before).progress.kv_capacity_tokens is None


@dataclass
class Engine:
    """Streams tokens `gaps_ms` apart: one list for each stream, the last one again and again."""

    gaps_ms: list[list[float]]
    info: dict = field(default_factory=lambda: dict(INFO))
    streams: int = 0

    def ask(self, probe):
        if probe.streamed:
            return self.stream()
        bodies = {"/health": None, "/info": self.info, "/generate": PLAIN}
        return HttpReply(status=200, body=bodies.get(probe.path, CHAT))

    def stream(self):
        gaps = self.gaps_ms[min(self.streams, len(self.gaps_ms) - 1)]
        self.streams += 1
        arrivals = [100.0]
        for gap in gaps:
            arrivals.append(arrivals[-1] + gap)
        events = (*['{"token": {"text": "a"}, "generated_text": null}'] * len(gaps), '{"generated_text": "a"}')
        return HttpReply(status=200, events=events, arrivals_ms=tuple(arrivals))


LIMITS = {key: value for key, value in INFO.items() if key != "version"}
EXPECTED = ExpectedService(promise=replaced(engines.PROMISE, **LIMITS), slowest_token_ms=150.0)


def proof_of(engine, expected=EXPECTED):
    return prove(Endpoint(client=engine, engine=Tgi()), expected, clock=FakeClock())


def test_an_engine_slower_than_the_slowest_plausible_is_not_proved():
    engine = Engine([[400.0] * 15])
    with pytest.raises(NotHealthyError) as caught:
        proof_of(engine)
    error = caught.value
    assert (error.code, error.exit_code) == ("implausibly_slow", 5)
    assert error.data == {"step": "stream", "token_ms": 400.0, "slowest_token_ms": 150.0}
    assert "400 ms per token" in error.message
    assert engine.streams == 3


@pytest.mark.parametrize(
    "gaps",
    [
        [149.0] * 15,
        [3000.0, *[120.0] * 14],
        [*[120.0] * 5, *[900.0] * 10],
        [400.0] * 3,
    ],
    ids=["slow", "one-pause", "others-are-served-too", "too-few-tokens-to-tell"],
)
def test_a_slow_start_that_is_plausible_is_proved(gaps):
    engine = Engine([gaps])
    assert proof_of(engine)
    assert engine.streams == 1


def test_an_engine_that_was_only_cold_is_proved():
    assert proof_of(Engine([[400.0] * 15, [400.0] * 15, [20.0] * 15]))


def test_without_a_prediction_no_speed_is_too_slow():
    assert proof_of(Engine([[9000.0] * 15]), replace(EXPECTED, slowest_token_ms=None))


def test_bunched_tokens_do_not_hide_slowness():
    with pytest.raises(NotHealthyError):
        proof_of(Engine([[0.0, *[400.0] * 14]]))


@pytest.mark.parametrize("device", ["cpu", "xpu"])
def test_releases_that_name_their_device_must_name_the_planned_one(device):
    with pytest.raises(NotHealthyError) as caught:
        proof_of(Engine([[10.0] * 15], info=INFO | {"model_device_type": device}))
    assert caught.value.code == "wrong_device"
    assert device in caught.value.message
    assert proof_of(Engine([[10.0] * 15], info=INFO | {"model_device_type": "cuda"}))
