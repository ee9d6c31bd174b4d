"""The output of a wait without a terminal: each phase once, and its progress now and then."""

from __future__ import annotations

import os

import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli import up as cli_up
from tgi_deploy.cli.main import ROOT
from tgi_deploy.cli.progress import Progress
from tgi_deploy.errors import DeployError
from tgi_deploy.values.progress import NoteEvent, PhaseEvent


def result(capsys, *events):
    with Progress() as progress:
        for phase, detail, elapsed_s, expected_s in events:
            progress(PhaseEvent(phase=phase, detail=detail, elapsed_s=elapsed_s, expected_s=expected_s))
    return capsys.readouterr().err.splitlines()


def test_each_phase_is_reported_once(capsys):
    events = [("pulling", "", second, 100) for second in range(0, 90, 5)] + [("warming_up", "", 0, 0)]
    assert result(capsys, *events) == ["pulling (about 100 s)", "warming up"]


def test_progress_is_printed_every_half_minute_if_it_advances(capsys):
    events = [("pulling", f"{second * 10} of about 9,100 MB", second, 100) for second in range(0, 70, 5)]
    assert result(capsys, *events) == [
        "pulling (about 100 s)",
        "pulling 30 s of about 100 s: 300 of about 9,100 MB",
        "pulling 60 s of about 100 s: 600 of about 9,100 MB",
    ]


def test_unchanged_progress_is_not_repeated(capsys):
    events = [("loading", "1 of 2 shards ready", second, 0) for second in range(0, 200, 5)]
    assert result(capsys, *events) == ["loading", "loading 30 s: 1 of 2 shards ready"]


def test_a_new_phase_counts_from_zero(capsys):
    events = [("pulling", "tgi:3.3.7", 40, 0), ("loading", "0 of 2 shards ready", 0, 0), ("loading", "1", 20, 0)]
    assert result(capsys, *events) == ["pulling", "loading"]


def test_a_closed_stderr_does_not_stop_the_command(monkeypatch):
    """With `2>&1 | head` the launch continues to its end, and the interpreter's last flush has nothing to write."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with Progress() as progress:
            progress(NoteEvent(text="one"))
            progress(PhaseEvent(phase="loading", detail="", elapsed_s=0, expected_s=0))


def test_stopping_a_followed_log_is_not_a_failure(monkeypatch, capsys):
    def interrupted(_client, _name, **_how):
        yield "router: Connected"
        raise KeyboardInterrupt

    monkeypatch.setattr("tgi_deploy.api.Client.follow_logs", interrupted)
    assert frame.run(ROOT, ["logs", "demo", "-f"]) == 0
    assert capsys.readouterr() == ("router: Connected\n", "")


@pytest.mark.parametrize(("yes", "asked"), [(True, False), (False, True)])
def test_yes_never_asks_about_a_failed_machine(yes, asked, monkeypatch):
    questions = []
    monkeypatch.setattr(cli_up, "can_ask", lambda: True)
    monkeypatch.setattr("click.confirm", lambda question, **_how: questions.append(question) or True)
    asks = cli_up.Asking(None, Progress(), ask=False, yes=yes, sandbox=False)
    assert asks.on_failure(DeployError("engine_failed", "m", hint="h")) == "remove"
    assert bool(questions) is asked
