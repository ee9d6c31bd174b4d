from __future__ import annotations

import json
import random
import sys
from functools import cache
from pathlib import Path

import pytest
from builders.logs import GRAMMAR
from builders.samples import quick

from tgi_deploy import wiring
from tgi_deploy.diagnosis.lines import read_lines
from tgi_deploy.diagnosis.reader import Subject, read

REPOSITORY = Path(__file__).parents[3]
sys.path.insert(0, str(REPOSITORY / "scripts"))

import diagnosis_accuracy as accuracy  # noqa: E402 -- a script, found by its folder

CASES = REPOSITORY / "tests" / "cases" / "diagnosis"
EVERY = accuracy.cases()
WANTED = {
    "gated_no_token", "token_forbidden", "repo_not_found", "revision_not_found", "no_weights", "disk_full", "network",
    "gpu_not_visible", "toolkit_missing", "driver_too_old", "arch_unsupported", "nccl_shm", "nccl_hang",
    "rendezvous_port", "shards_gt_gpus", "not_divisible", "model_type_unsupported", "quant_mismatch",
    "quant_unsupported_arch", "oom_load", "oom_warmup_prefill", "oom_serving", "host_oom_killed",
    "argument_validation", "unknown_flag", "port_in_use", "tokenizer_failed", "cpu_instruction", "conversion_failed",
    "cuda_illegal_access", "template_missing",
}  # fmt: skip
READY = "2025-09-14T08:21:30.1Z  INFO text_generation_router::server: router/src/server.rs:2361: Connected\n"
LOADING = "2025-09-14T08:21:30.1Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0\n"


@cache
def whole(case):
    return read(case.log, GRAMMAR)


def codes(text, **facts):
    return [item.code for item in read(text, GRAMMAR, subject=Subject(facts=facts)).findings]


@pytest.mark.parametrize("case", quick(EVERY, 50), ids=lambda case: case.name)
def test_case(case):
    expected = json.loads((CASES / case.name / "expected.json").read_text(encoding="utf-8"))
    found = whole(case)
    assert [item.code for item in found.findings] == expected["codes"]
    if "phase" in expected:
        assert found.findings[0].startup_phase == expected["phase"]
    for item in found.findings:
        assert expected.get("evidence", "") in item.evidence
        assert item.evidence.split()[0] in case.log
        assert 1 <= item.line <= len(case.log.splitlines())
        assert 0 < item.confidence < 1


def test_every_required_code_has_a_case():
    assert {code for case in EVERY for code in case.codes} >= WANTED
    assert set(GRAMMAR.pages) >= WANTED


@pytest.mark.slow
def test_the_cause_of_a_failed_start_is_the_first_finding():
    found = [(case, reading) for case in EVERY if (reading := whole(case)).cause_of_end is not None]
    assert len(found) > 10
    for case, reading in found:
        ended, first = reading.cause_of_end, reading.findings[0]
        assert (ended.code, ended.line, ended.remedy) == (first.code, first.line, first.remedy), case.name


@pytest.mark.slow
def test_a_mutated_log_has_the_same_cause():
    random_ = random.Random(20261121)  # noqa: S311 -- variety, not secrecy
    for _ in range(120):
        outcome = accuracy.examine(accuracy.mutated(random_.choice(EVERY), random_), GRAMMAR)
        assert outcome.right, outcome


def test_scores_count_wrong_claims_and_misses():
    outcomes = [
        accuracy.Outcome(name="a", expected=("x",), found=("x",)),
        accuracy.Outcome(name="b", expected=("x",), found=("y",)),
        accuracy.Outcome(name="c", expected=(), found=("x",)),
    ]
    table = accuracy.scores(outcomes)
    assert (table["x"].precision, table["x"].recall) == (0.5, 0.5)
    assert (table["total"].hits, table["total"].wrong, table["total"].missed) == (1, 2, 1)
    assert [item.right for item in outcomes] == [True, False, False]


@pytest.mark.slow
def test_the_script_exits_0_if_all_are_right(capsys):
    assert accuracy.main([]) == 0
    assert "0 false alarms" in capsys.readouterr().out


