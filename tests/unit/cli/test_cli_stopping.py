"""The errors of an interruption and of a failed removal."""

from __future__ import annotations

import os
import signal
import time

import click
import pytest

from tgi_deploy.cli import stopping
from tgi_deploy.cli.progress import asked
from tgi_deploy.errors import Failure, InterruptedByUserError, LeftBehindError, LeftResource, RecordedResource
from tgi_deploy.operations.removing.interrupts import Settled
from tgi_deploy.operations.removing.stopping import interruption, run_repeatable
from tgi_deploy.operations.stops import Stops
from tgi_deploy.values.base import replaced
from tgi_deploy.wiring import target_of

THING = RecordedResource(kind="instance", id="i-1", region="us-east-1", phase="created")


def test_leftovers_are_reported_with_their_commands():
    command = "aws ec2 delete-volume --volume-id vol-1"
    item = LeftResource(kind="volume", id="vol-1", region="us-east-1", command=command)
    error = LeftBehindError("left_behind", "removing it failed", hint="again", failure=Failure(not_removed=(item,)))
    result = stopping.left_result(error)
    assert result.exit_code == 6
    assert f"  {command}" in result.text.splitlines()
    assert result.errors[0].code == "left_behind"
    assert result.data["not_removed"] == [{"kind": "volume", "id": "vol-1", "region": "us-east-1", "command": command}]


@pytest.mark.parametrize("outcome", ["nothing_created", "removed", "kept", "removing", "not_removed"])
def test_every_outcome_is_printed_with_exit_130(outcome):
    error = interruption("demo", Settled(outcome=outcome, exists=(THING,), why="because"), target_of)
    assert error.exit_code == 130
    assert error.message.startswith("interrupted; ")
    assert "instance i-1 in us-east-1" in error.message
    assert "tgi-deploy down demo" in error.hint
    assert error.data["outcome"] == outcome


def test_an_intent_without_an_id_may_exist():
    error = interruption("demo", Settled(outcome="not_removed", exists=(replaced(THING, id=""),)), target_of)
    assert "requested, not confirmed" in error.message


def test_without_leftovers_no_down_is_suggested():
    assert "down" not in interruption("demo", Settled(outcome="removed"), target_of).hint


def raise_signal(number):
    os.kill(os.getpid(), number)


def hang_after(number):
    """Block in a call that is in progress when the signal arrives (0: none), forever."""
    raise_signal(number)
    time.sleep(2)
    pytest.fail("the call was never cut")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_run_and_handlers_are_restored(number):
    before = signal.getsignal(number)
    stops = Stops()
    with pytest.raises(KeyboardInterrupt), stopping.signals(stops):
        raise_signal(number)
    assert (stops.count, stops.urgent) == (1, number != signal.SIGINT)
    assert signal.getsignal(number) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_under_nohup_a_closed_terminal_stops_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stops = Stops()
    try:
        with stopping.signals(stops):
            raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert stops.count == 0


def test_a_hanging_call_is_aborted_after_its_grace_period(monkeypatch):
    monkeypatch.setattr(stopping, "_GRACE_S", 0.05)
    stops = Stops()
    with pytest.raises(KeyboardInterrupt), stopping.signals(stops), stops.held():
        hang_after(signal.SIGINT)


def test_after_a_sigterm_everything_ends_in_time(monkeypatch):
    """Even a hanging removal, simulated by `hold`."""
    monkeypatch.setattr(stopping, "_LEAVE_S", 0.2)
    stops = Stops()
    with stopping.signals(stops):
        with pytest.raises(KeyboardInterrupt):
            raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), stops.held():
            hang_after(0)


def test_a_call_that_ends_in_time_is_finished_first():
    stops = Stops()
    done = []

    def call():
        raise_signal(signal.SIGINT)
        done.append("finished")

    with pytest.raises(KeyboardInterrupt), stopping.signals(stops), stops.held():
        call()
    assert done == ["finished"]


def test_a_removal_that_was_stopped_is_one_error(monkeypatch):
    monkeypatch.setattr("tgi_deploy.operations.removing.stopping.guard", lambda context, _stops: context)

    def run(_context):
        raise KeyboardInterrupt

    with pytest.raises(InterruptedByUserError) as caught:
        run_repeatable(None, Stops(), run, doing="tgi-deploy down demo", advice="again")
    assert (caught.value.exit_code, caught.value.hint) == (130, "again")


@pytest.mark.parametrize("end", [click.Abort, EOFError, KeyboardInterrupt])
def test_an_interrupted_prompt_is_a_stop_request(monkeypatch, end):
    monkeypatch.setattr("click.confirm", lambda *_args, **_kwargs: (_ for _ in ()).throw(end()))
    with pytest.raises(KeyboardInterrupt):
        asked("Go on?", default=False)


def test_without_a_terminal_created_resources_are_removed(monkeypatch):
    monkeypatch.setattr(stopping, "can_ask", lambda: False)
    assert stopping.ask_removal((THING,), lambda: None)


@pytest.mark.parametrize(("answer", "removes"), [("y", True), ("", True), ("n", False)])
def test_at_a_terminal_the_user_is_asked(monkeypatch, answer, removes, capsys):
    monkeypatch.setattr(stopping, "can_ask", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _text: answer)
    assert stopping.ask_removal((THING,), lambda: None) is removes
    assert "instance i-1" in capsys.readouterr().err


def test_with_yes_an_interrupted_run_is_removed_without_a_question(monkeypatch):
    """An unanswered question would keep the machine billed."""
    monkeypatch.setattr(stopping, "can_ask", lambda: True)
    monkeypatch.setattr(stopping, "asked", lambda *_, **__: pytest.fail("asked"))
    assert stopping.ask_removal((THING,), lambda: None, yes=True)


def test_end_of_input_at_the_prompt_is_a_stop_request(monkeypatch):
    monkeypatch.setattr(stopping, "can_ask", lambda: True)

    def abort(_text):
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", abort)
    with pytest.raises(KeyboardInterrupt):
        stopping.ask_removal((THING,), lambda: None)
