from __future__ import annotations

from dataclasses import replace

import pytest
from waiting_fakes import (
    BOOT,
    DEADLINES,
    ENGINE,
    EXIT,
    LOAD,
    OK,
    OOM,
    PENDING,
    PULL,
    REFUSED,
    RESET,
    RUNNING,
    SICK,
    TIMEOUT,
    UP,
    WARM,
    story,
)  # fmt: skip

from tgi_deploy.errors import DeployError, NotHealthyError
from tgi_deploy.readiness.deadlines import PhaseDeadline, PhaseDeadlines
from tgi_deploy.values.resource import MachineState

CLEAN_BOOT = [(0, ""), (20, BOOT), (40, PULL), (100, ENGINE), (130, LOAD), (150, WARM), (160, UP)]


def dead(code=None, reason=None, state="terminated", **more):
    return MachineState(state=state, reason_code=code, reason=reason, **more)


def fails(tale, kind=DeployError, **settings):
    with pytest.raises(kind) as caught:
        tale.wait(**settings)
    assert type(caught.value) is kind
    return caught.value


def test_a_normal_start_reports_every_phase():
    tale = story(
        machines=[(0, PENDING), (10, RUNNING)], consoles=CLEAN_BOOT, probes=[(0, REFUSED), (100, RESET), (160, OK)]
    )
    report = tale.wait()
    assert [item.phase for item in report.phases] == [item.phase for item in DEADLINES]
    assert tale.recorder.order() == [item.phase for item in DEADLINES]
    assert (report.address, report.kv_capacity_tokens) == (RUNNING.address, 9000)
    assert report.elapsed_s == 163
    assert sum(item.took_s for item in report.phases) == report.elapsed_s
    assert tale.recorder.lines == []


def test_details_and_expected_seconds_reach_the_listener():
    tale = story(consoles=CLEAN_BOOT, probes=[(0, REFUSED), (160, OK)])
    tale.wait()
    assert ("pulling", "tgi:3.3.7", 5.0, 100) in tale.recorder.phases
    assert ("warming_up", "KV cache holds 9000 tokens", 0.0, 20) in tale.recorder.phases


def test_no_probe_before_the_machine_runs_and_has_an_address():
    tale = story(machines=[(0, PENDING), (10, MachineState(state="running")), (20, RUNNING)], probes=[(0, OK)])
    assert tale.wait().elapsed_s == 23
    assert len(tale.world.asked) == 2


def test_without_console_output_http_decides():
    tale = story(probes=[(0, REFUSED), (900, OK)])
    report = tale.wait()
    assert report.elapsed_s == 903
    assert [item.phase for item in report.phases] == ["launching", "booting"]


def test_an_unreadable_console_is_reported_once_and_ignored():
    tale = story(consoles=[(0, DeployError("denied", "not allowed"))], probes=[(0, REFUSED), (300, OK)])
    assert tale.wait().elapsed_s == 303
    assert len(tale.recorder.lines) == 1
    assert "not allowed" in tale.recorder.lines[0]


def test_a_reclaimed_machines_log_does_not_hide_the_reason():
    why = "Server.SpotInstanceTermination: Spot instance termination"
    taken = dead("Server.SpotInstanceTermination", why, reclaimed=True)
    tale = story(machines=[(0, RUNNING), (60, taken)], consoles=[(0, LOAD), (60, LOAD + OOM + EXIT)])
    error = fails(tale)
    assert (error.code, error.data["finding"], error.data["line"]) == ("spot_reclaimed", "spot_reclaimed", None)
    assert error.data["evidence"].startswith("state of the machine: Server.Spot")
    assert error.data["command"].startswith("tgi-deploy up ")


NO_QUOTA = MachineState(state="pending", refusal="cluster_quota", reason="exceeded quota", remedy="ask for more")


def test_a_refusal_that_lasts_ends_the_wait_with_its_remedy():
    error = fails(story(machines=[(0, PENDING), (10, NO_QUOTA)]))
    assert (error.code, error.hint) == ("cluster_quota", "ask for more")
    assert error.message == "waiting for the engine, phase launching: exceeded quota"
    assert error.data["elapsed_s"] == 25