def test_one_line_with_two_causes_gives_both_and_how_to_distinguish_them():
    text = LOADING + "RuntimeError: An error occurred while downloading using `hf_transfer`.\n"
    found = read(text.replace("Starting shard", "Starting check and download process for m/m"), GRAMMAR).findings
    assert [item.code for item in found] == ["disk_full", "network"]
    assert found[0].confidence > found[1].confidence
    assert all("df -h" in item.distinguish_by for item in found)


def test_another_line_resolves_an_ambiguous_one():
    open_ = "OSError: You are trying to access a gated repo.\n"
    assert codes(open_) == ["gated_no_token", "token_forbidden"]
    assert codes(open_ + "requests.HTTPError: 403 Client Error: Forbidden\n") == ["token_forbidden"]
    assert codes(open_ + "requests.HTTPError: 401 Client Error: Unauthorized\n") == ["gated_no_token"]


def test_the_remedy_command_uses_all_known_facts():
    wrapped = LOADING.replace("Starting shard", "Starting Webserver") + (
        "RuntimeError: Not enough memory to handle 8192 prefill tokens. You need to decrease it\n"
    )
    remedy = (
        read(wrapped, GRAMMAR, subject=Subject(facts={"name": "chat", "model": "llama3-8b"})).findings[0].remedy_line
    )
    assert "tgi-deploy up llama3-8b --name chat --set max-batch-prefill-tokens=4096" in remedy
    few = read(
        wrapped.replace("8192", "256"), GRAMMAR, subject=Subject(facts={"more_shards": "4", "model": "m"})
    ).findings[0]
    assert "--num-shard 4" in few.remedy_line
    assert "weights alone" in few.cause
    assert "tgi-deploy up MODEL" in read(wrapped, GRAMMAR).findings[0].remedy_line


def test_info_lines_are_never_evidence_and_warnings_only_after_a_failure():
    warned = LOADING + "2025-09-14T08:21:31.1Z  WARN text_generation_launcher: No space left on device\n"
    assert codes(warned) == []
    assert codes(warned + "Error: ShardCannotStart\n") == ["disk_full"]
    assert codes(warned.replace("WARN", "INFO") + "Error: ShardCannotStart\n") == []


def test_user_text_is_not_evidence():
    spans = 'generate{parameters="CUDA out of memory"}: text_generation_router::server: router/src/server.rs:1: refused'
    assert codes(READY + f"2025-09-14T08:22:30.1Z ERROR {spans}\n") == []
    assert codes(READY + "2025-09-14T08:22:30.1Z DEBUG x: Input: a\ntorch.OutOfMemoryError: CUDA out of memory\n") == []


def test_a_crash_while_serving_stays_reported_after_the_restart():
    crash = "2025-09-14T08:22:30.1Z ERROR text_generation_launcher: CUDA out of memory\nError: ShardFailed\n"
    again = "2025-09-14T08:22:40.1Z  INFO text_generation_launcher: Args { }\n" + READY
    first = read(READY + crash, GRAMMAR).findings[0]
    later = read(READY + crash + again, GRAMMAR).findings[0]
    assert (first.code, later.code) == ("oom_serving", "oom_serving")
    assert later.confidence < first.confidence


def test_a_hang_needs_ten_minutes_several_shards_and_no_progress():
    def waiting(ranks, minutes):
        start = "".join(LOADING.replace("rank=0", f"rank={rank}") for rank in range(ranks))
        line = "2025-09-14T08:{:02d}:30.1Z  INFO x: Waiting for shard to be ready... rank={}\n"
        return start + "".join(line.format(20 + at, rank) for at in range(minutes + 1) for rank in range(ranks))

    assert codes(waiting(2, 12)) == ["nccl_hang"]
    assert codes(waiting(2, 12).removeprefix(LOADING).partition("\n")[2]) == ["nccl_hang"], "the console kept no more"
    assert codes(waiting(2, 9)) == []
    assert codes(waiting(1, 30)) == []
    assert codes(waiting(2, 12) + "2025-09-14T08:40:30.1Z  INFO x: Shard ready in 9s rank=0\n") == []


