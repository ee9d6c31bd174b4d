"""A computer without the record: tags replace it where possible, and a missing record never causes a launch."""

from __future__ import annotations

import shlex
from datetime import timedelta

import click
import pytest
from fakes.computer import FakeComputer, plan, request

from tgi_deploy.cli.views.status import rows_text
from tgi_deploy.cli.views.status import status_text as coloured
from tgi_deploy.errors import DeployError, InputError, NotHealthyError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.service import prove_known
from tgi_deploy.operations.deploying.smoke import deployed, prove_all
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.results.watching import status_data
from tgi_deploy.operations.watching.access import access
from tgi_deploy.operations.watching.diagnose import diagnose_deployment
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.logs import logs
from tgi_deploy.operations.watching.lookup import known
from tgi_deploy.operations.watching.status import not_serving, status, statuses
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.targets.ec2.options import Ec2Options
from tgi_deploy.values.base import plain, replaced
from tgi_deploy.values.ends import WantedEnds

HOUR = WantedEnds(ttl_s=3600, idle_s=1800, lease_s=900)


@pytest.fixture
def first(tmp_path):
    made = FakeComputer(home=tmp_path / "first")
    up(made.context(), request(wait=True, ends=HOUR))
    return made


@pytest.fixture
def second(first, tmp_path):
    """Another computer, and another person, with the same cloud."""
    return FakeComputer(home=tmp_path / "second", world=first.world, clock=first.clock, owner="bob@desk")


def text_of(found):
    return click.unstyle(coloured(found))


def tagged(around, **tags):
    """Somebody changes the tags of the machine."""
    (machine,) = around.world.running()
    changed = {f"tgi-deploy:{name.replace('_', '-')}": value for name, value in tags.items()}
    around.world.things[machine.id] = replaced(machine, tags={**machine.tags, **changed})


def test_status_has_the_url_the_model_the_limits_and_the_price(first, second):
    there, here = status(first.context(), "demo"), status(second.context(), "demo")
    assert here.recorded is None
    assert here.healthy
    assert (here.url, here.ends) == (there.url, there.ends)
    assert [end.reason for end in here.ends] == ["lease", "ttl", "idle"]
    text = text_of(here)
    assert "  runs      example-org/example-13b on g6e.xlarge, on-demand" in text
    assert "  endpoint  http://127.0.0.1:8080  answered 200" in text
    assert next(line for line in text.splitlines() if "cost" in line).split()[1].startswith("$")


def test_status_has_the_same_replicas_on_both_computers(first, second):
    first.clock.sleep(120)
    here, there = (plain(status_data(status(around.context(), "demo"))) for around in (second, first))
    assert here["replicas"] == there["replicas"]
    (replica,) = here["replicas"]
    assert replica.keys() == {"id", "revision", "location", "status", "age_s", "usd_per_hour"}
    assert (replica["location"], replica["status"], replica["revision"]) == ("us-east-1", "ready", 1)
    assert replica["age_s"] >= 120
    assert here["url"] == "http://127.0.0.1:8080"


def test_an_unresponsive_engine_is_a_failure(first, second):
    second.probe = Probe(outcome="timeout")
    problem = not_serving(status(second.context(), "demo"))
    assert (problem.code, problem.exit_code) == ("not_answering", 5)
    assert "tgi-deploy diagnose demo" in problem.hint


def test_the_last_proof_is_shown_if_known(first):
    first.probe = Probe(outcome="refused")
    assert "it was last verified at 2026-01-09" in not_serving(status(first.context(), "demo")).message


def test_a_missing_machine_is_a_failure(first):
    (machine,) = first.world.running()
    first.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    first.clock.sleep(3600)
    assert not_serving(status(first.context(), "demo")).code == "machine_missing"


def test_a_serving_deployment_is_a_success(first, second):
    assert not_serving(status(second.context(), "demo")) is None


