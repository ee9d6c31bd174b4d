from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.plans import altered
from fakes.cloud import KilledError
from fakes.computer import FakeComputer, FakeEngine, candidate, fake_ec2, offer, plan, request
from fakes.docker_host import FakeDocker
from requests.exceptions import ReadTimeout

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import ConflictError, DeployError, InputError, LeftBehindError, NotHealthyError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.gc import GcRequest, gc
from tgi_deploy.operations.removing.interrupts import guard, settle
from tgi_deploy.operations.stops import Stops
from tgi_deploy.operations.watching.access import access
from tgi_deploy.operations.watching.diagnose import diagnose_deployment
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.logs import logs
from tgi_deploy.operations.watching.status import status
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.errors import BadRequestError
from tgi_deploy.targets.docker.api import Api
from tgi_deploy.targets.docker.cloud import DockerCloud
from tgi_deploy.targets.docker.endpoint import Endpoint
from tgi_deploy.targets.docker.errors import ErrorTable, HostRefusedError
from tgi_deploy.targets.docker.options import DockerOptions
from tgi_deploy.targets.docker.pull import pull
from tgi_deploy.targets.docker.target import DockerTarget
from tgi_deploy.targets.protocol import Supplied
from tgi_deploy.values.base import replaced
from tgi_deploy.values.container import HostAccess
from tgi_deploy.values.ends import WantedEnds

URL = "unix:///var/run/docker.sock"
CACHE = "tgi-deploy-cache-hf-home"
TABLE = ErrorTable.of(json.loads(Path(profiles_dir(), "docker/errors.json").read_text(encoding="utf-8")))


@pytest.fixture
def docker():
    return FakeDocker()


def no_aws(region):
    raise AssertionError(f"nobody asked for {region}")


def context(around, docker, **changes):
    api = Api(endpoint=Endpoint(url=URL), table=TABLE, environ={"HF_TOKEN": "hf_planted"}, connect=lambda _at: docker)
    cloud = DockerCloud(api=api)
    return around.context(
        **{
            "cloud": lambda place: cloud if place == "docker" else no_aws(place),
            "targets": (fake_ec2(no_aws), fake_docker(around, api)),
            "regions": ("docker",),
            **changes,
        }
    )


def fake_docker(around, api):
    def pull_image(_place, image, listener):
        pull(api, image, listener=listener, clock=around.clock)

    return DockerTarget(cloud=lambda _place: DockerCloud(api=api), pull_image=pull_image, environ={})


def owned_plan(**changes):
    there = candidate(offer=offer(region="local", market="owned", usd_per_hour=None))
    engine = altered(there.engine, **changes)
    return plan(chosen=replaced(there, engine=engine), regions=("local",), markets=("owned",), hardware="1xA10G")


def wanted(*, options=None, engine=None, supplied=None, **changes):
    return request(
        owned_plan(**(engine or {})),
        **{
            "target": "docker",
            "options": DockerOptions(**(options or {})),
            "supplied": Supplied(**{"place": "docker", "local": True, **(supplied or {})}),
            "environ": {"HF_TOKEN": "hf_planted"},
            **changes,
        },
    )


def bring_up(around, docker, **changes):
    return up(context(around, docker), wanted(**changes))


def take_down(around, docker, *, volumes=False, names=("demo",)):
    return down(context(around, docker), names, lambda _removals: True, volumes=volumes)


def the_container(docker):
    (item,) = docker.containers_by_id.values()
    return item


def test_up_pulls_the_image_and_creates_cache_and_container(around, docker):
    outcome = bring_up(around, docker)
    item = the_container(docker)
    assert item["State"]["Status"] == "running"
    assert item["Name"] == "/tgi-deploy-demo"
    assert list(docker.volumes) == [CACHE]
    assert outcome.deployment.endpoint == "http://127.0.0.1:8080"
    assert (outcome.deployment.target, outcome.deployment.places) == ("docker", ("docker",))
    assert outcome.deployment.usd_per_hour is None
    assert docker.calls.count("pull") == 1


