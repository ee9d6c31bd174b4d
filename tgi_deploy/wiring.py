"""Composes the program. The only module that imports concrete targets, engines, stores and the sandbox."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

from tgi_deploy import __version__
from tgi_deploy.data_files import state_home
from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Frozen, replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.catalog.models import MoreModels
    from tgi_deploy.diagnosis.grammar import LogGrammar
    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.hub.client import HuggingFaceHub
    from tgi_deploy.operations.checking.local_checks import Workstation
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.child_programs import ChildPrograms
    from tgi_deploy.operations.deploying.rehearse import Stage
    from tgi_deploy.readiness.invoked import InvokedEngine
    from tgi_deploy.readiness.proof import EngineClient
    from tgi_deploy.readiness.waiting import Probe
    from tgi_deploy.reconcile.ports import Clock
    from tgi_deploy.reconcile.retry import Pace
    from tgi_deploy.sandbox.control import SandboxInfo
    from tgi_deploy.sandbox.rehearsal import Scenario as RehearsedScenario
    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.aws.session import SessionFactory
    from tgi_deploy.targets.protocol import Artifact, Deployable, Target
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.options import Option
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.progress import ProgressEvent
    from tgi_deploy.values.serving import Address

_LOOPBACK: Final = "127.0.0.1/32"
_LONGEST_TAG: Final = 256
_SANDBOX_PLUGIN: Final = (sys.executable, "-P", "-m", "tgi_deploy.sandbox.sessions.plugin")
_LONGEST_COMMAND: Final = 200
_SANDBOX_TOKEN: Final = "hf_made_up_for_the_sandbox"  # noqa: S105 -- not a real secret
_TRUE: Final = frozenset({"1", "ON", "YES", "TRUE"})


class Setup(Frozen, frozen=True, kw_only=True):
    """The caller's settings. Without `regions`, the first target's default region is used.

    `command` identifies this run in locks. `owner` is the owner of new deployments; empty means the current user.
    `home` is the sandbox's folder; None means the one in the user's state folder.
    """

    progress: Callable[[ProgressEvent], None] | None = None
    command: str = ""
    sandbox: bool = False
    regions: tuple[str, ...] = ()
    profiles_dir: Path | None = None
    templates_dir: Path | None = None
    api_key_variable: str | None = None
    offline: bool = False
    owner: str = ""
    home: Path | None = None

    @property
    def records(self) -> Path:
        """The folder of records. The sandbox's records are in its own folder, because its deployments end with it."""
        return (self.home or sandbox_home()) / "records" if self.sandbox else state_home()


def context(setup: Setup) -> Context:
    """Return the use cases' context. Calls no cloud yet; with `sandbox`, starts the local one."""
    from tgi_deploy.clock import SystemClock  # noqa: PLC0415 -- needed only for commands that call a target
    from tgi_deploy.operations.context import Context  # noqa: PLC0415 -- startup time
    from tgi_deploy.state.local import LocalStore  # noqa: PLC0415 -- startup time
    from tgi_deploy.targets.protocol import target_at  # noqa: PLC0415 -- startup time
    from tgi_deploy.values.progress import Events  # noqa: PLC0415 -- startup time

    events = Events(setup.progress, sandbox=setup.sandbox)
    unsearched: dict[tuple[str, str], str] = {}
    there = tuple(make(setup, unsearched) for make in _TARGETS.values())
    return Context(
        store=LocalStore(setup.records),
        clock=SystemClock(),
        reporter=events,
        listener=events,
        targets=there,
        cloud=lambda place: target_at(there, place).cloud(place),
        unsearched=unsearched,
        loopback=setup.sandbox,
        probe=lambda address: _probe(there, address),
        engine=engine_named,
        engine_client=lambda address: _engine_client(there, address, setup.api_key_variable),
        keyed_engine_client=lambda address, variable: _engine_client(there, address, variable),
        log_grammar=lambda engine: log_grammar(engine, setup.profiles_dir),
        regions=setup.regions or there[0].locations(()),
        version=__version__,
        command=setup.command[:_LONGEST_COMMAND],
        new_id=_new_id,
        pace=_pace(sandbox=setup.sandbox),
        templates_dir=setup.templates_dir,
        owner=setup.owner or _owner(),
    )