def test_a_refusal_that_passes_is_waited_out():
    tale = story(machines=[(0, NO_QUOTA), (10, PENDING), (15, NO_QUOTA), (25, RUNNING)], probes=[(0, OK)])
    assert tale.wait().elapsed_s < 35


def test_waiting_shards_are_reported_as_a_hang_at_the_deadline():
    waits = "".join(
        f"2026-01-09T00:{minute:02}:00Z  INFO x: Waiting for shard to be ready... rank={rank}\n"
        for minute in range(12)
        for rank in (0, 1)
    )
    error = fails(story(consoles=[(0, LOAD + LOAD.splitlines()[-1] + "1\n" + waits)]), NotHealthyError)
    assert (error.code, error.data["finding"]) == ("not_ready", "nccl_hang")


def test_a_key_in_the_evidence_is_hidden():
    refused = "error: unexpected argument '--api-key sesame-open' found\n[tgi-deploy] phase=engine-exited code=2\n"
    error = fails(story(consoles=[(0, ENGINE + refused)]), NotHealthyError)
    assert error.data["finding"] == "unknown_flag"
    assert "sesame" not in f"{error.message} {error.hint} {error.data}"


def test_a_silent_machine_times_out_at_the_sum_of_deadlines():
    tale = story(probes=[(0, TIMEOUT)])
    error = fails(tale, NotHealthyError)
    assert (error.code, tale.elapsed_s, error.exit_code) == ("not_ready", 920, 5)
    assert "none yet" in error.message
    assert "Health check: did not answer in time" in error.message


@pytest.mark.parametrize(
    ("console", "phase", "ends_s"),
    [(BOOT, "booting", 200), (PULL, "pulling", 300), (ENGINE, "downloading", 150), (LOAD, "loading", 90),
     (WARM, "warming_up", 60), (UP, "ready", 20)],
)  # fmt: skip
def test_each_phase_has_its_own_deadline_to_the_second(console, phase, ends_s):
    tale = story(consoles=[(0, console)])
    error = fails(tale, NotHealthyError, poll_s=7.0)
    assert (error.code, error.failure.phase, tale.elapsed_s) == ("not_ready", phase, ends_s)
    assert error.data["deadline_s"] == ends_s
    assert console.splitlines()[-1] in error.message
    assert error.hint


def test_a_pending_machine_times_out_at_its_deadline():
    tale = story(machines=[(0, PENDING)])
    error = fails(tale, NotHealthyError)
    assert (error.code, tale.elapsed_s) == ("not_ready", 100)
    assert tale.world.asked == []


def test_the_clock_of_a_phase_starts_when_it_is_first_seen():
    tale = story(consoles=[(0, BOOT), (150, PULL)])
    error = fails(tale, NotHealthyError)
    assert (error.code, tale.elapsed_s) == ("not_ready", 450)
    assert error.data["phases"][-1] == {"phase": "booting", "took_s": 150.0}


def test_the_overall_limit_cuts_a_phase_short():
    tale = story(consoles=[(0, PULL)])
    error = fails(tale, NotHealthyError, overall_s=123.5)
    assert (error.code, tale.elapsed_s) == ("not_ready", 123.5)
    assert "all phases" in error.message


def test_the_last_sleep_ends_at_the_deadline():
    tale = story(consoles=[(0, UP)])
    fails(tale, NotHealthyError, poll_s=8.0, probe_s=8.0)
    assert tale.world.clock.slept == [8.0, 8.0, 4.0]


def test_time_spent_in_probes_counts():
    tale = story(consoles=[(0, LOAD)], probes=[(0, TIMEOUT)])
    tale.world.probe_takes_s = 10.0
    error = fails(tale, NotHealthyError)
    assert error.code == "not_ready"
    assert tale.elapsed_s <= 90 + 10


def test_ready_at_the_very_deadline_counts():
    tale = story(consoles=[(0, LOAD)], probes=[(0, REFUSED), (90, OK)])
    assert tale.wait().elapsed_s == 93


def test_a_stall_is_reported_once_with_the_last_line():
    tale = story(consoles=[(0, PULL)], probes=[(0, REFUSED), (280, OK)])
    tale.wait()
    assert len(tale.recorder.lines) == 1
    assert "pulling takes longer than expected (155 s, expected 100 s)" in tale.recorder.lines[0]
    assert "phase=pulling" in tale.recorder.lines[0]


