from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.cli.views.ends import (
    ends_cell,
    ends_document,
    ends_lines,
    renewal_document,
    renewal_text,
    terms,
)
from tgi_deploy.operations.watching.renew import Renewal
from tgi_deploy.reconcile.ends import End
from tgi_deploy.text import option_duration
from tgi_deploy.values.ends import Ends

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ENDS = (End(reason="ttl", at=NOON), End(reason="lease", at=NOON, seconds=1800), End(reason="idle", seconds=5400))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (300, "5m"), (5400, "1h30m"), (129600, "1d12h"), (86461, "1d1m1s")]
)
def test_durations_read_as_options_take_them(seconds, text):
    assert option_duration(seconds) == text


def test_every_end_has_its_line():
    assert ends_lines(ENDS) == [
        "2026-11-21T12:00:00+00:00  its time or money is up",
        "2026-11-21T12:00:00+00:00  unless its lease is renewed",
        "after 1h30m without a request",
    ]
    assert [item["reason"] for item in ends_document(ENDS)] == ["ttl", "lease", "idle"]
    assert ends_document(ENDS[2:]) == [{"reason": "idle", "at": None, "seconds": 5400}]


@pytest.mark.parametrize(
    ("ends", "cell"), [(ENDS, "2026-11-21T12:00:00+00:00"), (ENDS[2:], "idle 1h30m"), ((), "-")], ids=str
)
def test_a_cell_shows_the_first_end(ends, cell):
    assert ends_cell(ends) == cell


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, ""),
        ({"ttl_s": 7200}, "ends by itself after 2h"),
        ({"idle_s": 900}, "ends by itself after 15m without a request"),
        ({"ttl_s": 7200, "lease_s": 1800}, "ends by itself after 2h, or 30m after its last renewal"),
    ],
)
def test_terms_are_told_before_a_machine_is_made(given, text):
    assert terms(Ends(**given)) == text


def test_a_renewal_tells_the_new_end():
    renewal = Renewal(name="demo", machine_id="i-1", until=NOON, ends=ENDS)
    assert renewal_text(renewal) == "demo: the lease lasts until 2026-11-21T12:00:00+00:00"
    assert renewal_document(renewal)["lease_until"] == "2026-11-21T12:00:00+00:00"
    assert renewal.sooner is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ttl", "2h"), "error[ttl_fixed]: --ttl is fixed when the machine first boots"),
        (("--for", "soon"), "error[bad_duration]: --for: 'soon' is no duration"),
        (("--for", "1m"), "error[bad_duration]"),
    ],
)
def test_what_renew_cannot_do_is_refused_before_anything_is_asked(words, says, capsys):
    assert frame.run(ROOT, ("renew", "demo", *words)) == 2
    assert says in capsys.readouterr().err
