"""Results as text and as the envelope, whatever characters a value contains."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import pytest

from tgi_deploy.cli import output
from tgi_deploy.cli.output import Result, envelope
from tgi_deploy.errors import Problem, warning
from tgi_deploy.text import MAX_LINE, MAX_WORD, one_line
from tgi_deploy.values.base import plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("1.861"), "1.861"),
        (Decimal("0.1") + Decimal("0.2"), "0.3"),
        (Decimal("24.4") / 730, "0.033425"),
        (Decimal("NaN"), "null"),
        (float("inf"), "null"),
        (Path("a/b"), '"a/b"'),
        ((1, True, None), "[1, true, null]"),
        ({"b", "a"}, '["a", "b"]'),
        ({1: Decimal("2.50")}, '{"1": 2.5}'),
        ("na\u00efve", '"na\\u00efve"'),
        ("\udcff", '"\\\\udcff"'),
    ],
)
def test_plain_values(value, expected):
    assert json.dumps(plain(value), allow_nan=False) == expected


def test_envelope_of_success():
    result = Result(data={"usd": Decimal("1.861")}, warnings=(warning("old", "prices are\nold"),))
    assert envelope("plan", result) == {
        "schema": 2,
        "command": "plan",
        "status": "ok",
        "exit_code": 0,
        "data": {"usd": 1.861},
        "warnings": [{"code": "old", "message": "prices are old"}],
        "errors": [],
    }


def test_envelope_of_failure_has_the_same_keys():
    failed = envelope("up", Result(exit_code=4, errors=(Problem(code="taken", message="m", hint="h"),)))
    assert failed.keys() == envelope("up", Result()).keys()
    assert (failed["status"], failed["exit_code"]) == ("error", 4)
    assert failed["errors"] == [{"code": "taken", "message": "m", "hint": "h"}]


def test_error_without_a_hint_keeps_the_key():
    result = Result(exit_code=1, errors=(Problem(code="c", message="m"),))
    assert envelope("up", result)["errors"] == [{"code": "c", "message": "m", "hint": None}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two\nlines\tand  spaces", "two lines and spaces"),
        ("bell\x07 escape\x1b[31m", "bell\\x07 escape\\x1b[31m"),
        ("nul\x00", "nul\\x00"),
        ("right-to-left \u202e", "right-to-left \\u202e"),
        ("lone \udcff", "lone \\udcff"),
        ("modèle 日本", "modèle 日本"),
        ("", ""),
    ],
)
def test_one_line(text, expected):
    assert one_line(text) == expected


def test_one_line_cuts_long_words_and_long_lines():
    word = one_line("a" * 70_000)
    assert len(word) == MAX_WORD
    assert "…" in word
    assert len(one_line("word " * 20_000)) == MAX_LINE


def test_text_goes_to_stdout_and_messages_to_stderr(capsys):
    result = Result(
        text="the result",
        warnings=(warning("w", "careful"), warning("n", "said already")),
        already_shown=frozenset({"n"}),
        errors=(Problem(code="c", message="it failed", hint="do this"), Problem(code="d", message="and this")),
        exit_code=1,
    )
    output.write_result("x", result, as_json=False)
    out, err = capsys.readouterr()
    assert out == "the result\n"
    assert err == "warning[w]: careful\nerror[c]: it failed\nhint: do this\nerror[d]: and this\n"


def test_no_text_writes_nothing(capsys):
    output.write_result("x", Result(), as_json=False)
    assert capsys.readouterr() == ("", "")


def test_json_goes_only_to_stdout(capsys):
    result = Result(text="the result", warnings=(warning("w", "careful"),))
    output.write_result("x", result, as_json=True)
    out, err = capsys.readouterr()
    assert json.loads(out)["warnings"] == [{"code": "w", "message": "careful"}]
    assert err == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("environment", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_color_only_on_terminals_that_support_it(monkeypatch, environment, colored):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    output.write_result("x", Result(text="\x1b[31mred\x1b[0m\n"), as_json=False)
    assert ("\x1b[31m" in out.getvalue()) is colored


def test_no_color_in_a_pipe(capsys):
    output.write_result("x", Result(text="\x1b[31mred\x1b[0m\n"), as_json=False)
    assert capsys.readouterr().out == "red\n"


LONG = "one: g6.xlarge in us-east-1a (on-demand), and it is reachable from 10.0.0.0/8 and 192.168.0.0/16 only"
PASTED = "hint: nearest: fits with --budget 4.62: tgi-deploy plan llama3-70b --budget 4.62 --market spot"


@pytest.mark.parametrize(
    ("command", "text", "shown"),
    [
        ("up", f"  {LONG}", [f"  {LONG[:48]}", f"    {LONG[49:81]}", f"    {LONG[82:]}"]),
        ("up", f"  runs    {LONG[:60]}", [f"  runs    {LONG[:28]}", f"          {LONG[29:60]}"]),
        ("up", "\x1b[1m" + "b" * 48 + "\x1b[0m c", ["b" * 48 + " c"]),
        ("plan", PASTED, [PASTED[:39], f"  {PASTED[40:]}"]),
        ("up", f"run 'tgi-deploy {'x ' * 40}' or wait", ["run", f"  'tgi-deploy {'x ' * 40}'", "  or wait"]),
        ("render", LONG, [LONG]),
        ("up", "w" * 90, ["w" * 90]),
    ],
)  # fmt: skip
def test_long_lines_wrap_in_a_terminal_but_commands_do_not(command, text, shown, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    output.write_result(command, Result(text=text), as_json=False)
    assert out.getvalue().splitlines() == shown
