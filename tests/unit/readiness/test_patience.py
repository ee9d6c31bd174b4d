"""Progress, stalls and deadlines: what is reported for a slow phase, and when its wait ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from waiting_fakes import DEADLINES, ENGINE, LOAD, OK, PULL, REFUSED, UP, WARM, story

from tgi_deploy.diagnosis.reader import Subject
from tgi_deploy.errors import NotHealthyError
from tgi_deploy.readiness.deadlines import ProgressCounters

DEMO = Subject(facts={"name": "demo"})
LIMITED = [replace(item, stall_s=60, limit_s=3 * item.deadline_s, amount_mb=9100) for item in DEADLINES]


def received(*megabytes):
    return PULL + "".join(f"[tgi-deploy] received mb={amount}\n" for amount in megabytes)


def pulling(until_s, *, every_s=10, mb=50, start_s=0):
    """A console on which an image comes in, so much more each time."""
    count = int((until_s - start_s) / every_s)
    return [
        (start_s + step * every_s, received(*(mb * part for part in range(1, step + 1)))) for step in range(count + 1)
    ]


def ends(tale, deadlines=LIMITED, **settings):
    with pytest.raises(NotHealthyError) as caught:
        tale.wait(deadlines, **settings)
    return caught.value


def test_megabytes_are_reported_with_the_expected_total():
    tale = story(consoles=[(0, PULL), (10, received(1234)), (20, WARM)], probes=[(0, REFUSED), (30, OK)])
    tale.wait(LIMITED)
    reported = [(phase, detail) for phase, detail, *_ in tale.recorder.phases]
    assert reported[0] == ("pulling", "tgi:3.3.7")
    assert ("pulling", "1,234 of about 9,100 MB") in reported


def test_a_slow_pull_continues_past_its_deadline_while_bytes_come_in():
    tale = story(consoles=[*pulling(600), (600, WARM)], probes=[(0, REFUSED), (610, OK)])
    report = tale.wait(LIMITED)
    assert report.elapsed_s == 613
    assert (
        tale.recorder.lines[-1]
        == "pulling is past its deadline of 300 s but still makes progress; it may take up to 900 s"
    )
    assert not any("stalled" in line for line in tale.recorder.lines)


def test_an_extended_pull_does_not_run_forever():
    tale = story(consoles=pulling(2000))
    error = ends(tale)
    assert (error.code, tale.elapsed_s) == ("not_ready", 900)
    assert "the 900 s for this phase" in error.message
    assert error.data["stalled_s"] is None


def test_past_the_deadline_a_stall_ends_the_wait():
    tale = story(consoles=pulling(400))
    error = ends(tale)
    assert (error.code, tale.elapsed_s, error.data["stalled_s"]) == ("not_ready", 460, 60)
    assert "without progress for 60 s" in error.message
    assert "'tgi-deploy diagnose NAME'" in error.hint


def test_a_phase_without_any_sign_of_progress_ends_at_its_deadline():
    tale = story(consoles=[(0, PULL)])
    assert (ends(tale).code, tale.elapsed_s) == ("not_ready", 300)


def test_without_a_limit_progress_extends_nothing():
    tale = story(consoles=pulling(2000))
    assert (ends(tale, [replace(item, limit_s=0) for item in LIMITED]).code, tale.elapsed_s) == (
        "not_ready",
        300,
    )


def test_a_requested_overall_limit_is_never_extended():
    tale = story(consoles=pulling(2000))
    ends(tale, overall_s=350)
    assert tale.elapsed_s == 350


def test_an_extension_of_one_phase_does_not_shorten_others():
    """920 s are the sum of all deadlines; the pull took 500 more than its own."""
    tale = story(consoles=[*pulling(800), (800, LOAD)], probes=[(0, REFUSED)])
    deadlines = [item if item.phase != "loading" else replace(item, deadline_s=400) for item in LIMITED]
    error = ends(tale, deadlines)
    assert (error.code, tale.elapsed_s) == ("not_ready", 1200)


def test_other_network_traffic_is_not_a_pull():
    tale = story(consoles=pulling(2000, every_s=70, mb=1))
    error = ends(tale, [replace(item, stall_s=40) for item in LIMITED])
    assert (error.code, tale.elapsed_s) == ("not_ready", 300)
    assert any(line.startswith("pulling has stalled at ") for line in tale.recorder.lines)


def test_a_stall_message_has_phase_progress_time_and_command():
    tale = story(consoles=pulling(100), probes=[(0, REFUSED), (200, OK)])
    tale.wait([replace(item, expected_s=500, deadline_s=900) for item in LIMITED], subject=DEMO)
    assert tale.recorder.lines == [
        (
            "pulling has stalled at 500 of about 9,100 MB: no progress for 65 s (at most 60 s is normal); "
            "'tgi-deploy diagnose demo' finds the cause"
        )
    ]


def test_a_second_stall_is_reported_again():
    first = pulling(50)
    consoles = [*first, (200, received(50, 100, 150, 200, 250, 300))]
    tale = story(consoles=consoles, probes=[(0, REFUSED), (290, OK)])
    tale.wait([replace(item, expected_s=500, deadline_s=900) for item in LIMITED])
    assert len([line for line in tale.recorder.lines if "stalled" in line]) == 2


@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        (ProgressCounters(), ProgressCounters(received_mb=4), False),
        (ProgressCounters(), ProgressCounters(received_mb=5), True),
        (ProgressCounters(received_mb=900), ProgressCounters(received_mb=904), False),
        (ProgressCounters(received_mb=900), ProgressCounters(received_mb=10), False),
        (ProgressCounters(steps=1), ProgressCounters(steps=2), True),
        (ProgressCounters(steps=3), ProgressCounters(steps=1, received_mb=3), False),
    ],
)
def test_what_counts_as_progress(before, now, moved):
    assert before.moved_to(now) is moved


def test_a_pull_that_starts_over_makes_progress_from_there():
    first = received(50, 500)
    again = first + received(50)
    consoles = [(0, first), (100, again), (150, again + received(50, 100)), (200, WARM)]
    tale = story(consoles=consoles, probes=[(0, REFUSED), (210, OK)])
    tale.wait([replace(item, expected_s=500, deadline_s=900) for item in LIMITED])
    assert [line.partition(":")[0] for line in tale.recorder.lines] == ["pulling has stalled at 500 of about 9,100 MB"]


def test_a_download_counts_down_the_engines_estimate():
    result = ENGINE + "Download: [1/4] -- ETA: 0:01:30\n"
    tale = story(consoles=[(0, ENGINE), (20, result), (50, WARM)], probes=[(0, REFUSED), (60, OK)])
    tale.wait()
    reported = [(detail, at_s) for phase, detail, at_s, _ in tale.recorder.phases if phase == "downloading"]
    assert reported[0] == ("about 50 s left", 0)
    assert ("1 of 4 files, about 90 s left", 20) in reported
    assert ("1 of 4 files, about 65 s left", 45) in reported


def test_an_expired_estimate_is_not_shown():
    result = ENGINE + "Download: [1/4] -- ETA: 0:00:10\n"
    tale = story(consoles=[(0, result), (60, WARM)], probes=[(0, REFUSED), (70, OK)])
    tale.wait()
    assert [item for item in tale.recorder.phases if item[0] == "downloading"][-1][1] == "1 of 4 files"


def per_minute(console, **settings):
    """Calls to the machine's state, the console and the health check in ten minutes of waiting, a minute."""
    deadlines = [replace(item, deadline_s=600, stall_s=0) for item in DEADLINES]
    tale = story(consoles=[(0, console)])
    with pytest.raises(NotHealthyError):
        tale.wait(deadlines, **settings)
    assert tale.elapsed_s == 600
    looks = tale.world.looks
    return looks.count("machine") / 10, looks.count("console") / 10, len(tale.world.asked) / 10


def test_early_phases_poll_cloud_and_engine_equally():
    machine, console, probes = per_minute(PULL, poll_s=5, probe_s=0.5)
    assert (machine, console, probes) == (12.1, 12.1, 12.1)


def test_late_phases_poll_the_engine_more_often():
    machine, console, probes = per_minute(LOAD, poll_s=5, probe_s=0.5)
    assert (machine, console) == (12.1, 12.1)
    assert 118 <= probes <= 121


def test_readiness_is_detected_within_half_a_second():
    tale = story(consoles=[(0, UP)], probes=[(0, REFUSED), (7.1, OK)])
    report = tale.wait(poll_s=5, probe_s=0.5, settle_s=0.2)
    assert report.elapsed_s == pytest.approx(7.7)
    assert report.kv_capacity_tokens == 9000
    assert tale.world.looks == ["machine", "console"] * 2


def test_a_log_without_the_capacity_is_read_once_more():
    tale = story(consoles=[(0, LOAD), (6.6, UP)], probes=[(0, REFUSED), (6.4, OK)])
    report = tale.wait(poll_s=5, probe_s=0.5, settle_s=0.2)
    assert report.kv_capacity_tokens == 9000
    assert report.phases[-1].phase == "ready"
