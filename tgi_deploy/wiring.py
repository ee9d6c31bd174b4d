"""Composes the program: alone imports concrete targets, engines, stores and the sandbox, for the use cases."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from tgi_deploy import __version__
from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.data_files import HOME_VARIABLE, state_home
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.reconcile.ports import Listener, Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.models import MoreModels
    from tgi_deploy.diagnosis.grammar import LogGrammar
    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.hub.client import HuggingFaceHub
    from tgi_deploy.operations.context import Context, Pace
    from tgi_deploy.operations.deploying.child_programs import ChildPrograms
    from tgi_deploy.operations.deploying.rehearse import Stage
    from tgi_deploy.operations.survey import Survey
    from tgi_deploy.readiness.proof import EngineClient
    from tgi_deploy.readiness.waiting import Probe
    from tgi_deploy.reconcile.inspection import Workstation
    from tgi_deploy.reconcile.ports import Clock, Cloud
    from tgi_deploy.sandbox.control import SandboxInfo
    from tgi_deploy.sandbox.rehearsal import Trouble as RehearsedTrouble
    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.aws.session import SessionFactory
    from tgi_deploy.targets.docker.api import Api
    from tgi_deploy.targets.docker.endpoint import Endpoint
    from tgi_deploy.values.hardware import LocalGpu

_LOOPBACK: Final = "127.0.0.1/32"
_ALL: Final = "all"
_LONGEST_TAG: Final = 256
_TRUE: Final = frozenset({"1", "ON", "YES", "TRUE"})
# The first is what plans are made with.
ENGINES: Final[tuple[Engine, ...]] = (Tgi(),)


class Progress(Reporter, Listener, Protocol):
    """Where the caller shows what happens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What the command line decides about the surroundings. No `regions`: the configured one."""

    progress: Progress
    sandbox: bool = False
    regions: tuple[str, ...] = ()
    profiles_dir: Path | None = None
    templates_dir: Path | None = None
    api_key_variable: str | None = None
    offline: bool = False


def context(setup: Setup) -> Context:
    """The use cases' surroundings. Nothing is asked of any cloud yet; with `sandbox` the local one runs then."""
    from tgi_deploy.clock import SystemClock  # noqa: PLC0415 -- only commands that act pay for adapters
    from tgi_deploy.operations.context import Context  # noqa: PLC0415 -- likewise
    from tgi_deploy.state.local import LocalStore  # noqa: PLC0415 -- likewise

    regions = _regions(setup)
    local = sandbox_start() if setup.sandbox else None
    clock = SystemClock()
    sessions = _sessions(local)
    unsearched: dict[tuple[str, str], str] = {}
    return Context(
        store=LocalStore(_records(sandbox=setup.sandbox)),
        clock=clock,
        reporter=setup.progress,
        listener=setup.progress,
        cloud=_everywhere(_clouds(sessions, unsearched)),
        pull=lambda place, image: _pull(place, image, setup.progress),
        measure=_measure,
        unsearched=unsearched,
        loopback=setup.sandbox,
        caller_cidr=(lambda: _LOOPBACK) if setup.sandbox else _caller_cidr,
        probe=_probe,
        engine=engine_named,
        engine_client=lambda url: _engine_client(url, setup.api_key_variable),
        keyed_engine_client=_engine_client,
        log_grammar=lambda engine: log_grammar(engine, setup.profiles_dir),
        regions=regions,
        version=__version__,
        command=" ".join(["tgi-deploy", *sys.argv[1:]])[:200],
        new_id=_new_id,
        pace=_pace(sandbox=setup.sandbox),
        templates_dir=setup.templates_dir,
        owner=_owner(),
        survey=_survey(setup, sessions),
    )


