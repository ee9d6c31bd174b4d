from __future__ import annotations

import shlex

import pytest
from builders.logs import GRAMMAR
from fakes.computer import FakeComputer, on, plan, request

from tgi_deploy.cli.views.deployment import removals_text
from tgi_deploy.cli.views.status import status_text
from tgi_deploy.diagnosis.lines import redacted
from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.watching.access import access
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.logs import logs
from tgi_deploy.operations.watching.status import status
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.targets.ec2.pools import MEMORY_S, PoolMemory
from tgi_deploy.values.base import replaced


@pytest.fixture
def around(tmp_path):
    made = FakeComputer(home=tmp_path)
    up(made.context(), request())
    return made


def codes(found):
    return [(item.data["key"], item.code) for item in found.drift]


def test_status_of_a_deployment_that_matches_its_record(around):
    found = status(around.context(), "demo")
    assert found.healthy
    assert found.drift == ()
    assert found.machine.state == "running"


def test_status_of_an_engine_that_does_not_answer(around):
    around.probe = Probe(outcome="refused")
    assert not status(around.context(), "demo").healthy


def test_status_shows_a_machine_terminated_by_others(around):
    (machine,) = around.world.running()
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    found = status(around.context(), "demo")
    assert codes(found) == [("instance@1.1", "resource_missing")]
    assert found.probe is None


def test_status_shows_unrecorded_resources(around):
    around.store.remove("demo")
    found = status(around.context(), "demo")
    assert codes(found) == [(key, "unrecorded") for key in ("security-group", "launch-template@1", "instance@1.1")]
    assert found.recorded is None


def test_status_shows_an_unfinished_creation(around):
    record = around.store.load("demo")
    intent = replaced(record.machine, state="intent", attributes={})
    around.store.save(record.with_record(intent), expected_serial=record.serial)
    assert ("instance@1.1", "unsettled") in codes(status(around.context(), "demo"))


def test_status_changes_nothing(around):
    before = around.store.load("demo"), len(around.world.things)
    around.world.calls.clear()
    status(around.context(), "demo")
    assert (around.store.load("demo"), len(around.world.things)) == before
    assert not any(name.startswith(("create", "delete")) for name, _ in around.world.calls)


@pytest.mark.parametrize("look", [status, logs, access])
def test_an_unknown_name_is_an_input_error_with_a_guess(around, look):
    with pytest.raises(InputError) as caught:
        look(around.context(), "demos")
    assert caught.value.code == "unknown_deployment"
    assert "did you mean demo?" in caught.value.hint


def test_list_shows_recorded_and_tagged_deployments(around):
    up(around.context(), request(name="lost"))
    around.store.remove("lost")
    rows = {row.name: row for row in list_deployments(around.context()).rows}
    assert (rows["demo"].recorded, rows["demo"].machine) == (True, "running")
    assert (rows["lost"].recorded, rows["lost"].phase, rows["lost"].machine) == (False, "unrecorded", "running")


def test_list_searches_recorded_regions(around):
    up(around.context(), request(plan(chosen=on("g6.xlarge", region="eu-west-1")), name="far"))
    rows = {row.name: row for row in list_deployments(around.context()).rows}
    assert (rows["far"].machine, rows["far"].missing) == ("running", False)


def test_list_finds_a_recorded_machine_without_tags(around):
    (machine,) = around.world.running()
    around.world.things[machine.id] = replaced(machine, tags={})
    (row,) = list_deployments(around.context()).rows
    assert (row.machine, row.missing) == ("running", False)


def test_list_without_a_cloud_shows_records_and_warns(around):
    def no_cloud(_region):
        raise DeployError("no_credentials", "there are none")

    listing = list_deployments(around.context(cloud=no_cloud))
    assert [row.name for row in listing.rows] == ["demo"]
    assert listing.rows[0].machine is None
    assert [item.code for item in listing.warnings] == ["no_credentials"]


def test_list_with_a_corrupt_record_shows_the_others_and_warns(around):
    bad = around.home / "deployments" / "bad"
    bad.mkdir()
    (bad / "deployment.json").write_text("{")
    listing = list_deployments(around.context())
    assert [row.name for row in listing.rows] == ["demo"]
    assert [item.code for item in listing.warnings] == ["corrupt_record"]


def test_logs_show_the_console_without_secrets(around):
    text = logs(around.context(), "demo")
    assert "phase=booting" in text
    assert "planted" not in text
    assert "hf_abcdefghijkl" not in text
    assert len(logs(around.context(), "demo", tail=1).splitlines()) == 1


@pytest.mark.parametrize(
    "line",
    ["run --api-key SECRET now", "--hf-token=SECRET", "API_KEY=SECRET", "HF_TOKEN: SECRET", 'api_key: Some( "SECRET")'],
)
def test_secrets_are_hidden_anywhere_in_a_line(line):
    shown = redacted(line, GRAMMAR)
    assert "SECRET" not in shown
    assert "***" in shown


def test_access_is_ready_to_paste(around):
    found = access(around.context(), "demo")
    assert found.url == "http://127.0.0.1:8080"
    assert shlex.split(found.curl)[:3] == ["curl", "-s", "http://127.0.0.1:8080/generate"]
    assert (found.tunnel, found.unencrypted) == ("", None)
    compile(found.python, "line", "exec")


def test_access_without_an_endpoint_is_an_error(around):
    record = around.store.load("demo")
    around.store.save(replaced(record, endpoint=None), expected_serial=record.serial)
    with pytest.raises(DeployError) as caught:
        access(around.context(), "demo")
    assert caught.value.code == "no_endpoint"


def test_a_failed_pool_is_forgotten_after_some_minutes(around):
    pools = PoolMemory(around.clock)
    pools.failed("p", "full")
    assert pools.is_out("p")
    assert not pools.is_out("q")
    around.clock.sleep(MEMORY_S)
    assert not pools.is_out("p")
    assert pools.why() == (("p", "full"),)


def test_the_owner_is_shown_by_every_read_only_command(around):
    (row,) = list_deployments(around.context()).rows
    assert row.owners == ("ann@laptop",)
    assert "  owner     ann@laptop" in status_text(status(around.context(), "demo"))
    (removal,) = down(around.context(), ["demo"], lambda _removals: False).removals
    assert removals_text([removal]).splitlines()[0].endswith("created by ann@laptop")