def test_no_progress_is_reported_once_a_phase():
    patient = [replace(item, expected_s=500, deadline_s=900, stall_s=60) for item in DEADLINES]
    tale = story(
        consoles=[(0, ENGINE), (40, ENGINE + "Download: [1/4] -- ETA: 0:01:00\n")], probes=[(0, REFUSED), (140, OK)]
    )
    tale.wait(patient)
    assert [line for line in tale.recorder.lines if "no progress" in line] == [
        (
            "downloading has stalled at 1 of 4 files: no progress for 65 s (at most 60 s is normal); "
            "'tgi-deploy diagnose NAME' finds the cause"
        )
    ]
    assert len(tale.recorder.lines) == 1


def test_progress_in_time_is_not_a_stall():
    moving = [(at, ENGINE + f"Download: [{at // 40}/4] -- ETA: 0:01:00\n") for at in (0, 40, 80, 120)]
    tale = story(consoles=moving, probes=[(0, REFUSED), (140, OK)])
    tale.wait([replace(item, expected_s=500, deadline_s=900, stall_s=60) for item in DEADLINES])
    assert tale.recorder.lines == []


def test_a_small_delay_is_not_a_stall():
    tale = story(consoles=[(0, WARM)], probes=[(0, REFUSED), (25, OK)])
    tale.wait()
    assert tale.recorder.lines == []


def test_the_clouds_reason_is_not_repeated():
    result = "Server.InternalError: host failed"
    tale = story(machines=[(0, RUNNING), (5, dead("Server.InternalError", result))])
    assert fails(tale).message.count("Server.InternalError") == 1


def test_a_download_failure_ends_the_wait_at_once():
    failed = ENGINE + "OSError: [Errno 28] No space left on device\nError: DownloadError\n" + EXIT
    tale = story(consoles=[(0, ENGINE), (30, failed)])
    error = fails(tale, NotHealthyError)
    assert (error.code, error.exit_code, tale.elapsed_s) == ("engine_failed", 5, 30)
    assert error.data["finding"] == "disk_full"
    assert "No space left on device" in error.message
    assert error.data["evidence"] == "OSError: [Errno 28] No space left on device"
    assert "bigger volume" in error.hint
    assert "explain disk_full" in error.hint


def test_out_of_memory_at_warm_up_is_distinguished_from_out_of_memory_at_load():
    tale = story(consoles=[(0, LOAD), (20, WARM + OOM + EXIT)])
    assert fails(tale, NotHealthyError).data["finding"] == "oom_warmup_prefill"
    tale = story(consoles=[(0, LOAD + OOM + EXIT)])
    assert fails(tale, NotHealthyError).data["finding"] == "oom_load"


def test_a_known_error_without_an_exit_keeps_waiting():
    """Engines survive some errors: only the end makes it a verdict. The time-out names it then."""
    tale = story(consoles=[(0, LOAD + OOM)])
    error = fails(tale, NotHealthyError)
    assert (error.code, tale.elapsed_s) == ("not_ready", 90)
    assert error.data["finding"] == "oom_load"
    assert "out of memory" in error.message


def test_a_start_that_failed_between_two_polls_is_counted():
    tale = story(consoles=[(0, LOAD), (30, LOAD + OOM + EXIT + BOOT)])
    error = fails(tale, NotHealthyError)
    assert (error.data["finding"], tale.elapsed_s) == ("oom_load", 30)


def test_one_unknown_failure_may_be_fixed_by_a_restart():
    odd = LOAD + "KeyError: 'odd'\n" + EXIT
    tale = story(consoles=[(0, LOAD), (30, odd), (40, odd + UP)], probes=[(0, REFUSED), (60, OK)])
    assert tale.wait().elapsed_s == 63
    assert tale.recorder.order()[-1] == "ready"


def test_two_unknown_failures_end_the_wait():
    odd = LOAD + "KeyError: 'odd'\n" + EXIT
    tale = story(consoles=[(0, LOAD), (30, odd), (60, odd + odd)])
    error = fails(tale, NotHealthyError)
    assert (error.code, error.data["finding"], tale.elapsed_s) == ("engine_failed", None, 60)
    assert "KeyError: 'odd'" in error.message


