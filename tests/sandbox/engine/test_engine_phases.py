"""Grammar and stub server agree: the reader, the wait and the proof understand the server's output."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from builders import engines
from builders.logs import GRAMMAR

from tgi_deploy.diagnosis.patterns import STARTUP_PHASES
from tgi_deploy.diagnosis.reader import read
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import NotHealthyError
from tgi_deploy.readiness.deadlines import PhaseDeadline
from tgi_deploy.readiness.http import HttpEngine, probe_health
from tgi_deploy.readiness.proof import Endpoint, ExpectedService, prove
from tgi_deploy.readiness.waiting import WaitSettings, wait_until_ready
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import MachineState

SMALL = "HuggingFaceTB/SmolLM2-135M-Instruct"
COLOURED = {"NO_COLOR": ""}


class RealClock:
    """Everything here runs at thousands of times the real speed, so real seconds are few."""

    def now(self):
        return datetime.now(UTC)

    def monotonic(self):
        return time.monotonic()

    def sleep(self, seconds):
        time.sleep(seconds)


@dataclass
class Watcher:
    """Observer and listener of one stub server. Adds the exit marker that run-engine prints."""

    engine: object
    phases: list = field(default_factory=list)

    def machine(self):
        return MachineState(state="running", address=self.engine.url)

    def console(self):
        code = self.engine.process.poll()
        return self.engine.log + ("" if code is None else f"[tgi-deploy] phase=engine-exited code={code}\n")

    def probe(self, address):
        return probe_health(f"{address}/health")

    def phase(self, phase, detail, elapsed_s, expected_s):
        self.phases.append(phase)

    def line(self, text):
        pass


def wait(engine):
    watcher = Watcher(engine)
    deadlines = [PhaseDeadline(phase=phase, expected_s=5, deadline_s=20) for phase in STARTUP_PHASES]
    settings = WaitSettings(poll_s=0.01, settle_s=0.02)
    report = wait_until_ready(
        watcher, deadlines, grammar=GRAMMAR, clock=RealClock(), listener=watcher, settings=settings
    )
    return report, watcher


def expected(**changes):
    versions = changes.pop("versions", ("3.3.7", "3.3.6-dev0"))
    limits = {"model_id": SMALL, "max_input_tokens": 1024, "max_total_tokens": 2048}
    return ExpectedService(promise=replaced(engines.PROMISE, **(limits | changes)), versions=versions)


def proof_by(client, promised=None):
    return prove(Endpoint(client=client, engine=Tgi()), promised or expected(), clock=RealClock())


LIMITS = ("--max-input-tokens", "1024", "--max-total-tokens", "2048")


@pytest.mark.parametrize("args", [(), ("--json-output",)])
@pytest.mark.parametrize("environ", [{}, COLOURED])
def test_a_clean_start_is_awaited_and_proved(start_engine, args, environ):
    with start_engine(*LIMITS, *args, environ=environ, speed=200) as engine:
        report, watcher = wait(engine)
        assert set(watcher.phases) & {"downloading", "loading", "warming_up"}, "a busy computer may miss some"
        lines = engine.log.splitlines(keepends=True)
        reported = {read("".join(lines[:count]), GRAMMAR).startup_phase for count in range(len(lines))}
        assert {"downloading", "loading", "warming_up"} <= reported
        assert report.kv_capacity_tokens > 2048
        proof = proof_by(HttpEngine(engine.url))
        assert proof.answer
        assert proof.warnings == ()
        assert len(proof.steps) == 5
        view = read(engine.log, GRAMMAR)
        assert (view.startup_phase, view.findings, view.error_line) == ("ready", (), None)


@pytest.mark.parametrize("version", ["2.0.4", "2.4.0", "3.0.2"])
def test_older_releases_are_awaited_and_proved(start_engine, version):
    with start_engine(*LIMITS, options=["--version", version], environ=COLOURED) as engine:
        wait(engine)
        proof_by(HttpEngine(engine.url), expected(versions=(version,)))


@pytest.mark.parametrize(
    ("args", "options", "environ", "code"),
    [
        ((), ["--fault", "gated"], {}, "gated_no_token"),
        ((), ["--fault", "gated"], {"HF_TOKEN": "hf_x"}, "token_forbidden"),
        (("--model-id", "meta-llama/Llama-3.1-8B-Instruct"), [], {}, "gated_no_token"),
        (("--model-id", "nobody/knows-this"), [], {}, "repo_not_found"),
        ((), ["--fault", "disk-full"], {}, "disk_full"),
        ((), ["--fault", "network"], {}, "network"),
        ((), ["--fault", "oom-load"], {}, "oom_load"),
        ((), ["--fault", "oom-warmup"], {}, "oom_warmup_prefill"),
        (("--max-input-tokns", "5"), [], {}, "unknown_flag"),
        (("--quantize", "nonsense"), [], {}, "argument_validation"),
        (("--max-input-tokens", "9", "--max-total-tokens", "9"), [], {}, "argument_validation"),
        (("--quantize", "awq"), [], {}, "quant_mismatch"),
        (("--dtype", "float16", "--quantize", "fp8"), [], {}, "quant_mismatch"),
        ((), ["--accelerator", "B200"], {}, "arch_unsupported"),
        ((), ["--memory-bytes", "100000000"], {}, "oom_load"),
        (("--model-id", "Qwen/Qwen2.5-7B-Instruct"), ["--memory-bytes", "9000000000"], {}, "oom_load"),
    ],
)
@pytest.mark.parametrize("shape", [(), ("--json-output",)])
def test_a_failing_start_is_reported_with_its_cause(start_engine, args, options, environ, code, shape):
    with start_engine(*args, *shape, options=options, environ=COLOURED | environ) as engine:
        with pytest.raises(NotHealthyError) as caught:
            wait(engine)
        assert (caught.value.code, caught.value.data["finding"]) == ("engine_failed", code)
        assert caught.value.data["evidence"]


@pytest.mark.parametrize("version", ["3.3.7", "2.4.1", "2.0.4"])
@pytest.mark.parametrize("shape", [(), ("--json-output",)])
def test_an_engine_that_serves_from_the_cpu_is_not_ready(start_engine, version, shape):
    with start_engine(*LIMITS, *shape, options=["--accelerator", "none", "--version", version]) as engine:
        engine.wait_until_ready()
        with pytest.raises(NotHealthyError) as caught:
            wait(engine)
        assert (caught.value.code, caught.value.data["finding"]) == ("wrong_device", "gpu_not_visible")
        assert HttpEngine(engine.url).ask(engines.post("/generate", {"inputs": "Hello"})).status == 200


@pytest.mark.parametrize("args", [("--quantize", "eetq"), (*LIMITS, "--max-batch-prefill-tokens", "512")])
def test_a_crash_without_a_gpu_is_blamed_on_the_missing_gpu(start_engine, args):
    with start_engine(*args, options=["--accelerator", "none"]) as engine:
        assert engine.end() == 1
        with pytest.raises(NotHealthyError) as caught:
            wait(engine)
        assert (caught.value.code, caught.value.data["finding"]) == ("wrong_device", "gpu_not_visible")


def test_an_old_release_reports_the_cpu_itself(start_engine):
    with start_engine(*LIMITS, options=["--accelerator", "none", "--version", "2.0.4"]) as engine:
        engine.wait_until_ready()
        with pytest.raises(NotHealthyError) as caught:
            proof_by(HttpEngine(engine.url), expected(versions=("2.0.4",)))
        assert (caught.value.code, caught.value.data["served"]) == ("wrong_device", "cpu")


def test_a_hanging_shard_is_a_time_out_of_its_phase(start_engine):
    with start_engine(options=["--fault", "hang-shard"]) as engine:
        engine.wait_for("Waiting for shard")
        watcher = Watcher(engine)
        deadlines = [PhaseDeadline(phase="loading", expected_s=0.1, deadline_s=0.3)]
        with pytest.raises(NotHealthyError) as caught:
            wait_until_ready(watcher, deadlines, grammar=GRAMMAR, clock=RealClock(), listener=watcher,
                             settings=WaitSettings(poll_s=0.05, overall_s=5.0))  # fmt: skip
        assert caught.value.code == "not_ready"
        assert "Waiting for shard" in caught.value.message


def test_a_crash_right_after_ready_is_a_failure(start_engine):
    with start_engine(options=["--fault", "crash-after-ready"], speed=500) as engine:
        engine.wait_until_ready()
        engine.end()
        view = read(Watcher(engine).console(), GRAMMAR)
        assert view.latest.exit_code == 1
        assert view.cause_of_end is not None
        assert view.cause_of_end.code == "cuda_illegal_access"


@pytest.mark.parametrize(
    ("fault", "changes", "code"),
    [("wrong-model", {}, "wrong_model"), (None, {"max_total_tokens": 4096}, "limits_differ"),
     (None, {"versions": ("2.0.4",)}, "wrong_version"), ("overloaded", {}, "generate_failed")],
)  # fmt: skip
def test_requests_beyond_the_promise_are_not_proved(start_engine, fault, changes, code):
    with start_engine(*LIMITS, options=["--fault", fault] if fault else []) as engine:
        wait(engine)
        with pytest.raises(NotHealthyError) as caught:
            proof_by(HttpEngine(engine.url), expected(**changes))
        assert caught.value.code == code


def test_a_missing_chat_template_is_a_warning(start_engine):
    with start_engine(*LIMITS, options=["--fault", "no-chat-template"]) as engine:
        wait(engine)
        proof = proof_by(HttpEngine(engine.url))
        assert [warning.code for warning in proof.warnings] == ["no_chat_template"]


def test_a_required_key_is_sent(start_engine):
    with start_engine(*LIMITS, "--api-key", "sesame-7") as engine:
        wait(engine)
        with pytest.raises(NotHealthyError) as caught:
            proof_by(HttpEngine(engine.url))
        assert caught.value.code == "unauthorized"
        assert proof_by(HttpEngine(engine.url, api_key=lambda: "sesame-7")).answer
