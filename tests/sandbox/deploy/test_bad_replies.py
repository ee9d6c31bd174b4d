"""Whatever comes back over the wire is understood or counts as lost, at every call of every command that asks AWS.

Cut, empty and foreign replies, replies without members or with members of other types, failures after the effect:
spoiled once, and from some call on for ever. No defect is shown, no machine is lost, and what runs is named.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from types import SimpleNamespace

import pytest
from disruptions.checks import Account
from fakes.wire import INTERCEPTED, KINDS, Wire

from tgi_deploy.adapters.aws.session import SessionFactory
from tgi_deploy.app.planning import plan as app_plan

pytestmark = pytest.mark.xdist_group("bad-replies")
NAME = "llama3-13b"
KEY = "BAD_REPLIES_API_KEY"
UP = (
    "up",
    NAME,
    "--budget",
    "5",
    "--lease",
    "2h",
    "--external-ttl",
    "--ttl",
    "3h",
    "--api-key-from-env",
    KEY,
    "--yes",
    "--no-wait",
)
DOWN = ("down", NAME, "--yes")
LOOKING = {
    "status": ("status", NAME),
    "list": ("list",),
    "logs": ("logs", NAME),
    "gc": ("gc", "--yes"),
    "doctor": ("doctor",),
    "renew": ("renew", NAME),
}
FOR_EVER = 1_000_000
# Exit codes that a command may end with whose cloud answers nothing that can be understood.
FAILED, LEFT_BEHIND = 1, 6
SAMPLE = 3


class HurriedClock:
    """Real time, in which sleeping takes none: what is slept is added to it, until the next command begins."""

    slept_s = 0.0

    def now(self):
        from datetime import UTC, datetime, timedelta

        return datetime.now(UTC) + timedelta(seconds=self.slept_s)

    def monotonic(self):
        return time.monotonic() + self.slept_s

    def sleep(self, seconds):
        HurriedClock.slept_s += seconds


@pytest.fixture(scope="module")
def planned():
    """What is the same in every run is planned once."""
    patch = pytest.MonkeyPatch()
    made = {}
    make = app_plan.plan

    def plan(wish, catalog, environ):
        key = repr(wish)
        if key not in made:
            made[key] = make(wish, catalog, environ)
        return made[key]

    patch.setattr(app_plan, "plan", plan)
    yield
    patch.undo()


class Bench:
    def __init__(self, program, wire, account, thorough):
        self.program, self.wire, self.account, self.thorough = program, wire, account, thorough

    def empty(self):
        self.wire.watch()
        self.program.control("POST", "reset")
        shutil.rmtree(self.program.home / "sandbox" / "records", ignore_errors=True)
        self.program.fault(name="dark", times=FOR_EVER)

    def run(self, words):
        HurriedClock.slept_s = 0.0
        return self.program.here(*words)

    def calls_of(self, words):
        self.wire.watch()
        said = self.run(words)
        assert said.code == 0, said.err
        return len(self.wire.calls)

    def places(self, words, kind):
        """Numbers of calls to strike: all, or a few in a usual run, always the same."""
        count = self.calls_of(words)
        places = range(count)
        if self.thorough:
            return places
        return sorted(places, key=lambda at: hashlib.sha256(f"{words} {kind} {at}".encode()).digest())[:SAMPLE]


@pytest.fixture
def bench(program, planned, monkeypatch, request):
    wire = Wire()
    session = SessionFactory._session

    def watched(self):
        known = "session" in self._made
        made = session(self)
        if not known:
            wire.attach(made.events)
        return made

    monkeypatch.setattr(SessionFactory, "_session", watched)
    monkeypatch.setattr("tgi_deploy.adapters.clock.SystemClock", HurriedClock)
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _seconds: None))
    monkeypatch.setenv(KEY, "made-up-key-of-the-replies")
    made = Bench(program, wire, Account(program), request.config.getoption("--thorough"))
    made.empty()
    return made


def check_words(said, what):
    text = said.out + said.err
    assert "internal_error" not in text, (what, said.err, said.out[-2000:])
    assert "Traceback" not in text, (what, said.err)


def check_named(bench, said, what):
    """Whatever runs is named, with its price and the command that ends it."""
    errors = said.json["errors"]
    told = " ".join(f"{item['message']} {item['hint']}" for item in errors)
    for machine in bench.account.alive():
        assert machine in told or "may have been launched" in told, (what, told)
        assert "$1.8" in told, (what, told)
        assert f"'tgi-deploy down {NAME} --sandbox'" in told, (what, told)


@pytest.mark.parametrize("kind", KINDS)
def test_one_bad_reply_to_up_is_got_over(bench, kind):
    for at in bench.places(UP, kind):
        bench.empty()
        bench.wire.spoil(kind, at=at)
        said = bench.run(UP)
        what = (kind, at, bench.wire.struck, bench.wire.calls)
        bench.wire.watch()
        check_words(said, what)
        print(what[:3], said.code, said.json["errors"][:1], said.json["warnings"])
        again = bench.run(UP)
        assert again.code == 0, what
        assert len(bench.account.alive()) == 1, what
        assert bench.run(DOWN).code == 0, what
        assert bench.account.leftovers() == [], what
