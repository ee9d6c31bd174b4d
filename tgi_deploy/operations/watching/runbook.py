"""The use case `runbook`: writes a page about a deployment: what it runs and costs, and commands for each situation."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.launching.traffic import unencrypted
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.operations.watching.access import SANDBOX_FIRST, access_to, pinned
from tgi_deploy.operations.watching.lookup import own_words
from tgi_deploy.reconcile.ends import ends_of
from tgi_deploy.templating import render_text
from tgi_deploy.text import dated, option_duration
from tgi_deploy.values.container import grouped, is_folder, mount_of, mounted
from tgi_deploy.values.deployment import service_of
from tgi_deploy.values.plan_options import ENDS, PLAN_OPTIONS
from tgi_deploy.values.resource import KEPT
from tgi_deploy.values.serving import API_KEY_NOTE, API_KEY_PARAMETER_NOTE, PUBLIC_KEY_NOTE, TUNNEL_NOTE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.alerts import Alert
    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.ends import End
    from tgi_deploy.targets.protocol import Deployable, Target
    from tgi_deploy.values.container import HostAccess
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.ends import Ends
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.plan_document import PlanDocument
    from tgi_deploy.values.request import RequestDocument
    from tgi_deploy.values.results import AccessData
    from tgi_deploy.values.serving import Service

_SLOW_FACTOR: Final = 2
_OWNED: Final = "owned"
# Options that are written even with their default value, because a profile may set another one.
_ALWAYS_WRITTEN: Final = frozenset({"--prefer", "--quantize"})
# Fields that are written in another form, or with the limits.
_ELSEWHERE: Final = frozenset({"", ENDS, "replicas"})
_SPREAD: Final = {"--input-tokens": "input_p95", "--output-tokens": "output_p95"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The subject of the page. `deployment` and `access` are None before its `up`, `plan` if known only from tags.

    `ends` are sentences; `end_options` are the options for the same limits on a new machine, `key_options` those for
    the same API key. `unencrypted` describes unencrypted traffic, None if there is none. `host` is how accelerators
    other than NVIDIA's are passed to the container.
    """

    name: str
    target: Target
    plan: PlanDocument | None
    ends: tuple[str, ...] = ()
    end_options: tuple[str, ...] = ()
    key_options: tuple[str, ...] = ()
    unencrypted: str | None = None
    host: HostAccess | None = None
    deployment: Deployment | None = None
    access: AccessData | None = None

    @property
    def region(self) -> str:
        if self.deployment is not None:
            return self.deployment.region
        return self.plan.chosen.region if self.plan else ""

    @property
    def service(self) -> Service:
        """Return what the deployment serves. Raises ValueError if neither a plan nor tags show it."""
        found = service_of(self.plan) if self.plan else self.deployment.service if self.deployment else None
        if found is None:
            raise ValueError("a runbook needs a plan or a deployment")
        return found

    @property
    def folder(self) -> str | None:
        """Return the folder of a local model; None for a model from the hub."""
        served = self.service.model
        return served if is_folder(served) else None

    @property
    def model(self) -> str:
        """Return the model's name for a command line."""
        named = self.plan.requirements.model if self.plan else self.service.model
        return shlex.quote(self.folder or named)

    @property
    def hosted(self) -> bool:
        """Whether a cloud service runs the engine, so that its routes, metrics and image can't be used elsewhere."""
        return bool(self.target.facts.service)

    @property
    def rented(self) -> bool:
        return self.plan.chosen.market != _OWNED if self.plan else self.target.facts.regions

    @property
    def place(self) -> str:
        """Return the current or planned location."""
        if self.deployment is None and not self.rented:
            return self.target.name
        return self.region

    @property
    def url(self) -> str:
        scheme = "https" if self.rented else "http"
        return self.access.url if self.access else f"{scheme}://ADDRESS:{self.service.port}"

    @property
    def pinned_url(self) -> str:
        """Return the URL, after the options that make curl accept its certificate."""
        machine = self.deployment.machine if self.deployment else None
        known = machine.notes.get(PUBLIC_KEY_NOTE) if machine else None
        options = pinned(known or "PUBLIC_KEY") if self.url.startswith("https:") else ""
        return f"{options} {self.url}".strip()

    @property
    def machine_id(self) -> str:
        record = self.deployment.machine if self.deployment else None
        return record.attributes.get("id", "INSTANCE_ID") if record else "INSTANCE_ID"


def known_subject(context: Context, deployment: Deployment) -> Subject:
    """Return an existing deployment as a subject, from its record or tags. Raises DeployError `no_plan_recorded`."""
    name, spec = deployment.name, deployment.current.spec
    if deployment.service is None:
        raise DeployError(
            "no_plan_recorded",
            f"'{name}' has no recorded plan, and no tag shows what it serves",
            hint="run the same 'up' again to complete the record, or write a runbook for its MODEL",
        )
    return Subject(
        name=name,
        target=context.target_at(deployment.region),
        plan=deployment.plan,
        ends=tuple(_ends_of_a_machine(ends_of(deployment, ()))),
        end_options=_end_options(deployment.ends),
        key_options=tuple(_key_options(deployment)),
        unencrypted=unencrypted(deployment),
        host=spec.container.host if spec else None,
        deployment=deployment,
        access=access_to(context, deployment) if deployment.endpoint else None,
    )


