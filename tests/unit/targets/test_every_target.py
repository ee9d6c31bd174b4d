"""Properties of every target, tested on a fake of its platform."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders.plans import deployable, instance_type
from builders.records import deployment
from fakes.cloud import KINDS, FakeWorld, KilledError
from fakes.computer import FakeComputer, candidate, fake_ec2, offer, plan, request
from fakes.docker_host import FakeDocker
from fakes.hosting_api import FakeHosting
from fakes.kubernetes_api import FakeCluster

from tgi_deploy import wiring
from tgi_deploy.cli.views.deployment import proposal_text
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import InputError, Problem
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.launching.launch import first_attempt
from tgi_deploy.operations.launching.target_options import own_options
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.watching.access import access
from tgi_deploy.operations.watching.logs import logs
from tgi_deploy.reconcile.ports import SizedHandler
from tgi_deploy.secret import Secret
from tgi_deploy.targets.aws.api import Api as AwsApi
from tgi_deploy.targets.aws.retry import Retrier
from tgi_deploy.targets.docker.api import Api
from tgi_deploy.targets.docker.cloud import DockerCloud
from tgi_deploy.targets.docker.endpoint import Endpoint
from tgi_deploy.targets.docker.errors import ErrorTable
from tgi_deploy.targets.docker.pull import pull
from tgi_deploy.targets.docker.target import DockerTarget
from tgi_deploy.targets.kubernetes.api import Api as KubernetesApi
from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.target import KubernetesTarget
from tgi_deploy.targets.protocol import (
    Account,
    DoctorChecks,
    Failover,
    ImagePull,
    LocalHost,
    Locating,
    Supplied,
    Target,
)
from tgi_deploy.targets.sagemaker.cloud import SageMakerCloud
from tgi_deploy.targets.sagemaker.target import SageMakerTarget
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.resource import KEPT, TAG_NAME
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.operations.deploying.up import UpRequest
    from tgi_deploy.targets.protocol import Deployable
    from tgi_deploy.values.deployment import Deployment

RARE = ("parameter", "role", "instance-profile", "schedule")


@dataclass
class Bench:
    """A target, a request for it, and its world: `kill_at` ends the process after this many creating calls."""

    target: Target
    place: str
    request: UpRequest
    context: Callable[[], Any]
    kill_at: Callable[[int | None], None]
    machines: Callable[[], int]
    deployable: Deployable = field(default_factory=deployable)

    def up(self) -> Deployment:
        return up(self.context(), self.request).deployment

    def down(self) -> Any:
        return down(self.context(), ("demo",), lambda _removals: True)

    def launch(self) -> Any:
        return self.target.launch(self.context(), self.request)

    def attempt(self) -> Any:
        at = FakeComputer(home=None).clock.now()
        nobody = deployment(id="id1", target=self.target.name, place=self.place, status="creating", created_at=at)
        return first_attempt(self.launch(), nobody, ())


def counting(world: Any, creates: Callable[[str], bool]) -> Callable[[int | None], None]:
    def kill_at(number: int | None) -> None:
        left = [number]

        def after(name: str) -> None:
            if left[0] is not None and creates(name):
                left[0] -= 1
                if left[0] == 0:
                    raise KilledError

        world.after_call = after

    return kill_at


def on_ec2(home: Path) -> Bench:
    world = FakeWorld(kinds=(*RARE, *KINDS))
    around = FakeComputer(home=home, world=world)
    target = fake_ec2(world.cloud)
    return Bench(
        target=target,
        place="us-east-1",
        request=request(),
        context=lambda: around.context(targets=(target,)),
        kill_at=counting(world, lambda name: name.startswith("create ")),
        machines=lambda: len(world.running()),
    )


def on_docker(home: Path) -> Bench:
    host, around = FakeDocker(), FakeComputer(home=home)
    errors = json.loads(Path(profiles_dir(), "docker/errors.json").read_text(encoding="utf-8"))
    api = Api(
        endpoint=Endpoint(url="unix:///var/run/docker.sock"),
        table=ErrorTable.of(errors),
        environ={},
        connect=lambda _at: host,
    )

    def pull_image(_place: str, image: str, listener: Any) -> None:
        pull(api, image, listener=listener, clock=around.clock)

    target = DockerTarget(cloud=lambda _place: DockerCloud(api=api), pull_image=pull_image, environ={})
    there = candidate(offer=offer(region="local", market="owned", usd_per_hour=None))
    return Bench(
        target=target,
        place="docker",
        request=request(
            plan(chosen=there, regions=("local",), markets=("owned",), hardware="1xA10G"),
            target="docker",
            options=target.options(),
            supplied=Supplied(place="docker", local=True),
        ),
        context=lambda: around.context(
            targets=(fake_ec2(around.world.cloud), target), cloud=target.cloud, regions=("docker",)
        ),
        kill_at=counting(host, lambda name: name.startswith("create")),
        machines=lambda: len(host.containers_by_id),
    )


def on_kubernetes(home: Path) -> Bench:
    cluster, around, place = FakeCluster(), FakeComputer(home=home), "kubernetes:team-a@dev"
    api = KubernetesApi(place=Place.of(place), sender=cluster)
    target = KubernetesTarget(
        chosen=lambda _options: place,
        cloud=lambda _place: KubernetesCloud(api=api),
        catalog=open_catalog,
        forward=lambda _end: 12345,
    )
    there = candidate(offer=offer(region="local", market="owned", usd_per_hour=None))
    return Bench(
        target=target,
        place=place,
        request=request(
            plan(chosen=there, regions=("local",), markets=("owned",), hardware="1xL40S"),
            target="kubernetes",
            options=target.options(),
            supplied=Supplied(place=place),
        ),
        context=lambda: around.context(
            targets=(fake_ec2(around.world.cloud), target), cloud=target.cloud, regions=(place,), loopback=False
        ),
        kill_at=counting(cluster, lambda name: name.startswith("create")),
        machines=lambda: sum(1 for kind, _ in cluster.objects if kind == "deployments"),
    )


def on_sagemaker(home: Path) -> Bench:
    account, around, place = FakeHosting(), FakeComputer(home=home), "sagemaker:us-east-1"
    api = AwsApi(region="us-east-1", sessions=account, retrier=Retrier(around.clock))
    target = SageMakerTarget(
        cloud_of=lambda _place: SageMakerCloud(api=api, secret_of=lambda _name: Secret("hf_token")),
        catalog=open_catalog,
        default_region=lambda: "us-east-1",
    )
    return Bench(
        target=target,
        place=place,
        request=request(plan(), target="sagemaker", options=target.options(create_role=True)),
        context=lambda: around.context(
            targets=(fake_ec2(around.world.cloud), target), cloud=target.cloud, regions=(place,)
        ),
        kill_at=counting(account, lambda name: name.startswith("create")),
        machines=lambda: len(account.endpoints),
        deployable=deployable(candidate=candidate(offer=offer(instance_type=instance_type(status="hosted")))),
    )


BENCHES: Mapping[str, Callable[[Path], Bench]] = {
    "ec2": on_ec2,
    "docker": on_docker,
    "kubernetes": on_kubernetes,
    "sagemaker": on_sagemaker,
}


@pytest.fixture(params=wiring.target_names())
def bench(request, tmp_path):
    """Every target that the program knows: one without a bench fails here."""
    return BENCHES[request.param](tmp_path / "state")


def found(bench):
    return bench.target.cloud(bench.place).find({TAG_NAME: "demo"})


def test_the_desired_state_has_one_machine(bench):
    wanted = bench.attempt().wanted
    assert [item.kind for item in wanted if item.is_machine] == [bench.target.facts.machine_kind]
    assert {item.kind for item in wanted} <= set(bench.target.cloud(bench.place).kinds)
    assert {need for item in wanted for need in item.needs} <= {item.key for item in wanted}


def test_the_same_plan_gives_the_same_desired_state(bench):
    assert [item.spec for item in bench.attempt().wanted] == [item.spec for item in bench.attempt().wanted]


def test_one_kind_runs_engines_and_few_are_rare(bench):
    cloud = bench.target.cloud(bench.place)
    assert [kind for kind in cloud.kinds if cloud.handler(kind).runs_engines] == [bench.target.facts.machine_kind]
    assert not cloud.handler(bench.target.facts.machine_kind).rare


def test_the_question_before_the_first_change_can_be_printed(bench):
    asked = []
    up(bench.context(), replaced(bench.request, confirm=lambda proposal: bool(asked.append(proposal_text(proposal)))))
    (text,) = asked
    assert "demo" in text
    assert bench.machines() == 0


def test_created_resources_are_found_by_tags_and_read_by_id(bench):
    deployment = bench.up()
    cloud = bench.target.cloud(bench.place)
    seen = {item.id: item for item in found(bench)}
    for record in deployment.resources:
        again = cloud.handler(record.kind).read(record.attributes)
        assert again is not None
        assert again.is_machine == record.is_machine
        assert record.attributes["id"] in seen or KEPT in record.notes
    assert deployment.target == bench.target.name
    assert {record.place for record in deployment.resources} == {bench.place}


@pytest.mark.parametrize("creation", [1, 2, 3])
def test_resources_of_a_killed_run_are_adopted(bench, creation):
    most = len(bench.attempt().wanted)
    bench.kill_at(min(creation, most))
    with pytest.raises(KilledError):
        bench.up()
    bench.kill_at(None)
    deployment = bench.up()
    assert {record.state for record in deployment.resources} == {"created"}
    assert bench.machines() == 1


@pytest.mark.parametrize("creation", range(1, 8))
def test_what_enforces_limits_in_a_cluster_is_complete_after_a_killed_run_and_removed(tmp_path, creation):
    bench = on_kubernetes(tmp_path / "state")
    bench.request = replaced(bench.request, ends=WantedEnds(ttl_s=7200))
    objects = bench.target.cloud(bench.place).api.sender.objects
    bench.kill_at(creation)
    with pytest.raises(KilledError):
        bench.up()
    if bench.machines():
        assert {"serviceaccounts", "roles", "rolebindings", "jobs"} <= {plural for plural, _ in objects}
    bench.kill_at(None)
    assert bench.up().ends.ttl_s == 7200
    assert sorted(plural for plural, _ in objects if plural != "pods") == [
        "deployments", "jobs", "poddisruptionbudgets", "rolebindings", "roles", "serviceaccounts", "services",
    ]  # fmt: skip
    bench.down()
    assert objects == {}


def test_removal_leaves_only_kept_resources(bench):
    kept = {record.attributes["id"] for record in bench.up().resources if KEPT in record.notes}
    (receipt,) = bench.down().receipts
    assert found(bench) == ()
    assert bench.machines() == 0
    assert {item.id for item in receipt.kept} == kept
    assert len(receipt.machines) == 1


def test_reading_and_deleting_a_missing_resource_is_not_an_error(bench):
    deployment = bench.up()
    bench.down()
    cloud = bench.target.cloud(bench.place)
    for record in deployment.resources:
        if KEPT not in record.notes:
            assert cloud.handler(record.kind).read(record.attributes) is None
            cloud.handler(record.kind).delete(record.attributes)
    assert cloud.machine(deployment.machine.attributes["id"]).state in {"missing", "terminated"}


def test_every_kind_has_a_command_that_removes_it(bench):
    for kind in bench.target.cloud(bench.place).kinds:
        command = bench.target.manual_commands.removal_command(kind, "thing-1", bench.place)
        assert command is not None, kind
        assert any("thing-1" in word for word in shlex.split(command))
        look = bench.target.manual_commands.look_command(kind, "thing-1", bench.place)
        assert look is None or any("thing-1" in word for word in shlex.split(look))
    assert bench.target.manual_commands.removal_command("nothing-known", "thing-1", bench.place) is None


def test_manual_commands_name_the_deployment_and_can_be_pasted(bench):
    commands = bench.target.manual_commands.commands("demo", bench.place, "MACHINE")
    for command in (*commands.inspections, *commands.removal, commands.proof):
        assert shlex.split(command.partition("   #")[0])
    assert "demo" in commands.proof
    assert commands.removal


def test_preflight_answers_with_problems(bench):
    attempt = bench.attempt()
    findings = bench.launch().preflight(attempt, {TAG_NAME: "demo"})
    assert all(isinstance(item, Problem) for item in findings)


def test_a_running_deployment_is_reached_and_its_log_is_read(bench):
    deployment = bench.up()
    reached = access(bench.context(), "demo")
    assert reached.url == deployment.endpoint
    assert reached.curl.startswith((f"curl -s {deployment.endpoint}", "aws sagemaker-runtime invoke-endpoint"))
    assert isinstance(reached.tunnel, str)
    assert bench.launch().traffic.reach in {"loopback", "private", "public"}
    assert isinstance(logs(bench.context(), "demo"), str)


def test_every_artifact_is_reproducible(bench):
    for form, title in bench.target.forms.items():
        first = bench.target.artifact(form, bench.deployable, templates_dir=None)
        assert first == bench.target.artifact(form, bench.deployable, templates_dir=None)
        assert (first.kind, bool(title), first.text.endswith("\n")) == (form, True, True)
        assert form in wiring.forms()


def test_options_have_help_and_other_targets_options_are_rejected(bench):
    own = bench.target.options.__struct_fields__
    assert all(item.help for item in wiring.target_options("up"))
    assert set(own) <= {item.name for item in wiring.target_options("up")}
    assert bench.target.options() == own_options(bench.target, wiring.targets(), {})
    for foreign in [item.name for item in wiring.target_options("up") if item.name not in own]:
        with pytest.raises(InputError) as caught:
            own_options(bench.target, wiring.targets(), {foreign: "x"})
        assert caught.value.code == "conflicting_options"
        assert bench.target.facts.who_connects in caught.value.hint


def test_a_location_belongs_to_its_target(bench):
    assert wiring.target_of(bench.place).name == bench.target.name
    assert wiring.target_of(f"{bench.target.name}:elsewhere").name == bench.target.name


def test_a_target_offers_only_its_own_abilities(bench):
    """Optional abilities are separate protocols, so no method is implemented only to raise."""
    optional = {
        DoctorChecks: ("examine",),
        Locating: ("at",),
        Account: ("policy", "boundary"),
        LocalHost: ("examine_host",),
        Failover: ("refused",),
        ImagePull: ("pull",),
        SizedHandler: ("size_bytes",),
    }
    cloud = bench.target.cloud(bench.place)
    for part in (bench.target, bench.launch(), *(cloud.handler(kind) for kind in cloud.kinds)):
        for protocol, methods in optional.items():
            offered = [name for name in methods if hasattr(part, name)]
            assert offered in ([], list(methods)), (part, protocol)
            assert isinstance(part, protocol) == bool(offered)
