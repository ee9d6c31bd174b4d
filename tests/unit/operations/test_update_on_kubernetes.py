"""An update of a deployment in a cluster, killed at every request that changes something."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from builders.clusters import PLACE, SHARED, Cluster, nodepool
from builders.samples import SPARSE
from fakes.cloud import KilledError
from fakes.computer import FakeEngine
from fakes.kubernetes_api import node

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.removing.gc import GcRequest, gc
from tgi_deploy.operations.watching.status import status
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.autoscalers import steps
from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
from tgi_deploy.targets.kubernetes.enforcing import Enforcers
from tgi_deploy.targets.kubernetes.front import Services
from tgi_deploy.targets.kubernetes.options import KubernetesOptions
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.request import Replicas

LEAST_MOMENTS = 10


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path / "state")


def test_the_question_before_an_update_names_the_pods_own_time_for_open_requests(cluster):
    cluster.up()
    cluster.server.objects["deployments", SHARED]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 431
    asked = []
    cluster.up("awq", confirm=lambda proposal: asked.append(proposal.update))
    (update,) = asked
    assert (update.strategy, update.drain_s, update.downtime_s) == ("rolling", 431, 0)


@pytest.mark.parametrize(
    ("gpus", "strategy", "words"), [(1, "rolling", ""), (0, "recreate", "the cluster has it for 0 more")]
)
def test_an_update_is_rolling_where_karpenter_may_add_its_nodes(cluster, gpus, strategy, words):
    cluster.gpus = 1
    cluster.renew()
    cluster.server.nodes.append(node("cpu", gpus=0, labels={"topology.kubernetes.io/region": "us-east-1"}))
    cluster.up()
    cluster.server.objects["nodepools", "gpu"] = nodepool(gpus)
    asked = []
    cluster.up("awq", confirm=lambda proposal: not asked.append(proposal))
    (proposal,) = asked
    assert proposal.update.strategy == strategy
    assert [item.code for item in proposal.findings if item.code == "new_node"] == ["new_node"] * gpus
    assert words in " ".join(cluster.around.recorder.lines)
    pod = cluster.server.objects["deployments", f"{SHARED}-r2"]["spec"]["template"]["spec"]
    assert ("g6e.xlarge" in str(pod.get("affinity"))) is bool(gpus)


def kill_at(cluster, ordinal, *, rolling):
    """Kill the process before the changing requests 1, 3, 5 and so on, or after them, at 2, 4, 6."""
    left = [ordinal]

    def moment(asked):
        assert cluster.serving or not rolling, "requests find no pod"
        left[0] -= asked.split()[0] in {"PATCH", "POST", "DELETE"}
        if left[0] == 0:
            raise KilledError

    cluster.server.on_request = cluster.server.on_reply = moment


def killed_updates(cluster, ends, *, rolling=True):
    """Yield each time that an update has been killed at another moment."""
    for ordinal in range(1, 1000, SPARSE):
        cluster.renew()
        cluster.up(ends=ends)
        kill_at(cluster, ordinal, rolling=rolling)
        with suppress(KilledError):
            cluster.up("awq", ends=ends)
            assert ordinal > LEAST_MOMENTS
            return
        cluster.server.on_request = cluster.server.on_reply = lambda _request: None
        yield


def is_complete(cluster, deployment, ends):
    """Assert that exactly one revision is there, and gets the requests."""
    number = deployment.active
    name = SHARED if number == 1 else f"{SHARED}-r{number}"
    assert (deployment.rollout, cluster.names("deployments"), cluster.serving) == (None, [name], [name])
    assert cluster.names("services") == cluster.names("poddisruptionbudgets") == [SHARED]
    assert len(cluster.names("pods")) == 1
    limits = [name] if ends.ttl_s else []
    assert cluster.names("serviceaccounts") == cluster.names("roles") == cluster.names("rolebindings") == limits
    assert len(cluster.names("jobs")) == len(limits)


def goes_back(cluster, ends):
    """Roll an update back; one that the cluster's requests have not begun is not one yet."""
    if cluster.around.store.load("demo").rollout is None:
        return cluster.up(ends=ends)
    return cluster.roll_back(ends=ends)