def planned_subject(plan: Plan, deployable: Deployable, target: Target) -> Subject:
    """Return a planned deployment as a subject."""
    terms = (
        (deployable.ttl_s, "automatically {} s after its launch"),
        (deployable.lease_s, "{} s after its lease was last renewed"),
        (deployable.idle_s, "{} s after its last request"),
    )
    ends = tuple(text.format(seconds) for seconds, text in terms if seconds is not None)
    return Subject(
        name=deployable.name,
        target=target,
        plan=plan_document(plan),
        host=plan.chosen.engine.container.host,
        ends=ends,
        end_options=_end_options(deployable),
    )


def _key_options(recorded: Deployment) -> Iterator[str]:
    notes = recorded.machine.notes if recorded.machine else {}
    named = {"--api-key-from-env": API_KEY_NOTE, "--api-key-parameter": API_KEY_PARAMETER_NOTE}
    yield from (f"{option} {shlex.quote(notes[note])}" for option, note in named.items() if note in notes)
    if recorded.plaintext:
        yield "--plaintext"
    if TUNNEL_NOTE in notes:
        yield "--tunnel"


def _end_options(ending: Ends | Deployable) -> tuple[str, ...]:
    ends = (("--ttl", ending.ttl_s), ("--lease", ending.lease_s), ("--idle-timeout", ending.idle_s))
    return tuple(f"{option} {option_duration(seconds)}" for option, seconds in ends if seconds is not None)


def _ends_of_a_machine(ends: Sequence[End]) -> Iterator[str]:
    for end in ends:
        at = "" if end.at is None else end.at.isoformat(timespec="minutes")
        if end.reason == "ttl":
            yield f"automatically at {at}"
        elif end.reason == "lease":
            yield f"at {at}, unless its lease is renewed before"
        else:
            yield f"{end.seconds} s after its last request"


def runbook(
    subject: Subject,
    alerts: Sequence[Alert],
    engine: Engine,
    *,
    templates_dir: Path | None = None,
    sandbox: bool = False,
) -> str:
    """Return the page in Markdown. With `sandbox`, the cloud's own commands are pointed at the sandbox first.

    Raises InputError `bad_template` for an invalid template of the user.
    """
    values = {**_values(subject, alerts, engine), "sandbox": SANDBOX_FIRST if sandbox else ""}
    return render_text("runbook.md.j2", values, templates_dir=templates_dir)


def _values(subject: Subject, alerts: Sequence[Alert], engine: Engine) -> dict[str, Any]:
    commands = subject.target.manual_commands.commands(
        subject.name, subject.place, subject.machine_id, nvidia=subject.host is None
    )
    deployment = subject.deployment
    return {
        "name": subject.name,
        "plan": subject.plan,
        "service": subject.service,
        "pool": next(iter(deployment.current.pools), None) if deployment else None,
        "engine_title": engine.title,
        "pages": () if subject.hosted else engine.pages,
        "rented": subject.rented,
        "there": "" if subject.rented and not subject.hosted else f" --target {subject.target.name}",
        "planned_there": f" --target {subject.target.name}" if subject.hosted else "",
        "scales": subject.target.facts.most_replicas > 1 and deployment is not None,
        "region": subject.region,
        "url": subject.pinned_url,
        "curl": subject.access.curl if subject.access else None,
        "first": subject.access.first if subject.access else "",
        "tunnel": subject.access.tunnel if subject.access else None,
        "unencrypted": subject.unencrypted,
        "ends": subject.ends,
        "resources": deployment.resources if deployment else (),
        "alerts": [] if subject.hosted else list(_filled(subject, alerts)),
        "model": subject.model,
        "inspections": commands.inspections,
        "removals": _removals(subject) or commands.removal,
        "proof": commands.proof,
        **(_planned(subject.plan, subject, engine) if subject.plan else {}),
    }


def _planned(plan: PlanDocument, subject: Subject, engine: Engine) -> dict[str, Any]:
    """Return the values that only a plan has."""
    return {
        "chosen": plan.chosen,
        "price_date": dated(plan.chosen.price_date, estimated=plan.chosen.estimated),
        "engine": plan.engine,
        "up_command": " ".join(_up_words(plan.requirements, subject)),
        "weights": plan.chosen.dtype if plan.chosen.quantize == "none" else plan.chosen.quantize,
        "docker_run": "" if subject.hosted else _docker_run(plan, engine, subject.folder, subject.host),
    }


