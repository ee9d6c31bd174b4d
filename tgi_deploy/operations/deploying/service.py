"""What a plan promises of the service, and the proof that an endpoint keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.diagnosis.reader import Reading, read
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.launching.traffic import traffic_of
from tgi_deploy.operations.watching.diagnose import subject_of
from tgi_deploy.operations.watching.status import unrecorded_deployment
from tgi_deploy.readiness.not_ready import wrong_device
from tgi_deploy.readiness.proof import Endpoint, ExpectedService, ProofReport, prove
from tgi_deploy.readiness.proof_load import LoadReport, Room, prove_promise
from tgi_deploy.targets.protocol import API_KEY_NOTE
from tgi_deploy.values.container import served_as
from tgi_deploy.values.probing import Promise

if TYPE_CHECKING:
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.context import Context
    from tgi_deploy.readiness.proof import EngineClient, ProofStep
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.plan_document import PlanDocument, PlannedSpeed

ReadyLevel = Literal["fast", "full"]
# Times the slow end of the prediction. The slowest of all published measurements is at 2.5 times that end
# (profiles/performance/measured.csv); what a CPU takes stands in docs/waiting.md.
SLOWEST_FACTOR: Final = 5.0
# An engine without CUDA graphs or flash attention takes up to 1 ms a layer, however small the model is
# (profiles/performance/constants.json, `floor_quantized_ms`), and models have up to 100 layers.
_LEAST_SLOW_MS: Final = 100.0
# From a release to all that it may report itself as.
ReportedAs = Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """`borne` is None where only the identity and a short answer were asked for (level `fast`)."""

    served: ProofReport
    borne: LoadReport | None = None

    @property
    def level(self) -> ReadyLevel:
        return "fast" if self.borne is None else "full"

    @property
    def steps(self) -> tuple[ProofStep, ...]:
        return (*self.served.steps, *(self.borne.steps if self.borne else ()))

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return (*self.served.warnings, *(self.borne.warnings if self.borne else ()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """`versions`: all that its release may report; `chat`: made for chat.

    `api_key_variable` is where the engine's key stands, if it asks for one. `kv_capacity_tokens` is the room for tokens
    that the engine's log tells of, None where it tells none.
    """

    plan: PlanDocument
    url: str
    level: ReadyLevel
    versions: tuple[str, ...] = ()
    chat: bool = False
    kv_capacity_tokens: int | None = None
    api_key_variable: str | None = None


def prove_service(context: Context, question: Question) -> Proof:
    """Ask the engine what it is, let it answer, and with level `full` the worst that was promised.

    Raises what `prove` and `prove_promise` raise.
    """
    endpoint = Endpoint(client=_client(context, question), engine=context.engine(question.plan.engine.name))
    expected = _expected(question)
    served = prove(endpoint, expected, clock=context.clock)
    if question.level == "fast":
        return Proof(served=served)
    borne = prove_promise(endpoint, expected.promise, _room(question), clock=context.clock)
    return Proof(served=served, borne=borne)


def _client(context: Context, question: Question) -> EngineClient:
    if question.api_key_variable is None or context.keyed_engine_client is None:
        return context.engine_client(question.url)
    return context.keyed_engine_client(question.url, question.api_key_variable)


def _expected(question: Question) -> ExpectedService:
    return ExpectedService(
        promise=promise_of(question.plan),
        versions=question.versions,
        chat=question.chat,
        slowest_token_ms=slowest_token_ms(question.plan.performance),
    )


def _room(question: Question) -> Room:
    memory = question.plan.memory
    return Room(
        planned_tokens=memory.kv_capacity_tokens,
        required_tokens=memory.required_kv_tokens,
        measured_tokens=question.kv_capacity_tokens,
    )


def slowest_token_ms(speed: PlannedSpeed) -> float:
    """Return what no engine on the planned accelerators takes for a token."""
    return max(_LEAST_SLOW_MS, SLOWEST_FACTOR * (speed.tpot_ms_high or speed.tpot_ms))


def promise_of(plan: PlanDocument) -> Promise:
    request, engine = plan.requirements, plan.engine
    return Promise(
        model_id=served_as(plan.model.served_id),
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        concurrency=request.concurrency,
        max_input_tokens=engine.max_input_tokens,
        max_total_tokens=engine.max_total_tokens,
    )


def _unknown(_release: str) -> tuple[str, ...]:
    return ()


def prove_recorded(context: Context, name: str, level: ReadyLevel, reported_as: ReportedAs = _unknown) -> Proof:
    """Prove a deployment that is on record here, of the version and with the room for tokens that its plan says.

    Raises InputError `unknown_deployment` or `plaintext_key`, DeployError `no_endpoint`, NotHealthyError `wrong_device`
    where the engine's log shows that it does not run on the planned accelerators, and what `prove_service` raises.
    """
    recorded = context.store.load(name)
    if recorded is None:
        raise unrecorded_deployment(context, name)
    if recorded.endpoint is None or recorded.plan is None:
        raise DeployError(
            "no_endpoint",
            f"'{name}' is {recorded.status} and has no endpoint yet",
            hint="running its 'up' again goes on until it has one",
        )
    traffic = traffic_of(recorded)
    if traffic is not None:
        traffic.check(plaintext=recorded.plaintext)
    reading = _reading(context, recorded)
    if reading.forbids_ready is not None:
        raise wrong_device(f"reading the log of '{name}'", reading.forbids_ready)
    variable = recorded.machine.notes.get(API_KEY_NOTE) if recorded.machine else None
    question = Question(
        plan=recorded.plan,
        url=recorded.endpoint,
        level=level,
        versions=reported_as(recorded.plan.engine.version),
        kv_capacity_tokens=reading.progress.kv_capacity_tokens,
        api_key_variable=variable,
    )
    return prove_service(context, question)


def _reading(context: Context, deployment: Deployment) -> Reading:
    """Return what the engine's log shows; nothing where it can't be read."""
    machine = deployment.machine
    if machine is None or "id" not in machine.attributes:
        return Reading()
    try:
        log = context.cloud(machine.place).console(machine.attributes["id"])
    except DeployError:
        return Reading()
    subject = subject_of(context, deployment.name, deployment.plan, machine.place)
    return read(log, context.grammar_of(deployment), subject=subject)