@cache
def target_named(name: str) -> Target:
    """Return a target without calling it, and without the sandbox and the caller's own profiles."""
    return _TARGETS[name](None, {})


def target_in(name: str, *, sandbox: bool) -> Target:
    """Return a target like `target_named`, but with the sandbox if the target starts that only when it is called."""
    late = sandbox and name in _STARTED_LATE
    return _TARGETS[name](Setup(sandbox=True), {}) if late else target_named(name)


def target_names() -> tuple[str, ...]:
    """Return the names of all targets, the default first."""
    return tuple(_TARGETS)


def targets() -> tuple[Target, ...]:
    """Return all targets, the default first."""
    return tuple(map(target_named, _TARGETS))


def forms() -> tuple[str, ...]:
    """Return the targets' artifact formats, starting with those that this computer can run."""
    return tuple(form for target in reversed(targets()) for form in target.forms)


def target_for(plan: Plan) -> Target:
    """Return the first target that can run a plan."""
    return next(target for target in targets() if target.rejection(plan) is None)


def target_of(place: str) -> Target:
    """Return the target that a location belongs to."""
    from tgi_deploy.targets.protocol import target_at  # noqa: PLC0415 -- not needed for --help

    return target_at(targets(), place)


def target_options(command: str) -> tuple[Option, ...]:
    """Return the options that targets add to a command."""
    from tgi_deploy.values.options import options_of  # noqa: PLC0415 -- startup time

    return options_of((target.options for target in targets()), command)


def target_of_form(form: str) -> Target:
    """Return the target that renders a format."""
    return next(target for target in targets() if form in target.forms)


def render_artifact(form: str, deployable: Deployable, templates_dir: Path | None = None) -> Artifact:
    """Return a deployable rendered in one of the targets' formats."""
    return target_of_form(form).artifact(form, deployable, templates_dir=templates_dir)


def _ec2_target(setup: Setup | None, unsearched: dict[tuple[str, str], str]) -> Target:
    from tgi_deploy.targets.aws.default_region import default_region  # noqa: PLC0415 -- see context()
    from tgi_deploy.targets.ec2.connection import Connection  # noqa: PLC0415 -- startup time
    from tgi_deploy.targets.ec2.options import hub_token_variable  # noqa: PLC0415 -- startup time
    from tgi_deploy.targets.ec2.target import Ec2Target  # noqa: PLC0415 -- startup time

    local = sandbox_start(setup.home) if setup and setup.sandbox else None
    environ = environment(sandbox=local is not None)
    connection = Connection(
        secret_of=lambda name: _secret_of(name, environ),
        endpoint_url=local.endpoint_url if local else os.environ.get("AWS_ENDPOINT_URL") or None,
        access_key=local.access_key if local else None,
        unsearched=unsearched,
        plugin=_SANDBOX_PLUGIN if local else (),
    )
    if setup:
        _ = connection.sessions  # unusable settings are an error of every command that changes something
    profiles_dir = setup.profiles_dir if setup else None
    why_skipped = _hub_skipped_reason(setup) if setup else "it was not requested"
    survey = connection.survey(
        lambda: open_catalog(profiles_dir),
        profiles_dir,
        hub_access=_any_token if local else None if why_skipped else _hub_access,
        hub_skipped_reason=why_skipped,
        hub_token=bool(hub_token_variable(environ) or os.environ.get("HF_TOKEN_PATH")),
    )
    return Ec2Target(
        region=connection.region,
        survey=survey,
        catalog=lambda: open_catalog(profiles_dir),
        default_region=lambda: default_region(os.environ)[0],
        session_manager=lambda: connection.session_manager,
        caller_cidr=lambda: _LOOPBACK if local else _caller_cidr(connection.sessions),
    )


def _docker_target(_setup: Setup | None, _unsearched: dict[tuple[str, str], str]) -> Target:
    from tgi_deploy.targets.docker.target import docker_target  # noqa: PLC0415 -- see context()

    return docker_target(os.environ)


