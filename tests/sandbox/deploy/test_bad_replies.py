"""Every reply is either understood or counts as lost, at every AWS call of every command. Replies are truncated, empty,
foreign, incomplete, of wrong types, or failures after the effect: a single one, or all from some call on. No defect is
reported, no machine is lost, and running resources are named.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from botocore.loaders import JSONFileLoader
from builders.samples import THOROUGH, some
from disruptions.checks import Account
from disruptions.matrix import changes
from fakes.wire import KINDS, Wire

from tgi_deploy import wiring
from tgi_deploy.operations.planning import plan as app_plan
from tgi_deploy.targets.aws.session import SessionFactory

if TYPE_CHECKING:
    from builders.sandboxed import Ran

pytestmark = pytest.mark.xdist_group("bad-replies")  # one sandbox
NAME = "llama3-13b"
KEY = "BAD_REPLIES_API_KEY"
UP = ("up", NAME, "--budget", "5", "--ttl", "3h", "--lease", "2h", "--yes", "--no-wait")
EVERYTHING = (*UP, "--external-ttl", "--api-key-from-env", KEY)
DOWN = ("down", NAME, "--yes")
LOOKING = {
    "status": ("status", NAME),
    "list": ("list",),
    "logs": ("logs", NAME),
    "gc": ("gc", "--yes"),
    "doctor": ("doctor",),
    "extend": ("extend", NAME),
}
FOR_EVER = 1_000_000
FAILED, NOT_READY, LEFT_BEHIND = 1, 5, 6
# From then on they all end the same way.
LASTING = ("cut", "a failure after its effect", "a login page")


def usual(words):
    """Return how a command ends without faults here, where no machine ever boots."""
    return NOT_READY if words == LOOKING["status"] else 0


class HurriedClock:
    """Real time plus the slept time: sleeping takes no time. Reset by the next command."""

    slept_s = 0.0

    def now(self):
        return datetime.now(UTC) + timedelta(seconds=self.slept_s)

    def monotonic(self):
        return time.monotonic() + self.slept_s

    def sleep(self, seconds):
        HurriedClock.slept_s += seconds


@pytest.fixture(scope="module")
def planned():
    """Create once what is the same in every run: the plan, and the SDK's service descriptions."""
    patch = pytest.MonkeyPatch()
    make, load = app_plan.plan, JSONFileLoader.load_file
    plans = functools.cache(lambda texts, catalog: make(texts, catalog, {}))
    files = functools.cache(lambda kind, path: load(kind(), path))
    patch.setattr(app_plan, "plan", lambda texts, catalog, _environ: plans(texts, catalog))
    patch.setattr(wiring, "catalog", functools.cache(wiring.catalog))
    patch.setattr(JSONFileLoader, "load_file", lambda self, path: files(type(self), path))
    yield
    patch.undo()


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A run with corrupt replies: `action` is the first that got one, `where` describes the case."""

    result: Ran
    action: str
    calls: tuple[str, ...]
    where: str


class Bench:
    def __init__(self, program, wire):
        self.program, self.wire = program, wire
        self.account = Account(program)

    @property
    def fullest(self):
        """Return what to check: in a normal run a machine with a group and a template."""
        return EVERYTHING if THOROUGH else UP

    def empty(self):
        """Machines run, and nothing ever boots in them."""
        self.wire.watch()
        self.program.control("POST", "reset")
        shutil.rmtree(self.program.home / "sandbox" / "records", ignore_errors=True)
        self.program.fault(name="dark", times=FOR_EVER)

    def run(self, words):
        HurriedClock.slept_s = 0.0
        return self.program.here(*words)

    def works(self, words):
        self.wire.watch()
        result = self.run(words)
        assert result.code == usual(words), (words, result.out, result.err)
        return result

    def strike(self, words, kind, at, times):
        """Run a command whose replies are corrupt from the `at`-th request on."""
        self.wire.spoil(kind, at=at, times=times)
        result = self.run(words)
        printed = f"{result.out[-3000:]} {result.err[-1000:]}"
        where = f"{words[0]}: {kind} at {at}, {self.wire.struck}; exit {result.code}: {printed}"
        struck = Struck(result=result, action=self.wire.struck, calls=tuple(self.wire.calls), where=where)
        self.wire.watch()
        assert "internal_error" not in result.out, where
        assert "Traceback" not in result.out + result.err, where
        return struck

    def places(self, words, kind, times, *, beside=()):
        """Return the numbers of the requests to corrupt: the first of each action, and the last of each changing one.
        Actions in `beside` are skipped. A normal run takes one, always the same.
        """
        self.works(words)
        calls = [(at, action) for at, action in enumerate(self.wire.calls) if action not in beside]
        first = {action: at for at, action in reversed(calls)}
        last = {action: at for at, action in calls if changes(action)}
        everywhere = sorted({*first.values(), *last.values()})
        if THOROUGH:
            return everywhere
        return [min(everywhere, key=lambda at: hashlib.sha256(f"{words} {kind} {times} {at}".encode()).digest())]

    def check_named(self, struck):
        """Check that everything that runs is named, with its price and the command that removes it."""
        reported = " ".join(f"{item['message']} {item['hint']}" for item in struck.result.json["errors"])
        for machine in self.account.alive():
            assert machine in reported or "may have been launched" in reported, struck.where
            assert "$1.87" in reported, struck.where
            assert f"tgi-deploy down --sandbox {NAME}" in reported, struck.where

    def check_goes_on(self, struck, words=None):
        """Check that the next `up` with `words` adopts what exists, and that `down` then leaves nothing."""
        if words is not None:
            self.works(words)
        assert len(self.account.alive()) == 1, struck.where
        self.works(DOWN)
        assert self.account.leftovers() == [], struck.where
        assert len(self.account.launched()) == 1, struck.where


@pytest.fixture
def bench(program, planned, monkeypatch):
    wire = Wire()
    session = SessionFactory._session

    def watched(self):
        known = "session" in self._made
        made = session(self)
        if not known:
            wire.attach(made.events)
        return made

    monkeypatch.setattr(SessionFactory, "_session", watched)
    monkeypatch.setattr("tgi_deploy.clock.SystemClock", HurriedClock)
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _seconds: None))
    monkeypatch.setenv(KEY, "made-up-key-of-the-replies")
    made = Bench(program, wire)
    made.empty()
    yield made
    wire.close()


@pytest.mark.parametrize("kind", some(KINDS, 2))
def test_up_survives_one_bad_reply(bench, kind):
    for at in bench.places(UP, kind, 1):
        bench.empty()
        struck = bench.strike(UP, kind, at, 1)
        assert struck.result.code == 0, struck.where
        bench.check_goes_on(struck)


@pytest.mark.parametrize("kind", some(KINDS, 1))
def test_up_with_secrets_and_external_ttl_survives_one_bad_reply(bench, kind):
    bench.works(UP)
    plain = set(bench.wire.calls)
    bench.works(DOWN)
    for at in bench.places(EVERYTHING, kind, 1, beside=plain):
        bench.empty()
        struck = bench.strike(EVERYTHING, kind, at, 1)
        assert struck.result.code == 0, struck.where
        bench.check_goes_on(struck)


@pytest.mark.parametrize("kind", some(LASTING, 1))
def test_a_connection_lost_during_up_reports_every_resource(bench, kind):
    for at in bench.places(UP, kind, FOR_EVER):
        bench.empty()
        struck = bench.strike(UP, kind, at, FOR_EVER)
        if struck.action == "CreateTags":  # the first renewal of the lease comes after all is made
            assert (struck.result.code, "lease_not_renewed" in struck.result.err) == (0, True), struck.where
        else:
            assert struck.result.code == FAILED, struck.where
            bench.check_named(struck)
        bench.check_goes_on(struck, UP)


@pytest.mark.parametrize("kind", some(KINDS, 1))
def test_down_survives_one_bad_reply(bench, kind):
    bench.works(EVERYTHING)
    for at in bench.places(DOWN, kind, 1):
        bench.empty()
        bench.works(EVERYTHING)
        struck = bench.strike(DOWN, kind, at, 1)
        assert struck.result.code == 0, struck.where
        assert bench.account.leftovers() == [], struck.where


@pytest.mark.parametrize("kind", some(LASTING, 1))
def test_a_connection_lost_during_down_reports_every_resource(bench, kind):
    bench.works(UP)
    for at in bench.places(DOWN, kind, FOR_EVER):
        bench.empty()
        bench.works(UP)
        struck = bench.strike(DOWN, kind, at, FOR_EVER)
        begun = "TerminateInstances" in struck.calls
        assert struck.result.code == (LEFT_BEHIND if begun else FAILED), struck.where
        if begun:
            bench.check_named(struck)
        bench.works(DOWN)
        assert bench.account.leftovers() == [], struck.where


@pytest.mark.parametrize(("command", "kind"), some([*product(LOOKING, KINDS)], 2))
def test_read_only_commands_survive_one_bad_reply(bench, command, kind):
    bench.works(bench.fullest)
    for at in bench.places(LOOKING[command], kind, 1):
        struck = bench.strike(LOOKING[command], kind, at, 1)
        assert struck.result.code == usual(LOOKING[command]), struck.where


@pytest.mark.parametrize(("command", "kind"), some([*product(LOOKING, LASTING)], 2))
def test_an_unreachable_cloud_is_not_reported_as_a_bug(bench, command, kind):
    bench.works(bench.fullest)
    for at in bench.places(LOOKING[command], kind, FOR_EVER):
        result = (struck := bench.strike(LOOKING[command], kind, at, FOR_EVER)).result
        reported = {item["code"] for item in (*result.json["errors"], *result.json["warnings"])}
        assert result.code in {usual(LOOKING[command]), FAILED}, struck.where
        assert reported & {"cloud_unreachable", "throttled"}, struck.where
