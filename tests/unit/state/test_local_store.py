from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import stat
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from builders import records
from fakes.computer import plan

from tgi_deploy.errors import ConflictError, DeployError, InputError
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.state import codec, lock
from tgi_deploy.state.local import LocalStore
from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Event, ResourceRecord
from tgi_deploy.values.ends import Ends

NOW = datetime(2026, 1, 9, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "state")


def deployment(**changes):
    record = ResourceRecord(
        key="instance",
        kind="instance",
        place="us-east-1",
        state="created",
        spec="s",
        request_number=2,
        attributes={"id": "i-1"},
        notes={"pool": "p"},
        is_machine=True,
    )
    values = {
        "plan": plan_document(plan()),
        "usd_per_hour": Decimal("1.8768"),
        "resources": (record,),
        "endpoint": "http://127.0.0.1:8080",
        "ends": Ends(ttl_s=3600, expires_at=NOW),
        "request_number": 2,
    }
    return records.deployment(**(values | changes))


def path_of(store):
    return store.home / "deployments" / "demo" / "deployment.json"


def test_a_saved_record_reads_back(store):
    saved = store.save(deployment(), expected_serial=0)
    assert saved.serial == 1
    assert store.load("demo") == saved == replaced(deployment(), serial=1)


def test_optional_values_may_be_missing(store):
    saved = store.save(deployment(endpoint=None, usd_per_hour=None, ends=Ends()), expected_serial=0)
    assert store.load("demo") == saved


FIRST_RELEASE = Path(__file__).parents[2] / "cases" / "records" / "first-release-ec2"


def first_release(**changes):
    return json.loads((FIRST_RELEASE / "deployment.json").read_text()) | changes


def test_a_record_of_the_first_release_is_read_as_one_revision():
    found = codec.decode((FIRST_RELEASE / "deployment.json").read_text())
    assert (found.status, found.active, found.region, found.schema) == ("ready", 1, "us-east-1", 2)
    assert (found.revision.origin, found.revision.state, found.revision.spec) == ("schema-1", "serving", None)
    assert found.usd_per_hour == Decimal("1.8768")
    assert found.plan.chosen.instance_type == "g6e.xlarge"
    assert found.plan.requirements.budget_usd_per_hour == 5
    assert (found.ends.ttl_s, found.ends.idle_s, found.ends.lease_s) == (14400, 7200, 3600)
    assert found.ends.expires_at == datetime(2026, 11, 23, 2, 12, 2, tzinfo=UTC)
    assert (found.machine.key, found.machine.state, found.request_number) == ("instance@1.1", "created", 3)


def test_a_first_release_record_is_written_in_the_current_schema():
    found = codec.decode((FIRST_RELEASE / "deployment.json").read_text())
    assert codec.decode(codec.encode(found)) == found
    assert not {"wish", "plan", "usd_per_hour", "ttl_s", "attempt"} & json.loads(codec.encode(found)).keys()


def test_former_names_of_plan_fields_are_read_in_records_of_any_schema():
    found = codec.decode((FIRST_RELEASE / "deployment.json").read_text())
    text = codec.encode(found)
    assert {item.more_expensive for item in found.plan.breakeven} == {"chosen", "fallback"}
    assert codec.decode(text.replace("more_expensive", "dearer")) == found
    assert codec.decode(text.replace("catalog_date", "catalogue_date")) == found


def test_first_release_events_mark_the_machine():
    lines = (FIRST_RELEASE / "events.jsonl").read_text().splitlines()
    events = [codec.decode_event(line) for line in lines]
    assert [event.data["kind"] for event in events if event.data.get("is_machine")] == ["instance"]


def test_the_oldest_records_lack_later_fields():
    later = ("idle_s", "lease_s", "lease_until", "owner", "plaintext", "spent_usd", "given_up")
    document = {name: value for name, value in first_release().items() if name not in later}
    found = codec.decode(json.dumps(document))
    assert (found.owner, found.plaintext, found.given_up) == ("", False, False)
    assert found.ends.idle_s is None


def test_an_empty_plan_means_none():
    found = codec.decode(json.dumps(first_release(plan={}, phase="creating")))
    assert (found.plan, found.revision.state) == (None, "pending")


@pytest.mark.parametrize(
    ("change", "says"),
    [({"phase": "dancing"}, "phase"), ({"plan": {"chosen": 1}}, "plan"), ({"usd_per_hour": "NaN"}, "amount")],
)
def test_a_damaged_first_release_record_names_the_problem(change, says):
    with pytest.raises(ValueError, match=says):
        codec.decode(json.dumps(first_release(**change)))