def test_the_container_matches_the_plan(around, docker):
    bring_up(around, docker, supplied={"devices": ("GPU-a", "GPU-b")})
    sent = the_container(docker)["request"]
    host = sent["host_config"]
    assert host["port_bindings"] == {80: ("127.0.0.1", 8080)}
    assert host["device_requests"][0]["DeviceIDs"] == ["GPU-a"]
    assert host["restart_policy"] == {"Name": "on-failure", "MaximumRetryCount": 3}
    assert host["log_config"]["Config"]["max-size"]
    assert sent["environment"]["HF_HOME"] == "/data"
    assert sent["healthcheck"]["StartPeriod"] > 0
    assert sent["stop_timeout"] > 0


def test_other_vendors_accelerators_get_their_own_devices(around, docker):
    access = HostAccess(
        devices=("/dev/kfd",), groups=("video",), security_options=("seccomp=unconfined",), remark="needs a driver"
    )  # fmt: skip
    bring_up(around, docker, engine={"host": access})
    host = the_container(docker)["request"]["host_config"]
    assert "device_requests" not in host
    assert (host["devices"], host["group_add"]) == (["/dev/kfd:/dev/kfd:rwm"], ["video"])
    assert (host["security_opt"], host["ipc_mode"], host["runtime"]) == (["seccomp=unconfined"], "host", None)
    assert not bring_up(around, docker, engine={"host": access}).changed


def test_a_second_up_pulls_and_changes_nothing(around, docker):
    bring_up(around, docker)
    assert not bring_up(around, docker).changed
    assert docker.calls.count("pull") == 1
    assert len(docker.containers_by_id) == 1


def test_a_secret_is_passed_only_to_the_container(around, docker):
    bring_up(around, docker, engine={"secret_env": ("HF_TOKEN",)})
    assert the_container(docker)["request"]["environment"]["HF_TOKEN"] == "hf_planted"
    written = [path.read_text(encoding="utf-8") for path in around.home.rglob("*") if path.is_file()]
    assert "hf_planted" not in "".join(written)
    assert "hf_planted" not in str(the_container(docker)["Config"]["Labels"])


def test_an_unset_secret_is_rejected_first(around, docker):
    with pytest.raises(InputError) as caught:
        bring_up(around, docker, engine={"secret_env": ("HF_TOKEN",)}, environ={})
    assert caught.value.code == "secret_missing"
    assert not docker.volumes
    assert not around.store.names()


def test_a_container_without_a_record_is_adopted(around, docker):
    bring_up(around, docker)
    around.store.remove("demo")
    around.clock.seconds += 3600
    outcome = bring_up(around, docker)
    assert outcome.changed
    assert len(docker.containers_by_id) == 1


def test_a_name_used_by_another_container_is_a_conflict(around, docker):
    bring_up(around, docker)
    the_container(docker)["Config"]["Labels"] = {}
    around.store.remove("demo")
    with pytest.raises(ConflictError) as caught:
        bring_up(around, docker)
    assert caught.value.code == "name_taken"
    assert "docker rm" in caught.value.hint
    assert len(docker.containers_by_id) == 1


def test_an_existing_cache_is_reported_as_existing(around, docker):
    outcome = bring_up(around, docker, dry_run=True)
    assert [step.reason for step in outcome.proposal.changes.steps] == ["will be created"] * 2
    bring_up(around, docker)
    take_down(around, docker)
    outcome = bring_up(around, docker, dry_run=True)
    assert outcome.proposal.changes.steps[0].reason == "already exists"


def test_a_lost_reply_creates_no_second_container(around, docker):
    lost = ["create_container"]

    def lose(name):
        if name in lost:
            lost.remove(name)
            raise ReadTimeout("too slow")

    docker.after_call = lose
    bring_up(around, docker)
    assert the_container(docker)["State"]["Status"] == "running"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_after_a_kill_at_any_call_up_has_one_container_and_down_leaves_none(tmp_path, after):
    for number in range(1, 60):
        docker, around = FakeDocker(), FakeComputer(home=tmp_path / str(number))
        reached = _kill(docker, number, after=after)
        try:
            bring_up(around, docker)
        except KilledError:
            pass
        else:
            assert not reached()
            assert number > 3
            return
        docker.on_call = docker.after_call = None
        bring_up(around, docker)
        assert the_container(docker)["State"]["Status"] == "running"
        take_down(around, docker, volumes=True)
        assert not docker.containers_by_id
        assert not docker.volumes
        assert not around.store.names()
    raise AssertionError("it never came to an end")


