"""The use case `smoke`, for CI: brings models up, tests them, and always removes them.

Each step runs this program in a separate process: one that crashes or is killed does not affect the others, and its
deployment is still removed. The results are read from the commands' `--json` output.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import (
    ConflictError,
    DeployError,
    InputError,
    InterruptedByUserError,
    LeftBehindError,
    LeftResource,
    NoFeasiblePlanError,
    NotHealthyError,
    Problem,
)
from tgi_deploy.operations.deploying.service import prove_known
from tgi_deploy.operations.launching.traffic import unencrypted
from tgi_deploy.operations.watching.lookup import known
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.values.names import default_name, is_name
from tgi_deploy.values.pasted import Pasted
from tgi_deploy.values.plan_options import END_FIELDS, OPTION, variable_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.service import Proof, ReadyLevel, ReportedAs
    from tgi_deploy.reconcile.ports import Clock
    from tgi_deploy.reconcile.programs import Programs, Reply
    from tgi_deploy.targets.protocol import Target

_LONGEST_BASE: Final = 32
# Smoke deployments terminate themselves even if their CI runner dies with its disk.
_TTL: Final = ("--ttl", "1h")
_ENDS: Final = frozenset(OPTION[name].flag for name in END_FIELDS)
OK: Final = 0
FAILED: Final = DeployError.exit_code
UNHEALTHY: Final = NotHealthyError.exit_code
LEFT_BEHIND: Final = LeftBehindError.exit_code
INTERRUPTED: Final = InterruptedByUserError.exit_code
# Usually raised before anything is created: bad input, no plan, a name in use.
_NOTHING_CREATED: Final = (ConflictError.exit_code, NoFeasiblePlanError.exit_code, InputError.exit_code)
_NOTHING_LEFT: Final = frozenset({"removed", "nothing_created"})
_PHASES: Final = ("launching", "booting", "pulling", "downloading", "loading", "warming_up", "ready")
# Most severe first: a leftover machine costs money, and an interruption hides the rest.
_BY_SEVERITY: Final = (LEFT_BEHIND, INTERRUPTED, UNHEALTHY, FAILED, *_NOTHING_CREATED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A model to test under a separate name.

    `plan_words` and `everywhere` are command-line arguments: `everywhere` for every run (`--sandbox`), `plan_words`
    only for `up`. `machine_kind` is the kind of resource that runs the engine.
    """

    model: str
    name: str
    plan_words: tuple[str, ...] = ()
    everywhere: tuple[str, ...] = ()
    machine_kind: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One phase, or one probe of the engine. `skipped` is whether it was not reached.

    `details` are lines about its failure: evidence and diagnosis.
    """

    name: str
    took_s: float = 0.0
    problem: Problem | None = None
    details: tuple[str, ...] = ()
    skipped: bool = False

    @property
    def text(self) -> str:
        """Return the hint and the details, which supplement the message."""
        hint = self.problem.hint if self.problem else None
        return "\n".join((*((f"hint: {hint}",) if hint else ()), *self.details))


@dataclass(frozen=True, kw_only=True, slots=True)
class Smoked:
    """The result of one job. `usd` is the cost of its machines, None if unknown."""

    job: Job
    exit_code: int
    cases: tuple[Case, ...]
    took_s: float
    usd: float | None = None
    began: datetime | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    left: tuple[LeftResource, ...] = ()

    @property
    def failures(self) -> tuple[tuple[Case, Problem], ...]:
        """Return the failed cases with their problems; the first one includes the machine's state."""
        return tuple((case, case.problem) for case in self.cases if case.problem is not None)


def check_smoke(models: Sequence[str], target: Target, catalog: Catalog, *, at_once: int) -> None:
    """Check everything possible before the first machine is rented. Raises InputError."""
    alone = target.facts.one_at_a_time
    if alone and at_once > 1:
        raise InputError(
            "conflicting_options",
            f"-j with --target {target.name}: {alone}",
            hint="leave out -j: they run one after another",
        )
    for model in models:
        catalog.resolve(model)


def job_for(
    model: str, target: Target, words: Sequence[str], environ: Mapping[str, str], *, ready: str, sandbox: bool
) -> Job:
    """Return the job for a model with these arguments, under a unique name."""
    facts = target.facts
    unsupported = {name for item in facts.unsupported for name in item.options}
    end = () if "ttl" in unsupported or _has_end(words, environ) else _TTL
    return Job(
        model=model,
        name=smoke_name(model, os.urandom(3).hex()),
        plan_words=(*words, *end, "--ready", ready),
        everywhere=("--target", target.name, *(("--sandbox",) if sandbox else ())),
        machine_kind=facts.machine_kind,
    )