@pytest.mark.parametrize(
    ("resource", "marks"),
    [
        ({"notes": {"api_key_parameter": "/k"}}, {"extras": {"api_key": True, "external_ttl": False}}),
        ({"kind": "schedule"}, {"extras": {"api_key": False, "external_ttl": True}}),
        ({}, {}),
    ],
)
def test_first_release_options_are_derived_from_resources(resource, marks):
    document = first_release()
    document["resources"][0] |= resource
    assert codec.decode(json.dumps(document)).revision.marks == marks


def test_a_stale_writer_is_refused_and_changes_nothing(store):
    first = store.save(deployment(), expected_serial=0)
    second = store.save(first, expected_serial=1)
    with pytest.raises(ConflictError) as caught:
        store.save(replaced(first, status="failed"), expected_serial=1)
    assert caught.value.code == "stale_record"
    assert store.load("demo") == second


def test_a_failed_write_leaves_the_old_record_and_no_other_file(store, monkeypatch):
    saved = store.save(deployment(), expected_serial=0)

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DeployError) as caught:
        store.save(saved, expected_serial=1)
    assert caught.value.code == "state_unusable"
    assert "No space left" in caught.value.message
    assert store.load("demo") == saved
    assert [path.name for path in path_of(store).parent.iterdir()] == ["deployment.json"]


def test_files_are_private(store):
    store.save(deployment(), expected_serial=0)
    store.append_event(Event(at=NOW, deployment="demo", code="x", text="y"))
    files = list(path_of(store).parent.iterdir())
    assert {"deployment.json", "events.jsonl"} <= {path.name for path in files}
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"{}", "schema"),
        (b'{"schema": 0}', "never existed"),
        (b'{"schema": 1}', "missing"),
    ],
)
def test_a_corrupt_record_is_named_and_kept(store, content, says):
    path = path_of(store)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        store.load("demo")
    assert caught.value.code == "corrupt_record"
    assert str(path) in caught.value.message
    assert says in caught.value.message
    with pytest.raises(InputError, match=re.escape(says)):
        store.save(deployment(), expected_serial=0)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status", "dancing"),
        ("name", 7),
        ("name", "another"),
        ("created_at", "yesterday"),
        ("created_at", "2026-01-09T00:00:00"),
        ("ends", {"expires_at": "2026-01-09T00:00:00"}),
        ("ends", {"lease_until": 5}),
        ("ends", {"spent_before_usd": "much"}),
        ("ends", {"spent_before_usd": "NaN"}),
        ("ends", {"ttl_s": "1h"}),
        ("ends", {"lease_s": "x"}),
        ("ends", {"idle_s": [1]}),
        ("plaintext", "true"),
        ("endpoint", 5),
        ("shoe_size", 7),
        ("resources", [{}]),
        ("ends", {"ttl_s": 10**12}),
        ("created_at", "0001-01-01T00:00:00+00:00"),
        ("ends", {"spent_before_usd": "1E+999999"}),
        ("revisions", [{"number": 1}]),
    ],
)
def test_a_wrong_value_is_a_corrupt_record(store, key, value):
    store.save(deployment(), expected_serial=0)
    document = json.loads(path_of(store).read_text()) | {key: value}
    path_of(store).write_text(json.dumps(document))
    with pytest.raises(InputError) as caught:
        store.load("demo")
    assert caught.value.code == "corrupt_record"


@pytest.mark.parametrize("given", [True, False])
def test_plaintext_consent_is_stored_and_off_by_default(store, given):
    store.save(deployment(plaintext=given), expected_serial=0)
    assert store.load("demo").plaintext is given
    document = json.loads(path_of(store).read_text())
    del document["plaintext"]
    path_of(store).write_text(json.dumps(document))
    assert store.load("demo").plaintext is False


def test_a_newer_schema_is_rejected(store):
    store.save(deployment(), expected_serial=0)
    text = path_of(store).read_text().replace('"schema": 2', '"schema": 99')
    path_of(store).write_text(text)
    with pytest.raises(InputError, match="schema 99") as caught:
        store.load("demo")
    assert caught.value.code == "record_from_newer_version"
    with pytest.raises(InputError):
        store.save(deployment(), expected_serial=1)
    assert path_of(store).read_text() == text


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "A", "x" * 100, "a b"])
def test_names_cannot_be_paths(store, name):
    with pytest.raises(InputError) as caught:
        store.load(name)
    assert caught.value.code == "bad_name"


def test_names_lists_only_recorded_deployments(store):
    assert store.names() == ()
    store.save(deployment(name="beta"), expected_serial=0)
    store.save(deployment(name="alpha"), expected_serial=0)
    (store.home / "deployments" / "empty").mkdir()
    assert store.names() == ("alpha", "beta")


