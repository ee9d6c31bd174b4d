"""The machine's own ends, run for real between stand-ins of curl, date, shutdown and systemctl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import plans
from builders.machine import Machine

from tgi_deploy.reconcile.ends import TAG_LEASE
from tgi_deploy.reconcile.spot import notice_of
from tgi_deploy.render.artifacts import render
from tgi_deploy.render.user_data import LEASE_TAG

if TYPE_CHECKING:
    from pathlib import Path

# By the first moment of a boot everything is counted; /bin/date knows moments that are named.
_DATE = 'if [[ "$*" == *-d* ]]; then exec /bin/date "$@"; fi; cat "$NOW"\n'
_CURL = """
case "$*" in
  *api/token*) [[ -s $TAG ]] && echo token ;;
  *tags/instance/tgi-deploy:lease-until*) cat "$TAG" ;;
  *spot/instance-action*) cat "$NOTICE" 2>/dev/null ;;
  *127.0.0.1:8080/metrics*) cat "$METRICS" 2>/dev/null ;;
  *) exit 3 ;;
esac
"""
READY_S = 3600  # what a deployable allows where nothing else is said


class Clocked:
    """A machine with a clock, a tag, a page of metrics and a spot notice that tests set."""

    def __init__(self, folder: Path, **terms: Any) -> None:
        text = render("user-data", plans.deployable(**terms)).text
        files = {name: folder / name.lower() for name in ("NOW", "TAG", "METRICS", "NOTICE")}
        folder.mkdir()
        self._files = files
        self.machine = Machine(
            folder=folder / "machine",
            user_data=text,
            commands={"date": _DATE, "curl": _CURL, "systemctl": ""},
            environment={name: str(path) for name, path in files.items()},
        )
        self.tag("")

    def tag(self, text: str) -> None:
        self._files["TAG"].write_text(text)

    def metrics(self, text: str | None) -> None:
        if text is None:
            self._files["METRICS"].unlink(missing_ok=True)
        else:
            self._files["METRICS"].write_text(text)

    def requests(self, count: int) -> None:
        self.metrics(f"# TYPE tgi_request_count counter\ntgi_request_count {count}\ntgi_request_success {count}\n")

    def notice(self, text: str) -> None:
        self._files["NOTICE"].write_text(text)

    def state(self, name: str) -> Path:
        return self.machine.at(f"/var/lib/tgi-deploy/{name}")

    def at(self, now: int) -> str:
        """One look at the clock: what it says."""
        self._files["NOW"].write_text(f"{now}\n")
        done = self.machine.run("expire")
        assert "unbound" not in done.stderr
        return done.stdout

    def over(self, now: int) -> bool:
        """Whether a look at the clock ends the machine."""
        before = len(self.machine.calls("shutdown"))
        said = self.at(now)
        ended = len(self.machine.calls("shutdown")) > before
        assert ended == ("phase=expired" in said)
        return ended


@pytest.fixture
def clocked(tmp_path: Path):
    return lambda **terms: Clocked(tmp_path / "clocked", **terms)


def test_the_tag_is_the_one_that_is_moved():
    assert LEASE_TAG == TAG_LEASE


def test_a_lease_lasts_as_long_as_its_tag_says(clocked):
    box = clocked(lease_s=600)
    box.tag("2026-11-21T12:00:00+00:00")
    end = 1795262400
    assert not box.over(end - 700)
    assert not box.over(end - 1)
    assert box.over(end)


def test_a_renewal_puts_it_off_and_is_told(clocked):
    box = clocked(lease_s=600)
    box.tag("2026-11-21T12:00:00+00:00")
    box.at(1795262000)
    box.tag("2026-11-21T13:00:00Z")
    assert "[tgi-deploy] lease-until=1795266000\n" in box.at(1795262100)
    assert not box.over(1795262500)
    assert box.over(1795266000)


@pytest.mark.parametrize("tag", ["", "tomorrow", "2026-11-21", "9999999999", "2026-13-41T99:00:00Z", "$(touch x)"])
def test_what_is_no_moment_leaves_the_last_known_end(clocked, tag: str):
    box = clocked(lease_s=600)
    box.tag("2026-11-21T12:00:00Z")
    box.at(1795262000)
    box.tag(tag)
    assert not box.over(1795262399)
    assert box.over(1795262400)


def test_without_metadata_a_lease_counts_from_the_first_boot(clocked):
    box = clocked(lease_s=600)
    assert not box.over(1000)
    assert not box.over(1599)
    assert box.over(1600)


def test_an_owner_may_shorten_a_lease(clocked):
    box = clocked(lease_s=600)
    box.tag("2026-11-21T12:00:00Z")
    box.at(1795262000)
    box.tag("2026-11-21T11:55:00Z")
    assert box.over(1795262100)


def test_idleness_counts_from_the_moment_of_being_ready(clocked):
    box = clocked(idle_s=900)
    assert not box.over(1000)
    assert not box.over(2000)
    box.metrics("")
    assert not box.over(2100)
    assert not box.over(2999)
    assert box.over(3000)


def test_a_machine_that_never_gets_ready_ends_too(clocked):
    box = clocked(idle_s=900)
    assert not box.over(1000)
    assert not box.over(1000 + READY_S + 899)
    assert box.over(1000 + READY_S + 900)


def test_a_request_puts_idleness_off(clocked):
    box = clocked(idle_s=900)
    box.requests(0)
    box.at(1000)
    box.requests(1)
    box.at(1500)
    assert not box.over(2399)
    assert box.over(2400)


def test_tokens_of_a_long_request_are_activity(clocked):
    box = clocked(idle_s=900)
    decoded = 'tgi_request_count 1\ntgi_batch_inference_count{{method="decode"}} {}\n'
    for minute in range(0, 60, 5):
        box.metrics(decoded.format(100 * minute))
        assert not box.over(1000 + 60 * minute)


def test_other_counters_and_health_checks_are_no_requests(clocked):
    box = clocked(idle_s=900)
    for minute in range(0, 15, 3):
        box.metrics(f"tgi_request_count 3\nhttp_requests_total {minute}\ntgi_request_count_created {minute}\n")
        assert not box.over(1000 + 60 * minute)
    assert box.over(1900)


def test_an_engine_that_starts_again_is_no_activity(clocked):
    box = clocked(idle_s=900)
    box.requests(7)
    box.at(1000)
    box.metrics(None)
    box.at(1200)
    box.requests(0)
    box.at(1400)
    assert not box.over(1899)
    assert box.over(1900)


def test_requests_after_an_engine_has_started_again_are_activity(clocked):
    box = clocked(idle_s=900)
    box.requests(7)
    box.at(1000)
    box.requests(2)
    box.at(1400)
    assert not box.over(2299)
    assert box.over(2300)


def test_an_engine_that_crashes_for_ever_is_idle(clocked):
    box = clocked(idle_s=900)
    box.requests(7)
    box.at(1000)
    for minute in range(1, 15, 3):
        box.metrics("" if minute % 2 else None)
        assert not box.over(1000 + 60 * minute)
    assert box.over(1900)


@pytest.mark.parametrize("text", ["", "soon 3", "- -", "1; touch x"])
def test_idleness_that_cannot_be_read_has_come(clocked, text: str):
    box = clocked(idle_s=900)
    box.at(1000)
    box.state("idle-since").write_text(text)
    assert box.over(1001)


@pytest.mark.parametrize(
    ("now", "reason"), [(1900, "idle"), (2800, "lease"), (8200, "ttl")], ids=("idle", "lease", "ttl")
)
def test_the_first_end_counts(clocked, now: int, reason: str):
    terms = {"idle": {"idle_s": 900}, "lease": {"lease_s": 1800}, "ttl": {"ttl_s": 7200}}
    box = clocked(**{"ttl_s": 9000, "lease_s": 9000, "idle_s": 9000} | terms[reason])
    box.metrics("")
    box.at(1000)
    assert not box.over(now - 1)
    assert f"phase=expired reason={reason} end={now} now={now}\n" in box.at(now)


def test_a_full_disk_ends_nothing_early_and_everything_in_time(clocked):
    box = clocked(ttl_s=600, lease_s=9000)
    box.at(1000)
    box.state("lease-until.new").mkdir()
    assert not box.over(1599)
    assert box.over(1600)


def test_a_shutdown_that_fails_is_followed_by_a_forced_one(tmp_path: Path):
    text = render("user-data", plans.deployable(ttl_s=60)).text
    machine = Machine(folder=tmp_path / "m", user_data=text, commands={"shutdown": "exit 1", "systemctl": ""})
    machine.run("expire")
    machine.at("/var/lib/tgi-deploy/ends-at").write_text("1\n")
    machine.run("expire")
    assert machine.calls("systemctl") == [["systemctl", "poweroff", "--force"]]


def spot(clocked) -> Clocked:
    box = clocked(candidate=plans.candidate(offer=plans.offer(market="spot")))
    box.tag("anything: the token is given")
    return box


def test_a_spot_notice_is_told_once_and_the_engine_stopped(clocked):
    box = spot(clocked)
    box.notice('{"action": "terminate", "time": "2026-11-21T12:00:00Z"}')
    done = box.machine.run("spot-watch")
    assert done.stdout == "[tgi-deploy] spot-notice action=terminate time=2026-11-21T12:00:00Z\n"
    assert box.machine.calls("systemctl") == [["systemctl", "stop", "--no-block", "tgi-deploy-engine.service"]]
    notice = notice_of(done.stdout)
    assert notice is not None
    assert (notice.action, notice.time) == ("terminate", "2026-11-21T12:00:00Z")
    assert box.machine.run("spot-watch").stdout == ""
    assert len(box.machine.calls("systemctl")) == 1


def test_a_notice_in_other_words_drains_all_the_same(clocked):
    box = spot(clocked)
    box.notice("<html>")
    assert "spot-notice action=unknown time=unknown" in box.machine.run("spot-watch").stdout
    assert box.machine.calls("systemctl")


def test_without_a_notice_nothing_happens(clocked):
    box = spot(clocked)
    (box.machine.bin / "curl").write_text("#!/bin/bash\n[[ $* == *api/token* ]] && echo t || exit 22\n")
    done = box.machine.run("spot-watch")
    assert (done.returncode, done.stdout) == (0, "")
    assert not box.machine.calls("systemctl")