def _has_end(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether an option or the environment sets a limit that terminates the machines."""
    return not _ENDS.isdisjoint(words) or any(environ.get(variable_of(option)) for option in _ENDS)


def named_line(words: Sequence[str], line: str) -> str:
    """Return an output line of a run, prefixed with its deployment."""
    name = words[words.index("--name") + 1] if "--name" in words else words[1]
    return f"{name}: {line.removeprefix(f'{name}: ')}"


def smoke_name(model: str, unique: str) -> str:
    """Return a unique deployment name, because two CI jobs may test the same model."""
    base = default_name(f"smoke-{model.rpartition('/')[2]}")
    return f"{base[:_LONGEST_BASE].rstrip('-')}-{unique}"


def smoke(programs: Programs, jobs: Sequence[Job], *, at_once: int, clock: Clock) -> tuple[Smoked, ...]:
    """Run all jobs, `at_once` in parallel; return the results in order."""
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="smoke") as pool:
        return tuple(pool.map(lambda job: _smoke(programs, job, clock), jobs))


@dataclass(frozen=True, kw_only=True, slots=True)
class Proved:
    """The result of verifying a deployment: its `proof`, or the `error`.

    `unencrypted` describes the unencrypted traffic of the proof; None if there was none.
    """

    smoked: Smoked
    proof: Proof | None = None
    error: DeployError | None = None
    unencrypted: str | None = None


def deployed(context: Context, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are deployments, by a record or by the tags of a machine."""
    recorded = context.store.names()
    return tuple(name for name in dict.fromkeys(names) if name in recorded or _runs(context, name))


def _runs(context: Context, name: str) -> bool:
    if not is_name(name):
        return False
    seen = observe(name, None, cloud=context.cloud, places=context.regions)
    return any(found.is_machine for found in seen)


def prove_all(context: Context, names: Sequence[str], level: ReadyLevel, reported_as: ReportedAs) -> tuple[Proved, ...]:
    """Verify each of these deployments, regardless of earlier failures."""
    return tuple(_prove(context, name, level, reported_as) for name in names)


def _prove(context: Context, name: str, level: ReadyLevel, reported_as: ReportedAs) -> Proved:
    job, at, began = Job(model=name, name=name), context.clock.now(), context.clock.monotonic()
    try:
        with Pasted(name=name).errors():
            deployment = known(context, name)
            proof = prove_known(context, deployment, level, reported_as)
    except DeployError as error:
        took_s = round(context.clock.monotonic() - began, 3)
        step = error.failure.step if error.failure else None
        case = Case(name=f"proof {step}" if step else "proof", took_s=took_s, problem=error.problem)
        return Proved(
            smoked=Smoked(job=job, exit_code=error.exit_code, cases=(case,), took_s=took_s, began=at), error=error
        )
    took_s = round(context.clock.monotonic() - began, 3)
    cases = tuple(Case(name=f"proof {step.name}", took_s=round(step.took_ms / 1000, 3)) for step in proof.steps)
    smoked = Smoked(job=job, exit_code=OK, cases=cases, took_s=took_s, began=at)
    return Proved(smoked=smoked, proof=proof, unencrypted=unencrypted(deployment))


def overall(results: Sequence[Smoked]) -> int:
    """Return the most severe exit code."""
    codes = {result.exit_code for result in results}
    return next((code for code in _BY_SEVERITY if code in codes), OK)


def _smoke(programs: Programs, job: Job, clock: Clock) -> Smoked:
    at, began = clock.now(), clock.monotonic()
    if programs.stopping:
        return Smoked(job=job, exit_code=INTERRUPTED, cases=(_interrupted("launching"),), took_s=0.0)
    words = ("up", job.model, "--name", job.name, "--yes", "--on-failure", "keep", *job.plan_words, *job.everywhere)
    up_reply = programs.run(words)
    findings = _diagnose(programs, job, up_reply)
    began_removal = clock.monotonic()
    down_reply = _remove(programs, job, up_reply)
    ended = clock.monotonic()
    left = _left(job, up_reply, down_reply)
    return Smoked(
        job=job,
        exit_code=LEFT_BEHIND if left else _exit_code(up_reply, down_reply),
        cases=(*_up_cases(up_reply, findings), _removal(down_reply, round(ended - began_removal, 3))),
        took_s=round(ended - began, 3),
        began=at,
        usd=_cost(up_reply, down_reply),
        chosen=_chosen(up_reply),
        left=left,
    )


def _diagnose(programs: Programs, job: Job, up_reply: Reply) -> Sequence[Mapping[str, Any]]:
    """Diagnose the log of a failed engine while its machine still runs."""
    if up_reply.exit_code not in {FAILED, UNHEALTHY} or programs.stopping:
        return ()
    findings = programs.run(("diagnose", job.name, *job.everywhere)).data.get("findings")
    return findings if isinstance(findings, list) else ()


def _remove(programs: Programs, job: Job, up_reply: Reply) -> Reply | None:
    """Remove the deployment; None if there is nothing to remove."""
    if up_reply.exit_code in _NOTHING_CREATED and not (up_reply.data.get("outcome") or up_reply.data.get("exists")):
        return None
    if up_reply.exit_code == INTERRUPTED and up_reply.data.get("outcome") in _NOTHING_LEFT:
        return None
    return programs.run(("down", job.name, "--yes", *job.everywhere))


def _left(job: Job, up_reply: Reply, down_reply: Reply | None) -> tuple[LeftResource, ...]:
    """Return the leftovers that a failed removal reported; if it reported none, the machines of `up`."""
    left = (down_reply or up_reply).data.get("not_removed")
    if left or down_reply is None or down_reply.exit_code in {OK, INTERRUPTED}:
        return tuple(LeftResource(**{"command": None, **item}) for item in left or ())
    command = " ".join(("tgi-deploy down", job.name, *job.everywhere))
    return tuple(
        LeftResource(kind=kind, id=resource_id, region=region, command=command)
        for kind, resource_id, region in _machines(up_reply, job.machine_kind)
    )


def _machines(up_reply: Reply, machine_kind: str) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, id, region) of the machines created by an `up` that succeeded or kept its machine."""
    deployment, costs = up_reply.data.get("deployment"), up_reply.data.get("still_billed")
    for item in deployment.get("resources", ()) if isinstance(deployment, dict) else ():
        if item["kind"] == machine_kind:
            yield item["kind"], item["id"], item["region"]
    if costs:
        yield "machine", costs["machine"], costs["region"]


def _exit_code(up_reply: Reply, down_reply: Reply | None) -> int:
    """Return the exit code: a failed removal outweighs the failure before it."""
    if down_reply is not None and down_reply.exit_code:
        return down_reply.exit_code if down_reply.exit_code in _BY_SEVERITY else LEFT_BEHIND
    return up_reply.exit_code if up_reply.exit_code in (OK, *_BY_SEVERITY) else FAILED


def _up_cases(up_reply: Reply, findings: Sequence[Mapping[str, Any]]) -> Iterator[Case]:
    if up_reply.exit_code == OK:
        yield from _passed(up_reply)
        return
    problem, details = _problem(up_reply), _details(up_reply, findings)
    timings = {item["phase"]: item["took_s"] for item in up_reply.data.get("phases") or ()}
    where = _failed_in(up_reply)
    if where not in _PHASES:
        yield from (Case(name=phase, took_s=timings.get(phase, 0.0)) for phase in _PHASES)
        yield Case(name=where, problem=problem, details=details)
        return
    at = _PHASES.index(where)
    yield from (Case(name=phase, took_s=timings.get(phase, 0.0)) for phase in _PHASES[:at])
    took_s = up_reply.data.get("phase_elapsed_s") or 0.0
    yield Case(name=where, took_s=took_s, problem=problem, details=details)
    yield from (Case(name=phase, skipped=True) for phase in _PHASES[at + 1 :])


def _passed(up_reply: Reply) -> Iterator[Case]:
    ready, proof = up_reply.data.get("ready") or {}, up_reply.data.get("proof") or {}
    timings = {item["phase"]: item["took_s"] for item in ready.get("phases") or ()}
    yield from (Case(name=phase, took_s=timings.get(phase, 0.0)) for phase in _PHASES)
    for step in proof.get("steps") or ():
        yield Case(name=f"proof {step['name']}", took_s=round(step["took_ms"] / 1000, 3))


def _failed_in(up_reply: Reply) -> str:
    """Return the failed phase or probe; without a machine it is the launch."""
    phase, step = up_reply.data.get("phase"), up_reply.data.get("step")
    if phase in _PHASES:
        return str(phase)
    if step:
        return f"proof {step}"
    return "proof" if phase == "proof" or up_reply.exit_code == UNHEALTHY else _PHASES[0]


def _problem(reply: Reply) -> Problem:
    if not reply.error:
        return Problem(code="process_killed", message=f"the process exited with {reply.exit_code} and printed nothing")
    error = reply.error
    hint = reply.data.get("remedy", error.get("hint"))
    return Problem(code=str(error.get("code")), message=str(error.get("message")), hint=hint)


def _details(reply: Reply, findings: Sequence[Mapping[str, Any]] = ()) -> tuple[str, ...]:
    lines = [f"evidence: {reply.data['evidence']}"] if reply.data.get("evidence") else []
    for item in findings:
        lines.append(f"{item.get('code')} ({item.get('phase')}): {item.get('cause')}")
        lines.append(f"  evidence: {item.get('evidence')}")
        lines.append(f"  remedy: {item.get('remedy')}")
    return tuple(lines)


def _removal(down_reply: Reply | None, took_s: float) -> Case:
    if down_reply is None:
        return Case(name="removal", skipped=True)
    if not down_reply.exit_code:
        return Case(name="removal", took_s=took_s)
    return Case(name="removal", took_s=took_s, problem=_problem(down_reply), details=_details(down_reply))


def _interrupted(where: str) -> Case:
    return Case(name=where, problem=Problem(code="interrupted", message="stopped before it started"))


def _cost(*replies: Reply | None) -> float | None:
    for reply in replies:
        receipt = reply.data.get("receipt") if reply is not None else None
        if receipt and receipt.get("cost", {}).get("usd") is not None:
            return float(receipt["cost"]["usd"])
    return None


def _chosen(up_reply: Reply) -> Mapping[str, Any]:
    deployment = up_reply.data.get("deployment")
    return (deployment.get("chosen") or {}) if isinstance(deployment, dict) else {}