def test_events_are_stored_as_lines(store):
    for code in ("created", "deleted"):
        store.append_event(Event(at=NOW, deployment="demo", code=code, text="t", step="instance", data={"n": 1}))
    lines = (path_of(store).parent / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["code"] for line in lines] == ["created", "deleted"]


def test_artifacts_stay_in_their_folder(store):
    store.save_artifact("demo", "../../evil.sh", "x")
    assert (path_of(store).parent / "artifacts" / "evil.sh").read_text() == "x"


def test_removing_deletes_everything(store):
    store.save(deployment(), expected_serial=0)
    store.save_artifact("demo", "user-data.yaml", "x")
    store.remove("demo")
    store.remove("demo")
    assert store.load("demo") is None
    assert not path_of(store).parent.exists()


def test_the_lock_names_its_holder(store):
    with (
        store.lock("demo", command="tgi-deploy up x"),
        pytest.raises(ConflictError) as caught,
        store.lock("demo", command="me"),
    ):
        pass
    assert caught.value.code == "locked"
    assert "'tgi-deploy up x'" in caught.value.message
    assert str(os.getpid()) in caught.value.message


def test_a_waiting_process_waits_for_the_holders_name(store, monkeypatch):
    """One that died left its signature; who has the lock now signs while we look."""
    path = path_of(store).parent / "lock"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"pid": dead.pid, "host": socket.gethostname(), "command": "a dead one"}))
    looks = []

    def sign(_seconds):
        looks.append(path.read_text())
        path.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "command": "tgi-deploy up x"}))

    monkeypatch.setattr(lock.time, "sleep", sign)
    with path.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConflictError) as caught, store.lock("demo", command="me"):
            pass
    assert len(looks) == 1
    assert "'tgi-deploy up x'" in caught.value.message


def test_a_holder_without_a_name_is_another_process(store, monkeypatch):
    monkeypatch.setattr(lock, "SIGNATURE_S", 0.0)
    path = path_of(store).parent / "lock"
    path.parent.mkdir(parents=True)
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with (
            pytest.raises(ConflictError, match="is being changed by another process"),
            store.lock("demo", command="me"),
        ):
            pass


def test_a_lock_released_during_the_check_is_acquired(store, monkeypatch):
    path = path_of(store).parent / "lock"
    path.parent.mkdir(parents=True)
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        monkeypatch.setattr(lock.time, "sleep", lambda _seconds: fcntl.flock(held, fcntl.LOCK_UN))
        with store.lock("demo", command="me"):
            assert json.loads(path.read_text())["command"] == "me"


def test_releasing_a_lock_removes_the_holders_name(store):
    store.save(deployment(), expected_serial=0)
    with store.lock("demo", command="c"):
        assert (path_of(store).parent / "lock").read_text()
    assert (path_of(store).parent / "lock").read_text() == ""


def test_a_lock_without_a_record_leaves_no_file(store):
    with store.lock("demo", command="c"):
        pass
    assert not path_of(store).parent.exists()


def test_a_released_lock_can_be_acquired_again(store):
    store.save(deployment(), expected_serial=0)
    for _ in range(2):
        with store.lock("demo", command="c"):
            store.save(store.load("demo"), expected_serial=store.load("demo").serial)
    assert store.load("demo").serial == 3


def test_a_lock_is_released_when_its_holder_is_killed(store):
    program = (
        "import sys,os;from pathlib import Path;from tgi_deploy.state.local import LocalStore\n"
        "with LocalStore(Path(sys.argv[1])).lock('demo', command='c'): os._exit(9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(store.home)], check=False)
    assert killed.returncode == 9
    with store.lock("demo", command="me"):
        pass


def test_one_of_two_processes_gets_the_lock(store):
    program = (
        "import sys;from pathlib import Path;from tgi_deploy.errors import ConflictError\n"
        "from tgi_deploy.state.local import LocalStore\n"
        "try:\n"
        "    with LocalStore(Path(sys.argv[1])).lock('demo', command='c'): print('got it')\n"
        "except ConflictError as error: print(error.code)"
    )
    with store.lock("demo", command="me"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(store.home)], check=True, capture_output=True, text=True
        )
    assert done.stdout.strip() == "locked"


def test_an_unusable_home_is_a_one_line_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DeployError) as caught:
        LocalStore(tmp_path / "file").save(deployment(), expected_serial=0)
    assert caught.value.code == "state_unusable"


def test_records_have_no_field_for_secrets():
    text = codec.encode(deployment(plan=None)).lower()
    assert not any(word in text for word in ("token", "secret", "password", "api_key"))


def test_values_that_a_record_cannot_store_are_a_defect():
    with pytest.raises(TypeError):
        codec.encode(deployment(owner=object()))