def test_the_list_is_the_same_except_for_the_record(first, second):
    (there,), (here,) = (list_deployments(around.context()).rows for around in (first, second))
    same = ("now", "model", "instance_type", "region", "endpoint", "usd_per_hour", "expires")
    assert [getattr(here, name) for name in same] == [getattr(there, name) for name in same]
    assert (here.recorded, here.now) == (False, "ready")
    assert "ready, no record  example-13b" in rows_text([here])


def test_list_probes_the_endpoint(first):
    first.probe = Probe(outcome="timeout")
    (row,) = list_deployments(first.context()).rows
    assert (row.phase, row.now, row.probe.outcome) == ("ready", "not responding", "timeout")


def test_list_warns_about_unreachable_locations(first):
    def no_cloud(_region):
        raise DeployError("no_credentials", "there are none")

    listing = list_deployments(first.context(cloud=no_cloud))
    assert [row.now for row in listing.rows] == ["ready"]
    assert "us-east-1 could not be searched" in listing.warnings[0].message
    first.probe = Probe(outcome="timeout")
    (row,) = list_deployments(first.context(cloud=no_cloud)).rows
    assert (row.now, row.missing) == ("unknown", False)


def test_open_prints_the_same_as_on_the_first_computer(first, second):
    assert access(second.context(), "demo") == access(first.context(), "demo")


def test_open_names_the_variable_with_the_key(first, second):
    tagged(first, api_key_variable="TEAM_KEY")
    found = access(second.context(), "demo")
    assert '-H "Authorization: Bearer $TEAM_KEY"' in found.curl
    assert "TEAM_KEY" in found.python


def test_open_names_tags_that_earlier_versions_lack(first, second):
    tagged(first, port="")
    with pytest.raises(DeployError) as caught:
        access(second.context(), "demo")
    assert caught.value.code == "no_endpoint"
    assert "from an earlier version" in caught.value.message


def test_open_prints_no_address_for_a_stopped_machine(first, second):
    (machine,) = first.world.running()
    first.world.things[machine.id] = replaced(machine, state="stopped", alive=False)
    with pytest.raises(DeployError) as caught:
        access(second.context(), "demo")
    assert caught.value.code == "no_endpoint"
    assert not_serving(status(second.context(), "demo")).exit_code == 5


def test_open_of_an_unknown_name_is_an_input_error(second):
    with pytest.raises(InputError) as caught:
        access(second.context(), "demos")
    assert caught.value.code == "unknown_deployment"


@pytest.mark.parametrize("model", ["a`id`", "x;id", "$(id)", "\x1b]0;x\x07"])
def test_hostile_tags_reach_neither_commands_nor_the_terminal(first, second, model):
    tagged(first, model=model, api_key_variable="X;id")
    found = status(second.context(), "demo")
    assert model not in text_of(found)
    with pytest.raises(DeployError):
        access(second.context(), "demo")


def test_an_unknown_engine_does_not_break_the_list(first, second):
    tagged(first, engine="another")
    listing = list_deployments(second.context())
    assert [(row.name, row.now) for row in listing.rows] == [("demo", "unknown")]
    assert [item.code for item in listing.warnings] == ["unknown_engine"]


def test_a_model_name_with_a_space_is_quoted(first, second):
    tagged(first, model="/models/my model")
    assert len(shlex.split(access(second.context(), "demo").curl)) == 7


def test_logs_and_diagnosis_need_no_record(first, second):
    assert logs(second.context(), "demo") == logs(first.context(), "demo")
    assert diagnose_deployment(second.context(), "demo").machine.state == "running"


def test_smoke_proves_the_running_engine_and_launches_nothing(first, second):
    context = second.context()
    assert deployed(context, ["demo", "example-13b", "example-org/example-13b"]) == ("demo",)
    first.world.creations.clear()
    (proved,) = prove_all(context, ["demo"], "fast", lambda _release: ())
    assert proved.smoked.exit_code == 0
    assert first.world.creations == []
    assert second.store.names() == ()


