"""Every test starts without credentials and user settings, and can only use loopback."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders.requests import shared_catalog
from builders.sdk import share_models
from jsonschema import Draft202012Validator

from tgi_deploy import data_files
from tgi_deploy.catalog import catalog as catalog_module
from tgi_deploy.catalog import predictions
from tgi_deploy.catalog.store import Store
from tgi_deploy.cli import output
from tgi_deploy.operations.planning import locked, own, plan, recorded, sweep
from tgi_deploy.planner import advice
from tgi_deploy.planner.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Supply

_REAL = ("boot", "chromium", "cloud_init", "compose", "control_plane", "docker_engine")
_CORE = frozenset({"unit", "contract"})
_GROUPS = frozenset({"core", "sandbox"})
_SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas.json"
_MEMORY = "/dev/shm"  # noqa: S108 -- pytest makes a private folder in it
_ROOM_BYTES = 4 * 2**30
_ROWS = 5
_KEPT_REQUESTS = 50
_PREFIXES = ("AWS_", "HF_", "HUGGING_FACE_", "TGI_DEPLOY_", "MOTO_", "DOCKER_", "OPENAI_")


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give each test a home that does not exist yet: creating ten thousand folders takes longer than most tests."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture
def tmp_path(_homes: Iterator[Path]) -> Path:
    """Return an empty folder. pytest's own fixture looks at all earlier folders to number the next one."""
    folder = next(_homes)
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, _homes: Iterator[Path]) -> None:
    for name in [name for name in os.environ if name.startswith(_PREFIXES)]:
        monkeypatch.delenv(name)
    home = next(_homes)
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(home / "state"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(home / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "aws-credentials"))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_waited_for_or_read_twice() -> Iterator[None]:
    """Skip disk syncs, and share the packaged files and the SDK's models among all users in this process."""
    behind = Store.behind
    shipped = functools.cache(lambda folder: Store((folder,)))

    def shared(user_dir: Path | None = None) -> Store:
        return shipped(data_files.profiles_dir()) if user_dir is None else behind(user_dir)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "behind", shared)
        patched.setattr(catalog_module, "Hardware", functools.cache(catalog_module.Hardware))
        patched.setattr(predictions, "Predictions", functools.cache(predictions.Predictions))
        patched.setattr(os, "fsync", lambda _handle: None)
        share_models(patched.setattr)
        yield


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_planned_twice() -> Iterator[None]:
    """Plans of equal requests, offers and engines are shared: the planner is pure (`contract/test_purity.py`).

    Tests of `planner/` call it directly, and share nothing.
    """

    def shared(make: Callable[..., Any]) -> Callable[..., Any]:
        made: dict[str, list[tuple[Supply, Engine, Any]]] = {}

        @functools.wraps(make)
        def make_once(request: Request, supply: Supply, engine: Engine) -> Any:
            if len(made) > _KEPT_REQUESTS:
                made.pop(next(iter(made)))
            known = made.setdefault(repr(request), [])
            for its_supply, its_engine, result in known:
                if its_engine == engine and its_supply == supply:
                    return result
            known.append((supply, engine, make(request, supply, engine)))
            return known[-1][2]

        return make_once

    with pytest.MonkeyPatch.context() as patched:
        once = shared(make_plan)
        for module in (locked, own, plan, recorded, sweep):
            patched.setattr(module, "make_plan", once)
        patched.setattr(advice, "near_misses", shared(advice.near_misses))
        yield


@pytest.fixture(autouse=True, scope="session")
def _printed_data_is_as_published() -> Iterator[None]:
    """Validate everything that a test prints with --json against the published schema of its command."""
    schemas = json.loads(_SCHEMAS.read_text(encoding="utf-8"))
    envelope = output.envelope

    @functools.cache
    def validator(command: str) -> Draft202012Validator:
        return Draft202012Validator({"$defs": schemas["$defs"], **schemas["commands"][command]})

    @functools.wraps(envelope)
    def checked(command: str, result: output.Result) -> dict[str, Any]:
        printed = envelope(command, result)
        if command in schemas["commands"] and not result.errors:
            validator(command).validate(_shortened(printed["data"]))
        return printed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(output, "envelope", checked)
        yield


def _shortened(value: Any) -> Any:
    """Return the data with the start and the end of each list: a plan has hundreds of rejections, all of one shape."""
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in (value if len(value) <= 2 * _ROWS else value[:_ROWS] + value[-_ROWS:])]
    return value


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """Return the packaged catalog, read once."""
    return shared_catalog()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Without paths, run `core` unless groups are named, on every processor, with files in memory.

    Other groups wait for processes of theirs: two workers more than there are processors keep all of them busy.
    xdist's workers parse the same command line, and come here too: none of them may start workers of its own.
    """
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.option.markexpr = config.option.markexpr or "core"
        only_core = config.option.markexpr == "core"
        if _GROUPS.intersection(re.findall(r"\w+", config.option.markexpr)) and _has_room(_MEMORY):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)
        if hasattr(config, "workerinput"):
            config.option.loadgroup = not only_core
            return
        if config.option.numprocesses is None:
            config.option.numprocesses = (os.cpu_count() or 2) + (0 if only_core else 2)
        if config.option.dist == "no":
            # What a file's tests share is made once.
            config.option.dist = "loadfile" if only_core else "loadgroup"
    if config.option.dist == "loadgroup":
        config.option.loadscopereorder = False  # the order is that of pytest_collection_modifyitems


def _has_room(folder: str) -> bool:
    """Return whether programs may lie in this folder, and some gigabytes beside them."""
    with contextlib.suppress(OSError):
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize > _ROOM_BYTES and not found.f_flag & os.ST_NOEXEC
    return False


def pytest_configure() -> None:
    """Collect garbage seldom, which takes a sixth off a run; accept Ctrl-C, which background jobs start without.

    Bytecode is kept even where the environment forbids it, as container images do: each worker and each program
    that a test starts would otherwise compile all of its imports, which is half of a run.
    """
    gc.set_threshold(100_000, 50, 100)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing of the suites that have no test of `core`, where only that group runs."""
    folder = collection_path.is_dir() and collection_path.parent == Path(__file__).parent
    return True if config.option.markexpr == "core" and folder and collection_path.name not in _CORE else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its group.

    With xdist's groups, the longest start first: what shares a worker, then `sandbox`. The tests of `core` fill the
    gaps, file by file, because what a file's tests share is made once.
    """
    for item in items:
        item.add_marker(_group(item))
    if config.getoption("loadgroup", default=False):  # a worker's name for --dist loadgroup
        order = {item: _rank(item) for item in items}
        items.sort(key=order.__getitem__)
        for item in items:
            if item.get_closest_marker("core") and not item.get_closest_marker("xdist_group"):
                item.add_marker(pytest.mark.xdist_group(item.path.stem))


def _rank(item: pytest.Item) -> int:
    return 0 if item.get_closest_marker("xdist_group") else 2 if item.get_closest_marker("core") else 1


def _group(item: pytest.Item) -> str:
    """`real` needs programs from outside PyPI; `sandbox` runs the local cloud or takes seconds; `core` is the rest."""
    if any(item.get_closest_marker(name) for name in _REAL):
        return "real"
    is_slow = item.get_closest_marker("slow") or "sandbox" in getattr(item, "fixturenames", ())
    return "core" if _CORE.intersection(item.path.parts) and not is_slow else "sandbox"