def _kubernetes_target(setup: Setup | None, unsearched: dict[tuple[str, str], str]) -> Target:
    from tgi_deploy.targets.kubernetes.target import kubernetes_target  # noqa: PLC0415 -- see context()

    profiles_dir = setup.profiles_dir if setup else None
    local = (setup.home or sandbox_home()) if setup and setup.sandbox else None

    def environ() -> Mapping[str, str]:
        return os.environ if local is None else {**os.environ, "KUBECONFIG": str(_sandbox_cluster(local))}

    return kubernetes_target(environ, lambda: open_catalog(profiles_dir), unsearched)


def _sagemaker_target(setup: Setup | None, unsearched: dict[tuple[str, str], str]) -> Target:
    from tgi_deploy.targets.aws.default_region import default_region  # noqa: PLC0415 -- see context()
    from tgi_deploy.targets.sagemaker.connection import Connection  # noqa: PLC0415 -- startup time
    from tgi_deploy.targets.sagemaker.target import SageMakerTarget  # noqa: PLC0415 -- startup time

    local = sandbox_start(setup.home) if setup and setup.sandbox else None
    environ = environment(sandbox=local is not None)
    connection = Connection(
        secret_of=lambda name: _secret_of(name, environ),
        endpoint_url=local.endpoint_url if local else os.environ.get("AWS_ENDPOINT_URL") or None,
        access_key=local.access_key if local else None,
        unsearched=unsearched,
    )
    profiles_dir = setup.profiles_dir if setup else None
    return SageMakerTarget(
        cloud_of=connection.cloud,
        catalog=lambda: open_catalog(profiles_dir, service=SageMakerTarget.facts.service),
        default_region=lambda: default_region(os.environ)[0],
    )


# By name; the first is the default.
_TARGETS: Final = {
    "ec2": _ec2_target,
    "docker": _docker_target,
    "kubernetes": _kubernetes_target,
    "sagemaker": _sagemaker_target,
}
_STARTED_LATE: Final = frozenset({"kubernetes"})


def _caller_cidr(sessions: SessionFactory) -> str:
    """Return this computer's address as machines see it: loopback if the cloud's endpoint is on this computer.

    Raises DeployError `no_credentials` before looking it up, because no machine can be launched without credentials.
    """
    from tgi_deploy.readiness.http import caller_address  # noqa: PLC0415 -- see context()
    from tgi_deploy.targets.aws.session import is_loopback  # noqa: PLC0415 -- startup time

    if is_loopback(os.environ.get("AWS_ENDPOINT_URL", "")):
        return _LOOPBACK
    sessions.check_credentials()
    address = caller_address()
    return f"{address}/128" if ":" in address else f"{address}/32"


@cache
def engines() -> tuple[Engine, ...]:
    """Return every engine, the planner's default first."""
    from tgi_deploy.engines.tgi import Tgi  # noqa: PLC0415 -- not needed for --help

    return (Tgi(),)


def engine_named(name: str | None = None) -> Engine:
    """Return the engine with this name; None means the planner's default.

    Raises:
        InputError: `unknown_engine`.
    """
    if name is None:
        return engines()[0]
    found = next((engine for engine in engines() if engine.name == name), None)
    if found is None:
        known = ", ".join(engine.name for engine in engines())
        raise InputError("unknown_engine", f"unknown engine {name[:60]!a}", hint=f"this version supports {known}")
    return found


def open_catalog(user_dir: Path | None = None, *, more: MoreModels | None = None, service: str = "") -> Catalog:
    """Return the catalog with every engine, or that of a service. Raises InputError `unreadable_path`."""
    from tgi_deploy.catalog.catalog import Catalog  # noqa: PLC0415 -- not needed for --help
    from tgi_deploy.targets.aws.default_region import default_region  # noqa: PLC0415 -- startup time

    found = Catalog.open(user_dir, more=more, engines=engines(), default_region=default_region)
    return found.hosted(service) if service else found


