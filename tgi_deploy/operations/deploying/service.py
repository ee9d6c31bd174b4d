"""Verifies a deployment: the proof that its endpoint serves what the plan promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from tgi_deploy.diagnosis.reader import Reading, read
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.launching.traffic import check_key
from tgi_deploy.operations.watching.access import reached
from tgi_deploy.operations.watching.diagnose import subject_of
from tgi_deploy.readiness.not_ready import wrong_device
from tgi_deploy.readiness.proof import Endpoint, ExpectedService, ProofReport, prove
from tgi_deploy.readiness.proof_load import CacheCapacity, LoadReport, measured_document, prove_load
from tgi_deploy.values.serving import API_KEY_NOTE

if TYPE_CHECKING:
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.context import Context
    from tgi_deploy.readiness.proof import ProofStep
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.plan_document import PlanDocument, PlannedSpeed
    from tgi_deploy.values.probing import Promise
    from tgi_deploy.values.serving import Address

ReadyLevel = Literal["fast", "full"]
# Multiplies the slow end of the prediction. The slowest published measurement is at 2.5 times that end
# (profiles/performance/measured.csv); docs/waiting.md has the figures for a CPU.
SLOWEST_FACTOR: Final = 5.0
# An engine without CUDA graphs or flash attention takes up to 1 ms a layer, however small the model is
# (profiles/performance/constants.json, `floor_quantized_ms`), and models have up to 100 layers.
_LEAST_SLOW_MS: Final = 100.0
# From a release to the versions that it may report.
ReportedAs = Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """The result of a proof. `under_load` is None if only identity and a short answer were checked (level `fast`)."""

    served: ProofReport
    under_load: LoadReport | None = None

    @property
    def level(self) -> ReadyLevel:
        return "fast" if self.under_load is None else "full"

    @property
    def steps(self) -> tuple[ProofStep, ...]:
        return (*self.served.steps, *(self.under_load.steps if self.under_load else ()))

    @property
    def measured(self) -> Mapping[str, Any]:
        """Return the measurements that calibrate predictions."""
        return {} if self.under_load is None else {"measured": measured_document(self.under_load.measured)}

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return (*self.served.warnings, *(self.under_load.warnings if self.under_load else ()))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofRequest:
    """The service to verify. `plan` is None if the deployment is known only from tags: capacity and speed are unknown.

    `versions` are those that its release may report, `chat` is whether the model supports chat. `api_key_variable`
    names the variable with the engine's key, if it needs one. `kv_capacity_tokens` is from the engine's log, or None.
    """

    address: Address
    engine: str
    promise: Promise
    plan: PlanDocument | None
    level: ReadyLevel
    versions: tuple[str, ...] = ()
    chat: bool = False
    kv_capacity_tokens: int | None = None
    api_key_variable: str | None = None


def prove_service(context: Context, request: ProofRequest) -> Proof:
    """Check the engine's identity and that it answers; with level `full`, also send the largest load of the plan.

    Raises the errors of `prove` and `prove_load`.
    """
    endpoint = Endpoint(
        client=context.client_of(request.address, request.api_key_variable), engine=context.engine(request.engine)
    )
    plan = request.plan
    expected = ExpectedService(
        promise=request.promise,
        versions=request.versions,
        chat=request.chat,
        slowest_token_ms=slowest_token_ms(plan.performance) if plan else None,
    )
    served = prove(endpoint, expected, clock=context.clock)
    if request.level == "fast":
        return Proof(served=served)
    capacity = _capacity(plan, request.kv_capacity_tokens) if plan else CacheCapacity()
    under_load = prove_load(endpoint, request.promise, capacity, clock=context.clock)
    return Proof(served=served, under_load=under_load)


def _capacity(plan: PlanDocument, kv_capacity_tokens: int | None) -> CacheCapacity:
    return CacheCapacity(
        planned_tokens=plan.memory.kv_capacity_tokens,
        required_tokens=plan.memory.required_kv_tokens,
        measured_tokens=kv_capacity_tokens,
    )


def slowest_token_ms(speed: PlannedSpeed) -> float:
    """Return a time per token that no engine on the planned accelerators exceeds."""
    return max(_LEAST_SLOW_MS, SLOWEST_FACTOR * (speed.tpot_ms_high or speed.tpot_ms))


def unknown_release(_release: str) -> tuple[str, ...]:
    return ()


def prove_known(
    context: Context, deployment: Deployment, level: ReadyLevel, reported_as: ReportedAs = unknown_release
) -> Proof:
    """Verify a deployment against its plan, including version and token capacity.

    Without a record, its promises are read from tags, and capacity and speed are unknown.

    Raises InputError `plaintext_key`, DeployError `no_endpoint` or `no_plan_recorded`,
    NotHealthyError `wrong_device` if the engine's log shows that it does not run on the planned accelerators, and the
    errors of `prove_service`.
    """
    address, machine = reached(context, deployment)
    name, service = deployment.name, deployment.service
    if service is None or service.promise is None:
        raise DeployError(
            "no_plan_recorded",
            f"neither a record nor tags show what '{name}' should serve",
            hint="run 'smoke' on the computer that brought it up, or run the same 'up' here, which adopts it if "
            "nothing differs",
        )
    check_key(deployment)
    reading = _reading(context, deployment, machine)
    if reading.forbids_ready is not None:
        raise wrong_device(f"reading the log of '{name}'", reading.forbids_ready)
    request = ProofRequest(
        address=address,
        engine=service.engine,
        promise=service.promise,
        plan=deployment.plan,
        level=level,
        versions=reported_as(service.release),
        kv_capacity_tokens=reading.progress.kv_capacity_tokens,
        api_key_variable=machine.notes.get(API_KEY_NOTE),
    )
    return prove_service(context, request)


def _reading(context: Context, deployment: Deployment, machine: ResourceRecord) -> Reading:
    """Return the reading of the engine's log; an empty one if the log can't be read."""
    try:
        log = context.cloud(machine.place).console(machine.attributes["id"])
    except DeployError:
        return Reading()
    subject = subject_of(context, deployment, machine.place)
    return read(log, context.grammar_of(deployment), subject=subject)