def test_an_unknown_failure_is_reported_as_failed():
    found = read(LOADING + "AttributeError: 'X' object has no attribute 'y'\nError: ShardCannotStart\n", GRAMMAR)
    assert (found.findings, found.failed) == ((), True)
    assert (found.unexplained.text, found.unexplained.number) == ("AttributeError: 'X' object has no attribute 'y'", 2)


def test_state_reasons_count_after_a_stop():
    stopped = READY + "2025-09-14T08:22:30.1Z  INFO x: signal received, starting graceful shutdown\n"
    assert codes(stopped) == []
    assert codes(stopped + "error: EC2 state reason of the machine: Server.SpotInstanceTermination: x\n") == [
        "spot_reclaimed"
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Nov 21 10:00:00 ip-10-0-0-1 tgi-deploy-engine[123]: hello", "hello"),
        ("2026-11-21T10:00:00+0000 host unit[1]: hello", "hello"),
        ("tgi-deploy-engine[123]: hello", "hello"),
        ("tgi-1  | hello", "hello"),
        ("2026-11-21T10:00:00.118222333Z hello", "hello"),
        ("2026-11-21T10:00:00.1Z stdout F hello", "hello"),
        ("[pod/tgi-0/tgi] hello", "hello"),
        ("[   12.345678] NVRM: Xid", "NVRM: Xid"),
        ('{"log":"hello\\n","stream":"stdout"}', "hello"),
        ('{"log":"{\\"level\\":\\"INFO\\",\\"message\\":\\"hello\\"}\\n"}', "hello"),
        ("^[[31mhello^[[0m", "hello"),
        ("  | 2026-11-21T10:00:00.123Zhello", "hello"),
        ("2026-11-21T10:00:00.1-04:00   2026-11-21T14:00:00.1Z  INFO x: hi", "2026-11-21T14:00:00.1Z  INFO x: hi"),
        ("2026-11-21T10:00:00.1Z ERROR x: hello", "2026-11-21T10:00:00.1Z ERROR x: hello"),
    ],
)
def test_log_forwarder_prefixes_are_stripped(line, message):
    assert [item.text for item in read_lines(line, GRAMMAR)] == [message]


def test_lines_keep_their_number_and_the_level_of_their_record():
    text = "2026-11-21T10:00:00.1Z  INFO x: well\n\n  more of it\ndocker: own words\n"
    assert [(item.number, item.level, item.inherited) for item in read_lines(text, GRAMMAR)] == [
        (1, "INFO", False),
        (3, "INFO", True),
        (4, None, False),
    ]


def test_any_bytes_can_be_read():
    random_ = random.Random(7)  # noqa: S311 -- variety, not secrecy
    for case in EVERY[::27]:
        cut = random_.randrange(len(case.log) + 1)
        read(case.log[cut:], GRAMMAR)
        read(case.log[:cut][::-1], GRAMMAR)


def test_a_failed_request_is_not_the_cause_of_a_crash():
    refused = "2025-09-14T08:22:30.1Z ERROR x: Template error: template not found\n"
    crash = "2025-09-14T08:22:31.1Z ERROR x: torch.OutOfMemoryError: CUDA out of memory\nError: ShardFailed\n"
    assert codes(READY + refused) == ["template_missing"]
    assert codes(READY + refused + crash) == ["oom_serving"]


def test_kernel_lines_about_other_processes_are_ignored():
    killed = "Nov 21 10:00:00 host kernel: Out of memory: Killed process 7 (chrome) total-vm:1kB\n"
    assert codes(LOADING + killed) == []
    assert codes(LOADING + killed + "Error: ShardCannotStart\n") == ["host_oom_killed"]
    assert codes(LOADING + killed.replace("chrome", "text-generation")) == ["host_oom_killed"]


@pytest.mark.parametrize(
    "line",
    [
        "x.service: Main process exited, code=exited, status=143/n/a",
        "tgi exited with code 143",
        "tgi exited with code 0",
    ],
)
def test_a_requested_stop_is_not_a_failure(line):
    assert not read(READY + line + "\n", GRAMMAR).failed


