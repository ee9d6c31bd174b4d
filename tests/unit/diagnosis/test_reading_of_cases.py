from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.logs import GRAMMAR
from builders.samples import quick
from cases.phases.rewrite import shown

from tgi_deploy.diagnosis.lines import log_lines
from tgi_deploy.diagnosis.patterns import STARTUP_PHASES
from tgi_deploy.diagnosis.progress import detail_of, fraction_of
from tgi_deploy.diagnosis.reader import Reading, Subject
from tgi_deploy.diagnosis.reader import read as read_any

CASES = Path(__file__).parents[2] / "cases" / "phases"
LOGS = sorted(CASES.rglob("*.log"))
DEPLOYED = Subject(planned=True)


def read(text: str, before: Reading | None = None) -> Reading:
    return read_any(text, GRAMMAR, subject=DEPLOYED, before=before)


def first_code(text: str) -> str | None:
    return next((item.code for item in read(text).findings), None)


def log(case: str) -> str:
    return (CASES / f"{case}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", quick(LOGS, 16), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_log_reads_as_expected(path):
    """The expectations are written by a script; the folder, which names the cause, is not."""
    reading = read(path.read_text(encoding="utf-8"))
    assert shown(reading) == json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert next((item.code for item in reading.findings), "clean") == path.parent.name


@pytest.mark.parametrize(
    "case", quick(["clean/one-gpu", "clean/four-shards", "clean/json-output", "clean/plain-text-paged"], 1)
)
def test_phases_of_a_clean_log_only_go_forward(case):
    lines = log(case).splitlines(keepends=True)
    reached = [read("".join(lines[:end])) for end in (*range(0, len(lines), 4), len(lines))]
    order = [STARTUP_PHASES.index(item.startup_phase) for item in reached]
    assert order == sorted(order)
    assert order[-1] == STARTUP_PHASES.index("ready")
    assert all(item.findings == () and item.cause_of_end is None for item in reached)


def test_progress_of_a_download_grows_to_one():
    lines = log("clean/one-gpu").splitlines()
    seen = [read("\n".join(lines[:end])) for end in range(len(lines))]
    found = [fraction_of("downloading", item.progress) for item in seen if item.startup_phase == "downloading"]
    fractions = [fraction for fraction in found if fraction is not None]
    assert sorted(set(fractions)) == [0.25, 0.5, 0.75, 1.0]
    assert fractions == sorted(fractions)


def test_a_truncated_window_continues_from_the_previous_reading():
    text = log("clean/four-shards")
    before = read(text[: text.index("Starting Webserver") + 20])
    window = text[text.index("Setting max batch total tokens") : text.index("Using the Hugging Face API")]
    assert read(window).phase_seen is False
    view = read(window, before=before)
    assert (view.startup_phase, view.phase_seen) == ("warming_up", True)
    assert view.progress.kv_capacity_tokens == 401216


def test_a_complete_log_needs_no_previous_reading():
    text = log("clean/one-gpu")
    failed = read(log("oom_load/two-shards"))
    assert read(text, before=failed) == read(text)


def test_an_exit_in_two_windows_counts_once():
    text = log("clean/unknown-error")
    window = text[text.index("Shutting down shards") :]
    view = read(window, before=read(text))
    assert (view.exits, view.latest.exit_code) == (1, 1)
    assert read(window, before=view).exits == 1


def test_a_second_failure_counts_and_keeps_its_cause():
    text = log("oom_load/two-shards")
    view = read(text + text)
    assert view.exits == 2
    assert view.cause_of_end is not None
    assert view.cause_of_end.code == "oom_load"


def test_a_new_start_keeps_the_exit_of_the_previous_one():
    text = log("oom_warmup_prefill/out-of-memory") + "[  300.000000] run-engine[2]: [tgi-deploy] phase=booting\n"
    view = read(text)
    assert (view.startup_phase, view.latest.evidence, view.latest.exit_code) == ("booting", (), None)
    assert [item.code for item in view.findings] == ["oom_warmup_prefill"]
    assert view.cause_of_end is not None
    assert view.cause_of_end.code == "oom_warmup_prefill"
    assert "OutOfMemoryError" in (view.error_line or "")


def test_reaching_ready_clears_earlier_failures():
    view = read(log("network/no-name") + log("clean/one-gpu"))
    assert (view.startup_phase, view.cause_of_end, view.error_line) == ("ready", None, None)


def test_systemd_giving_up_is_final():
    text = log("clean/unknown-error")
    assert read(text).final is False
    gave_up = text + "[  400.1] systemd[1]: tgi-deploy-engine.service: Start request repeated too quickly.\n"
    assert read(gave_up).final is True


def test_a_container_restart_without_markers_is_a_new_start():
    one = log("clean/json-downloading").replace("[tgi-deploy]", "")
    view = read(one + one)
    assert (view.startup_phase, view.starts) == ("downloading", 2)
    assert detail_of("downloading", view.progress).startswith("2 of 4 files")
    loading = log("clean/loading-two-of-four")
    again = read(loading + loading.split("Starting check")[0])
    assert again.startup_phase == "downloading"


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
    assert GRAMMAR.consequences.search(line)
    for phase in ("Starting shard", "Starting Webserver", "Connected"):
        assert first_code(f"{phase}\n{line}\n") is None


def test_the_first_exact_error_wins():
    text = "Starting shard\nAssertionError: Each process is one gpu\nValueError: Unsupported model type x\n"
    assert first_code(text) == "shards_gt_gpus"


def test_an_exact_error_wins_over_an_earlier_vague_one():
    text = "Starting shard\nsignaled to shutdown with signal 9\nAssertionError: Each process is one gpu\n"
    assert first_code(text) == "shards_gt_gpus"


def test_out_of_memory_is_diagnosed_by_phase():
    text = "torch.OutOfMemoryError: CUDA out of memory."
    failed = "\nError: ShardFailed\n"
    begins = ("Starting shard", "Starting Webserver", "router: Connected")
    codes = [first_code(f"{begin}\n{text}{failed}") for begin in begins]
    assert codes == ["oom_load", "oom_warmup_prefill", "oom_serving"]


def test_secrets_in_the_log_are_hidden():
    text = (
        'Args { model_id: "m", api_key: Some("k-secret-9") }\nAuthorization: Bearer abc.def\ntoken hf_AbCdEfGh12345\n'
    )
    result = "\n".join(log_lines(text, GRAMMAR))
    assert not any(secret in result for secret in ("k-secret-9", "abc.def", "AbCdEfGh"))
    assert read(text.splitlines()[0]).last_line == "Args { … }"


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
    assert log_lines(text, GRAMMAR) == lines


def test_any_cut_of_any_log_can_be_read():
    for path in LOGS[::7]:
        text = path.read_text(encoding="utf-8")
        for start in range(0, len(text), max(1, len(text) // 9)):
            assert read(text[start : start + 700]).startup_phase in STARTUP_PHASES


def test_facts_from_an_earlier_part_of_the_log_are_kept():
    text = log("oom_load/two-shards")
    end = text.index("engine-exited")
    lines = text[:end].splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if "OutOfMemoryError" in line)
    before = read("".join(lines[: at + 1]))
    later = read("".join(lines[at + 1 :]), before=before)
    assert [(item.code, item.line) for item in later.findings] == [("oom_load", 0)]
    again = read("".join(lines[at + 1 :]), before=later)
    third = read("".join(lines[at + 1 :]), before=again)
    assert again.findings == third.findings == later.findings
    assert len(third.latest.evidence) == len(again.latest.evidence), "parts overlap, and nothing grows"