TTL = WantedEnds(ttl_s=7200)
NEXT = {
    "the same update": lambda cluster, ends: cluster.up("awq", ends=ends),
    "another update": lambda cluster, ends: cluster.up("gptq", ends=ends),
    "a rollback": goes_back,
}


@pytest.mark.slow
@pytest.mark.parametrize("then", NEXT)
def test_after_a_killed_update_the_next_run_goes_on_or_back_and_nothing_is_there_twice(cluster, then):
    for _ in killed_updates(cluster, TTL):
        is_complete(cluster, NEXT[then](cluster, TTL), TTL)


@pytest.mark.slow
def test_after_a_killed_update_down_leaves_nothing(cluster):
    for _ in killed_updates(cluster, TTL):
        cluster.down()
        assert cluster.server.objects == {}


@pytest.mark.slow
def test_a_killed_update_without_room_for_both_is_finished_by_the_next_run(cluster):
    cluster.gpus, none = 1, WantedEnds()
    for _ in killed_updates(cluster, none, rolling=False):
        is_complete(cluster, cluster.up("awq", ends=none), none)


def test_status_names_limits_that_nothing_enforces(cluster):
    cluster.up(ends=TTL)
    (found,) = status(cluster.context(), "demo").drift
    assert (found.code, "it does not exist" in found.message) == ("limits_not_enforced", True)
    no_room = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: taint"}
    pod = {"metadata": {"name": "l", "labels": {"tgi-deploy/limits-of": SHARED}}, "spec": {}}
    cluster.server.objects["pods", "l"] = {**pod, "status": {"phase": "Pending", "conditions": [no_room]}}
    (found,) = status(cluster.context(), "demo").drift
    assert "Unschedulable: 0/1 nodes: taint" in found.message
    running = [{"name": "limits", "restartCount": 0, "state": {"running": {}}}]
    cluster.server.objects["pods", "l"] = {**pod, "status": {"phase": "Running", "containerStatuses": running}}
    assert status(cluster.context(), "demo").drift == ()


def test_what_enforces_the_limits_of_the_serving_revision_outlives_a_failed_update(cluster):
    cluster.up(ends=TTL)
    (job,) = cluster.names("jobs")
    broken = cluster.context
    cluster.context = lambda: replace(broken(), engine_client=lambda _url: FakeEngine(model_id="someone/else"))
    with pytest.raises(DeployError):
        cluster.up("awq", ends=TTL)
    assert (cluster.names("jobs"), cluster.serving) == ([job], [SHARED])


KEY = "key-of-the-engine"
EXPOSED = KubernetesOptions(host="llm.example.com", tls_secret="web", api_key_from_env="LLM_KEY")
ROUTED = KubernetesOptions(host="llm.example.com", gateway="infra/web/https", api_key_from_env="LLM_KEY")
MOVED = replaced(EXPOSED, host="new.example.com")
BOTH_WAYS = pytest.mark.parametrize("options", [EXPOSED, ROUTED], ids=["ingress", "route"])


def with_host(cluster, scheme="none", options=EXPOSED, **changes):
    return cluster.up(scheme, options=options, environ={"LLM_KEY": KEY}, preflight=False, **changes)


def hosts(cluster):
    """Return the hosts of Ingresses and of HTTPRoutes."""
    found = list(cluster.server.objects.items())
    ingresses = [item["spec"]["rules"][0]["host"] for (kind, _), item in found if kind == "ingresses"]
    return ingresses + [host for (kind, _), item in found if kind == "httproutes" for host in item["spec"]["hostnames"]]


def watched(cluster):
    """Return what will be seen at each reply of the cluster: the hosts that lead to which Deployments."""
    seen = set()
    cluster.server.on_reply = lambda _request: seen.update((host, *cluster.serving) for host in hosts(cluster))
    return seen