def _kill(docker, number, *, after):
    """Kill the caller at call `number`; whether that call was reached."""
    seen = []

    def kill(name):
        seen.append(name)
        if len(seen) == number:
            raise KilledError

    docker.on_call, docker.after_call = (None, kill) if after else (kill, None)
    return lambda: len(seen) >= number


def test_a_killed_down_is_finished_by_the_next(tmp_path):
    for number in range(1, 60):
        docker, around = FakeDocker(), FakeComputer(home=tmp_path / str(number))
        bring_up(around, docker)
        reached = _kill(docker, number, after=False)
        try:
            take_down(around, docker)
        except KilledError:
            pass
        else:
            assert not reached()
            assert number > 3
            return
        docker.on_call = None
        take_down(around, docker)
        assert not docker.containers_by_id
        assert list(docker.volumes) == [CACHE]
    raise AssertionError("it never came to an end")


def test_a_host_without_gpu_support_is_reported_and_nothing_is_left(around, docker):
    docker.refusals["start"] = (500, 'could not select device driver "" with capabilities: [[gpu]]')
    with pytest.raises(HostRefusedError) as caught:
        bring_up(around, docker)
    assert caught.value.code == "toolkit_missing"
    assert "nvidia-ctk" in caught.value.hint
    assert not docker.containers_by_id
    assert not around.store.names()
    assert list(docker.volumes) == [CACHE]


def test_a_pull_that_is_denied_leaves_nothing(around, docker):
    docker.messages = [{"error": "pull access denied for x, repository does not exist or may require 'docker login'"}]
    with pytest.raises(BadRequestError) as caught:
        bring_up(around, docker)
    assert caught.value.code == "image_access_denied"
    assert not around.store.names()


def test_down_keeps_the_weights_and_reports_it(around, docker):
    bring_up(around, docker)
    outcome = take_down(around, docker)
    (receipt,) = outcome.receipts
    assert not docker.containers_by_id
    assert [(item.id, item.size_bytes) for item in receipt.kept] == [(CACHE, 16_000_000_000)]
    assert [line.kind for line in receipt.lines] == ["container"]
    assert receipt.usd is None
    assert outcome.removals[0].kept == (CACHE,)
    assert not around.store.names()


def test_down_with_volumes_removes_the_weights_too(around, docker):
    bring_up(around, docker)
    (receipt,) = take_down(around, docker, volumes=True).receipts
    assert not docker.volumes
    assert not receipt.kept
    assert {line.kind for line in receipt.lines} == {"container", "volume"}


def test_weights_that_another_deployment_uses_stay(around, docker):
    bring_up(around, docker)
    bring_up(around, docker, name="other")
    (receipt,) = take_down(around, docker, volumes=True).receipts
    assert [item.id for item in receipt.kept] == [CACHE]
    (receipt,) = take_down(around, docker, volumes=True, names=("other",)).receipts
    assert not docker.volumes


def test_a_container_that_cannot_be_removed_is_reported_with_its_command(around, docker):
    bring_up(around, docker)
    docker.refusals["remove_container"] = (409, "removal of container x is already in progress")
    with pytest.raises(LeftBehindError) as caught:
        take_down(around, docker)
    (item,) = caught.value.data["not_removed"]
    assert item["command"] == f"docker rm --force {item['id']}"
    assert around.store.load("demo") is not None


def test_an_engine_that_exits_is_reported_from_its_log_and_removed(around, docker):
    around.probe = Probe(outcome="refused")
    docker.log = b"2026-01-09T00:00:01.000000000Z Error: CUDA error: no kernel image is available for execution\n"
    original = docker.start

    def die(container_id):
        original(container_id)
        item = the_container(docker)
        item["State"] = {"Status": "exited", "ExitCode": 1, "FinishedAt": "2026-01-09T00:00:02.5Z"}

    docker.start = die
    with pytest.raises(NotHealthyError) as caught:
        bring_up(around, docker, wait=True)
    assert caught.value.code == "engine_failed"
    assert caught.value.data["finding"] == "arch_unsupported"
    assert "--instance" not in caught.value.data["command"], "a Docker host is what it is"
    assert "--target docker" in caught.value.data["command"]
    assert not docker.containers_by_id
    assert list(docker.volumes) == [CACHE]