def _owner() -> str:
    """Return the owner of new deployments, in a form valid for tags. Successive CI jobs may share an owner."""
    import getpass  # noqa: PLC0415 -- plans have no owner
    import re  # noqa: PLC0415 -- startup time
    import socket  # noqa: PLC0415 -- startup time

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        user = str(os.getuid())
    named = os.environ.get("TGI_DEPLOY_OWNER") or f"{user}@{socket.gethostname()}"
    return re.sub(r"[^A-Za-z0-9 +=.:/@_-]", "-", named)[:_LONGEST_TAG]


def _new_id() -> str:
    import secrets  # noqa: PLC0415 -- planning needs no identity

    return secrets.token_hex(6)


def environment(*, sandbox: bool) -> Mapping[str, str]:
    """Return this process's environment. The sandbox accepts any hub token, so there a made-up one fills in."""
    from tgi_deploy.targets.ec2.options import TOKEN_VARIABLES, hub_token_variable  # noqa: PLC0415 -- see context()

    lacks_token = sandbox and hub_token_variable(os.environ) is None
    return {**os.environ, TOKEN_VARIABLES[0]: _SANDBOX_TOKEN} if lacks_token else os.environ


def region_notice(*, sandbox: bool) -> str | None:
    """Return a note if the default region is used because none is named or configured; else None."""
    from tgi_deploy.targets.aws.default_region import default_region  # noqa: PLC0415 -- see context()

    region, source = default_region(os.environ)
    if source != "default" or sandbox:
        return None
    return f"no region is configured: using {region}; name one with --region or AWS_REGION"


def catalog(profiles_dir: Path | None, *, offline: bool = False, service: str = "") -> Catalog:
    """Return the catalog, or that of a service. It reads unknown models from the hub, once per commit."""
    from tgi_deploy.catalog.kept_models import CachedModels, models_folder  # noqa: PLC0415 -- not needed for --help
    from tgi_deploy.hub.models import HubModels  # noqa: PLC0415 -- startup time

    kept = CachedModels(models_folder(os.environ))
    quiet = offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE
    return open_catalog(profiles_dir, more=kept if quiet else HubModels(kept, _hub), service=service)


def catalog_with(instance_type: str, profiles_dir: Path | None) -> Catalog:
    """Return the offline catalog that has an instance type: the provider's, or that of a service."""
    services = dict.fromkeys(target.facts.service for target in targets())
    found = [catalog(profiles_dir, offline=True, service=service) for service in services]
    return next((item for item in found if instance_type in item.instance_types()), found[0])


def _hub() -> HuggingFaceHub:
    """Return the hub's client. Raises InputError `extra_missing` if its extra is not installed."""
    try:
        from tgi_deploy.hub.client import HuggingFaceHub  # noqa: PLC0415 -- only unknown models need it
    except ImportError as error:
        from tgi_deploy.extras import extra_missing  # noqa: PLC0415 -- needed only if an extra is missing

        raise extra_missing("hub", "looking on the hub for a model that the catalog lacks", error) from error
    return HuggingFaceHub(os.environ.get("HF_ENDPOINT"))


def sandbox_home() -> Path:
    return state_home() / "sandbox"


def sandbox_start(home: Path | None = None) -> SandboxInfo:
    """Start the sandbox unless it is running. Raises InputError `extra_missing` if its extra is not installed."""
    with _sandbox_extra():
        from tgi_deploy.sandbox import control  # noqa: PLC0415 -- only the sandbox needs it
    return control.start(home or sandbox_home())


def _sandbox_cluster(home: Path) -> Path:
    """Return the kubeconfig of the sandbox's cluster. Raises InputError `extra_missing`, `control_plane_missing`."""
    with _sandbox_extra():
        from tgi_deploy.sandbox import control  # noqa: PLC0415 -- only the sandbox needs it
    return control.start_cluster(home)


@contextmanager
def _sandbox_extra(doing: str = "starting the sandbox") -> Iterator[None]:
    """Raise InputError `extra_missing` if the block fails to import a package of the sandbox's extra."""
    try:
        yield
    except ImportError as error:
        from tgi_deploy.extras import extra_missing  # noqa: PLC0415 -- needed only if an extra is missing

        raise extra_missing("sandbox", doing, error) from error


