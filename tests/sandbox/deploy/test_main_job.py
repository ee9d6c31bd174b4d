from __future__ import annotations

import socket

import pytest

UP = ("up", "llama3-13b", "--budget", "5", "--yes")


def test_plan_up_status_and_down_work(program):
    up = program.here(*UP)
    assert up.code == 0, up.out
    data = up.json["data"]
    assert data["deployment"]["phase"] == "ready"
    assert data["endpoint"].startswith("http://127.")
    steps = [step["name"] for step in data["proof"]["steps"]]
    assert steps == ["health", "info", "generate", "stream", "chat", "longest", "together", "repeat"]
    assert [change["action"] for change in data["changes"]] == ["create"] * 3

    again = program.here(*UP)
    assert (again.code, again.json["data"]["changed"]) == (0, False)

    (row,) = program.here("list").json["data"]["deployments"]
    assert (row["name"], row["phase"], row["machine"]) == ("llama3-13b", "ready", "running")

    (found,) = program.here("status", "llama3-13b").json["data"]["deployments"]
    assert (found["healthy"], found["drift"]) == (True, [])

    lines = program.here("logs", "llama3-13b").json["data"]["lines"]
    assert any("phase=starting-engine" in line for line in lines)

    assert program.here("open", "llama3-13b").json["data"]["url"] == data["endpoint"]

    down = program.here("down", "llama3-13b", "--yes")
    assert (down.code, down.json["data"]["removed"]) == (0, ["llama3-13b"])
    assert program.instances() == []

    nothing = program.here("down", "llama3-13b", "--yes")
    assert (nothing.code, nothing.json["data"]["absent"]) == (0, ["llama3-13b"])


def test_nothing_is_spent_or_destroyed_without_an_answer_or_in_a_dry_run(program):
    asked = program.here(*UP[:-1])
    assert (asked.code, asked.json["errors"][0]["code"]) == (2, "confirmation_needed")
    dry = program.here(*UP, "--dry-run")
    assert (dry.code, len(dry.json["data"]["changes"])) == (0, 3), dry.out
    assert program.calls("RunInstances") == program.instances() == []

    result = program.run(*UP, "--no-wait", "--sandbox")
    assert result.out.startswith("llama3-13b is running at http://127."), "only the result goes to stdout"
    assert "creat" not in result.out
    assert "created instance" in result.err
    assert "$1.0218 an hour" in result.err

    assert program.here(*UP[:-1], "--no-wait").code == 0, "there is nothing to do"
    asked = program.here("down", "llama3-13b")
    assert (asked.code, asked.json["errors"][0]["code"]) == (2, "confirmation_needed")
    assert program.here("down", "llama3-13b", "--dry-run").json["data"]["removed"] == []
    assert len(program.instances()) == 1


def test_a_gated_model_needs_no_token(program, monkeypatch):
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    result = program.here("up", "llama3-8b", "--budget", "3", "--yes", "--ready", "fast")
    assert result.code == 0, result.out


def test_without_capacity_in_a_zone_the_next_is_tried(program):
    program.fault(name="capacity")
    assert program.here(*UP, "--no-wait").code == 0
    zones = [call["params"]["Placement.AvailabilityZone"] for call in program.calls("RunInstances")]
    assert zones == ["us-east-1a", "us-east-1b"]


def test_a_lost_reply_creates_one_machine(program):
    program.fault(name="lost-reply")
    assert program.here(*UP, "--no-wait").code == 0
    assert program.here("down", "--all", "--yes").code == 0
    assert program.instances() == []


def test_another_spec_under_the_name_is_an_update_that_can_be_rolled_back(program):
    program.here(*UP)
    result = program.here(*UP, "--num-shard", "2")
    assert result.code == 0
    changes = {item["what"]: (item["before"], item["after"]) for item in result.json["data"]["update"]["changes"]}
    assert changes["shards"] == ("1", "2")
    assert result.json["data"]["deployment"]["revision"] == 2
    dry = program.here("rollback", "llama3-13b", "--dry-run").json["data"]
    assert (dry["changed"], dry["update"]["source"], dry["update"]["destination"]) == (False, 2, 3)
    assert len(program.calls("TerminateInstances")) == 1
    result = program.here("rollback", "llama3-13b", "--yes")
    assert result.code == 0
    assert [item["state"] for item in result.json["data"]["deployment"]["revisions"]] == [
        "retired",
        "retired",
        "serving",
    ]
    assert result.json["data"]["deployment"]["chosen"]["num_shard"] == 1
    assert [item["machine"] for item in program.instances()] == ["running"]
    assert len(program.calls("TerminateInstances")) == 2


@pytest.mark.parametrize(
    ("strategy", "serves", "number"),
    [("rolling", "revision 1 still serves at", 1), ("recreate", "revision 1 was restored as revision 3", 3)],
)
def test_a_failed_update_restores_the_old_revision(program, strategy, serves, number):
    program.here(*UP)
    program.fault(name="engine", engine="oom-warmup", times=1)
    result = program.here(*UP, "--num-shard", "2", "--strategy", strategy)
    assert result.code == 5
    (error,) = result.json["errors"]
    assert serves in error["hint"]
    (status,) = program.here("status", "llama3-13b").json["data"]["deployments"]
    assert (status["healthy"], status["recorded"]["revision"], status["recorded"]["rollout"]) == (True, number, None)


def test_an_unreachable_cloud_is_one_line(program, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    result = program.run(*UP, "--no-wait", "--allow-cidr", "127.0.0.1/32", "--json")
    assert (result.code, result.json["errors"][0]["code"]) == (1, "cloud_unreachable")
    result = program.run("list", "--json")
    assert (result.code, result.json["warnings"][0]["code"]) == (0, "cloud_unreachable")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--hub-token-parameter", "/hf/token"), "instance_profile_missing"),
        (("--ami", "ami-0;x"), "no_machine_image"),
        (("--subnet", "subnet-0"), "unknown_subnet"),
    ],
)
def test_options_that_the_cloud_cannot_meet_are_errors(program, words, code):
    result = program.here(*UP, "--no-wait", *words)
    assert (result.code, result.json["errors"][0]["code"]) == (2, code)
    assert result.json["errors"][0]["message"]
    assert result.json["errors"][0]["hint"]
    assert program.calls("CreateSecurityGroup") + program.calls("RunInstances") == []


def test_only_named_networks_may_connect(program):
    named = ("2001:db8::/32", "10.0.0.0/8")
    words = [word for cidr in ("2001:0DB8::/32", "10.0.0.0/8") for word in ("--allow-cidr", cidr)]
    program.here(*UP, "--no-wait", "--expose-to-world", *words)
    given = "".join(str(call["params"]) for call in program.calls("AuthorizeSecurityGroupIngress"))
    assert all(cidr in given for cidr in named)
    assert "0.0.0.0/0" not in given


def test_no_secret_or_key_is_in_the_record(program, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_plantedplantedplanted")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "plantedplanted")
    assert program.here(*UP, "--no-wait").code == 0
    records = [path for path in (program.home / "sandbox" / "records").rglob("*") if path.is_file()]
    assert {"deployment.json", "events.jsonl"} <= {path.name for path in records}
    for path in records:
        assert "planted" not in path.read_text(encoding="utf-8"), path
