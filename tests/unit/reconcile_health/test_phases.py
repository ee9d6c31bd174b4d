from __future__ import annotations

import json
from pathlib import Path

import pytest

from tgi_deploy.catalog.phases import read_phases
from tgi_deploy.reconcile.loglines import log_lines
from tgi_deploy.reconcile.phase_table import PHASES, table_from
from tgi_deploy.reconcile.phases import PhaseView, read_phase

CASES = Path(__file__).parents[2] / "cases" / "phases"
LOGS = sorted(CASES.rglob("*.log"))
TABLE = table_from(read_phases())


def brief(finding):
    return None if finding is None else {"code": finding.code, "evidence": finding.evidence}


def log(case: str) -> str:
    return (CASES / f"{case}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_log_reads_as_expected(path):
    view = read_phase(path.read_text(encoding="utf-8"), TABLE)
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    seen = {name: getattr(view, name) for name in PhaseView.__dataclass_fields__}
    assert seen | {name: brief(seen[name]) for name in ("finding", "died_of", "forbidden")} == expected


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_folder_of_a_case_names_its_cause(path):
    """The expectations are written by a script; the folders are not."""
    finding = read_phase(path.read_text(encoding="utf-8"), TABLE).finding
    assert (finding.code if finding else "clean") == path.parent.name


def test_there_are_enough_cases():
    assert len(LOGS) >= 70


@pytest.mark.parametrize("case", ["clean/one-gpu", "clean/four-shards", "clean/json-output", "clean/plain-text-paged"])
def test_phases_of_a_clean_log_only_go_forward(case):
    lines = log(case).splitlines(keepends=True)
    reached = [read_phase("".join(lines[:end]), TABLE) for end in range(len(lines) + 1)]
    order = [PHASES.index(view.phase) for view in reached]
    assert order == sorted(order)
    assert order[-1] == PHASES.index("ready")
    assert all(view.finding is None and view.died_of is None for view in reached)


def test_progress_of_a_download_grows_to_one():
    lines = log("clean/one-gpu").splitlines()
    seen = [read_phase("\n".join(lines[:end]), TABLE) for end in range(len(lines))]
    fractions = [view.progress for view in seen if view.phase == "downloading" and view.progress is not None]
    assert sorted(set(fractions)) == [0.25, 0.5, 0.75, 1.0]
    assert fractions == sorted(fractions)


def test_a_window_that_lost_its_beginning_goes_on_from_the_view_before():
    text = log("clean/four-shards")
    before = read_phase(text[: text.index("Starting Webserver") + 20], TABLE)
    window = text[text.index("Setting max batch total tokens") : text.index("Using the Hugging Face API")]
    assert read_phase(window, TABLE).evident is False
    view = read_phase(window, TABLE, previous=before)
    assert (view.phase, view.evident, view.kv_capacity_tokens) == ("warming_up", True, 401216)


def test_a_whole_log_needs_no_view_before():
    text = log("clean/one-gpu")
    failed = read_phase(log("oom_load/two-shards"), TABLE)
    assert read_phase(text, TABLE, previous=failed) == read_phase(text, TABLE)


def test_an_exit_seen_again_in_a_later_window_counts_once():
    text = log("clean/unknown-error")
    window = text[text.index("Shutting down shards") :]
    view = read_phase(window, TABLE, previous=read_phase(text, TABLE))
    assert (view.exits, view.exit_code) == (1, 1)
    assert read_phase(window, TABLE, previous=view).exits == 1


def test_a_second_failure_counts_and_keeps_what_it_died_of():
    text = log("oom_load/two-shards")
    view = read_phase(text + text, TABLE)
    assert view.exits == 2
    assert view.died_of is not None
    assert view.died_of.code == "oom_load"


def test_a_new_attempt_starts_clean_but_remembers_the_death():
    text = log("oom_warmup_prefill/out-of-memory") + "[  300.000000] run-engine[2]: [tgi-deploy] phase=booting\n"
    view = read_phase(text, TABLE)
    assert (view.phase, view.finding, view.exit_code) == ("booting", None, None)
    assert view.died_of is not None
    assert view.died_of.code == "oom_warmup_prefill"
    assert "OutOfMemoryError" in (view.error_line or "")


def test_reaching_ready_forgives_the_attempt_before():
    view = read_phase(log("network/no-name") + log("clean/one-gpu"), TABLE)
    assert (view.phase, view.died_of, view.error_line) == ("ready", None, None)


def test_systemd_giving_up_is_final():
    text = log("clean/unknown-error")
    assert read_phase(text, TABLE).final is False
    gave_up = text + "[  400.1] systemd[1]: tgi-deploy-engine.service: Start request repeated too quickly.\n"
    assert read_phase(gave_up, TABLE).final is True


def test_the_container_restarting_without_markers_is_a_new_attempt():
    one = log("clean/json-downloading").replace("[tgi-deploy]", "")
    view = read_phase(one + one, TABLE)
    assert (view.phase, view.detail) == ("downloading", "2 of 4 files")
    loading = log("clean/loading-two-of-four")
    again = read_phase(loading + loading.split("Starting check")[0], TABLE)
    assert again.phase == "downloading"


@pytest.mark.parametrize(
    "line",
    [
        "Error: ShardCannotStart",
        "Error: WebserverFailed",
        "Error: DownloadError",
        "Waiting for shard to be ready... rank=0",
        "Shard 0 failed to start",
        "Shard 1 crashed",
        "Webserver Crashed",
        "Shutting down shards",
        "Shard complete standard error output:",
    ],
)
def test_a_consequence_is_never_a_cause(line):
    assert TABLE.consequences.search(line)
    for phase in ("Starting shard", "Starting Webserver", "Connected"):
        assert read_phase(f"{phase}\n{line}\n", TABLE).finding is None


def test_the_first_exact_error_wins_over_later_ones():
    text = "Starting shard\nAssertionError: Each process is one gpu\nValueError: Unsupported model type x\n"
    finding = read_phase(text, TABLE).finding
    assert finding is not None
    assert finding.code == "shards_gt_gpus"


def test_an_exact_error_wins_over_an_earlier_vague_one():
    text = "Starting shard\nsignaled to shutdown with signal 9\nAssertionError: Each process is one gpu\n"
    finding = read_phase(text, TABLE).finding
    assert finding is not None
    assert finding.code == "shards_gt_gpus"


def test_out_of_memory_means_what_its_phase_says():
    text = "torch.OutOfMemoryError: CUDA out of memory."
    codes = [
        read_phase(f"{begin}\n{text}", TABLE).finding.code
        for begin in ("Starting shard", "Starting Webserver", "router: Connected")
    ]
    assert codes == ["oom_load", "oom_warmup_prefill", "oom_serving"]


def test_secrets_of_the_log_do_not_come_through():
    text = (
        'Args { model_id: "m", api_key: Some("k-secret-9") }\nAuthorization: Bearer abc.def\ntoken hf_AbCdEfGh12345\n'
    )
    said = "\n".join(log_lines(text))
    assert not any(secret in said for secret in ("k-secret-9", "abc.def", "AbCdEfGh"))
    assert read_phase(text.splitlines()[0], TABLE).last_line == "Args { … }"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ()),
        ("\x1b[2m12:00\x1b[0m \x1b[32m INFO\x1b[0m hello\n", ("12:00  INFO hello",)),
        ("[   12.345678] run-engine[812]: hello", ("hello",)),
        ("[   12.345678] Linux version 6.8", ("Linux version 6.8",)),
        ('{"level":"INFO","fields":{"message":"a\\nb"}}', ("a", "b")),
        ('{"level":"INFO","message":"flat"}', ("flat",)),
        ('{"level":"ERROR","message":"bad"}', ("ERROR bad",)),
        ('[    1.000000] run-engine[1]: {"level":"INFO","message":"flat"}', ("flat",)),
        ('{"level":"INFO"}', ('{"level":"INFO"}',)),
        ("{not json}", ("{not json}",)),
        ("{[1]}", ("{[1]}",)),
        ("one\r\n\r\ntwo\r", ("one", "two")),
    ],
)
def test_lines_are_plain_messages(text, lines):
    assert log_lines(text) == lines


def test_any_cut_of_any_log_can_be_read():
    for path in LOGS[::7]:
        text = path.read_text(encoding="utf-8")
        for start in range(0, len(text), max(1, len(text) // 9)):
            assert read_phase(text[start : start + 700], TABLE).phase in PHASES