def test_a_paused_container_is_kept(around, docker):
    bring_up(around, docker, wait=True)
    item = the_container(docker)
    item["State"] = {"Status": "paused"}
    around.probe = Probe(outcome="timeout")
    with pytest.raises(DeployError) as caught:
        bring_up(around, docker, wait=True, on_failure=lambda _error: pytest.fail("asked"))
    assert list(docker.containers_by_id) == [item["Id"]]
    assert caught.value.data["outcome"] == "kept"
    assert "'tgi-deploy down demo' removes it" in caught.value.hint


def of_a_folder(path="/models/mine"):
    asked = wanted(wait=True, ready="fast")
    model = asked.plan.request.model
    chosen = asked.plan.chosen
    settings = replaced(chosen.engine.settings, model_id=path)
    engine = altered(chosen.engine, settings=settings, args=("--model-id", path))
    asked_for = replaced(
        asked.plan.request, model=replaced(model, model=replaced(model.model, local_path=path, hub_id="mine"))
    )
    made = replaced(asked.plan, request=asked_for, chosen=replaced(chosen, engine=engine))
    return replaced(asked, plan=made)


def test_a_local_model_is_served_under_its_mount_path(around, docker):
    around.engine = FakeEngine(model_id="/model")
    outcome = up(context(around, docker), of_a_folder())
    assert outcome.deployment.status == "ready"
    (mount,) = [item for item in the_container(docker)["request"]["host_config"]["mounts"] if item["Type"] == "bind"]
    assert (mount["Source"], mount["Target"]) == ("/models/mine", "/model")


def test_a_local_model_is_suggested_by_its_path(around, docker):
    around.engine = FakeEngine(model_id="org/other")
    with pytest.raises(NotHealthyError, match="planned /model") as caught:
        up(context(around, docker), of_a_folder())
    wanted = "tgi-deploy up /models/mine --budget 5 --hardware 1xA10G --name demo --target docker"
    assert caught.value.data["command"].startswith(wanted)


def test_a_changed_plan_is_reported_for_the_host(around, docker):
    bring_up(around, docker)
    log = Path(__file__).parents[2] / "cases" / "diagnosis" / "oom-warmup-3x" / "log.txt"
    lines = log.read_text(encoding="utf-8").splitlines()
    docker.log = "".join(f"2026-01-09T00:00:01.{at:09}Z {line}\n" for at, line in enumerate(lines)).encode()
    (finding,) = diagnose_deployment(context(around, docker), "demo").reading.findings
    assert finding.code == "oom_warmup_prefill"
    assert finding.commands[0].endswith("--set max-batch-prefill-tokens=2048 --target docker")


def test_an_unexplained_failure_suggests_the_same_host(around, docker):
    around.probe = Probe(outcome="refused")
    with pytest.raises(NotHealthyError) as caught:
        bring_up(around, docker, wait=True)
    assert caught.value.data["cause"] is None
    assert caught.value.data["command"].endswith("--name demo --target docker --on-failure keep")


def test_an_oom_killed_container_is_reported(around, docker):
    """Its log is truncated, so only its state shows why."""
    bring_up(around, docker)
    the_container(docker)["State"] = {"Status": "exited", "ExitCode": 137, "OOMKilled": True,
                                      "FinishedAt": "2026-01-09T00:00:02.5Z"}  # fmt: skip
    (finding, *_) = diagnose_deployment(context(around, docker), "demo").reading.findings
    assert (finding.code, finding.confidence >= 0.9) == ("host_oom_killed", True)
    assert finding.evidence.startswith("the container: OOMKilled")
    assert "EC2" not in finding.evidence


def test_an_interrupted_up_removes_the_container_and_keeps_the_cache(around, docker):
    stops = Stops()
    guarded = guard(context(around, docker), stops)

    def stop(name):
        if name == "start":
            stops.arrive(urgent=False)

    docker.on_call = stop
    with pytest.raises(KeyboardInterrupt):
        up(guarded, wanted())
    docker.on_call = None
    settled = settle(guarded, "demo", stops, ask=lambda _exists: True)
    assert settled.outcome == "removed"
    assert not docker.containers_by_id
    assert list(docker.volumes) == [CACHE]