def engine_named(name: str | None = None) -> Engine:
    """Return the engine that a plan or a record names; None: what plans are made with.

    Raises:
        InputError: `unknown_engine`.
    """
    if name is None:
        return ENGINES[0]
    found = next((engine for engine in ENGINES if engine.name == name), None)
    if found is None:
        known = ", ".join(engine.name for engine in ENGINES)
        raise InputError("unknown_engine", f"there is no engine {name[:60]!a} here", hint=f"this version has {known}")
    return found


def open_catalog(user_dir: Path | None = None, *, more: MoreModels | None = None) -> Catalog:
    """Return the catalogue with every engine. Raises InputError `unreadable_path`."""
    return Catalog.open(user_dir, more=more, engines=ENGINES)


def docker_endpoint() -> Endpoint:
    """The Docker host that Docker's own command line would use. Raises InputError for settings that can't be meant."""
    from tgi_deploy.targets.docker.endpoint import current_endpoint  # noqa: PLC0415 -- only the docker target asks

    return current_endpoint(os.environ)


def local_gpus() -> tuple[LocalGpu, ...]:
    """This computer's. Raises DeployError `gpus_unreadable`."""
    from tgi_deploy.targets.docker.gpus import local_gpus as found  # noqa: PLC0415 -- likewise

    return found()


def _everywhere(regions: Callable[[str], Cloud]) -> Callable[[str], Cloud]:
    """Regions and Docker hosts alike."""
    from tgi_deploy.targets.docker.resources import is_place  # noqa: PLC0415 -- see context()

    @cache
    def host(place: str) -> Cloud:
        api = _docker_api(place)
        from tgi_deploy.targets.docker.cloud import DockerCloud  # noqa: PLC0415 -- only Docker hosts need its package

        return DockerCloud(api=api)

    return lambda place: host(place) if is_place(place) else regions(place)


def _docker_api(place: str) -> Api:
    """Raises InputError `docker_extra_missing` without its extra."""
    from tgi_deploy.targets.docker.endpoint import endpoint_of  # noqa: PLC0415 -- only Docker hosts need it

    try:
        from tgi_deploy.targets.docker.api import Api  # noqa: PLC0415 -- likewise
        from tgi_deploy.targets.docker.errors import ErrorTable  # noqa: PLC0415 -- likewise
    except ImportError as error:
        raise InputError(
            "docker_extra_missing",
            f"asking a Docker host: the package {error.name!r} is missing",
            hint="pip install 'tgi-deploy[docker]'",
        ) from error
    table = ErrorTable.of(_profile_data("docker/errors.json"))
    return Api(endpoint=endpoint_of(place, os.environ), table=table, environ=os.environ)


def _pull(place: str, image: str, progress: Progress) -> None:
    api = _docker_api(place)
    from tgi_deploy.clock import SystemClock  # noqa: PLC0415 -- see context()
    from tgi_deploy.targets.docker.pull import pull  # noqa: PLC0415 -- only Docker hosts need it

    pull(api, image, listener=progress, clock=SystemClock())


def _measure(place: str, kind: str, thing_id: str) -> int | None:
    api = _docker_api(place)
    from tgi_deploy.targets.docker.cloud import DockerCloud  # noqa: PLC0415 -- only Docker hosts need it

    return DockerCloud(api=api).size_bytes(kind, thing_id)


def _owner() -> str:
    """Who begins deployments here, as tags may say it. CI jobs that follow each other may be one owner."""
    import getpass  # noqa: PLC0415 -- planning belongs to nobody
    import re  # noqa: PLC0415 -- likewise
    import socket  # noqa: PLC0415 -- likewise

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        user = str(os.getuid())
    named = os.environ.get("TGI_DEPLOY_OWNER") or f"{user}@{socket.gethostname()}"
    return re.sub(r"[^A-Za-z0-9 +=.:/@_-]", "-", named)[:_LONGEST_TAG]


def _new_id() -> str:
    import secrets  # noqa: PLC0415 -- planning needs no identity

    return secrets.token_hex(6)


