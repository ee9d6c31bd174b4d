"""Puts the program together: the only place where adapters, the store and the sandbox meet the use cases."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import __version__
from tgi_deploy.cli.frame import state_home
from tgi_deploy.errors import DeployError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tgi_deploy.adapters.aws.session import SessionFactory
    from tgi_deploy.app.context import Context, Pace
    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.catalog.hub_models import Hub
    from tgi_deploy.cli.progress import Progress
    from tgi_deploy.reconcile.health import Probe
    from tgi_deploy.reconcile.phase_table import PhaseTable
    from tgi_deploy.reconcile.ports import Cloud
    from tgi_deploy.reconcile.proof import EngineClient
    from tgi_deploy.sandbox.control import SandboxInfo

_LOOPBACK: Final = "127.0.0.1/32"
_ALL: Final = "all"
_TRUE: Final = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What the command line decides about the surroundings. No `regions`: the configured one."""

    progress: Progress
    sandbox: bool = False
    regions: tuple[str, ...] = ()
    profiles_dir: Path | None = None
    templates_dir: Path | None = None


def context(setup: Setup) -> Context:
    """The use cases' surroundings. Nothing is asked of any cloud yet; with `sandbox` the local one runs then."""
    from tgi_deploy.adapters.clock import SystemClock  # noqa: PLC0415 -- only commands that act pay for adapters
    from tgi_deploy.app.context import Context  # noqa: PLC0415 -- likewise
    from tgi_deploy.state.local import LocalStore  # noqa: PLC0415 -- likewise

    local = sandbox_start() if setup.sandbox else None
    clock = SystemClock()
    return Context(
        store=LocalStore(_records(sandbox=setup.sandbox)),
        clock=clock,
        reporter=setup.progress,
        listener=setup.progress,
        cloud=_clouds(_sessions(local)),
        caller_cidr=(lambda: _LOOPBACK) if setup.sandbox else _caller_cidr,
        probe=_probe,
        engine_client=_engine_client,
        phases=lambda: _phases(setup.profiles_dir),
        regions=_regions(setup),
        version=__version__,
        command=" ".join(["tgi-deploy", *sys.argv[1:]])[:200],
        new_id=_new_id,
        pace=_pace(sandbox=setup.sandbox),
        templates_dir=setup.templates_dir,
    )


def _new_id() -> str:
    import secrets  # noqa: PLC0415 -- planning needs no identity

    return secrets.token_hex(6)


def region_notice(setup: Setup) -> str | None:
    """What to say when the region was nobody's choice."""
    from tgi_deploy.app.region import default_region  # noqa: PLC0415 -- likewise

    region, source = default_region(os.environ)
    if setup.regions or source != "default" or setup.sandbox:
        return None
    return f"no region is configured: using {region}; name one with --region or AWS_REGION"


def catalog(profiles_dir: Path | None, *, offline: bool = False) -> Catalog:
    """The catalogue with the hub behind it: models that it does not know are read there, once for each commit."""
    from tgi_deploy.catalog.catalog import Catalog  # noqa: PLC0415 -- help is printed without the catalogue
    from tgi_deploy.catalog.hub_models import HubModels, models_folder  # noqa: PLC0415 -- likewise

    quiet = offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE
    return Catalog.open(profiles_dir, hub=HubModels(models_folder(os.environ), _hub, offline=quiet))


def _hub() -> Hub:
    """Raises InputError `hub_extra_missing` without its extra."""
    try:
        from tgi_deploy.adapters.hub import HuggingFaceHub  # noqa: PLC0415 -- only models that nobody knows need it
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


def sandbox_status() -> SandboxInfo | None:
    from tgi_deploy.sandbox import control  # noqa: PLC0415 -- only the sandbox needs it

    return control.status(sandbox_home())


def _records(*, sandbox: bool) -> Path:
    """The sandbox's records live and go with it: what they tell of is gone when it is."""
    return sandbox_home() / "records" if sandbox else state_home()


def _regions(setup: Setup) -> tuple[str, ...]:
    from tgi_deploy.app.region import default_region  # noqa: PLC0415 -- see context()

    if _ALL in setup.regions:
        return _catalogue_regions(setup.profiles_dir)
    return tuple(dict.fromkeys(setup.regions)) or (default_region(os.environ)[0],)


def _catalogue_regions(profiles_dir: Path | None) -> tuple[str, ...]:
    from tgi_deploy.catalog.catalog import Catalog  # noqa: PLC0415 -- see context()

    return Catalog.open(profiles_dir).regions()


def _pace(*, sandbox: bool) -> Pace:
    from tgi_deploy.app.context import Pace  # noqa: PLC0415 -- see context()
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
        settle_s=0.3,
    )


def _sessions(local: SandboxInfo | None) -> SessionFactory:
    from tgi_deploy.adapters.aws.errors import ErrorTable  # noqa: PLC0415 -- see context()
    from tgi_deploy.adapters.aws.session import SessionFactory  # noqa: PLC0415 -- likewise

    table = ErrorTable.of(_profile_data("aws/errors.json"))
    if local is not None:
        return SessionFactory(table=table, endpoint_url=local.endpoint_url, access_key=local.access_key)
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    return SessionFactory(table=table, endpoint_url=endpoint or None)


def _clouds(sessions: SessionFactory) -> Callable[[str], Cloud]:
    from tgi_deploy.adapters.aws.api import Api  # noqa: PLC0415 -- see context()
    from tgi_deploy.adapters.aws.cloud import Ec2Cloud  # noqa: PLC0415 -- likewise
    from tgi_deploy.adapters.clock import SystemClock  # noqa: PLC0415 -- likewise
    from tgi_deploy.adapters.retry import Retrier  # noqa: PLC0415 -- likewise

    parameters = _profile_data("aws/amis.json")["parameters"]
    retrier = Retrier(SystemClock())

    @cache
    def cloud(region: str) -> Cloud:
        return Ec2Cloud(api=Api(region=region, sessions=sessions, retrier=retrier), image_parameters=parameters)

    return cloud


def _profile_data(name: str) -> dict[str, Any]:
    from tgi_deploy.catalog.store import Store  # noqa: PLC0415 -- see context()
    from tgi_deploy.resources import profiles_dir  # noqa: PLC0415 -- likewise

    return Store((profiles_dir(),)).json(name)


def _phases(profiles_dir: Path | None) -> PhaseTable:
    from tgi_deploy.catalog.phases import read_phases  # noqa: PLC0415 -- see context()
    from tgi_deploy.reconcile.phase_table import table_from  # noqa: PLC0415 -- likewise

    return table_from(read_phases(user_dir=profiles_dir))


def _caller_cidr() -> str:
    """How machines see this computer: from beside them where the cloud's endpoint is on this computer, too."""
    from tgi_deploy.adapters.aws.session import is_loopback  # noqa: PLC0415 -- see context()
    from tgi_deploy.adapters.http import caller_address  # noqa: PLC0415 -- likewise

    if is_loopback(os.environ.get("AWS_ENDPOINT_URL", "")):
        return _LOOPBACK
    address = caller_address()
    return f"{address}/128" if ":" in address else f"{address}/32"


def _probe(url: str) -> Probe:
    from tgi_deploy.adapters.http import probe_health  # noqa: PLC0415 -- see context()

    return probe_health(url)


def _engine_client(url: str) -> EngineClient:
    from tgi_deploy.adapters.http import HttpEngine  # noqa: PLC0415 -- see context()

    return HttpEngine(url)