def test_recorded_containers_are_found_by_default(around, docker):
    bring_up(around, docker)
    docker.log = b"2026-01-09T00:00:01.000000000Z Connected with hf_plantedplanted\n"
    elsewhere = context(around, docker, regions=("us-east-1",))
    assert status(elsewhere, "demo").machine.state == "running"
    assert logs(elsewhere, "demo") == "Connected with hf_***"
    assert access(elsewhere, "demo").tunnel == ""
    assert take_down(around, docker).removed == ("demo",)


def test_list_queries_recorded_docker_hosts_without_the_cloud(around, docker):
    bring_up(around, docker)
    listed = list_deployments(context(around, docker))
    assert [(row.machine, row.usd_per_hour, row.instance_type) for row in listed.rows] == [
        ("running", None, candidate().offer.instance_type.name)
    ]


def test_gc_keeps_running_containers_and_removes_stale_records(around, docker):
    bring_up(around, docker)
    around.clock.seconds += 3600
    asked = GcRequest(older_than_s=60, confirm=lambda _groups: True)
    assert [group.name for group in gc(context(around, docker), asked).kept] == ["demo"]
    docker.containers_by_id.clear()
    outcome = gc(context(around, docker), asked)
    assert [receipt.name for receipt in outcome.receipts] == ["demo"]
    assert list(docker.volumes) == [CACHE]


def test_a_remote_host_must_publish_a_reachable_port(around, docker):
    with pytest.raises(InputError) as caught:
        bring_up(around, docker, supplied={"local": False})
    assert caught.value.code == "not_reachable"
    assert bring_up(around, docker, supplied={"local": False}, options={"bind": "192.0.2.7"}).changed


def test_the_same_name_on_another_target_is_a_conflict(around, docker):
    bring_up(around, docker)
    with pytest.raises(ConflictError) as caught:
        up(context(around, docker, cloud=_both(around, docker)), request())
    assert caught.value.code == "name_taken"


def _both(around, docker):
    host = context(around, docker).cloud
    return lambda place: host(place) if place == "docker" else around.world.cloud(place)


def test_another_spec_replaces_the_container_after_it_drains(around, docker):
    bring_up(around, docker, wait=True)
    first = the_container(docker)["Id"]
    args = ("--model-id", "example-org/example-13b", "--max-batch-size", "4")
    asked = []
    again = wanted(engine={"args": args}, wait=True, confirm=lambda proposal: asked.append(proposal.update) or True)
    larger = replaced(again.plan, request=replaced(again.plan.request, concurrency=9))
    outcome = up(context(around, docker), replaced(again, plan=larger))
    assert (outcome.deployment.active, outcome.deployment.rollout) == (2, None)
    assert the_container(docker)["Id"] != first
    assert [update.drain_s for update in asked] == [120]
    assert docker.calls.index("stop") < docker.calls.index("remove_container")


def test_limits_are_rejected_for_containers(around, docker):
    bring_up(around, docker)
    with pytest.raises(InputError) as caught:
        extend(context(around, docker), "demo", WantedEnds(ttl_s=3600))
    assert caught.value.code == "limits_unsupported"


def test_another_computer_finds_the_container_by_labels(around, docker, tmp_path):
    bring_up(around, docker, wait=True)
    there = status(context(around, docker), "demo")
    second = FakeComputer(home=tmp_path / "second", world=around.world, clock=around.clock)
    here = status(context(second, docker), "demo")
    assert here.recorded is None
    assert (here.healthy, here.url, here.replicas) == (True, there.url, there.replicas)
    assert access(context(second, docker), "demo") == access(context(around, docker), "demo")
    (row,) = list_deployments(context(second, docker)).rows
    assert (row.now, row.model, row.usd_per_hour) == ("ready", "example-org/example-13b", None)
    assert down(context(second, docker), ("demo",), lambda _removals: True).removed == ("demo",)
    assert not docker.containers_by_id