def region_notice(setup: Setup) -> str | None:
    """What to say when the region was nobody's choice."""
    from tgi_deploy.operations.planning.region import default_region  # noqa: PLC0415 -- likewise

    region, source = default_region(os.environ)
    if setup.regions or source != "default" or setup.sandbox:
        return None
    return f"no region is configured: using {region}; name one with --region or AWS_REGION"


def catalog(profiles_dir: Path | None, *, offline: bool = False) -> Catalog:
    """The catalogue with the hub behind it: models that it does not know are read there, once for each commit."""
    from tgi_deploy.catalog.kept_models import KeptModels, models_folder  # noqa: PLC0415 -- help needs no catalogue
    from tgi_deploy.hub.models import HubModels  # noqa: PLC0415 -- likewise

    kept = KeptModels(models_folder(os.environ))
    quiet = offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE
    return open_catalog(profiles_dir, more=kept if quiet else HubModels(kept, _hub))


def _hub() -> HuggingFaceHub:
    """Raises InputError `hub_extra_missing` without its extra."""
    try:
        from tgi_deploy.hub.client import HuggingFaceHub  # noqa: PLC0415 -- only models that nobody knows need it
    except ImportError as error:
        raise InputError(
            "hub_extra_missing",
            f"The model is not in the catalogue, and reading the hub needs the package {error.name!r}.",
            hint="pip install 'tgi-deploy[hub]'",
        ) from error
    return HuggingFaceHub(os.environ.get("HF_ENDPOINT"))


def sandbox_home() -> Path:
    return state_home() / "sandbox"


def sandbox_start() -> SandboxInfo:
    """Raises DeployError `sandbox_not_installed` without its extra."""
    try:
        from tgi_deploy.sandbox import control  # noqa: PLC0415 -- only the sandbox needs it
    except ImportError as error:
        raise DeployError(
            "sandbox_not_installed",
            f"starting the sandbox: the package '{error.name}' is missing",
            hint="pip install 'tgi-deploy[sandbox]'",
        ) from error
    return control.start(sandbox_home())


def sandbox_stop() -> bool:
    from tgi_deploy.sandbox import control  # noqa: PLC0415 -- only the sandbox needs it

    return control.stop(sandbox_home())


def rehearsable() -> tuple[RehearsedTrouble, ...]:
    """Every trouble that can be rehearsed."""
    from tgi_deploy.sandbox.rehearsal import TROUBLES  # noqa: PLC0415 -- only rehearsals need it

    return TROUBLES


@contextmanager
def rehearsal(setup: Setup) -> Iterator[tuple[Context, Stage]]:
    """Surroundings in a sandbox of their own, with a home of its own: both are gone afterwards."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415 -- see rehearsable()

    from tgi_deploy.sandbox import control  # noqa: PLC0415 -- likewise
    from tgi_deploy.sandbox.rehearsal import SandboxStage  # noqa: PLC0415 -- likewise

    before = os.environ.get(HOME_VARIABLE)
    with TemporaryDirectory(prefix="tgi-deploy-rehearsal-", ignore_cleanup_errors=True) as home:
        os.environ[HOME_VARIABLE] = home
        try:
            yield context(replace(setup, sandbox=True)), SandboxStage(sandbox=sandbox_start())
        finally:
            control.stop(sandbox_home())
            os.environ.pop(HOME_VARIABLE)
            if before is not None:
                os.environ[HOME_VARIABLE] = before


def sandbox_status() -> SandboxInfo | None:
    from tgi_deploy.sandbox import control  # noqa: PLC0415 -- only the sandbox needs it

    return control.status(sandbox_home())


def recorded_names(*, sandbox: bool) -> tuple[str, ...]:
    """Deployments that are on record here; nothing is started and nobody is asked."""
    from tgi_deploy.state.local import LocalStore  # noqa: PLC0415 -- see context()

    return LocalStore(_records(sandbox=sandbox)).names()


def child_programs(heard: Callable[[Sequence[str], str], None]) -> ChildPrograms:
    """This program, run again beside this process."""
    from tgi_deploy.operations.deploying.child_programs import ChildPrograms  # noqa: PLC0415 -- see context()

    return ChildPrograms(heard)


def clock() -> Clock:
    from tgi_deploy.clock import SystemClock  # noqa: PLC0415 -- see context()

    return SystemClock()


def _records(*, sandbox: bool) -> Path:
    """The sandbox's records live and go with it: what they tell of is gone when it is."""
    return sandbox_home() / "records" if sandbox else state_home()