@pytest.mark.parametrize(
    "message", ["Error: ArgumentValidation(x)", "docker: manifest unknown", "Error: ShardCannotStart"]
)
def test_continued_user_text_is_not_evidence(message):
    asked = "2025-09-14T08:22:30.1Z DEBUG x: Input: what is this?\n"
    assert not read(READY + asked + message + "\n", GRAMMAR).failed
    assert codes(asked.replace("DEBUG", "INFO") + "docker: manifest unknown\n") == ["image_not_found"]


def test_a_survived_error_is_forgiven_with_its_traceback():
    warming = LOADING.replace("Starting shard", "Warming up model")
    graphs = "2025-09-14T08:22:30.1Z ERROR x: Decode cuda graph warmup failed\nTraceback (most recent call last):\n"
    assert codes(warming + graphs + "torch.OutOfMemoryError: CUDA out of memory\n") == []


def test_daemons_next_to_the_engine_are_not_evidence():
    line = "Nov 21 10:00:00 host sshd[991]: Connection reset by peer\n"
    assert codes(line) == []
    assert codes(line.replace("sshd", "docker-tgi")) == ["network"]


def test_a_byte_order_mark_is_stripped():
    assert [(item.text, item.level) for item in read_lines("\ufeffERROR x: hello\r\n", GRAMMAR)] == [
        ("ERROR x: hello", "ERROR")
    ]


def test_a_very_long_line_is_judged_by_its_start_and_end():
    filler = "{" + "data:image/png;base64,iVBORw0KGgo " * 20_000
    (line,) = read_lines(f"2025-09-14T08:22:30.1Z ERROR x: begins {filler} ends", GRAMMAR)
    assert len(line.text) < 10_000
    assert line.text.startswith("2025-09-14T08:22:30.1Z ERROR x: begins")
    assert line.text.endswith("ends")
    assert codes(LOADING + f"2025-09-14T08:22:30.1Z ERROR x: {filler} CUDA out of memory\n") == ["oom_load"]


def test_a_long_json_record_is_read_completely():
    frames = "\\n".join('  File \\"/x/module.py\\", line 1747, in call' for _ in range(900))
    message = f"Traceback:\\n{frames}\\ntorch.OutOfMemoryError: CUDA out of memory"
    record = f'{{"level":"ERROR","fields":{{"message":"{message}"}}}}'
    assert len(record) > 30_000
    assert codes(LOADING + record + "\n") == ["oom_load"]


RAISING = (
    "2025-09-14T08:22:30.1Z ERROR x: Error when initializing model\n"
    "Traceback (most recent call last):\n"
    '  File "/x/models/__init__.py", line 360, in get_model\n'
    '    raise ValueError(f"Unsupported model type {model_type}")\n'
)


def test_the_evidence_is_the_exception_message_not_the_source_line():
    found = read(LOADING + RAISING + "ValueError: Unsupported model type parrot\n", GRAMMAR).findings[0]
    assert (found.evidence, found.line) == ("ValueError: Unsupported model type parrot", 6)
    record = (RAISING + "ValueError: Unsupported model type parrot").partition("x: ")[2]
    packed = json.dumps({"level": "ERROR", "fields": {"message": record}})
    assert read(LOADING + packed + "\n", GRAMMAR).findings[0].evidence == "ValueError: Unsupported model type parrot"


@pytest.mark.parametrize("after", ["", "AssertionError\n", "torch.OutOfMemoryError: CUDA out of memory\n"])
def test_a_source_line_counts_if_the_exception_has_no_message(after):
    found = read(LOADING + RAISING + after, GRAMMAR).findings[0]
    assert (found.code, found.line) == ("model_type_unsupported", 5)


@pytest.mark.parametrize(
    ("text", "code", "phase"),
    [
        ("failed to register layer: write /x: no space left on device", "disk_full", "pulling"),
        (
            'docker: Error response from daemon: Get "https://ghcr.io/v2/": i/o timeout TLS handshake timeout',
            "network",
            "pulling",
        ),
        (
            "docker: OCI runtime create failed: x: nvidia-container-cli: ldcache error: y",
            "gpu_not_visible",
            "downloading",
        ),
        (
            "docker: driver failed programming external connectivity: port is already allocated",
            "port_in_use",
            "downloading",
        ),
    ],
)
def test_dockers_messages_show_the_phase(text, code, phase):
    found = read(text + "\n", GRAMMAR).findings[0]
    assert (found.code, found.startup_phase) == (code, phase)