@pytest.mark.parametrize("code", [2, 64])
def test_an_exit_that_is_not_retried_ends_the_wait(code):
    tale = story(consoles=[(0, ENGINE + f"[tgi-deploy] phase=engine-exited code={code}\n")])
    error = fails(tale, NotHealthyError)
    assert (error.code, error.data["exit_code"], tale.elapsed_s) == ("engine_failed", code, 0)
    assert f"with code {code}" in error.message


def test_a_restart_returns_to_an_earlier_phase_with_a_new_deadline():
    odd = LOAD + EXIT
    tale = story(consoles=[(0, LOAD), (80, odd), (85, odd + BOOT)])
    error = fails(tale, NotHealthyError)
    assert (error.code, tale.elapsed_s) == ("not_ready", 85 + 200)


def test_a_crash_within_the_settling_time_is_not_ready():
    crash = UP + "Shard 0 crashed\nError: ShardFailed\n" + EXIT
    tale = story(consoles=[(0, UP), (2, crash), (5, crash + crash)], probes=[(0, OK), (2, REFUSED)])
    error = fails(tale, NotHealthyError)
    assert (error.code, tale.elapsed_s) == ("engine_failed", 5)
    assert any("once and then stopped responding" in line for line in tale.recorder.lines)


def test_an_answer_that_settles_later_is_ready():
    tale = story(consoles=[(0, UP)], probes=[(0, OK), (2, RESET), (10, OK)])
    assert tale.wait().elapsed_s == 13
    assert tale.world.clock.slept == [3.0, 2.0, 5.0, 3.0]


def test_status_503_can_become_ready():
    tale = story(consoles=[(0, UP)], probes=[(0, SICK), (10, OK)])
    assert tale.wait().elapsed_s == 13
    assert tale.recorder.lines[0] == "the health check answers 503: it was up and is unhealthy now"
    assert tale.recorder.phases[0][1] == "health check answers 503"


def test_503_forever_is_a_time_out_that_says_so():
    tale = story(consoles=[(0, UP)], probes=[(0, SICK)])
    error = fails(tale, NotHealthyError)
    assert (error.code, error.data["probe"]) == ("not_ready", "answered 503")


def test_an_unexpected_status_is_not_ready():
    tale = story(consoles=[(0, UP)], probes=[(0, type(OK)(outcome="status", status=404))])
    assert "answered 404" in fails(tale, NotHealthyError).message


def test_a_spot_notice_ends_the_wait_early():
    notice = LOAD + "[tgi-deploy] spot-notice action=terminate time=2026-11-21T12:00:00Z\n" + EXIT
    tale = story(consoles=[(0, ""), (20, LOAD), (50, notice)])
    error = fails(tale)
    assert (error.code, tale.elapsed_s) == ("spot_reclaimed", 50)
    assert "terminate at 2026-11-21T12:00:00Z" in error.message
    assert (error.data["action"], error.data["time"]) == ("terminate", "2026-11-21T12:00:00Z")


@pytest.mark.parametrize(
    ("machine", "code", "says"),
    [
        (dead("Taken", "Taken: by somebody who pays more", reclaimed=True), "spot_reclaimed", "spot"),
        (dead("Taken", state="stopped", reclaimed=True), "spot_reclaimed", "spot"),
        (dead("Server.InternalError", "host failed"), "machine_died", "new machine"),
        (dead("Client.InstanceInitiatedShutdown", state="shutting-down"), "machine_died", "longer limit"),
        (dead("Server.InsufficientInstanceCapacity"), "machine_died", "regions"),
        (dead("Client.InternalError"), "machine_died", "key"),
        (dead("Client.InternalError", remedy="ask whoever ended it"), "machine_died", "ask whoever ended it"),
        (dead(state="stopping"), "machine_died", "new machine"),
        (dead(state="missing"), "machine_died", "new machine"),
    ],
)
def test_a_terminated_machine_ends_the_wait_with_its_reason(machine, code, says):
    tale = story(machines=[(0, PENDING), (10, RUNNING), (50, machine)], consoles=[(20, PULL), (0, "")][::-1])
    error = fails(tale)
    assert (error.code, tale.elapsed_s, error.exit_code) == (code, 50, 1)
    assert says in error.hint
    assert machine.reason_code is None or machine.reason_code in error.message
    assert (error.data["phase"], error.data["machine"]["state"]) == ("pulling", machine.state)