def fail_proofs(cluster):
    cluster.around.engine.model_id = "someone/else"


@BOTH_WAYS
@pytest.mark.parametrize("strategy", ["rolling", "recreate"])
def test_a_new_host_leads_only_to_the_revision_that_was_proved_with_the_key(cluster, strategy, options):
    cluster.up()
    seen = watched(cluster)
    with_host(cluster, "awq", options, strategy=strategy)
    assert seen == {("llm.example.com", f"{SHARED}-r2")}


@BOTH_WAYS
@pytest.mark.parametrize("strategy", ["rolling", "recreate"])
def test_a_failed_update_exposes_nothing(cluster, strategy, options):
    cluster.up()
    seen = watched(cluster)
    fail_proofs(cluster)
    with pytest.raises(DeployError):
        with_host(cluster, "awq", options, strategy=strategy)
    assert seen == set()


@pytest.mark.slow
def test_a_killed_update_and_the_run_that_goes_on_lead_the_host_only_to_the_new_revision(cluster):
    for ordinal in range(1, 1000, SPARSE):
        cluster.renew()
        cluster.up()
        kill_at(cluster, ordinal, rolling=True)
        with suppress(KilledError):
            with_host(cluster, "awq")
            assert ordinal > LEAST_MOMENTS
            return
        cluster.server.on_request = lambda _request: None
        seen = watched(cluster)
        with_host(cluster, "awq")
        assert seen == {("llm.example.com", f"{SHARED}-r2")}


def test_a_failed_update_leaves_the_host_as_it_was(cluster):
    with_host(cluster)
    before = cluster.server.objects["ingresses", SHARED]
    seen = watched(cluster)
    fail_proofs(cluster)
    with pytest.raises(DeployError):
        with_host(cluster, "awq", MOVED)
    assert (cluster.server.objects["ingresses", SHARED], seen) == (before, {("llm.example.com", SHARED)})


def test_another_host_takes_the_place_of_the_former_once_the_revision_is_proved(cluster):
    with_host(cluster)
    seen = watched(cluster)
    with_host(cluster, "awq", MOVED)
    assert hosts(cluster) == ["new.example.com"]
    assert ("new.example.com", SHARED) not in seen


def test_the_first_revision_is_exposed_only_once_it_is_proved(cluster):
    seen = watched(cluster)
    fail_proofs(cluster)
    with pytest.raises(DeployError):
        with_host(cluster)
    assert seen == set()
    cluster.around.engine.model_id = "example-org/example-13b"
    with_host(cluster)
    assert hosts(cluster) == ["llm.example.com"]


@pytest.mark.parametrize("recorded", [True, False])
def test_without_a_host_no_ingress_of_an_earlier_one_stays(cluster, recorded):
    with_host(cluster, options=KubernetesOptions(host="llm.example.com", tls_secret="web", expose_to_world=True))
    if not recorded:
        cluster.around.store.remove("demo")
        cluster.around.clock.seconds += 3600
    seen = watched(cluster)
    cluster.up()
    assert hosts(cluster) == []
    assert {entry[1:] for entry in seen} <= {(), (SHARED,)}


@BOTH_WAYS
@pytest.mark.parametrize("wait", [True, False])
def test_a_host_ends_with_its_deployment_whether_or_not_the_engine_was_awaited(cluster, wait, options):
    with_host(cluster, options=options, wait=wait)
    assert hosts(cluster) == ["llm.example.com"]
    cluster.down()
    assert hosts(cluster) == []


@pytest.mark.parametrize(("before", "after"), [(EXPOSED, ROUTED), (ROUTED, EXPOSED)], ids=["to a route", "back"])
@pytest.mark.parametrize("wait", [True, False])
def test_of_an_ingress_and_a_route_only_what_was_asked_for_last_stays(cluster, wait, before, after):
    with_host(cluster, options=before, wait=wait)
    with_host(cluster, "awq", options=after, wait=wait)
    assert hosts(cluster) == ["llm.example.com"]
    assert cluster.names("httproutes") == ([SHARED] if after.gateway else [])