def _up_words(request: RequestDocument, subject: Subject) -> Iterator[str]:
    """Yield the command line of exactly this request, which resumes the same deployment."""
    yield f"tgi-deploy up {subject.model}"
    yield from _setting_words(request)
    if _OWNED in request.markets or subject.hosted:
        yield f"--target {subject.target.name}"
    elif request.markets != ("on-demand",):
        yield f"--market {'any' if len(request.markets) > 1 else request.markets[0]}"
    if request.allow_turing:
        yield "--allow-turing"
    for flag, pairs in (("--set", request.flags), ("--env", request.env)):
        for key, value in sorted(pairs.items()):
            yield f"{flag} {shlex.quote('='.join((key.removeprefix('--'), value)))}"
    yield from subject.end_options
    yield from subject.key_options
    if subject.hosted and subject.deployment is not None:
        yield from map(shlex.quote, own_words(subject.deployment.current.options))
    yield f"--name {subject.name}"


def _setting_words(request: RequestDocument) -> Iterator[str]:
    """Return the options that have values."""
    for row in PLAN_OPTIONS:
        flag, found = row.flag, None if row.lands in _ELSEWHERE else getattr(request, row.lands)
        if found is None or (flag == "--region" and _OWNED in request.markets):
            continue
        if flag not in _ALWAYS_WRITTEN and not isinstance(found, tuple) and _word(found) == row.default:
            continue
        if flag == "--concurrency" and request.arrivals_per_s is not None:
            continue
        p95 = getattr(request, _SPREAD[flag]) if flag in _SPREAD else None
        for value in found if isinstance(found, tuple) else [found]:
            yield f"{flag} {shlex.quote(_word(value))}" + ("" if p95 is None else f":{p95}")
    if request.replicas.most is not None:
        yield f"--replicas {request.replicas.least}..{request.replicas.most}"


def _word(value: object) -> str:
    """Format a number as a person would type it."""
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _filled(subject: Subject, alerts: Sequence[Alert]) -> Iterator[dict[str, Any]]:
    """Yield the alerts, without those whose threshold is unknown because there is no plan."""
    promise, plan = subject.service.promise, subject.plan
    values = {"name": subject.name, "model": subject.model, "url": subject.pinned_url}
    unknown = ["{concurrency}", "{slow_token_s}"]
    if promise is not None:
        values |= {"concurrency": str(promise.concurrency), "double_concurrency": str(2 * promise.concurrency)}
        unknown.remove("{concurrency}")
    if plan is not None:
        values["slow_token_s"] = f"{_SLOW_FACTOR * plan.performance.tpot_ms / 1000:.3f}"
        unknown.remove("{slow_token_s}")
    for alert in alerts:
        if any(place in alert.expression for place in unknown):
            continue
        yield {
            "name": alert.name,
            "expression": _fill(alert.expression, values),
            "lasting": alert.lasting,
            "severity": alert.severity,
            "means": alert.means,
            "commands": [_fill(command, values) for command in alert.commands],
        }


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Fill in only the known names, because PromQL and curl also use braces."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _docker_run(plan: PlanDocument, server: Engine, folder: str | None, host: HostAccess | None) -> str:
    """Return the plain command that runs the same engine on a machine with as many free GPUs."""
    engine = plan.engine
    lines = [
        ["docker run --rm --name", server.name],
        *([name, shlex.quote(value)] for name, value in _devices(plan, host)),
    ]
    volume = f"{server.name}-data:{server.cache_path}"
    lines += [["-p", f"127.0.0.1:{engine.port}:{server.port}"], ["-v", volume], ["-e", "HF_TOKEN"]]
    lines += [["-e", shlex.quote(f"{key}={value}")] for key, value in sorted(engine.env.items())]
    if folder is not None:
        lines.append(["--mount", shlex.quote(mount_of(folder))])
    lines.append([shlex.quote(engine.image)])
    args = engine.args if folder is None else mounted(engine.args, folder)
    lines += [[shlex.quote(word) for word in pair] for pair in grouped(args)]
    return " \\\n  ".join(" ".join(line) for line in lines)


def _devices(plan: PlanDocument, host: HostAccess | None) -> Iterator[tuple[str, str]]:
    """Yield the options for accelerators and shared memory."""
    engine = plan.engine
    if host is not None:
        yield from host.run_options
        return
    whole = plan.chosen.accelerator_count == engine.gpus
    yield "--gpus", "all" if whole else f'"device={",".join(str(index) for index in range(engine.gpus))}"'
    if engine.shm_bytes:
        yield "--shm-size", str(engine.shm_bytes)


def _removals(subject: Subject) -> Sequence[str]:
    """Return the commands that remove the recorded resources without this tool, dependents first, except kept ones."""
    records = subject.deployment.resources if subject.deployment else ()
    going = (record for record in reversed(records) if KEPT not in record.notes)
    command = subject.target.manual_commands.removal_command
    found = (command(record.kind, record.attributes.get("id", "ID"), record.place) for record in going)
    return tuple(item for item in found if item is not None)