def _regions(setup: Setup) -> tuple[str, ...]:
    from tgi_deploy.operations.planning.region import default_region  # noqa: PLC0415 -- see context()

    if _ALL in setup.regions:
        return _catalogue_regions(setup.profiles_dir)
    _check_regions(setup)
    return tuple(dict.fromkeys(setup.regions)) or (default_region(os.environ)[0],)


def _check_regions(setup: Setup) -> None:
    """A slip of the keyboard is told here: asked of a cloud, it would look like one without deployments."""
    from tgi_deploy.targets.docker.resources import is_place  # noqa: PLC0415 -- see context()

    catalog = Catalog.open(setup.profiles_dir)
    for region in setup.regions:
        if not is_place(region):
            catalog.check_region(region)


def _catalogue_regions(profiles_dir: Path | None) -> tuple[str, ...]:
    return Catalog.open(profiles_dir).regions()


def _pace(*, sandbox: bool) -> Pace:
    from tgi_deploy.operations.context import Pace  # noqa: PLC0415 -- see context()
    from tgi_deploy.reconcile.retry import Patience  # noqa: PLC0415 -- likewise

    if not sandbox:
        return Pace()
    quick = {"poll_s": 0.05, "longest_poll_s": 0.5}
    return Pace(
        running=Patience(deadline_s=60, **quick),
        deletion=Patience(deadline_s=60, **quick),
        sweep=Patience(deadline_s=30, **quick),
        unsettled_s=5.0,
        ready_poll_s=0.3,
        health_poll_s=0.1,
        settle_s=0.1,
    )


def _sessions(local: SandboxInfo | None) -> SessionFactory:
    from tgi_deploy.targets.aws.errors import ErrorTable  # noqa: PLC0415 -- see context()
    from tgi_deploy.targets.aws.session import SessionFactory  # noqa: PLC0415 -- likewise

    table = ErrorTable.of(_profile_data("aws/errors.json"))
    if local is not None:
        return SessionFactory(table=table, endpoint_url=local.endpoint_url, access_key=local.access_key)
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    return SessionFactory(table=table, endpoint_url=endpoint or None)


def _clouds(sessions: SessionFactory, unsearched: dict[tuple[str, str], str]) -> Callable[[str], Cloud]:
    from tgi_deploy.clock import SystemClock  # noqa: PLC0415 -- likewise
    from tgi_deploy.targets.aws.api import Api  # noqa: PLC0415 -- see context()
    from tgi_deploy.targets.aws.retry import Retrier  # noqa: PLC0415 -- likewise
    from tgi_deploy.targets.ec2.cloud import Ec2Cloud  # noqa: PLC0415 -- likewise

    parameters = _profile_data("aws/amis.json")["parameters"]
    retrier = Retrier(SystemClock())

    @cache
    def cloud(region: str) -> Cloud:
        return Ec2Cloud(
            api=Api(region=region, sessions=sessions, retrier=retrier),
            image_parameters=parameters,
            secret_of=_secret_of,
            unsearched=unsearched,
        )

    return cloud


def _profile_data(name: str) -> dict[str, Any]:
    from tgi_deploy.catalog.store import Store  # noqa: PLC0415 -- see context()

    return Store.behind().json(name)


