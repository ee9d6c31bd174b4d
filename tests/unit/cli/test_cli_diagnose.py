from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders.logs import GRAMMAR

from tgi_deploy.catalog.phases import read_edits, read_tool_codes
from tgi_deploy.cli.frame import run
from tgi_deploy.cli.main import ROOT
from tgi_deploy.cli.views.diagnosis import explanation_text
from tgi_deploy.diagnosis.reader import read
from tgi_deploy.errors import InputError
from tgi_deploy.operations.results import watching as use_case
from tgi_deploy.operations.watching.diagnose import DeploymentDiagnosis
from tgi_deploy.operations.watching.explain import all_codes, explain
from tgi_deploy.values.resource import MachineState

REPOSITORY = Path(__file__).parents[3]
CASES = REPOSITORY / "tests" / "cases" / "diagnosis"
OOM = str(CASES / "oom-warmup-3x" / "log.txt")


def result(capsys, *args):
    code = run(ROOT, args)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_file_is_diagnosed_as_json(capsys):
    code, out, err = result(capsys, "diagnose", OOM, "--json")
    document = json.loads(out)
    assert (code, err, document["status"]) == (0, "", "ok")
    (finding,) = document["data"]["findings"]
    assert set(finding) == {
        "code",
        "startup_phase",
        "confidence",
        "evidence",
        "line",
        "cause",
        "remedy",
        "commands",
        "distinguish_by",
    }
    assert finding["code"] == "oom_warmup_prefill"
    line = Path(OOM).read_text(encoding="utf-8").splitlines()[finding["line"] - 1]
    assert finding["evidence"] in line
    assert document["data"]["failed"] is True


def test_the_engine_is_read_from_the_log_unless_it_is_named(capsys):
    log = str(REPOSITORY / "tests/cases/engines/vllm/logs/kv_cache_too_small.log")
    by_itself = json.loads(result(capsys, "diagnose", log, "--json")[1])["data"]["findings"]
    named = json.loads(result(capsys, "diagnose", log, "--engine", "vllm", "--json")[1])["data"]["findings"]
    assert [item["code"] for item in by_itself] == ["kv_cache_too_small"]
    assert named == by_itself
    assert "--gpu-memory-utilization" in named[0]["remedy"]
    assert json.loads(result(capsys, "diagnose", log, "--engine", "tgi", "--json")[1])["data"]["findings"] != named


def test_the_engine_of_a_deployment_is_on_record(capsys):
    code, _, err = result(capsys, "diagnose", "chat", "--engine", "vllm")
    assert (code, "error[conflicting_options]" in err) == (2, True)


def test_a_diagnosis_shows_phase_code_line_cause_and_remedy(capsys):
    code, out, _ = result(capsys, "diagnose", OOM)
    assert code == 0
    for part in ("oom_warmup_prefill", "phase warming_up", "line ", "cause: ", "remedy: ", "explain oom_"):
        assert part in out
    assert max(map(len, out.splitlines())) <= 160


@pytest.mark.parametrize(
    ("machine", "last"),
    [
        (MachineState(state="running"), "No failure found in this log."),
        (MachineState(state="missing"), "The machine is gone."),
        (
            MachineState(state="stopped", reason_code="Exited", reason="the container exited with code 0"),
            "The machine is stopped (Exited: the container exited with code 0).",
        ),
    ],
)
def test_a_machine_that_does_not_run_is_reported_whatever_its_log_says(capsys, monkeypatch, tmp_path, machine, last):
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(tmp_path))
    found = DeploymentDiagnosis(reading=read("", GRAMMAR), machine=machine)
    monkeypatch.setattr(use_case, "diagnose_deployment", lambda *_: found)
    code, out, _ = result(capsys, "diagnose", "demo")
    assert (code, out.splitlines()[-1]) == (0, last)


def test_a_clean_log_says_so(capsys):
    code, out, _ = result(capsys, "diagnose", str(CASES / "clean-stopped-by-sigterm" / "log.txt"))
    assert (code, out) == (0, "No failure found in this log.\n")


def test_an_unknown_failure_is_not_called_clean(capsys):
    _, out, _ = result(capsys, "diagnose", str(CASES / "unknown-error" / "log.txt"))
    assert "matches a known cause" in out
    assert "AttributeError" in out


def test_both_causes_of_one_line_are_shown(capsys):
    _, out, _ = result(capsys, "diagnose", str(CASES / "disk-full-hf-transfer-alone" / "log.jsonl"))
    assert "or network" in out
    assert "distinguish by: " in out


