"""What a failed `up` reports in addition to the failure: the cause from the log, and what still costs money."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import pytest
from builders.records import is_untouched
from fakes.cloud import FakeCloud
from fakes.computer import FakeEngine, request

from tgi_deploy.catalog.phases import read_failures
from tgi_deploy.cli.views.failure import failure_text
from tgi_deploy.diagnosis.finding import remedy_of
from tgi_deploy.diagnosis.patterns import pages_from
from tgi_deploy.errors import ConflictError, DeployError, InputError, LeftBehindError, NotHealthyError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.operations.planning.option_texts import resolve, texts_of
from tgi_deploy.operations.planning.plan import plan as make
from tgi_deploy.operations.watching.diagnose import subject_of
from tgi_deploy.operations.watching.lookup import typed_request
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.errors import InUseError
from tgi_deploy.values.ends import Ends
from tgi_deploy.values.plan import Plan
from tgi_deploy.values.probing import HttpReply
from tgi_deploy.wiring import open_catalog

READY = "[tgi-deploy] phase=starting-engine\nStarting shard\nShard ready in 3s\nStarting Webserver\nrouter: Connected\n"
OOM = READY + "torch.OutOfMemoryError: CUDA out of memory.\nShard 0 crashed\nError: ShardFailed\n"
LOADING_OOM = (
    "[tgi-deploy] phase=starting-engine\nStarting shard rank=0\ntorch.OutOfMemoryError: CUDA out of memory.\n"
    "Error: ShardCannotStart\n[tgi-deploy] phase=engine-exited code=1\n[tgi-deploy] verdict=configuration exit=64\n"
)
MET = (InputError("secret_unusable", "it has a space"), ConflictError("locked", "by another run"))


@dataclass
class Refusing(FakeEngine):
    """Serves, but fails every generate request."""

    def ask(self, probe):
        failed = HttpReply(status=424, text="Request failed during generation: CUDA out of memory")
        return failed if probe.step == "generate" else super().ask(probe)


def logs(monkeypatch, *texts):
    """Set the console's output at successive polls; the last one stays. Returns the polls."""
    looks = []

    def console(_cloud, _id):
        looks.append(1)
        return texts[min(len(looks), len(texts)) - 1]

    monkeypatch.setattr(FakeCloud, "console", console)
    return looks


def failure(around, **changes):
    with pytest.raises(DeployError) as caught:
        up(around.context(), request(wait=True, **changes))
    return caught.value


def keep(_error):
    return "keep"


def test_a_kept_machine_is_reported_with_its_cost_and_limits(around, monkeypatch):
    logs(monkeypatch, LOADING_OOM)
    around.probe = Probe(outcome="refused")
    error = failure(around, on_failure=keep, settings={"ttl_s": 3600})
    (machine,) = around.world.running()
    recorded = around.store.load("demo")
    assert error.data["outcome"] == "kept"
    assert error.data["receipt"] is None
    assert error.data["still_billed"] == {
        "machine": machine.id,
        "region": "us-east-1",
        "usd_per_hour": recorded.usd_per_hour,
        "ends_at": recorded.ends.expires_at.isoformat(),
        "ends_with": "tgi-deploy down demo",
    }
    assert f"costs ${recorded.usd_per_hour:.3f} an hour" in error.hint


def test_a_removed_machine_is_reported_with_its_receipt(around, monkeypatch):
    logs(monkeypatch, LOADING_OOM)
    around.probe = Probe(outcome="refused")
    error = failure(around)
    assert (error.data["outcome"], error.data["still_billed"]) == ("removed", None)
    assert error.data["receipt"]["status"] == "removed"
    assert is_untouched(error.data["receipt"])
    assert around.world.left() == []


def test_a_failed_removal_is_reported_with_its_cost(around, monkeypatch):
    """The cloud stops answering for good, while the engine is waited for."""
    logs(monkeypatch, LOADING_OOM)
    around.probe = Probe(outcome="refused")

    def unreachable(_name, _properties):
        raise DeployError("cloud_unreachable", "no answer", hint="check the network")

    def lose_the_cloud(_error):
        around.world.on_call = unreachable
        return "remove"

    error = failure(around, on_failure=lose_the_cloud)
    (machine,) = around.world.running()
    assert (error.code, error.data["outcome"]) == ("engine_failed", "not_removed")
    assert error.data["still_billed"]["machine"] == machine.id
    assert "may still be running" in error.hint
    assert "tgi-deploy down demo" in error.hint
    assert "cloud_unreachable no answer" in around.recorder.lines
    assert around.store.load("demo").machine.attributes["id"] == machine.id
    shown = failure_text(error.problem, error.failure)
    assert machine.id in shown
    assert "may still be running" in shown