def test_a_shutdown_after_a_known_error_is_attributed_to_it():
    tale = story(machines=[(0, RUNNING), (20, dead("Client.InstanceInitiatedShutdown"))], consoles=[(0, LOAD + OOM)])
    assert fails(tale, NotHealthyError).data["finding"] == "oom_load"


def test_a_reclaimed_machine_is_reported_as_reclaimed():
    taken = dead("Taken", reclaimed=True)
    tale = story(machines=[(0, RUNNING), (20, taken)], consoles=[(0, LOAD), (20, LOAD + OOM)])
    assert fails(tale).code == "spot_reclaimed"


def test_a_machine_that_is_not_visible_yet_is_awaited():
    tale = story(machines=[(0, dead(state="missing")), (15, PENDING), (30, RUNNING)], probes=[(0, REFUSED), (50, OK)])
    assert tale.wait().elapsed_s == 53


def test_a_machine_missing_from_one_poll_is_not_missing():
    unseen = [(20, dead(state="missing")), (40, RUNNING), (60, dead(state="missing")), (110, RUNNING)]
    tale = story(machines=[(0, PENDING), (15, RUNNING), *unseen], probes=[(0, REFUSED), (130, OK)])
    assert tale.wait(unseen_s=60.0).elapsed_s == 133


@pytest.mark.parametrize("late", ["stopping", "stopped"])
def test_a_stale_stopped_state_does_not_end_the_wait(late):
    shown = [(0, dead(state=late)), (10, RUNNING), (20, dead(state=late)), (40, RUNNING)]
    tale = story(machines=shown, probes=[(0, REFUSED), (60, OK)])
    assert tale.wait(unseen_s=60.0).elapsed_s >= 60


@pytest.mark.parametrize("state", ["stopping", "stopped"])
def test_a_machine_stopped_for_a_minute_ends_the_wait(state):
    tale = story(machines=[(0, dead("Client.UserInitiatedShutdown", state=state))])
    error = fails(tale, unseen_s=60.0)
    assert (error.code, tale.elapsed_s) == ("machine_died", 60)


def test_a_machine_missing_for_a_minute_ends_the_wait():
    tale = story(machines=[(0, PENDING), (15, RUNNING), (50, dead(state="missing"))])
    error = fails(tale, unseen_s=60.0)
    assert (error.code, tale.elapsed_s) == ("machine_died", 110)


def test_a_machine_that_never_appears_times_out():
    tale = story(machines=[(0, dead(state="missing"))])
    assert fails(tale, NotHealthyError).code == "not_ready"


def test_a_machine_that_dies_while_settling_is_not_ready():
    tale = story(machines=[(0, RUNNING), (2, dead("Server.InternalError"))], probes=[(0, OK), (2, REFUSED)])
    assert fails(tale).code == "machine_died"


def test_a_rotated_console_does_not_reset_the_phase():
    window = "Waiting for shard to be ready... rank=0\n" * 5
    tale = story(
        consoles=[(0, LOAD), (30, window), (60, window + "Starting Webserver\n")], probes=[(0, REFUSED), (70, OK)]
    )
    report = tale.wait()
    assert [item.phase for item in report.phases] == ["launching", "loading", "warming_up"]


def test_an_emptied_console_changes_nothing():
    tale = story(consoles=[(0, LOAD), (30, "")])
    error = fails(tale, NotHealthyError)
    assert (error.code, tale.elapsed_s) == ("not_ready", 90)


def test_without_deadlines_there_is_one_poll():
    tale = story()
    assert fails(tale, NotHealthyError, deadlines=()).code == "not_ready"
    assert tale.elapsed_s == 0


def test_a_phase_without_a_deadline_has_the_overall_one():
    only = (PhaseDeadline(phase="booting", expected_s=1, deadline_s=30),)
    tale = story(consoles=[(0, LOAD)])
    assert fails(tale, NotHealthyError, deadlines=only).code == "not_ready"
    assert tale.elapsed_s == 30


def test_patience_is_the_sum_of_deadlines():
    assert PhaseDeadlines.of(DEADLINES).overall_s == 920
    assert PhaseDeadlines.of(DEADLINES, 5).overall_s == 5