@cache
def log_grammar(engine: str | None = None, profiles_dir: Path | None = None) -> LogGrammar:
    """Return what logs of an engine are read by; None: of what plans are made with."""
    from tgi_deploy.catalog.phases import read_phases  # noqa: PLC0415 -- see context()
    from tgi_deploy.diagnosis.grammar import grammar_from  # noqa: PLC0415 -- likewise

    return grammar_from(read_phases(engine_named(engine).name, user_dir=profiles_dir))


def _caller_cidr() -> str:
    """How machines see this computer: from beside them where the cloud's endpoint is on this computer, too."""
    from tgi_deploy.readiness.http import caller_address  # noqa: PLC0415 -- likewise
    from tgi_deploy.targets.aws.session import is_loopback  # noqa: PLC0415 -- see context()

    if is_loopback(os.environ.get("AWS_ENDPOINT_URL", "")):
        return _LOOPBACK
    address = caller_address()
    return f"{address}/128" if ":" in address else f"{address}/32"


def _probe(url: str) -> Probe:
    from tgi_deploy.readiness.http import probe_health  # noqa: PLC0415 -- see context()

    return probe_health(url)


def _engine_client(url: str, api_key_variable: str | None = None) -> EngineClient:
    from tgi_deploy.readiness.http import HttpEngine  # noqa: PLC0415 -- see context()

    if api_key_variable is None:
        return HttpEngine(url)
    return HttpEngine(url, api_key=lambda: _secret(api_key_variable).reveal())


def _secret(variable: str) -> Secret:
    from tgi_deploy.secret import checked  # noqa: PLC0415 -- see context()

    return checked(os.environ.get(variable), variable, "a secret")


def _secret_of(reference: str) -> Secret:
    from tgi_deploy.secret import variable_of  # noqa: PLC0415 -- see context()

    return _secret(variable_of(reference))


def _survey(setup: Setup, sessions: SessionFactory) -> Survey:
    from tgi_deploy.catalog.quotas import read_quotas  # noqa: PLC0415 -- likewise
    from tgi_deploy.operations.launching.secrets import hub_token_variable  # noqa: PLC0415 -- likewise
    from tgi_deploy.operations.survey import Survey  # noqa: PLC0415 -- likewise
    from tgi_deploy.targets.ec2.account_probe import Ec2Inspector  # noqa: PLC0415 -- see context()

    @cache
    def inspector(region: str) -> Ec2Inspector:
        made = Ec2Inspector(region=region, sessions=sessions)
        made.warm_up()
        return made

    why_quiet = _hub_quiet(setup)
    return Survey(
        inspector=inspector,
        quotas=cache(lambda: read_quotas(setup.profiles_dir)),
        vcpus=_vcpus(setup.profiles_dir),
        hub_access=None if why_quiet else _hub_access,
        hub_quiet=why_quiet,
        hub_token=bool(hub_token_variable(os.environ) or os.environ.get("HF_TOKEN_PATH")),
    )


def _vcpus(profiles_dir: Path | None) -> Callable[[str], int | None]:
    types = cache(lambda: Catalog.open(profiles_dir).instance_types())
    return lambda name: types()[name].vcpus if name in types() else None


def _hub_quiet(setup: Setup) -> str:
    """Why the hub is not to be asked; empty where it is."""
    if setup.sandbox:
        return "the sandbox asks no hub"
    offline = any(os.environ.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TGI_DEPLOY_OFFLINE"))
    return "offline mode is on" if setup.offline or offline else ""


def _hub_access(hub_id: str, revision: str) -> None:
    _hub().check_access(hub_id, revision)


def surveyed(setup: Setup) -> tuple[Context, Survey]:
    """The use cases' surroundings, and what a look around needs of them."""
    made = context(setup)
    if made.survey is None:
        raise ValueError("a context of the command line comes with its survey")
    return made, made.survey


def workstation(*, sandbox: bool) -> Workstation:
    from tgi_deploy.operations.checking.workstation import LocalWorkstation  # noqa: PLC0415 -- see context()

    return LocalWorkstation(home=_records(sandbox=sandbox))