def test_the_suggested_command_uses_the_plan(around, monkeypatch):
    logs(monkeypatch, LOADING_OOM)
    around.probe = Probe(outcome="refused")
    data = failure(around).data
    assert (data["phase"], data["finding"], data["line"]) == ("loading", "oom_load", 3)
    assert data["command"] == "tgi-deploy up example-13b --budget 5 --name demo --quantize auto"
    assert data["remedy"].endswith(f" Command: {data['command']}")


def test_the_finding_of_the_wait_is_reused(around, monkeypatch):
    looks = logs(monkeypatch, LOADING_OOM, READY)
    around.probe = Probe(outcome="refused")
    data = failure(around, on_failure=keep).data
    assert (len(looks), data["finding"]) == (1, "oom_load")
    assert data["cause"]
    assert data["evidence"].startswith("torch.OutOfMemoryError")


def test_a_failed_probe_is_explained_by_a_late_log_line(around, monkeypatch):
    looks = logs(monkeypatch, READY, READY, OOM)
    around.engine = Refusing()
    error = failure(around)
    assert error.code == "generate_failed"
    assert (error.data["phase"], error.data["step"], error.data["finding"]) == ("proof", "generate", "oom_serving")
    assert len(looks) == 3
    assert "explain oom_serving" in error.hint


@pytest.mark.parametrize("decision", ["keep", "remove"])
@pytest.mark.parametrize("met", MET)
def test_an_error_in_the_proof_keeps_its_class_and_exit_code(around, monkeypatch, met, decision):
    logs(monkeypatch, READY)

    def refuse(_engine, _probe):
        raise met

    monkeypatch.setattr(FakeEngine, "ask", refuse)
    error = failure(around, on_failure=lambda _error: decision)
    assert (type(error), error.exit_code, error.code) == (type(met), met.exit_code, met.code)
    assert error.failure.outcome == {"keep": "kept", "remove": "removed"}[decision]
    assert met.failure is None


@pytest.mark.parametrize("met", MET)
def test_an_error_in_the_wait_keeps_its_class_and_exit_code(around, met):
    asked = []

    def refuse(call, _properties):
        asked.append(call)
        if call == "machine" and asked.count("machine") > 3:
            raise met

    around.probe, around.world.on_call = Probe(outcome="refused"), refuse
    error = failure(around, on_failure=keep)
    assert (type(error), error.exit_code, error.failure.phase) == (type(met), met.exit_code, "booting")


def test_on_failure_receives_the_cause(around, monkeypatch):
    logs(monkeypatch, OOM)
    around.engine = Refusing()
    recorder = []
    failure(around, on_failure=lambda error: recorder.append(error.data["finding"]) or "remove")
    assert recorder == ["oom_serving"]


def test_an_empty_log_is_not_awaited_forever(around, monkeypatch):
    looks = logs(monkeypatch, READY)
    around.engine = Refusing()
    error = failure(around)
    assert (error.data["finding"], error.data["cause"]) == (None, None)
    assert error.data["evidence"].startswith("it answered 424")
    assert error.data["command"] == "tgi-deploy up example-13b --budget 5 --name demo --on-failure keep"
    assert len(looks) <= 5


def test_a_wrong_model_is_not_explained_by_the_log(around, monkeypatch):
    looks = logs(monkeypatch, OOM)
    around.engine.model_id = "someone/else"
    error = failure(around, on_failure=keep)
    before = len(looks)
    assert error.data["finding"] is None
    assert "it serves someone/else" in error.data["evidence"]
    assert error.data["command"] == "tgi-deploy down demo"
    assert before <= 2


def test_waiting_shards_count_as_a_hang_after_the_deadline(around, monkeypatch):
    waits = "".join(
        f"2026-01-09T00:{minute:02}:00Z  INFO shard-manager: text_generation_launcher: "
        f"Waiting for shard to be ready... rank={rank}\n"
        for minute in range(8)
        for rank in (0, 1)
    )
    starts = "".join(f"shard-manager: text_generation_launcher: Starting shard rank={rank}\n" for rank in (0, 1))
    logs(monkeypatch, "[tgi-deploy] phase=starting-engine\n" + starts + waits)
    around.probe = Probe(outcome="refused")
    error = failure(around)
    assert isinstance(error, NotHealthyError)
    assert error.code == "not_ready"
    assert error.data["finding"] == "nccl_hang"
    assert "wait on" not in error.hint


def test_a_terminated_machine_is_not_awaited(around, monkeypatch):
    logs(monkeypatch, "[tgi-deploy] phase=booting\n")
    around.probe = Probe(outcome="refused")
    error = failure(around)
    assert error.code == "not_ready"
    assert error.data["remedy"].startswith("Keep the machine next time")
    assert "down demo" not in error.hint