def test_smoke_proves_the_promises_in_the_tags(first, second):
    tagged(first, max_tokens="4095/4096")
    with pytest.raises(NotHealthyError) as caught:
        prove_known(second.context(), known(second.context(), "demo"), "fast")
    assert caught.value.code == "limits_differ"


def test_smoke_without_promises_in_the_tags_is_an_error(first, second):
    tagged(first, promise="")
    with pytest.raises(DeployError) as caught:
        prove_known(second.context(), known(second.context(), "demo"), "fast")
    assert caught.value.code == "no_plan_recorded"


def test_changed_limits_are_visible_on_the_first_computer(first, second):
    found = extend(second.context(), "demo", WantedEnds(ttl_s=7200))
    assert found.ends == status(first.context(), "demo").ends
    until = next(end.at for end in found.ends if end.reason == "ttl")
    assert until == first.clock.now().replace(microsecond=0) + timedelta(seconds=7200)


def test_down_without_the_record_leaves_nothing(first, second):
    outcome = down(second.context(), ["demo"], lambda _removals: True)
    assert outcome.removed == ("demo",)
    assert first.world.left() == []


def test_the_same_up_restores_a_lost_record(first, tmp_path):
    other = FakeComputer(home=tmp_path / "restored", world=first.world, clock=first.clock)
    first.clock.sleep(3600)
    made = len(first.world.creations)
    up(other.context(), request(wait=True, ends=HOUR))
    assert len(first.world.creations) == made
    there, here = (status(around.context(), "demo") for around in (first, other))
    assert here.recorded.status == "ready"
    assert here.drift == ()
    assert (here.url, here.ends, here.replicas) == (there.url, there.ends, there.replicas)


def test_a_key_is_sent_unencrypted_only_with_consent(tmp_path):
    first = FakeComputer(home=tmp_path / "first")
    options = Ec2Options(api_key_from_env="KEY", plaintext=True)
    up(first.context(), request(plan(), options=options, environ={"KEY": "made-up-key-0123456789"}))
    second = FakeComputer(home=tmp_path / "second", world=first.world, clock=first.clock)
    (machine,) = first.world.running()
    address = {**machine.attributes, "address": "52.0.0.9"}
    first.world.things[machine.id] = replaced(machine, attributes=address)
    assert known(second.context(), "demo").plaintext
    tagged(first, plaintext="")
    with pytest.raises(InputError) as caught:
        prove_known(second.context(), known(second.context(), "demo"), "fast")
    assert caught.value.code == "plaintext_key"


def test_both_machines_of_an_update_are_replicas(first, second):
    (machine,) = first.world.running()
    other = {**machine.attributes, "id": "instance-9"}
    tags = {**machine.tags, "tgi-deploy:key": "instance@2.1", "tgi-deploy:usd-per-hour": "3.5"}
    first.world.things["instance-9"] = replaced(machine, key="instance@2.1", attributes=other, tags=tags)
    found = status(second.context(), "demo").replicas
    assert {(item.id, item.revision) for item in found} == {(machine.id, 1), ("instance-9", 2)}
    assert sorted(str(item.usd_per_hour) for item in found) == ["1.861", "3.5"]


def test_hostile_names_and_owners_cannot_control_the_terminal(first, second):
    for thing_id, found in first.world.things.items():
        tags = {**found.tags, "tgi-deploy:deployment": "x\x1b[2J;id", "tgi-deploy:owner": "o\x1b]0;x\x07"}
        first.world.things[thing_id] = replaced(found, tags=tags)
    second.probe = Probe(outcome="refused")
    texts = [rows_text(list_deployments(second.context()).rows), *map(coloured, statuses(second.context()))]
    for text in texts:
        assert "\x1b" not in click.unstyle(text)
        assert "\x07" not in text
        assert "tgi-deploy " not in text, "no command to paste has such a name"