def sandbox_stop() -> bool:
    """Stop the sandbox; return whether there was one. Raises InputError `extra_missing`."""
    home = sandbox_home()
    if not home.exists():
        return False
    with _sandbox_extra("stopping the sandbox"):
        from tgi_deploy.sandbox import control  # noqa: PLC0415 -- only the sandbox needs it
    return control.stop(home)


def rehearsable() -> tuple[RehearsedScenario, ...]:
    """Return every fault that can be rehearsed."""
    from tgi_deploy.sandbox.rehearsal import SCENARIOS  # noqa: PLC0415 -- only rehearsals need it

    return SCENARIOS


@contextmanager
def rehearsal(setup: Setup) -> Iterator[tuple[Context, Stage]]:
    """Yield a context in a separate sandbox with its own folder; both are removed afterwards."""
    from pathlib import Path  # noqa: PLC0415 -- startup time
    from tempfile import TemporaryDirectory  # noqa: PLC0415 -- see rehearsable()

    with _sandbox_extra():
        from tgi_deploy.sandbox import control  # noqa: PLC0415 -- startup time
        from tgi_deploy.sandbox.rehearsal import SandboxStage  # noqa: PLC0415 -- startup time

    with TemporaryDirectory(prefix="tgi-deploy-rehearsal-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "sandbox"
        try:
            yield context(replaced(setup, sandbox=True, home=home)), SandboxStage(sandbox=sandbox_start(home))
        finally:
            control.stop(home)


def sandbox_status() -> SandboxInfo | None:
    """Return the running sandbox; None if there is none. Raises InputError `extra_missing`."""
    home = sandbox_home()
    if not home.exists():
        return None
    with _sandbox_extra("looking for the sandbox"):
        from tgi_deploy.sandbox import control  # noqa: PLC0415 -- only the sandbox needs it
    return control.status(home)


def recorded_names(*, sandbox: bool) -> tuple[str, ...]:
    """Return the deployments recorded here, without starting or calling anything."""
    from tgi_deploy.state.local import LocalStore  # noqa: PLC0415 -- see context()

    return LocalStore(Setup(sandbox=sandbox).records).names()


def recorded(name: str, *, sandbox: bool) -> Deployment | None:
    """Return a deployment as recorded here, without starting or calling anything."""
    from tgi_deploy.state.local import LocalStore  # noqa: PLC0415 -- see context()

    return LocalStore(Setup(sandbox=sandbox).records).load(name)


def child_programs(on_line: Callable[[Sequence[str], str], None]) -> ChildPrograms:
    """Return the runner of this program as a child process."""
    from tgi_deploy.operations.deploying.child_programs import ChildPrograms  # noqa: PLC0415 -- see context()

    return ChildPrograms(on_line)


def clock() -> Clock:
    from tgi_deploy.clock import SystemClock  # noqa: PLC0415 -- see context()

    return SystemClock()


def _pace(*, sandbox: bool) -> Pace:
    from tgi_deploy.reconcile.retry import Pace, PollPolicy  # noqa: PLC0415 -- see context()

    if not sandbox:
        return Pace()
    quick = {"poll_s": 0.05, "longest_poll_s": 0.5}
    return Pace(
        running=PollPolicy(deadline_s=60, **quick),
        deletion=PollPolicy(deadline_s=60, **quick),
        sweep=PollPolicy(deadline_s=30, **quick),
        visibility_timeout_s=5.0,
        ready_poll_s=0.3,
        health_poll_s=0.1,
        settle_s=0.1,
    )


@cache
def log_grammar(engine: str | None = None, profiles_dir: Path | None = None) -> LogGrammar:
    """Return the log grammar of an engine; None means the planner's default. Raises InputError `unknown_engine`."""
    from tgi_deploy.catalog.phases import read_phases  # noqa: PLC0415 -- see context()
    from tgi_deploy.diagnosis.grammar import grammar_from  # noqa: PLC0415 -- startup time

    known = engine if engine in logged_engines() else engine_named(engine).name
    return grammar_from(read_phases(known, user_dir=profiles_dir))


def logged_engines() -> tuple[str, ...]:
    """Return the engines whose logs can be read, including those that plans don't support."""
    from tgi_deploy.catalog import phases  # noqa: PLC0415 -- see context()

    return phases.logged_engines()


def engine_of_log(text: str) -> str:
    """Return the engine that wrote a log: by its typical lines, else the one whose tables explain the log best."""
    from tgi_deploy.catalog.phases import read_signs  # noqa: PLC0415 -- see context()
    from tgi_deploy.diagnosis.patterns import any_of, most_signs  # noqa: PLC0415 -- startup time

    signs, usual = read_signs(), engines()[0].name
    if any(any_of(found).search(text) for found in signs.values()):
        return most_signs(text, signs, otherwise=usual)
    return max((usual, *logged_engines()), key=lambda name: _confidence(text, name))


def _confidence(text: str, engine: str) -> float:
    from tgi_deploy.diagnosis.reader import read  # noqa: PLC0415 -- startup time

    return max((item.confidence for item in read(text, log_grammar(engine)).findings), default=0.0)


def _probe(there: Sequence[Target], address: Address) -> Probe:
    from tgi_deploy.readiness.http import probe_health  # noqa: PLC0415 -- see context()
    from tgi_deploy.targets.protocol import near_end  # noqa: PLC0415 -- startup time

    if address.invoked:
        return _invoked_engine(there, address).health()
    near = near_end(there, address)
    return probe_health(near.url, certificate=near.certificate)


def _engine_client(there: Sequence[Target], address: Address, api_key_variable: str | None = None) -> EngineClient:
    from tgi_deploy.readiness.http import HttpEngine  # noqa: PLC0415 -- see context()
    from tgi_deploy.targets.protocol import near_end  # noqa: PLC0415 -- startup time

    if address.invoked:
        return _invoked_engine(there, address)
    address = near_end(there, address)
    key = None if api_key_variable is None else lambda: _secret(api_key_variable, os.environ).reveal()
    return HttpEngine(address.url, certificate=address.certificate, api_key=key)


def _invoked_engine(there: Sequence[Target], address: Address) -> InvokedEngine:
    """Return the client of an engine behind its cloud's API."""
    from tgi_deploy.readiness.invoked import InvokedEngine  # noqa: PLC0415 -- see context()
    from tgi_deploy.targets.protocol import Invoking, target_at  # noqa: PLC0415 -- startup time

    target, engine = target_at(there, address.invoked), engines()[0]
    if not isinstance(target, Invoking):
        raise InputError("no_tunnel", f"target {target.name} can't forward requests to {address.url}")

    def invoke(body: bytes, streamed: bool) -> tuple[int, Iterator[bytes]]:  # noqa: FBT001 -- the signature of InvokedEngine
        answer = target.invoke(address, body, streamed=streamed)
        return answer.status, answer.body

    return InvokedEngine(engine=engine, invocable=engine, answers=lambda: target.answers(address), invoke=invoke)


def _secret(variable: str, environ: Mapping[str, str]) -> Secret:
    from tgi_deploy.secret import checked  # noqa: PLC0415 -- see context()

    return checked(environ.get(variable), variable, "a secret")


def _secret_of(reference: str, environ: Mapping[str, str]) -> Secret:
    from tgi_deploy.secret import variable_of  # noqa: PLC0415 -- see context()

    return _secret(variable_of(reference), environ)


def _hub_skipped_reason(setup: Setup) -> str:
    """Return why the hub must not be contacted; empty if it may be contacted."""
    offline = any(os.environ.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TGI_DEPLOY_OFFLINE"))
    return "offline mode is on" if setup.offline or offline else ""


def _hub_access(hub_id: str, revision: str) -> None:
    _hub().check_access(hub_id, revision)


def _any_token(_hub_id: str, _revision: str) -> None:
    """Accept any token: the sandbox does not contact the hub."""


def workstation(*, sandbox: bool) -> Workstation:
    from tgi_deploy.operations.checking.local_checks import Workstation  # noqa: PLC0415 -- see context()

    return Workstation(home=Setup(sandbox=sandbox).records)
