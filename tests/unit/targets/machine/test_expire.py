"""The machine's limits: the real scripts, with fakes of curl, date, shutdown and systemctl."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from builders import plans
from builders.clocked import RUN, Clocked

from tgi_deploy.readiness.spot import notice_of
from tgi_deploy.reconcile.ends import TAG_IDLE_S, TAG_LEASE
from tgi_deploy.values.resource import TAG_EXPIRES, TAG_PREFIX

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
READY_S = 3600  # what a deployable allows where nothing else is said


@pytest.fixture
def clocked(tmp_path: Path):
    return lambda **terms: Clocked(tmp_path / "clocked", **terms)


MOVED = {"ttl": ("expires", "ttl_s"), "lease": ("lease_until", "lease_s")}
AT_NOON, AT_ONE = "2026-11-21T12:00:00+00:00", "2026-11-21T13:00:00Z"


@pytest.fixture(params=sorted(MOVED))
def timed(request, clocked):
    """A machine with ten minutes of --ttl or --lease, and how to change it."""
    name, option = MOVED[request.param]
    box = clocked(**{option: 600})
    return box, lambda text: box.tag(**{name: text})


def test_the_machine_reads_the_tags_that_extend_writes(clocked):
    text = clocked().machine.at("/opt/tgi-deploy/expire").read_text()
    for tag in (TAG_EXPIRES, TAG_IDLE_S, TAG_LEASE):
        assert re.search(rf'(limit|"\$1") {tag.removeprefix(TAG_PREFIX)} ', text)
    assert f"tags/instance/{TAG_PREFIX}$1" in text


@pytest.mark.parametrize("wall_s", [-86400, -300, 300, 86400])
def test_a_first_limit_counts_from_the_first_poll(timed, wall_s: int):
    """A caller whose clock is behind writes a time that has passed on the machine."""
    box, move = timed
    box.skew_s = 1795262400 + wall_s - 1000
    move(AT_NOON)
    assert not box.over(1000)
    assert not box.over(1599)
    assert box.over(1600)


@pytest.mark.parametrize("wall_s", [-86400, -300, 300, 86400])
def test_a_moved_limit_counts_from_when_it_is_read(timed, wall_s: int):
    box, move = timed
    move(AT_NOON)
    box.at(1000)
    box.skew_s = 1795266000 + wall_s - 1300
    move(f"{AT_ONE} 900")
    assert f"={AT_ONE} 900\n" in box.at(1300)
    assert box.at(1500) == ""
    assert not box.over(2199)
    assert box.over(2200)


def test_a_limit_can_be_shortened_and_extended(timed):
    box, move = timed
    box.at(1000)
    move(f"{AT_NOON} 300")
    assert not box.over(1100)
    move(f"{AT_ONE} 300")
    assert not box.over(1399)
    assert not box.over(1698)
    assert box.over(1699)


def test_a_limit_can_be_lifted_and_set_again(timed):
    box, move = timed
    box.at(1000)
    move("none")
    assert not box.over(1500)
    assert not box.over(90_000)
    move(f"{AT_NOON} 300")
    assert not box.over(90_100)
    assert not box.over(90_399)
    assert box.over(90_400)


@pytest.mark.parametrize("option", ["expires", "lease_until"])
def test_a_limit_can_be_added_later(clocked, option: str):
    box = clocked()
    assert not box.over(90_000)
    box.tag(**{option: f"{AT_NOON} 300"})
    assert not box.over(91_000)
    assert not box.over(91_299)
    assert box.over(91_300)


@pytest.mark.parametrize(
    "tag",
    ["", "tomorrow", "2026-11-21", AT_NOON + " soon", "9" * 11, "0", AT_NOON + " 0", "-5", "$(touch x)", "none 5 none"],
)
def test_an_invalid_tag_keeps_the_last_limit(timed, tag: str):
    box, move = timed
    move(f"{AT_NOON} 900")
    box.at(1000)
    move(tag)
    assert not box.over(1899)
    assert box.over(1900)


def test_without_metadata_the_last_limit_survives_a_reboot(timed):
    box, move = timed
    box.at(1000)
    move(f"{AT_NOON} 3600")
    box.at(1200)
    move("")
    box.reboot(down_s=0)
    assert not box.over(1200 + 3400)
    assert box.over(1200 + 3600)


def test_a_lease_renewed_by_an_earlier_version_keeps_its_length(clocked):
    box = clocked(lease_s=600)
    box.tag(lease_until=AT_NOON)
    box.at(1000)
    box.tag(lease_until=AT_ONE)
    box.at(1500)
    assert not box.over(2099)
    assert box.over(2100)


def test_an_idle_timeout_can_be_changed_set_and_lifted(clocked):
    box = clocked(idle_s=900)
    box.requests(1)
    box.at(1000)
    box.tag(idle_s="none")
    assert not box.over(5000)
    box.tag(idle_s="600")
    assert not box.over(6000), "it counts from when it was set"
    assert not box.over(6599)
    assert box.over(6600)


def test_without_metadata_a_lease_counts_from_the_first_boot(clocked):
    box = clocked(lease_s=600)
    assert not box.over(1000)
    assert not box.over(1599)
    assert box.over(1600)


def test_idle_time_starts_at_readiness(clocked):
    box = clocked(idle_s=900)
    assert not box.over(1000)
    assert not box.over(2000)
    box.metrics("")
    assert not box.over(2100)
    assert not box.over(2999)
    assert box.over(3000)


def test_a_machine_that_is_never_ready_terminates(clocked):
    box = clocked(idle_s=900)
    assert not box.over(1000)
    assert not box.over(1000 + READY_S + 899)
    assert box.over(1000 + READY_S + 900)


def test_a_request_resets_the_idle_time(clocked):
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


def test_health_checks_and_other_counters_are_not_activity(clocked):
    box = clocked(idle_s=900)
    for minute in range(0, 15, 3):
        box.metrics(f"tgi_request_count 3\nhttp_requests_total {minute}\ntgi_request_count_created {minute}\n")
        assert not box.over(1000 + 60 * minute)
    assert box.over(1900)


def test_a_restarting_engine_is_not_activity(clocked):
    box = clocked(idle_s=900)
    box.requests(7)
    box.at(1000)
    box.metrics(None)
    box.at(1200)
    box.requests(0)
    box.at(1400)
    assert not box.over(1899)
    assert box.over(1900)


def test_requests_after_an_engine_restart_are_activity(clocked):
    box = clocked(idle_s=900)
    box.requests(7)
    box.at(1000)
    box.requests(2)
    box.at(1400)
    assert not box.over(2299)
    assert box.over(2300)


def test_an_engine_that_crashes_forever_is_idle(clocked):
    box = clocked(idle_s=900)
    box.requests(7)
    box.at(1000)
    for minute in range(1, 15, 3):
        box.metrics("" if minute % 2 else None)
        assert not box.over(1000 + 60 * minute)
    assert box.over(1900)


@pytest.mark.parametrize("text", ["soon 3", "- -", "1; touch x", "007 -", "3 x[$(touch x)]"])
@pytest.mark.parametrize(
    ("file", "terms"),
    [
        ("idle-since", "idle_s"),
        ("lease-until", "lease_s"),
        ("age", "ttl_s"),
        ("expires", "ttl_s"),
        ("idle-s", "idle_s"),
    ],
)
def test_an_unreadable_limit_counts_as_reached(clocked, file: str, terms: str, text: str):
    box = clocked(**{terms: 900})
    box.at(1000)
    box.reboot()
    box.state(file).write_text(f"{text}\n")
    assert f"reason={file} end=unreadable" in box.at(1100)
    assert box.machine.calls("shutdown")
    assert not box.machine.at("/x").exists()


@pytest.mark.parametrize("text", ["", "12\n", "12 -\n"])
@pytest.mark.parametrize("file", ["idle-since", "age", "expires", "lease-until", "idle-s"])
def test_a_partially_written_limit_is_ignored(clocked, file: str, text: str):
    """A full disk leaves an empty file behind."""
    box = clocked(idle_s=900, ttl_s=900)
    box.at(1000)
    box.reboot()
    box.state(file).write_text(text)
    assert not box.over(1100)


@pytest.mark.parametrize(
    ("now", "reason"), [(1900, "idle"), (2800, "lease"), (8200, "ttl")], ids=("idle", "lease", "ttl")
)
def test_the_earliest_limit_applies(clocked, now: int, reason: str):
    terms = {"idle": {"idle_s": 900}, "lease": {"lease_s": 1800}, "ttl": {"ttl_s": 7200}}
    box = clocked(**{"ttl_s": 9000, "lease_s": 9000, "idle_s": 9000} | terms[reason])
    box.metrics("")
    box.at(1000)
    assert not box.over(now - 1)
    assert f"phase=expired reason={reason} end={now - 1000} now={now - 1000}\n" in box.at(now)


FORCED = ["systemctl", "poweroff", "--force"]


def ended(clocked, *, shutdown: str = "", systemctl: str = "") -> Clocked:
    """A machine whose limit is reached at 1060."""
    box = clocked(ttl_s=60, commands={"shutdown": shutdown, "systemctl": systemctl})
    box.at(1000)
    assert box.over(1060)
    return box


def power(box: Clocked) -> str:
    """Return the requests to the kernel."""
    path = box.machine.at("/proc/sysrq-trigger")
    return path.read_text() if path.exists() else ""


def test_a_shutdown_that_fails_is_followed_by_a_forced_one(clocked):
    box = ended(clocked, shutdown="exit 1")
    assert box.machine.calls("systemctl") == [FORCED]
    assert power(box) == ""


def test_without_systemd_the_kernel_powers_off(clocked):
    box = ended(clocked, shutdown="exit 1", systemctl="exit 1")
    assert box.machine.calls("systemctl") == [FORCED, [*FORCED, "--force"]]
    assert power(box) == "o\n"


def test_a_shutdown_is_ordered_once_and_has_time_to_drain(clocked):
    """A second shutdown command could cut what the first one lets finish: the engine has 120 s."""
    box = ended(clocked)
    for now in range(1090, 1060 + 450, 30):
        box.at(now)
    assert len(box.machine.calls("shutdown")) == 1
    assert box.machine.calls("systemctl") == []
    assert power(box) == ""


def test_two_concurrent_polls_order_one_shutdown(clocked):
    """The other poll sees that the shutdown has begun, and forces it after a while."""
    box = clocked(ttl_s=60)
    box.at(1000)
    box.machine.at(f"{RUN}/ending").touch()
    assert not box.over(1060)
    box.at(1060 + 449)
    assert power(box) == ""
    box.at(1060 + 450)
    assert power(box) == "o\n"


def test_many_concurrent_polls_order_one_shutdown(clocked):
    box = clocked(ttl_s=60)
    box.at(1000)
    box.show(1060)
    looks = [
        subprocess.Popen(box.machine.command("expire"), env=box.machine.surroundings(), stdout=subprocess.DEVNULL)
        for _ in range(12)
    ]
    assert [look.wait() for look in looks] == [0] * 12
    assert len(box.machine.calls("shutdown")) == 1


@pytest.mark.parametrize("systemctl", ["", "exit 1"])
def test_a_hanging_shutdown_is_forced_after_a_while(clocked, systemctl: str):
    box = ended(clocked, systemctl=systemctl)
    box.at(1060 + 450)
    assert box.machine.calls("systemctl") == [[*FORCED, "--force"]]
    assert power(box) == "o\n"


def test_without_its_timer_it_terminates_anyway(clocked):
    box = clocked(ttl_s=900)
    box.at(1000)
    with box.watched():
        box.show(1899)
        box.until_looked()
        assert not box.machine.calls("shutdown")
        box.show(1900)
        box.until(lambda: box.machine.calls("shutdown"))
        box.show(1900 + 450)
        box.until(lambda: power(box))
    assert len(box.machine.calls("shutdown")) == 1


def test_a_hanging_poll_does_not_block_the_next_ones(clocked):
    box = clocked(ttl_s=900, idle_s=9000)
    box.at(1000)
    box.tag()
    (box.machine.bin / "curl").write_text("#!/bin/bash\nexec /bin/sleep 60\n")
    with box.watched():
        box.show(1960)
        box.until(lambda: box.machine.calls("shutdown"))


def test_a_missing_journal_does_not_prevent_termination(clocked):
    box = clocked(ttl_s=60)
    box.at(1000)
    box.show(1060)
    reader, writer = os.pipe()
    os.close(reader)
    subprocess.run(box.machine.command("expire"), check=False, stdout=writer, env=box.machine.surroundings())
    os.close(writer)
    assert box.machine.calls("shutdown")


def spot(clocked) -> Clocked:
    box = clocked(candidate=plans.candidate(offer=plans.offer(market="spot")))
    box.tag()
    return box


def test_a_spot_notice_is_reported_once_and_the_engine_stopped(clocked):
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


def test_a_notice_with_another_action_drains(clocked):
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