def test_standard_input_is_read_without_cloud_libraries():
    script = (
        "import sys; from tgi_deploy.cli.frame import run; from tgi_deploy.cli.main import ROOT\n"
        "code = run(ROOT, ['diagnose', '-', '--json'])\n"
        "heavy = {'boto3', 'botocore', 'docker', 'moto', 'rich', 'tenacity'} & set(sys.modules)\n"
        "sys.exit(code or (70 if heavy else 0))"
    )
    text = "docker: Error response from daemon: manifest unknown\n"
    ran = subprocess.run([sys.executable, "-c", script], input=text, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["data"]["findings"][0]["code"] == "image_not_found"


def test_closed_standard_input_is_bad_input():
    command = [sys.executable, "-m", "tgi_deploy", "diagnose", "-", "--json"]
    ran = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert json.loads(ran.stdout)["errors"][0]["code"] == "no_input"


def test_a_named_pipe_is_read(capsys):
    reader, writer = os.pipe()
    os.write(writer, b"docker: Error response from daemon: manifest unknown\n")
    os.close(writer)
    assert "image_not_found" in result(capsys, "diagnose", f"/dev/fd/{reader}")[1]
    os.close(reader)


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_an_empty_log_is_not_called_clean(capsys, tmp_path, content):
    file = tmp_path / "engine.log"
    file.write_text(content)
    code, out, err = result(capsys, "diagnose", str(file))
    assert (code, out) == (0, "The log is empty.\n")
    assert "warning[empty_log]" in err
    assert "2>&1" in err


def test_line_numbers_count_from_the_start_of_a_long_log(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tgi_deploy.cli.diagnose._MAX_BYTES", 4096)
    log = tmp_path / "long.log"
    log.write_text("all is well\n" * 5000 + "torch.OutOfMemoryError: CUDA out of memory\nbye\n", encoding="utf-8")
    (finding,) = json.loads(result(capsys, "diagnose", str(log), "--json")[1])["data"]["findings"]
    assert finding["line"] == 5001
    log.write_text("all is well\n" * 5000 + "AttributeError: x\nError: ShardCannotStart\n", encoding="utf-8")
    assert json.loads(result(capsys, "diagnose", str(log), "--json")[1])["data"]["unexplained"]["line"] == 5001


def test_a_folder_is_reported_as_a_folder(capsys, tmp_path):
    code, _, err = result(capsys, "diagnose", str(tmp_path))
    assert code == 2
    assert "Is a directory" in err


def test_a_missing_file_is_bad_input(capsys):
    code, _, err = result(capsys, "diagnose", "no/such.log")
    assert code == 2
    assert "error[unreadable_path]" in err


def test_a_binary_file_is_read_anyway(capsys, tmp_path):
    file = tmp_path / "engine.log"
    file.write_bytes(b"\xff\xfe" + "docker: Error response from daemon: manifest unknown\n".encode("utf-16-le"))
    assert "image_not_found" in result(capsys, "diagnose", str(file))[1]
    file.write_bytes(b"\x00\xf0\x9f junk \xc3\n")
    assert result(capsys, "diagnose", str(file))[0] == 0


def test_every_code_is_explained_in_100_columns():
    for item in all_codes("tgi"):
        out = explanation_text(item)
        assert item.code in out
        assert not [line for line in out.splitlines() if re.match(r"  (?!  |https://\S+$).{99}", line)]


def test_explain_shows_the_change_that_heal_makes(capsys):
    fixes = read_edits()
    for item in all_codes("tgi"):
        assert item.plan_edit == next(iter(fixes.get(item.code, ())), ""), item.code
    assert json.loads(result(capsys, "explain", "oom_load", "--json")[1])["data"]["plan_edit"] == "more_shards"
    assert "plan_edit" not in json.loads(result(capsys, "explain", "left_behind", "--json")[1])["data"]


def test_explain_without_a_code_lists_all(capsys):
    _, out, _ = result(capsys, "explain")
    _, listed, _ = result(capsys, "explain", "--json")
    codes = [item["code"] for item in json.loads(listed)["data"]["codes"]]
    assert all(f"{code} " in out for code in codes)
    assert {"oom_load", "memory_weights", "left_behind"} <= set(codes)


def test_a_code_can_be_a_diagnosis_and_a_rejection(capsys):
    found = explain("not_divisible", "tgi")
    assert found.page is not None
    _, out, _ = result(capsys, "explain", "model_type_unsupported")
    assert "This release" in out


def test_a_partial_code_lists_all_matches():
    with pytest.raises(InputError) as caught:
        explain("oom", "tgi")
    assert "did you mean oom_load or " in (caught.value.hint or "")


def test_a_misspelled_code_gets_a_suggestion():
    with pytest.raises(InputError, match="oom_lod") as caught:
        explain("oom_lod", "tgi")
    assert caught.value.code == "unknown_code"
    assert "oom_load" in (caught.value.hint or "")


def test_a_former_code_names_its_replacement():
    with pytest.raises(InputError, match="'not_ready_pulling' is now 'not_ready'") as caught:
        explain("error[not_ready_pulling]", "tgi")
    assert (caught.value.code, caught.value.hint) == ("unknown_code", "run: tgi-deploy explain not_ready")


@pytest.mark.parametrize("pasted", ["OOM_LOAD", " oom_load", "error[oom_load]:", "warning[oom_load]"])
def test_a_pasted_code_is_accepted(pasted):
    assert explain(pasted, "tgi").code == "oom_load"


def test_tool_codes_are_distinct_from_diagnoses():
    source = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "tgi_deploy").rglob("*.py"))
    data = (REPOSITORY / "profiles").rglob("*.json")
    data_text = "".join(path.read_text(encoding="utf-8") for path in data if path.name != "codes.json")
    for item in read_tool_codes():
        quoted = f'"{item["code"]}"'
        assert quoted in source or quoted in data_text, item["code"]


@pytest.mark.slow
def test_runbooks_are_current():
    command = [sys.executable, str(REPOSITORY / "scripts" / "update_runbooks.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
