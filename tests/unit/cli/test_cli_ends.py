from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.cli.views.ends import (
    ends_cell,
    ends_lines,
    extension_text,
    terms,
)
from tgi_deploy.operations.results.watching import ends_data
from tgi_deploy.reconcile.ends import End
from tgi_deploy.text import option_duration
from tgi_deploy.values.base import plain
from tgi_deploy.values.ends import Ends
from tgi_deploy.values.results import ExtensionData

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ENDS = (End(reason="ttl", at=NOON), End(reason="lease", at=NOON, seconds=1800), End(reason="idle", seconds=5400))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (300, "5m"), (5400, "1h30m"), (129600, "1d12h"), (86461, "1d1m1s")]
)
def test_durations_print_as_options_accept_them(seconds, text):
    assert option_duration(seconds) == text


def test_every_limit_has_its_line():
    assert ends_lines(ENDS) == [
        "2026-11-21T12:00:00+00:00  when --ttl or --max-spend is reached",
        "2026-11-21T12:00:00+00:00  unless its lease is renewed",
        "after 1h30m without a request",
    ]
    assert [item.reason for item in ends_data(ENDS)] == ["ttl", "lease", "idle"]
    assert plain(ends_data(ENDS[2:])) == [{"reason": "idle", "at": None, "seconds": 5400}]


@pytest.mark.parametrize(("ends", "cell"), [(ENDS, "11-21 12:00 UTC"), (ENDS[2:], "idle 1h30m"), ((), "-")], ids=str)
def test_a_cell_shows_the_first_limit(ends, cell):
    assert ends_cell(ends) == cell


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, ""),
        ({"ttl_s": 7200}, "ends automatically after 2h"),
        ({"idle_s": 900}, "ends automatically after 15m without a request"),
        ({"ttl_s": 7200, "lease_s": 1800}, "ends automatically after 2h, or 30m after its last renewal"),
    ],
)
def test_limits_are_shown_before_the_launch(given, text):
    assert terms(Ends(**given)) == text


def test_an_extension_shows_every_limit():
    extension = ExtensionData(name="demo", instance="i-1", lease_until=NOON, ends=ends_data(ENDS))
    assert extension_text(extension).splitlines()[0] == "demo ends"
    assert len(extension_text(extension).splitlines()) == 4
    assert plain(extension)["lease_until"] == "2026-11-21T12:00:00+00:00"
    lifted = ExtensionData(name="demo", instance="i-1", lease_until=None, ends=())
    assert extension_text(lifted) == "demo ends\n  only with 'down'"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ttl", "soon"), "error[bad_option_value]: --ttl: 'soon' is not a duration"),
        (("--lease", "1m"), "error[bad_option_value]"),
        (("--max-spend", "much"), "error[bad_option_value]"),
    ],
)
def test_an_invalid_limit_is_rejected_before_any_call(words, says, capsys):
    assert frame.run(ROOT, ("extend", "demo", *words)) == 2
    assert says in capsys.readouterr().err
