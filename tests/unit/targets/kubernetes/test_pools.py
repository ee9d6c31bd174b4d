"""What Karpenter's NodePools may add: by files for requirements and limits, then through `plan` and `up`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from fakes.computer import FakeComputer, request
from fakes.kubernetes_api import FakeCluster, failure, node

from tgi_deploy.cli.views.deployment import proposal_text, up_text
from tgi_deploy.cli.views.status import rows_text, status_text
from tgi_deploy.errors import DeployError, InputError, Problem, error
from tgi_deploy.operations.deploying.scaling import scale
from tgi_deploy.operations.deploying.up import UpOutcome, up
from tgi_deploy.operations.launching.target_options import supplied
from tgi_deploy.operations.planning.locked import locked_request
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.planning.plan_files import PlanFiles
from tgi_deploy.operations.results.planning import plan_result
from tgi_deploy.operations.results.watching import deployment_data
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.status import status
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
from tgi_deploy.targets.kubernetes.doctor import examined
from tgi_deploy.targets.kubernetes.node_labels import NodeLabels
from tgi_deploy.targets.kubernetes.options import KubernetesOptions
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.pools import growth
from tgi_deploy.targets.kubernetes.target import KubernetesTarget
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoPlanError, Plan
from tgi_deploy.values.request import Replicas
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from tgi_deploy.targets.protocol import Supplied

FILES = Path(__file__).parents[3] / "cases"
CASES = sorted((FILES / "nodepools").glob("*.toml"))
PLACE = "kubernetes:team-a@dev"
NO_OPTIONS = KubernetesOptions()
FORBIDDEN = {"GET nodepools": failure(403, "nodepools.karpenter.sh is forbidden")}
TYPE = "node.kubernetes.io/instance-type"
IN_VIRGINIA = {"topology.kubernetes.io/region": "us-east-1"}
VERSION = "custom.metrics.k8s.io/v1beta2"
METRICS = {
    "/apis/custom.metrics.k8s.io": {"preferredVersion": {"groupVersion": VERSION}},
    f"/apis/{VERSION}": {
        "resources": [{"name": f"pods/{name}"} for name in ("tgi_queue_size", "tgi_batch_current_size")]
    },
}
L40S = [{"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["g6e"]}]


def cpu_node(**labels: str) -> dict[str, Any]:
    return node("cpu", gpus=0, labels={"nvidia.com/gpu.product": "", **labels})


def pool(name: str = "gpu", requirements: list[dict[str, Any]] | None = None, **parts: Any) -> dict[str, Any]:
    """Return a NodePool; `parts`: `taints`, `limits`, `resources`, `ready`, `group`, `weight`, `replicas`."""
    ready = {"type": "Ready", "status": "True" if parts.get("ready", True) else "False"}
    since = {"lastTransitionTime": "2026-01-09T00:00:00Z", "reason": "Ready", "message": ""}
    return {
        "metadata": {"name": name},
        "spec": {
            "weight": parts.get("weight", 1),
            **({"replicas": parts["replicas"]} if "replicas" in parts else {}),
            "limits": parts.get("limits", {}),
            "template": {
                "spec": {
                    "nodeClassRef": {
                        "group": parts.get("group", "karpenter.k8s.aws"),
                        "kind": "EC2NodeClass",
                        "name": "default",
                    },
                    "requirements": requirements or [],
                    "taints": parts.get("taints", []),
                    "startupTaints": [{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}],
                }
            },
        },
        "status": {"resources": parts.get("resources", {}), "conditions": [ready | since]},
    }


def cluster(*pools: dict[str, Any], nodes: tuple[dict[str, Any], ...] = (), **labels: str) -> FakeCluster:
    there = {("nodepools", item["metadata"]["name"]): item for item in pools}
    return FakeCluster(nodes=[*nodes, cpu_node(**(labels or IN_VIRGINIA))], objects=there)


def api_of(server: FakeCluster) -> Api:
    return Api(place=Place.of(PLACE), sender=server)


def target_of(server: FakeCluster) -> KubernetesTarget:
    api = api_of(server)
    return KubernetesTarget(
        chosen=lambda _options: PLACE,
        cloud=lambda _place: KubernetesCloud(api=api),
        catalog=open_catalog,
        forward=lambda _end: 12345,
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_pool_may_add_what_its_requirements_and_limits_allow(path: Path):
    case = tomllib.loads(path.read_text(encoding="utf-8"))
    labels = case.get("labels", IN_VIRGINIA)
    server = cluster(*(pool(**item) for item in case["pools"]), **labels)
    found = growth(Api(place=Place.of(PLACE), sender=server), NodeLabels.packaged(), open_catalog())
    added = {name: [item.pool, item.instance_type, item.most] for name, item in found.machines.items()}
    assert added == case["added"]
    assert [item.message for item in found.notices] == case.get("notices", [])


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_pools_of_the_cases_fit_karpenters_own_schema(path: Path):
    definition = yaml.safe_load((FILES / "kubernetes_schemas" / "karpenter.sh_nodepools.yaml").read_text("utf-8"))
    (version,) = definition["spec"]["versions"]
    assert version["name"] == "v1"
    check = jsonschema.Draft4Validator(version["schema"]["openAPIV3Schema"])
    pools = tomllib.loads(path.read_text(encoding="utf-8"))["pools"]
    assert [found.message for item in pools for found in check.iter_errors(pool(**item))] == []


def test_without_karpenter_or_without_permission_no_node_is_added():
    absent = FakeCluster(refusals={"GET nodepools": replace(failure(404, ""), body=b"404 page not found\n")})
    hidden = FakeCluster(refusals=FORBIDDEN, groups={"/apis/karpenter.sh/v1": {}})
    neither = FakeCluster(refusals=FORBIDDEN)
    malformed = cluster({"metadata": {"name": "gpu"}, "spec": {"template": "\u202e"}})
    found = [
        growth(Api(place=Place.of(PLACE), sender=server), NodeLabels.packaged(), open_catalog())
        for server in (absent, neither, hidden, malformed)
    ]
    assert [item.machines for item in found] == [{}, {}, {}, {}]
    assert [[notice.code for notice in item.notices] for item in found] == [[], [], ["not_checked"], ["not_checked"]]


def planned(server: FakeCluster, files: PlanFiles | None = None, **options: str) -> Any:
    texts = OptionTexts(model="llama3-8b", **options)
    return plan_result(target_of(server), texts, open_catalog(), {}, explain=False, into=files)


def test_a_plan_names_the_new_node_with_its_price():
    result = planned(cluster(pool(requirements=L40S)), budget="5")
    chosen = result.data.plan.chosen
    assert (chosen.instance_type, chosen.market, chosen.usd_per_hour) == ("1xL40S", "owned", Decimal("1.861"))
    assert result.data.plan.requirements.budget_usd_per_hour == 5
    (notice,) = [item for item in result.warnings if item.code == "new_node"]
    price = "$1.861/h on demand in us-east-1 (listed 2026-07-20)"
    assert notice.message.startswith(f"a new node by the NodePool gpu: g6e.xlarge, {price}")
    assert notice.data["instance_type"] == "g6e.xlarge"
    assert {phase.phase for phase in result.data.plan.time_to_ready} >= {"launching", "booting", "pulling"}


def test_an_existing_node_with_room_wins_and_has_no_price():
    result = planned(cluster(pool(requirements=L40S), nodes=(node("there"),)))
    assert (result.data.plan.chosen.instance_type, result.data.plan.chosen.usd_per_hour) == ("1xL40S", None)
    assert "new_node" not in {item.code for item in result.warnings}
    assert "launching" not in {phase.phase for phase in result.data.plan.time_to_ready}


def test_a_node_without_room_for_the_model_gives_way_to_a_new_one():
    small = node("small", labels={"nvidia.com/gpu.product": "Tesla-T4"})
    result = planned(cluster(pool(requirements=L40S), nodes=(small,)), quantize="none")
    assert (result.data.plan.chosen.instance_type, result.data.plan.chosen.usd_per_hour is None) == ("1xL40S", False)


def test_a_pool_above_the_budget_is_no_plan():
    with pytest.raises(NoPlanError) as caught:
        planned(cluster(pool(requirements=L40S)), budget="1")
    assert "over_budget" in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("tgi-deploy plan --target kubernetes llama3-8b --budget 1.87")


def test_a_lock_of_a_plan_with_a_new_node_is_not_stale(tmp_path: Path):
    server, lock = cluster(pool(requirements=[])), tmp_path / "plan.lock"
    files = PlanFiles(lock=lock, report=None, targets=())
    result = planned(server, files, budget="5")
    texts, made = locked_request(lock, OptionTexts(model=""), open_catalog(), force=False)
    chosen = result.data.plan.chosen
    assert texts.hardware == made.chosen.offer.instance_type.name == chosen.instance_type
    assert (made.chosen.num_shard, made.chosen.quantize) == (chosen.num_shard, chosen.quantize)


def test_an_unusable_pool_is_named_where_no_node_has_gpus():
    with pytest.raises(InputError) as caught:
        planned(cluster(pool(requirements=L40S, ready=False)))
    assert (caught.value.code, "NodePool gpu: it is not ready" in caught.value.message) == ("no_gpu_nodes", True)


def test_the_doctor_names_what_the_pools_may_add_and_the_missing_permission():
    there = pool(requirements=L40S, limits={"nvidia.com/gpu": "1"})
    hidden = FakeCluster(refusals=FORBIDDEN, groups={"/apis/karpenter.sh/v1": {}})
    found = [
        {item.code: item for item in examined(Api(place=Place.of(PLACE), sender=server), NO_OPTIONS, open_catalog())}
        for server in (cluster(there), hidden)
    ]
    assert found[0]["cluster_gpus"].message == "the nodes offer 0 GPUs; the most that one has free: none"
    assert found[0]["cluster_pools"].message.endswith("may add nodes with 1xL40S (g6e.xlarge, $1.861/h)")
    assert ("cluster_pools" in found[1], found[1]["not_checked"].severity) == (False, "warning")


class Commands:
    """`up` of one deployment in a cluster."""

    def __init__(self, home: Path, server: FakeCluster, **options: str) -> None:
        self.around, self.server, self.options = FakeComputer(home=home), server, options

    def planned(self) -> tuple[Plan, Supplied]:
        texts = OptionTexts(model="llama3-13b", **self.options)
        texts, found = supplied(target_of(self.server), texts, open_catalog(), {})
        made = plan(texts, open_catalog().with_added(found.added), {})
        assert isinstance(made, Plan)
        return made, found

    def up(self) -> UpOutcome:
        made, found = self.planned()
        return self._up(made, found)

    def findings(self, planned: tuple[Plan, Supplied]) -> tuple[Problem, ...]:
        """Return what the preflight of a plan finds."""
        made, found = planned
        try:
            proposal = self._up(made, found, dry_run=True).proposal
        except DeployError as refused:
            return tuple(error(item["code"], item["message"], "") for item in refused.problem.data["findings"])
        assert proposal is not None
        return proposal.findings

    def _up(self, made: Plan, found: Supplied, **changes: Any) -> UpOutcome:
        values = {"target": "kubernetes", "options": NO_OPTIONS, "supplied": found, "wait": False}
        return up(self._context(), request(made, **{**values, **changes}))

    def _context(self) -> Any:
        target = target_of(self.server)
        return self.around.context(cloud=target.cloud, targets=(target,), regions=(PLACE,), loopback=False)

    def scale(self, least: int, most: int | None = None) -> list[str]:
        """Return the warnings."""
        before = len(self.around.recorder.lines)
        scale(self._context(), "demo", Replicas(least=least, most=most or least), wait=False)
        return self.around.recorder.lines[before:]

    @property
    def replicas(self) -> int:
        found: int = self.server.objects["deployments", "tgi-deploy-demo"]["spec"]["replicas"]
        return found

    @property
    def selector(self) -> dict[str, str]:
        selector: dict[str, str] = self._pod["nodeSelector"]
        return selector

    @property
    def terms(self) -> list[tuple[str, list[str]]]:
        """Return the labels by which the pods ask for nodes, of which one suffices."""
        required = self._pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        named = [item for term in required["nodeSelectorTerms"] for item in term["matchExpressions"]]
        return [(item["key"], item["values"]) for item in named]

    @property
    def _pod(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server.objects["deployments", "tgi-deploy-demo"]["spec"]["template"]["spec"]
        return found


def test_the_pods_ask_for_the_type_that_the_pool_adds_and_the_same_up_keeps_it(tmp_path: Path):
    server = cluster(pool(requirements=L40S, limits={"nvidia.com/gpu": "1"}))
    commands = Commands(tmp_path / "state", server)
    assert commands.up().changed
    assert commands.selector == {TYPE: "g6e.xlarge"}
    added = node("ip-10-0-0-1", labels={TYPE: "g6e.xlarge", **IN_VIRGINIA})
    server.nodes.insert(0, added)
    server.objects["nodepools", "gpu"]["status"]["resources"] = {"nvidia.com/gpu": "1"}
    assert not commands.up().changed
    assert commands.selector == {TYPE: "g6e.xlarge"}


def test_up_is_refused_where_the_limits_leave_too_few_nodes(tmp_path: Path):
    server = cluster(pool(requirements=L40S, limits={"nvidia.com/gpu": "1"}))
    commands = Commands(tmp_path / "state", server, replicas="2", max_machines="2")
    with pytest.raises(DeployError) as caught:
        commands.up()
    assert "limits of the NodePool gpu leave room for 1" in str(caught.value.problem)
    assert not [name for kind, name in server.objects if kind == "deployments"]


@pytest.mark.parametrize(("budget", "code"), [(Decimal("1.50"), "over_budget"), (Decimal("2.50"), "new_node")])
def test_a_node_that_filled_up_after_planning_is_replaced_within_the_budget(tmp_path: Path, budget: Decimal, code: str):
    one = {"key": TYPE, "operator": "In", "values": ["g6e.xlarge"]}
    server = cluster(pool(requirements=[one]), nodes=(node("there"),))
    commands = Commands(tmp_path / "state", server, budget=str(budget))
    made = commands.planned()
    server.nodes[0] = node("there", requested=1)
    findings = commands.findings(made)
    assert [item.code for item in findings if item.code in {"over_budget", "new_node", "no_free_gpus"}] == [code]


@pytest.mark.parametrize(("budget", "code"), [("3", "over_budget"), ("4", "new_node")])
def test_the_largest_number_of_a_range_has_to_fit_the_budget(tmp_path: Path, budget: str, code: str):
    server = cluster(pool(requirements=L40S))
    server.groups = METRICS
    commands = Commands(tmp_path / "state", server, budget=budget, replicas="1..2")
    codes = [item.code for item in commands.findings(commands.planned())]
    assert (code in codes, "no_free_gpus" in codes) == (True, False)


def test_hardware_by_name_has_no_price_until_the_preflight_names_the_new_node(tmp_path: Path):
    commands = Commands(tmp_path / "state", cluster(pool(requirements=L40S)), hardware="1xL40S")
    made = commands.planned()
    assert made[0].chosen.offer.usd_per_hour is None
    (found,) = commands.findings(made)
    assert (found.code, found.data["instance_type"]) == ("new_node", "g6e.xlarge")


def test_pods_accept_a_node_that_is_there_and_one_that_is_added(tmp_path: Path):
    commands = Commands(tmp_path / "state", cluster(pool(requirements=L40S), nodes=(node("there"),)))
    (found,) = [item for item in commands.findings(commands.planned()) if item.code == "new_node"]
    assert found.message.startswith("for pods that lose their node, up to a new node by the NodePool gpu: g6e.xlarge")
    commands.up()
    assert commands.terms == [("nvidia.com/gpu.product", ["NVIDIA-L40S"]), (TYPE, ["g6e.xlarge"])]
    commands.server.objects["deployments", "tgi-deploy-demo"]["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    assert not commands.up().changed


def test_pods_never_ask_for_a_node_above_the_budget(tmp_path: Path):
    server = cluster(pool(requirements=L40S), nodes=(node("there"),))
    commands = Commands(tmp_path / "state", server, budget="1.5")
    assert "new_node" not in {item.code for item in commands.findings(commands.planned())}
    commands.up()
    assert commands.selector == {"nvidia.com/gpu.product": "NVIDIA-L40S"}


def test_pods_without_another_label_to_ask_for_are_warned_of_a_node_above_the_budget(tmp_path: Path):
    one = [{"key": TYPE, "operator": "In", "values": ["g6e.xlarge"]}]
    bare = node("there", labels={TYPE: "g6e.xlarge", "nvidia.com/gpu.product": "", **IN_VIRGINIA})
    commands = Commands(tmp_path / "state", cluster(pool(requirements=one), nodes=(bare,)), budget="1.5")
    (found,) = [item for item in commands.findings(commands.planned()) if item.code == "new_node"]
    assert found.message.startswith("for pods that lose their node, up to a new node")
    assert found.message.endswith("; that exceeds the budget of $1.50/h")
    commands.up()
    assert commands.selector == {TYPE: "g6e.xlarge"}


def test_scale_counts_the_nodes_that_a_pool_may_add_and_names_their_price(tmp_path: Path):
    server = cluster(pool(requirements=L40S, limits={"nvidia.com/gpu": "3"}), nodes=(node("a"), node("b")))
    commands = Commands(tmp_path / "state", server)
    commands.up()
    (found,) = [line for line in commands.scale(4) if line.startswith("new_node")]
    assert found.startswith("new_node 2 new nodes by the NodePool gpu: g6e.xlarge, $1.861/h each on demand")
    assert found.endswith("existing nodes have room for 2 of 4")
    assert server.objects["deployments", "tgi-deploy-demo"]["spec"]["replicas"] == 4


@pytest.mark.parametrize(("options", "number", "code"), [({"budget": "3"}, 4, "over_budget"), ({}, 6, "no_free_gpus")])
def test_scale_changes_nothing_beyond_the_budget_or_the_limits_of_the_pool(
    tmp_path: Path, options: dict[str, str], number: int, code: str
):
    server = cluster(pool(requirements=L40S, limits={"nvidia.com/gpu": "3"}), nodes=(node("a"), node("b")))
    commands = Commands(tmp_path / "state", server, **options)
    commands.up()
    with pytest.raises(DeployError) as caught:
        commands.scale(number)
    assert caught.value.code == code
    assert server.objects["deployments", "tgi-deploy-demo"]["spec"]["replicas"] == 1


def test_a_new_node_has_a_price_in_the_question_after_up_and_in_the_status(tmp_path: Path):
    commands = Commands(tmp_path / "state", cluster(pool(requirements=L40S)))
    outcome = commands.up()
    assert outcome.proposal is not None
    asked = proposal_text(outcome.proposal)
    assert "  $1.861 an hour for new nodes (listed 2026-07-20); about $1,358.53 a month" in asked
    assert "  $1.861 an hour for new nodes (listed 2026-07-20) until 'tgi-deploy down demo'" in up_text(outcome)
    shown = status_text(status(commands._context(), "demo"))
    assert "cost      $1.861 an hour for new nodes (listed 2026-07-20), by the plan\n" in shown
    (row,) = list_deployments(commands._context()).rows
    assert row.usd_per_hour == Decimal("1.861")
    assert re.search(r" \$1\.861 ", rows_text([row]))
    assert deployment_data(outcome.deployment).usd_per_hour == row.usd_per_hour


def test_a_new_node_has_a_price_in_the_error_if_its_deployment_fails_and_is_kept(tmp_path: Path):
    commands = Commands(tmp_path / "state", cluster(pool(requirements=L40S)))
    commands.around.engine.model_id = "someone/else"
    with pytest.raises(DeployError) as caught:
        commands._up(*commands.planned(), wait=True, on_failure=lambda _error: "keep")
    assert "is still running and costs $1.861 an hour: 'tgi-deploy logs demo'" in str(caught.value.hint)


def test_an_existing_node_has_no_price_in_the_list(tmp_path: Path):
    commands = Commands(tmp_path / "state", cluster(nodes=(node("there"),)))
    commands.up()
    (row,) = list_deployments(commands._context()).rows
    assert row.usd_per_hour is None


def test_scale_adds_the_price_of_new_nodes_to_that_of_those_it_has(tmp_path: Path):
    commands = Commands(tmp_path / "state", cluster(pool(requirements=L40S)), budget="3")
    commands.up()
    commands.server.nodes.append(node("added", requested=1, labels={TYPE: "g6e.xlarge", **IN_VIRGINIA}))
    with pytest.raises(DeployError, match=r"bring the price to \$3.722/h") as caught:
        commands.scale(2)
    assert caught.value.code == "over_budget"


def test_scale_counts_the_nodes_that_were_added_for_a_plan_without_a_price(tmp_path: Path):
    server = cluster(pool(requirements=L40S), nodes=(node("there"),))
    commands = Commands(tmp_path / "state", server, budget="4")
    commands.up()
    commands.scale(3)
    labels = {TYPE: "g6e.xlarge", "karpenter.sh/nodepool": "gpu", "karpenter.sh/capacity-type": "on-demand"}
    for number, pod in enumerate(sorted(name for kind, name in server.objects if kind == "pods")[1:]):
        server.nodes.append(node(f"added-{number}", requested=1, labels={**labels, **IN_VIRGINIA}))
        server.objects["pods", pod]["spec"] |= {"nodeName": f"added-{number}"}
    server.nodes[0]["requested"] = 1
    with pytest.raises(DeployError, match=r"bring the price to \$5.583/h"):
        commands.scale(4)


def test_pods_that_ask_for_a_label_only_are_not_scaled_to_nodes_that_lack_it(tmp_path: Path):
    server = cluster(nodes=(node("there"),))
    commands = Commands(tmp_path / "state", server)
    commands.up()
    server.objects["nodepools", "gpu"] = pool(requirements=L40S)
    with pytest.raises(DeployError) as caught:
        commands.scale(2)
    assert caught.value.code == "no_free_gpus"


def test_a_range_names_the_nodes_that_are_there_and_those_that_may_be_added(tmp_path: Path):
    server = cluster(pool(requirements=L40S, limits={"nvidia.com/gpu": "2"}), nodes=(node("there"),))
    server.groups = METRICS
    commands = Commands(tmp_path / "state", server, replicas="1..5")
    found = {item.code: item.message for item in commands.findings(commands.planned())}
    words = "the nodes have room for 1; Karpenter may launch nodes for 2 more"
    assert found["no_room_to_grow"] == f"not all of at most 5 replicas can start now: {words}"
    commands.up()
    assert [line.split()[0] for line in commands.scale(1, 3) if line.startswith(("new_node", "no_room"))] == [
        "new_node"
    ]
    found = [line for line in commands.scale(1, 9) if line.startswith(("new_node", "no_room"))]
    assert found[0].startswith("new_node for up to 9 replicas, 2 new nodes by the NodePool gpu")
    assert found[1:] == [f"no_room_to_grow not all of at most 9 replicas can start now: {words}"]


SPOT = [*L40S, {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]


def test_a_pool_that_rents_spot_only_has_the_spot_price_as_an_estimate():
    result = planned(cluster(pool(requirements=SPOT)), budget="5")
    chosen, (notice,) = result.data.plan.chosen, [item for item in result.warnings if item.code == "new_node"]
    on_demand = planned(cluster(pool(requirements=L40S)), budget="5").data.plan.chosen
    assert (chosen.estimated, on_demand.estimated) == (True, False)
    assert chosen.usd_per_hour < on_demand.usd_per_hour
    assert re.search(r"as spot in us-east-1 \(estimated [\d-]{10}\), the only market of the pool", notice.message)
    assert notice.hint.endswith("a spot node can be reclaimed at any time")


def test_without_a_spot_price_the_on_demand_price_is_an_upper_bound():
    offer = next(iter(growth(api_of(cluster(pool(requirements=SPOT))), NodeLabels.packaged(), open_catalog()).every))
    unknown = replaced(offer, usd_per_hour=Decimal("1.861"), spot_usd_per_hour=None)
    price = f"at most $1.861/h, the on-demand price in us-east-1 (estimated {offer.price_date}), for a spot node"
    assert price in unknown.notice().message


def test_of_several_pools_the_highest_price_counts_and_all_of_their_room():
    server = cluster(
        pool("spot", requirements=SPOT, weight=100, limits={"nvidia.com/gpu": "1"}),
        pool("rest", requirements=L40S, limits={"nvidia.com/gpu": "2"}),
    )
    every = growth(api_of(server), NodeLabels.packaged(), open_catalog()).every
    found = next(item for item in every if item.instance_type == "g6e.xlarge")
    assert (found.pool, found.most, found.spot_only, found.estimated) == ("spot or rest", 3, False, False)
    assert found.usd_per_hour == planned(cluster(pool(requirements=L40S)), budget="5").data.plan.chosen.usd_per_hour


def test_the_budget_also_limits_a_range_that_ends_beyond_the_limits_of_the_pool(tmp_path: Path):
    server = cluster(pool(requirements=L40S, limits={"nvidia.com/gpu": "4"}), nodes=(node("there"),))
    server.groups = METRICS
    commands = Commands(tmp_path / "state", server, budget="4")
    commands.up()
    with pytest.raises(DeployError) as caught:
        commands.scale(1, 9)
    assert caught.value.code == "over_budget"


def test_pods_that_wait_for_their_node_count_against_the_budget(tmp_path: Path):
    commands = Commands(tmp_path / "state", cluster(pool(requirements=L40S), nodes=(node("there"),)), budget="4")
    commands.up()
    commands.scale(3)
    for number, name in enumerate(sorted(name for kind, name in commands.server.objects if kind == "pods")):
        spec = commands.server.objects["pods", name]["spec"]
        if number:
            spec.pop("nodeName", None)
    with pytest.raises(DeployError, match="bring the price to"):
        commands.scale(5)


def test_a_dry_run_of_another_number_names_the_price_of_new_nodes(tmp_path: Path):
    commands = Commands(tmp_path / "state", cluster(pool(requirements=L40S), nodes=(node("there"),)))
    commands.up()
    commands.options["replicas"] = "3"
    outcome = commands._up(*commands.planned(), dry_run=True)
    assert outcome.proposal is not None
    assert [item.code for item in outcome.remarks] == ["replicas_changed"]
    assert [item.code for item in outcome.proposal.warnings] == ["new_node"]
    assert "2 new nodes" in outcome.proposal.warnings[0].message
    assert commands.replicas == 1


@pytest.mark.parametrize(
    ("asked", "before", "price"), [("3", "1", "$3.722"), ("1..4", "1", "$5.583"), ("2", "1", "$1.861")]
)
def test_up_asks_before_more_replicas_add_nodes_and_names_their_price(
    tmp_path: Path, asked: str, before: str, price: str
):
    server = cluster(pool(requirements=L40S), nodes=(node("there"),))
    server.groups = METRICS
    commands = Commands(tmp_path / "state", server)
    commands.up()
    commands.options["replicas"] = asked
    shown: list[Any] = []
    declined = commands._up(*commands.planned(), confirm=lambda proposal: bool(shown.append(proposal)))
    assert (declined.declined, declined.changed, commands.replicas) == (True, False, 1)
    assert commands.around.store.load("demo").plan.requirements.replicas.words != asked
    text = proposal_text(shown[0])
    assert f"replicas  {before} -> {asked}" in text
    assert f"up to {price} an hour more" in text
    assert commands.up().changed
    changed = commands.around.store.load("demo").plan
    assert asked in {changed.requirements.replicas.words, str(changed.chosen.replicas)}


def test_more_replicas_on_existing_nodes_and_fewer_need_no_question(tmp_path: Path):
    server = cluster(pool(requirements=L40S), nodes=(node("a"), node("b")))
    commands = Commands(tmp_path / "state", server)
    commands.up()
    for number in ("2", "1"):
        commands.options["replicas"] = number
        outcome = commands._up(*commands.planned(), confirm=lambda _proposal: False)
        assert (outcome.changed, commands.replicas) == (True, int(number))


def test_up_finishes_a_change_of_the_number_that_was_killed_after_it_was_recorded(tmp_path: Path):
    commands = Commands(tmp_path / "state", cluster(nodes=(node("a"), node("b"))))
    commands.up()
    commands.scale(2)
    commands.server.objects["deployments", "tgi-deploy-demo"]["spec"]["replicas"] = 1
    assert (commands.up().changed, commands.replicas) == (False, 1)  # it may have been changed by hand
    commands.options["replicas"] = "2"
    outcome = commands.up()
    assert [item.message for item in outcome.remarks] == ["1 replica became 2"]
    assert commands.replicas == 2


def test_a_node_that_the_pods_do_not_select_is_not_room(tmp_path: Path):
    bare = {TYPE: "g6e.2xlarge", "nvidia.com/gpu.product": "", **IN_VIRGINIA}
    server = cluster(pool(requirements=L40S), nodes=(node("full", requested=1), node("unlabeled", labels=bare)))
    commands = Commands(tmp_path / "state", server)
    (found,) = [item.message for item in commands.findings(commands.planned()) if item.code == "new_node"]
    assert found.startswith("a new node by the NodePool gpu")