def test_a_line_about_something_else_is_not_evidence():
    refused = "dial tcp {}: connect: connection refused\n"
    assert codes(refused.format("140.82.112.34:443")) == ["network"]
    assert codes("err: Get http://tgi/health: " + refused.format("172.18.0.3:80")) == []
    assert codes(refused.format("127.0.0.1:8080")) == []
    assert codes("lookup ghcr.io on 127.0.0.53:53: " + refused.format("127.0.0.53:53")) == ["network"]


def test_a_multi_line_record_keeps_its_level():
    def spread(level, message):
        record = {"timestamp": "2025-09-14T08:22:30.1Z", "level": level, "fields": {"message": message}}
        return json.dumps(record, indent=4) + "\n"

    assert codes(spread("WARN", "No space left on device")) == []
    assert codes(spread("ERROR", "No space left on device")) == ["disk_full"]
    assert codes(spread("WARN", "No space left on device") + "Error: DownloadError\n") == ["disk_full"]


@pytest.mark.parametrize(
    "why", ["GPU with CUDA capability 7 5 is not supported for Flash Attention V2", "No module named 'x'"]
)
def test_a_gpu_without_flash_attention_is_not_a_missing_gpu(why):
    warned = f"2025-09-14T08:22:30.1Z  WARN x: Could not import Flash Attention enabled models: {why}\n"
    assert "gpu_not_visible" not in codes(LOADING + warned + "AttributeError: x\nError: ShardCannotStart\n")
    cpu = warned.replace(why, "CUDA is not available")
    assert codes(LOADING + cpu + "AttributeError: x\nError: ShardCannotStart\n") == ["gpu_not_visible"]


def test_no_part_of_a_serving_engines_log_is_evidence():
    for name in ("clean-requests-go-wrong", "clean-prompts-echo-errors-json", "clean-neighbours-ask-too-early"):
        log = next(case.log for case in EVERY if case.name == name).splitlines(keepends=True)
        for at in range(len(log)):
            assert codes("".join(log[at:])) == [], (name, at)
            assert codes("".join(log[:at])) == [], (name, at)


@pytest.mark.parametrize(
    "words", ["an Error: Bad", "Webserver Crashed", "Args { ", "[tgi-deploy] error=x", "exited with code 1"]
)
@pytest.mark.parametrize(
    "end",
    [
        "INFO {}: text_generation_router::server: router/src/server.rs:407: Success",
        "ERROR {}: text_generation_router::infer: router/src/infer/mod.rs:102: Input validation error: x",
    ],
)
def test_user_text_neither_starts_nor_stops_an_engine(words, end):
    found = read(READY + "2025-09-14T08:22:30.1Z " + end.format(f'generate{{stop: ["{words}"]}}') + "\n", GRAMMAR)
    assert (found.failed, found.startup_phase, found.starts) == (False, "ready", 1)


def test_user_text_does_not_hide_a_crash():
    asked = 'generate{stop: ["signal received, starting graceful shutdown"]}'
    served = (
        f"2025-09-14T08:22:30.1Z  INFO {asked}: text_generation_router::server: router/src/server.rs:407: Success\n"
    )
    crash = "2025-09-14T08:22:31.1Z ERROR x: torch.OutOfMemoryError: CUDA out of memory\nError: ShardFailed\n"
    assert codes(READY + served + crash) == ["oom_serving"]


def test_an_engines_own_remedy_comes_before_the_one_of_all_engines():
    taken = 'failed to build prometheus recorder: FailedToCreateHTTPListener("Address already in use (os error 98)")'
    assert "--set prometheus-port=" in read(f"{taken}\n", GRAMMAR).findings[0].remedy_line


def test_a_text_without_an_engine_name_uses_the_engine_that_explains_it():
    text = "The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV cache."
    assert wiring.engine_of_log(text) != wiring.engine_named().name
    assert wiring.engine_of_log("an engine that nobody knows\n") == wiring.engine_named().name