def test_an_unreadable_log_does_not_hide_the_failure(around, monkeypatch):
    def console(_cloud, _id):
        raise DeployError("cloud_unreachable", "no answer")

    monkeypatch.setattr(FakeCloud, "console", console)
    around.probe = Probe(outcome="refused")
    error = failure(around)
    assert error.code == "not_ready"
    assert error.data["finding"] is None
    assert around.world.left() == []


def test_an_unreachable_cloud_during_the_wait_is_not_a_failed_proof(around):
    around.probe = Probe(outcome="refused")
    looks = []

    def lose(name, _properties):
        looks.append(name)
        if name == "machine" and looks.count("machine") > 3:
            raise DeployError("cloud_unreachable", "no answer", hint="check the network")

    around.world.on_call = lose
    error = failure(around, on_failure=keep)
    assert (error.code, error.data["phase"]) == ("cloud_unreachable", "booting")


def test_a_leftover_is_reported_with_the_original_failure(around, monkeypatch):
    logs(monkeypatch, LOADING_OOM)
    around.probe = Probe(outcome="refused")

    def refuse(name, _properties):
        if name.startswith("delete security-group"):
            raise InUseError("in use")

    around.world.on_call = refuse
    error = failure(around)
    assert isinstance(error, LeftBehindError)
    assert any(line.startswith("engine_failed ") for line in around.recorder.lines)


@pytest.mark.parametrize(
    "given",
    [
        (
            "--budget 30 --context 4096 --input-tokens 512:2000 --output-tokens 64 --rps 0.5 --ttft-ms 9000 --slo none"
            " --confidence 0.8 --replicas 1..2 --max-machines 3 --disk 300 --region eu-west-1 --region us-east-1"
            " --port 9000 --market any --set max-batch-prefill-tokens=4096 --env NCCL_DEBUG=INFO"
        ),
        "--concurrency 4 --prefer speed --quality any --quantize fp8 --instance g5.xlarge --replicas 1",
        "--hardware 2xRTX-4090 --num-shard 2",
        "--region all",
        "",
    ],
)
def test_a_remedy_keeps_the_given_options(given, around):
    catalog = open_catalog()
    planned = make(as_typed("llama3-8b", *given.split()), catalog, {})
    typed = shlex.split(typed_request(around.context(), plan_document(planned), Ends()))
    assert resolve(as_typed(*typed), {}, catalog) == planned.request


@pytest.mark.parametrize(
    ("given", "code", "expected"),
    [
        ("m --market spot --budget 5", "spot_reclaimed", "m --budget 5 --name demo --market on-demand"),
        ("m --quantize 'none' --set 'b=2 3'", "oom_load", "m --set 'b=2 3' --name demo --quantize fp8"),
        (
            "m --allow-cidr 192.0.2.0/24 --market spot --allow-cidr 198.51.100.7/32",
            "spot_reclaimed",
            "m --allow-cidr 192.0.2.0/24 --allow-cidr 198.51.100.7/32 --name demo --market on-demand",
        ),
    ],
)
def test_a_remedy_replaces_the_users_option(given, code, expected):
    facts = {"model": given, "name": "demo", "fewer_bits": "fp8"}
    _, (line,) = remedy_of(pages_from(read_failures("tgi"))[code].remedy, facts)
    assert line == f"tgi-deploy up {expected}"


@pytest.mark.parametrize(
    ("given", "change"),
    [
        ("qwen2.5-7b --budget 3", "--quantize fp8"),
        ("llama3-13b --budget 5", "--num-shard 4"),
        ("phi3-mini --budget 0.9 --quantize none", "--quantize auto"),
    ],
)
def test_a_memory_remedy_can_be_planned_with_the_given_options(given, change, around):
    """More shards or fewer bits only where the plan knows that they meet the request."""
    catalog, (model, *words) = open_catalog(), given.split()
    planned = make(as_typed(model, *words), catalog, {})
    deployment = up(around.context(), request()).deployment
    facts = subject_of(around.context(), deployment, "us-east-1", plan=plan_document(planned)).facts
    _, (line,) = remedy_of(pages_from(read_failures("tgi"))["oom_load"].remedy, facts)
    command = line.removeprefix("tgi-deploy up ").replace(" --name demo", "")
    assert command.endswith(change)
    assert isinstance(make(as_typed(*shlex.split(command)), catalog, {}), Plan)


def as_typed(model, *words):
    given, repeated = {}, {"region", "set", "env"}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        given.setdefault(flag.removeprefix("--").replace("-", "_"), []).append(value)
    return texts_of(model, {name: values if name in repeated else values[-1] for name, values in given.items()})
