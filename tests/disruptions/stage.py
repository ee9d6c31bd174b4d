"""Tries points of the kill matrix: signals a command, runs others to finish it, and checks the account."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from disruptions.matrix import (
    AT_MOMENT,
    DOWN,
    EXTEND,
    NAME,
    OPERATIONS,
    OTHER,
    RECREATE,
    ROLLBACK,
    SHARDS,
    START,
    STOP,
    UPDATE,
    bring_up,
    result,
)

INTERRUPTED = 130
# What every deployment has while it is up; some also have secrets, roles and schedules.
UP_HOLDS = ["instance", "launch-template", "network-interface", "security-group", "volume"]
SETTLED = {"removed", "nothing_created", "removing"}
UPDATES = (UPDATE, RECREATE)
# A busy computer reads late.
_WITHIN_S = 90


@dataclass(frozen=True, kw_only=True)
class Result:
    """`struck`: the point was reached; `failures` are sentences, none when all held."""

    point: object
    struck: bool
    seconds: float
    failures: tuple[str, ...]


class Stage:
    """One sandbox. A deployment that serves is used for up to `chain` points, then taken down and recreated."""

    def __init__(self, program, account, *, chain=1):
        self._program, self._account, self._chain = program, account, chain
        self._serving, self._tried, self._updated = None, 0, False
        self._failures = []

    def record(self, names=tuple(OPERATIONS)):
        """Return the calls of an undisturbed run of each operation, in order."""
        recorded = {}
        for name in names:
            operation = OPERATIONS[name]
            self._prepare(operation)
            answer, recorded[name] = self._program.traced(*result(operation.words, self._serving))
            self._expect(answer.code == 0, f"{name}: {answer.summary()}")
            if operation.words in {*UPDATES, ROLLBACK}:
                self._serving = OTHER[self._serving]
            if operation.words == STOP:
                self._run(*START)
        if self._failures:
            raise RuntimeError(f"an undisturbed run: {self._failures}")
        return recorded

    def try_point(self, point):
        begun, self._failures = time.monotonic(), []
        operation = OPERATIONS[point.operation]
        self._prepare(operation)
        launched = len(self._account.launched())
        struck = self._strike(point, operation)
        self._finish(operation, operation.then[point.then])
        made = len(self._account.launched()) - launched
        most = 1 if (point.operation, point.signal) == ("up", "KILL") else operation.most
        self._expect(made <= most, f"{made} machines were launched from the signal on")
        if self._failures:
            self._serving = None
        seconds = time.monotonic() - begun
        return Result(point=point, struck=struck, seconds=seconds, failures=tuple(self._failures))

    def _expect(self, holds, what):
        if not holds:
            self._failures.append(what)

    def _run(self, *words):
        """Run a command that has to succeed."""
        answer = self._program.run(*words)
        self._expect(answer.code == 0, f"'{' '.join(words[:2])}' failed: {answer.summary()}")
        return answer

    def _prepare(self, operation):
        """Bring the deployment to where the operation begins."""
        if not (operation.waits and self._serving):
            self._begin_anew(operation)
        if operation.words == ROLLBACK and not self._updated:
            self._run(*result(RECREATE, self._serving))
            self._serving, self._updated = OTHER[self._serving], True
        if operation.before:
            self._run(*operation.before)

    def _begin_anew(self, operation):
        self._program.empty(boots=operation.waits)
        self._tried, self._updated = 0, False
        if operation.waits:
            self._serving = "large"
            self._run(*bring_up("large"))

    def _strike(self, point, operation):
        """Run the interrupted command. Return whether the signal was sent."""
        program, before = self._program, self._account.alive()
        program.fault(
            name="signal", action=point.action, skip=point.ordinal, signal=point.signal, **AT_MOMENT[point.moment]
        )
        answer = program.run(*result(operation.words, self._serving))
        struck = not any(fault.get("signal") for fault in program.control("GET", "faults")["faults"])
        program.calm()
        if not operation.waits:
            program.fault(name="dark", times=1_000_000)
        self._check_end(point, answer, before, struck=struck)
        return struck

    def _check_end(self, point, answer, before, *, struck):
        operation = OPERATIONS[point.operation]
        killed = {-9} if point.signal == "KILL" else {INTERRUPTED}
        late = {0} if point.moment == "after" or point.signal != "KILL" else set()
        self._expect(answer.code in (killed | late if struck else {0}), f"a strange end; {answer.summary()}")
        alive = self._account.alive()
        self._expect(len(alive) <= operation.at_once, f"{len(alive)} machines after the signal")
        if answer.code == INTERRUPTED and operation.settles:
            outcome = answer.document.get("data", {}).get("outcome", "nothing_created")
            if outcome == "kept":
                self._expect(self._is_promoted(), f"it was kept and serves nothing; {answer.summary()}")
                return
            self._expect(outcome in SETTLED, f"it was {outcome}; {answer.summary()}")
            self._expect(set(alive) <= set(before), "a machine outlived the interruption of the run that made it")
        if answer.code == INTERRUPTED and operation.settles and not operation.waits:
            left = self._account.leftovers()
            self._expect(outcome == "removing" or not left, f"{outcome}, and there is {left}")

    def _is_promoted(self):
        rollout = self._program.record(NAME)["rollout"]
        return rollout is not None and rollout["stage"] == "promoted"

    def _finish(self, operation, commands):
        """Finish the operation, check the account, and take the deployment down at the end of a chain."""
        began, words = self._serving, commands[-1]
        if words != DOWN:
            for command in commands:
                self._run(*result(command, began))
            self._check_holdings()
        if words != DOWN and operation.waits:
            self._serving = OTHER[began] if words in UPDATES else began
            self._check_serving(renewed=words == EXTEND)
            self._tried += 1
        if words == DOWN or not operation.waits or self._tried >= self._chain:
            self._take_down()

    def _check_holdings(self):
        found = [item.split()[0] for item in self._account.leftovers()]
        held = [kind for kind in found if kind in UP_HOLDS]
        self._expect(held == UP_HOLDS, f"the account holds {found}")

    def _check_serving(self, *, renewed):
        """Check that the record agrees with the account, and that nothing is unfinished."""
        (shown,) = self._run("status", NAME).document["data"]["deployments"]
        recorded = shown["recorded"]
        self._expect(shown["healthy"] and not shown["drift"], f"not healthy: {shown['drift']}")
        self._expect(recorded["rollout"] is None, f"unfinished: {recorded['rollout']}")
        self._expect(recorded["chosen"]["num_shard"] == SHARDS[self._serving], f"{self._serving} should serve")
        serving = [item["state"] for item in recorded["revisions"]].count("serving")
        self._expect(serving == 1, f"{serving} revisions serve")
        if renewed:
            (tags,) = self._account.tags().values()
            kept = (tags["tgi-deploy:idle-s"], tags["tgi-deploy:expires"].split()[0])
            self._expect(kept == ("86400", recorded["expires"]), f"the machine reads {kept}, the record has {recorded}")

    def _take_down(self):
        self._serving = None
        stops = self._account.stops()
        self._run(*DOWN)
        left = self._account.leftovers()
        self._expect(not left, f"left after down: {left}")
        self._failures.extend(receipt_failures(self._account.lives(), stops, self._program.receipts()))


def receipt_failures(known, stops, receipts):
    """Compare the receipts of a name with the account's machines, and the times of those that were stopped before."""
    lines = [line for receipt in receipts for line in receipt["resources"] if line["kind"] == "instance"]
    receipted = sorted({line["id"] for line in lines})
    if receipted != sorted(known):
        yield f"receipts list {receipted}, and there were {sorted(known)}"
        return
    for name, life in known.items():
        ended = stops.get(name) or life.ended
        yield from _machine_failures([line for line in lines if line["id"] == name], replace(life, ended=ended))
    for receipt in receipts:
        amounts = [Decimal(line["usd"]) for line in receipt["resources"] if line["usd"]]
        if receipt["cost"]["usd"] != f"{sum(amounts, Decimal(0)):f}":
            yield f"a receipt of {amounts} comes to {receipt['cost']['usd']}"


def _machine_failures(lines, life):
    """Check that the receipt's start and end agree with the cloud's, and that each time it ran is billed."""
    begun = min(datetime.fromisoformat(line["created"]) for line in lines)
    ended = max(datetime.fromisoformat(line["removed"]) for line in lines)
    late_s = (ended - life.ended).total_seconds() if life.ended else 0
    if abs((begun - life.launched).total_seconds()) > 1 or not -1 <= late_s <= _WITHIN_S:
        yield f"{lines} of a machine from {life.launched} to {life.ended}"
    for line in lines:
        due = (Decimal(life.usd_per_hour) * line["seconds"] / 3600).quantize(Decimal("0.000001"))
        if abs(due - Decimal(line["usd"])) > Decimal("0.000001"):
            yield f"{line['usd']} instead of {due}"