def test_status_names_why_a_gateway_refuses_the_route(cluster):
    with_host(cluster, options=ROUTED)
    assert status(cluster.context(), "demo").drift == ()
    why = {"type": "Accepted", "status": "False", "reason": "NotAllowedByListeners", "message": "other namespaces"}
    cluster.server.objects["httproutes", SHARED]["status"] = {"parents": [{"conditions": [why]}]}
    (found,) = status(cluster.context(), "demo").drift
    assert (found.code, "NotAllowedByListeners: other namespaces" in found.message) == ("host_not_served", True)


@BOTH_WAYS
@pytest.mark.parametrize("recorded", [True, False], ids=["down", "gc"])
def test_what_exposes_a_host_goes_after_a_kill_right_after_its_creation(cluster, recorded, options):
    plural = "httproutes" if options.gateway else "ingresses"

    def kill(asked):
        if asked == f"PATCH {plural}" and hosts(cluster):
            raise KilledError

    cluster.server.on_reply = kill
    with pytest.raises(KilledError):
        with_host(cluster, options=options)
    cluster.server.on_reply = lambda _request: None
    assert hosts(cluster) == ["llm.example.com"]
    # Objects that an owner does not take along are found by their labels alone.
    del cluster.server.objects[plural, SHARED]["metadata"]["ownerReferences"]
    if recorded:
        cluster.down()
    else:
        cluster.around.store.remove("demo")
        cluster.around.clock.seconds += 3600
        gc(cluster.context(), GcRequest(older_than_s=60, confirm=lambda _groups: True, include_unrecorded=True))
    assert cluster.server.objects == {}


def without(item, *path):
    """Remove a member of an object in the cluster."""
    *above, last = path
    for member in above:
        item = item[member]
    del item[last]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("deployments", ("spec", "selector", "matchLabels", "tgi-deploy/revision")),
        ("deployments", ("metadata", "labels", "app.kubernetes.io/name")),
        ("horizontalpodautoscalers", ("apiVersion",)),
        ("horizontalpodautoscalers", ("spec",)),
    ],
)
def test_a_range_for_objects_that_lack_what_was_applied_is_an_error_with_a_code(cluster, kind, path):
    cluster.up()
    metadata = {"name": SHARED, "uid": "u", "labels": {}}
    autoscaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": {}}
    if kind == "horizontalpodautoscalers":
        cluster.server.objects[kind, SHARED] = autoscaler
    without(cluster.server.objects[kind, SHARED], *path)
    cloud = KubernetesCloud(api=Api(place=Place.of(PLACE), sender=cluster.server))
    with pytest.raises(DeployError) as raised:
        steps(cloud, cluster.around.store.load("demo"), Replicas(least=1, most=3), ("tgi_queue_size",), "")
    assert raised.value.code == "cluster_unreachable"


def test_a_pod_of_limits_without_its_label_is_an_error_with_a_code(cluster):
    cluster.up(ends=TTL)
    cluster.server.objects["pods", "l"] = {
        "metadata": {"name": "l", "labels": {"tgi-deploy/limits-of": ""}},
        "spec": {},
    }
    with pytest.raises(DeployError) as raised:
        Enforcers(Api(place=Place.of(PLACE), sender=cluster.server)).find({})
    assert raised.value.code == "cluster_unreachable"


def test_a_service_without_what_was_applied_is_an_error_with_a_code(cluster):
    cluster.up()
    without(cluster.server.objects["services", SHARED], "spec", "ports")
    with pytest.raises(DeployError) as raised:
        Services(Api(place=Place.of(PLACE), sender=cluster.server)).select(SHARED, 2)
    assert raised.value.code == "cluster_unreachable"
