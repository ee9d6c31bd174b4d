"""A deployment on a Docker host with a proxy in front: its resources and updates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.cloud import KilledError
from fakes.computer import FakeComputer, FakeEngine
from fakes.proxied_host import Host

from tgi_deploy.cli.views.deployment import up_text
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import ConflictError, DeployError, InputError
from tgi_deploy.operations.deploying.pausing import SwitchRequest, restart, start, stop
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.gc import GcRequest, gc
from tgi_deploy.operations.results.changing import up_data
from tgi_deploy.operations.watching.access import access
from tgi_deploy.operations.watching.status import status
from tgi_deploy.targets.docker.errors import ErrorTable
from tgi_deploy.targets.docker.options import DockerOptions
from tgi_deploy.targets.protocol import Supplied
from tgi_deploy.values.base import replaced

TABLE = ErrorTable.of(json.loads(Path(profiles_dir(), "docker/errors.json").read_text(encoding="utf-8")))
ENDPOINT = "http://127.0.0.1:8080"


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path / "state")


def test_only_the_proxy_publishes_the_port(host):
    outcome = host.up()
    assert host.names == ["tgi-deploy-demo", "tgi-deploy-demo.1"]
    proxy, engine = host.container("tgi-deploy-demo"), host.container("tgi-deploy-demo.1")
    assert proxy["HostConfig"]["PortBindings"] == {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}]}
    assert engine["HostConfig"]["PortBindings"] == {}
    (network,) = host.docker.networks_by_id
    assert {item["request"]["host_config"]["network_mode"] for item in (proxy, engine)} == {network}
    assert proxy["State"]["Status"] == engine["State"]["Status"] == "running"
    assert {"haproxy:3.2"} < host.docker.images
    assert (outcome.deployment.endpoint, outcome.deployment.usd_per_hour) == (ENDPOINT, None)


def test_no_request_is_sent_to_an_unproved_engine(host):
    host.up()
    own = f"{ENDPOINT}/machines/{host.container('tgi-deploy-demo.1')['Id'][:12]}/health"
    assert set(host.probed) == {own}
    assert host.serving == "tgi-deploy-demo.1"


def test_an_unproved_engine_never_gets_traffic_with_no_wait(host):
    with pytest.raises(DeployError):
        host.up(context=host.context(engine_client=lambda _url: FakeEngine(model_id="someone/else")))
    assert (host.names, host.docker.networks_by_id, host.docker.reloads) == ([], {}, {})


def test_an_update_is_rolling_and_keeps_the_url(host):
    host.up()
    proxy = host.container("tgi-deploy-demo")["Id"]
    host.docker.finishing = 3
    outcome = host.up("awq")
    assert host.names == ["tgi-deploy-demo", "tgi-deploy-demo.2"]
    assert (host.container("tgi-deploy-demo")["Id"], host.serving) == (proxy, "tgi-deploy-demo.2")
    assert (outcome.deployment.active, outcome.deployment.endpoint, outcome.deployment.rollout) == (2, ENDPOINT, None)
    update = host.asked[-1].update
    assert (update.strategy, update.downtime_s, update.stable) == ("rolling", 0, True)
    assert host.docker.finishing == 0, "the old one goes when its last response has ended"


def test_a_rollback_is_rolling_and_keeps_the_url(host):
    host.up()
    host.up("awq")
    assert host.roll_back().deployment.active == 3
    assert (host.names, host.serving) == (["tgi-deploy-demo", "tgi-deploy-demo.3"], "tgi-deploy-demo.3")
    assert host.asked[-1].update.strategy == "rolling"


def test_both_containers_use_different_accelerators(host):
    host.up(supplied=Supplied(place="docker", local=True, devices=("GPU-a", "GPU-b", "GPU-c")))
    host.up("awq", supplied=Supplied(place="docker", local=True, devices=("GPU-a", "GPU-b", "GPU-c")))
    assert _devices(host.container("tgi-deploy-demo.2")) == ["GPU-b"]
    assert host.up("awq", supplied=Supplied(place="docker", local=True, devices=("GPU-c",))).changed is False


def _devices(item):
    (asked,) = item["HostConfig"]["DeviceRequests"]
    return asked["DeviceIDs"]


def test_without_accelerators_for_both_rolling_is_rejected_first(host):
    host.accelerators = 1
    host.up()
    with pytest.raises(ConflictError) as caught:
        host.up("awq", strategy="rolling")
    assert caught.value.code == "rolling_unavailable"
    assert "both would need 2 accelerators, but the host has 1" in caught.value.message
    assert "--strategy recreate" in caught.value.hint
    assert host.names == ["tgi-deploy-demo", "tgi-deploy-demo.1"]
    host.up("awq")
    assert host.asked[-1].update.strategy == "recreate"
    assert (host.names, host.serving) == (["tgi-deploy-demo", "tgi-deploy-demo.2"], "tgi-deploy-demo.2")


@pytest.mark.parametrize("changed", [{"port": 9090}, {"options": {"bind": "192.0.2.7"}}])
def test_changing_the_port_recreates_the_proxy(host, changed):
    host.up()
    port = changed.pop("port", None)
    if port:
        made = host.plan
        host.plan = lambda scheme="none": _at_port(made(scheme), port)
    host.up("awq", **changed)
    assert host.asked[-1].update.strategy == "recreate"
    assert (host.names, host.serving) == (["tgi-deploy-demo", "tgi-deploy-demo.2"], "tgi-deploy-demo.2")


def _at_port(planned, port):
    chosen = replaced(planned.chosen, engine=replaced(planned.chosen.engine, port=port))
    return replaced(planned, chosen=chosen)


@pytest.mark.parametrize(("before", "after"), [(None, "proxy"), ("proxy", None)])
def test_adding_or_removing_the_proxy_recreates(host, before, after):
    host.up(front=before)
    host.up(front=after)
    assert host.asked[-1].update.strategy == "recreate"
    assert host.names == (["tgi-deploy-demo", "tgi-deploy-demo.2"] if after else ["tgi-deploy-demo"])
    assert bool(host.docker.networks_by_id) is bool(after)


@pytest.mark.parametrize(("front", "refused"), [(None, True), ("proxy", False)])
def test_the_result_reports_how_long_requests_were_refused(host, front, refused):
    assert host.up(front=front).refused_s is None

    def drain(name):
        host.around.clock.seconds += 40 if name == "stop" else 0

    host.docker.after_call = drain
    before = host.around.clock.seconds
    outcome = host.up("awq", front=front)
    assert outcome.refused_s == (host.around.clock.seconds - before if refused else None)
    assert ("new requests were refused for 4" in up_text(outcome)) is refused
    assert up_data(outcome).refused_s == outcome.refused_s


def test_a_resumed_update_counts_refusals_from_their_start(host):
    host.up(front=None)
    host.docker.on_call = _killed_by("create_container")
    before = host.around.clock.seconds
    with pytest.raises(KilledError):
        host.up("awq", front=None)
    host.docker.on_call = None
    host.around.clock.seconds += 300
    assert host.up("awq", front=None).refused_s == host.around.clock.seconds - before


def test_a_killed_update_is_finished_by_the_next_command(host):
    host.up()
    calls = len(host.docker.calls)
    host.up("awq")
    calls = len(host.docker.calls) - calls
    down(host.context(), ("demo",), lambda _removals: True)
    for ordinal in range(1, calls + 1, 13):
        host.up()
        _kill_at(host.docker, ordinal)
        with pytest.raises(KilledError):
            host.up("awq")
        host.docker.on_call = None
        outcome = host.up("awq")
        deployment = outcome.deployment
        assert (deployment.rollout, deployment.endpoint) == (None, ENDPOINT)
        assert host.names == ["tgi-deploy-demo", f"tgi-deploy-demo.{deployment.active}"]
        assert host.serving == f"tgi-deploy-demo.{deployment.active}"
        down(host.context(), ("demo",), lambda _removals: True)
        assert (host.names, host.docker.networks_by_id) == ([], {})


def _killed_by(call):
    def ends(name):
        if name == call:
            raise KilledError

    return ends


def _kill_at(docker, ordinal):
    left = [ordinal]

    def count(_name):
        left[0] -= 1
        if left[0] == 0:
            raise KilledError

    docker.on_call = count


def test_down_removes_proxy_network_and_engine(host):
    host.up()
    shown = status(host.context(), "demo")
    assert (list(shown.drift), shown.machine.state) == ([], "running")
    down(host.context(), ("demo",), lambda _removals: True)
    assert (host.names, host.docker.networks_by_id) == ([], {})


def test_resources_of_a_lost_record_are_found_and_removed(host):
    host.up()
    host.around.store.remove("demo")
    host.docker.containers_by_id.pop(host.container("tgi-deploy-demo.1")["Id"])
    host.around.clock.seconds += 7200
    gc(host.context(), GcRequest(older_than_s=60, confirm=lambda _groups: True))
    assert (host.names, host.docker.networks_by_id) == ([], {})


def test_an_unknown_front_is_rejected():
    with pytest.raises(InputError) as caught:
        DockerOptions(front="balancer")
    assert caught.value.code == "bad_option_value"


def test_another_computer_reaches_it_through_the_proxy(host, tmp_path):
    host.up()
    for number, scheme in ((1, "none"), (2, "gptq")):
        if number > 1:
            host.up(scheme)
        elsewhere = FakeComputer(home=tmp_path / "elsewhere", world=host.around.world, clock=host.around.clock)
        second = replace(host.context(), store=elsewhere.store)
        found = status(second, "demo")
        assert (found.recorded, found.url, found.healthy) == (None, ENDPOINT, True)
        assert [item.revision for item in found.replicas] == [number]
        assert access(second, "demo") == access(host.context(), "demo")


ASKED = SwitchRequest(name="demo")


@pytest.mark.parametrize("front", [None, "proxy"])
def test_a_container_is_stopped_gracefully_and_started_in_place(tmp_path, front):
    host = Host(tmp_path)
    endpoint = host.up(front=front).deployment.endpoint
    machine = host.around.store.load("demo").machine.attributes["id"]
    outcome = stop(host.context(), ASKED)
    assert (outcome.deployment.status, outcome.endpoint, outcome.usd_per_hour) == ("stopped", None, None)
    assert host.docker.calls.count("stop") == 1
    assert not stop(host.context(), ASKED).changed
    again = start(host.context(), ASKED)
    assert (again.deployment.status, again.endpoint, again.proof.level) == ("ready", endpoint, "full")
    assert host.around.store.load("demo").machine.attributes["id"] == machine
    down(host.context(), ["demo"], lambda _removals: True)
    assert host.docker.containers_by_id == {}


def test_up_starts_a_stopped_container_instead_of_creating_one(tmp_path):
    host = Host(tmp_path)
    host.up(front=None)
    stop(host.context(), ASKED)
    host.up(front=None)
    assert [step.action for step in host.asked[-1].changes.steps] == ["start"]
    assert host.docker.calls.count("create_container") == 1


def test_a_container_is_restarted_gracefully_and_proved(tmp_path):
    host = Host(tmp_path)
    host.up(front=None)
    assert restart(host.context(), ASKED).proof.level == "full"
    assert host.docker.calls.count("restart") == 1
    assert host.around.store.load("demo").status == "ready"
