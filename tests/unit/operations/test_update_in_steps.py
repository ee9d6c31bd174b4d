"""An update of several replicas in a cluster with room for one more: in steps, which can be killed at any request."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest
from builders.clusters import SHARED, Cluster, nodepool, quota
from builders.samples import SPARSE
from fakes.cloud import KilledError
from fakes.kubernetes_api import node

from tgi_deploy.cli.views.deployment import update_text
from tgi_deploy.cli.views.status import status_text
from tgi_deploy.errors import ConflictError, DeployError, NotHealthyError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.scaling import scale
from tgi_deploy.operations.watching.status import status
from tgi_deploy.targets.kubernetes.options import KubernetesOptions
from tgi_deploy.text import duration
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.request import Replicas

OLD, NEW = SHARED, f"{SHARED}-r2"
LEAST_MOMENTS = 15
IN_THE_STEPS = 12  # once an old replica has ended


@pytest.fixture
def cluster(tmp_path):
    """Return a cluster with three GPUs, for two replicas."""
    return Cluster(tmp_path / "state", gpus=3, replicas=2)


def seen_pods(cluster):
    """Return what will be behind the Service at each reply of the cluster, without repetitions."""
    seen = []

    def look(_asked):
        if not seen or seen[-1] != cluster.behind:
            seen.append(cluster.behind)

    cluster.server.on_reply = look
    return seen


def test_replicas_are_replaced_one_after_the_other_and_never_fewer_serve(cluster):
    cluster.up()
    seen = seen_pods(cluster)
    deployment = cluster.up("awq")
    assert seen == [
        [OLD, OLD],
        [OLD, OLD, NEW],
        [OLD, NEW],
        [OLD, NEW, NEW],
        [NEW, NEW],
    ]
    assert (deployment.active, deployment.rollout, cluster.names("deployments")) == (2, None, [NEW])
    assert cluster.server.objects["services", SHARED]["spec"]["selector"]["tgi-deploy/revision"] == "2"


def test_where_half_of_the_replicas_have_room_half_are_replaced_at_a_time(tmp_path):
    cluster = Cluster(tmp_path / "state", gpus=6, replicas=4)
    cluster.up()
    seen = seen_pods(cluster)
    cluster.up("awq")
    sizes = [(pods.count(OLD), pods.count(NEW)) for pods in seen]
    assert sizes == [(4, 0), (4, 2), (2, 2), (2, 4), (0, 4)]


@pytest.mark.parametrize(("before", "after", "gpus"), [(3, 2, 4), (2, 3, 4)])
def test_another_number_of_replicas_is_reached_with_at_least_the_smaller_one_serving(tmp_path, before, after, gpus):
    cluster = Cluster(tmp_path / "state", gpus=gpus)
    cluster.up(replicas=before)
    seen = seen_pods(cluster)
    cluster.up("awq", replicas=after)
    assert min(map(len, seen)) == min(before, after)
    assert max(map(len, seen)) <= gpus
    assert seen[-1] == [NEW] * after


@pytest.mark.parametrize(
    ("before", "after", "gpus", "dips"),
    [
        ((2, 2), (4, 1), 6, False),
        ((3, 1), (2, 1), 4, False),
        ((2, 1), (3, 1), 4, False),
        ((2, 1), (3, 1), 3, True),
    ],
    ids=["smaller replicas", "fewer", "more", "more, and no room for the share of the load"],
)
def test_replicas_with_another_share_of_the_load_carry_all_of_it_where_there_is_room(
    tmp_path, before, after, gpus, dips
):
    cluster = Cluster(tmp_path / "state", gpus=gpus)
    cluster.up(replicas=before[0], shards=before[1])
    seen = seen_pods(cluster)
    cluster.up("awq", replicas=after[0], shards=after[1])
    shares = [Fraction(pods.count(OLD), before[0]) + Fraction(pods.count(NEW), after[0]) for pods in seen]
    assert (min(shares) < 1, seen[-1]) == (dips, [NEW] * after[0])
    assert min(map(len, seen)) >= min(before[0], after[0])


def asked_before(cluster, scheme="awq", **changes):
    """Return the question before an update, which is declined."""
    asked = []
    cluster.up(scheme, confirm=lambda proposal: asked.append(proposal.update), **changes)
    (update,) = asked
    return update


def test_the_question_names_the_steps_and_their_time(cluster):
    cluster.up()
    update = asked_before(cluster)
    assert (update.strategy, update.at_a_time, update.downtime_s, update.stable) == ("rolling", 1, 0, True)
    text = update_text(update)
    assert "revision 1 -> 2: 1 replica at a time" in text
    assert "1 more replica for about" in text
    assert "both revisions serve until all are replaced" in " ".join(text.split())


def test_with_room_for_all_nothing_is_said_of_steps(tmp_path):
    cluster = Cluster(tmp_path / "state", gpus=4, replicas=2)
    cluster.up()
    update = asked_before(cluster)
    assert (update.strategy, update.at_a_time) == ("rolling", 0)
    seen = seen_pods(cluster)
    cluster.up("awq")
    assert [OLD, NEW] not in seen


KEYED = KubernetesOptions(api_key_from_env="LLM_KEY")


def recreated(cluster, words, **changes):
    assert asked_before(cluster, **changes).strategy == "recreate"
    assert words in " ".join(cluster.around.recorder.lines)


def test_without_any_room_it_is_recreated_as_before(tmp_path):
    cluster = Cluster(tmp_path / "state", gpus=2, replicas=2)
    cluster.up()
    recreated(cluster, "the cluster has it for 0 more; after 'tgi-deploy scale demo 1' it can go in steps")


def test_after_scaling_down_by_one_a_full_cluster_has_room_for_steps(tmp_path):
    cluster = Cluster(tmp_path / "state", gpus=3, replicas=3)
    cluster.up()
    scale(cluster.context(), "demo", Replicas(least=2, most=2))
    seen = seen_pods(cluster)
    cluster.up("awq", replicas=3)
    assert (min(map(len, seen)), max(map(len, seen)), seen[-1]) == (2, 3, [NEW, NEW, NEW])


def test_a_single_replica_without_room_is_recreated_as_before(tmp_path):
    cluster = Cluster(tmp_path / "state", gpus=1)
    cluster.up()
    recreated(cluster, "the cluster has it for 0 more")
    assert "scale demo" not in " ".join(cluster.around.recorder.lines)


def test_another_api_key_is_not_changed_in_steps(cluster):
    cluster.up()
    changes = {"options": KEYED, "environ": {"LLM_KEY": "key-of-the-engine"}, "preflight": False}
    recreated(cluster, "callers would need both API keys", **changes)


def test_a_first_replica_that_fails_its_proof_is_removed_and_the_old_ones_are_untouched(cluster):
    cluster.up()
    seen = seen_pods(cluster)
    cluster.around.engine.model_id = "someone/else"
    with pytest.raises(DeployError) as raised:
        cluster.up("awq")
    assert raised.value.code == "wrong_model"
    assert (seen, cluster.names("deployments")) == ([[OLD, OLD]], [OLD])


def break_second(cluster):
    """Have the second replica of the new revision crash."""

    def after(done):
        if done == "scale deployments" and cluster.names("deployments") == [OLD, NEW]:
            cluster.server.pod_status = {
                "phase": "Running",
                "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}],
                "containerStatuses": [
                    {
                        "name": "engine",
                        "restartCount": 9,
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
                    }
                ],
            }

    cluster.server.after_call = after


def fix(cluster):
    cluster.server.after_call, cluster.server.pod_status = None, None


def fail_second(cluster):
    cluster.up()
    break_second(cluster)
    with pytest.raises(NotHealthyError) as raised:
        cluster.up("awq")
    fix(cluster)
    return raised.value


def test_a_replica_that_does_not_become_ready_stops_the_update_with_both_revisions_serving(cluster):
    error = fail_second(cluster)
    assert "ready replicas of revisions 2 and 1 serve at" in error.hint
    assert "'tgi-deploy rollback demo' goes back to revision 1" in error.hint
    assert (cluster.names("deployments"), cluster.behind.count(OLD)) == ([OLD, NEW], 1)
    text = status_text(status(cluster.context(), "demo"))
    assert "2, serving; the update from revision 1 is not finished: the same 'up' resumes it" in text
    assert "'tgi-deploy rollback demo' goes back to revision 1" in text
    assert "1 ready, 1 running of revision 2" in text
    assert "1 ready of revision 1" in text


def test_the_same_update_goes_on_after_a_failed_step(cluster):
    fail_second(cluster)
    cluster.server.objects = {key: item for key, item in cluster.server.objects.items() if not is_broken(item)}
    restart_missing(cluster)
    deployment = cluster.up("awq")
    assert (deployment.active, deployment.rollout, cluster.behind) == (2, None, [NEW, NEW])


def is_broken(item):
    """Return whether a pod's container has crashed."""
    return any("lastState" in own for own in item.get("status", {}).get("containerStatuses", ()))


def restart_missing(cluster):
    """Have the cluster start the pods that its Deployments lack, in order."""
    for name in cluster.names("deployments"):
        wanted = cluster.server.objects["deployments", name]
        cluster.server._resize(name, {"spec": {"replicas": wanted["spec"]["replicas"]}})


def test_a_rollback_after_a_failed_step_goes_back_in_the_same_steps(cluster):
    fail_second(cluster)
    cluster.server.objects = {key: item for key, item in cluster.server.objects.items() if not is_broken(item)}
    seen = seen_pods(cluster)
    deployment = cluster.roll_back()
    assert (deployment.active, deployment.rollout, cluster.names("deployments")) == (1, None, [OLD])
    assert min(map(len, seen)) == 2
    assert seen[-1] == [OLD, OLD]
    assert [(item.number, item.state) for item in deployment.revisions] == [(1, "serving"), (2, "failed")]


def test_a_dry_run_of_that_rollback_changes_nothing_and_names_what_it_would_remove(cluster):
    fail_second(cluster)
    before, asked = dict(cluster.server.objects), []
    record = cluster.around.store.load("demo")
    cluster.roll_back(dry_run=True, confirm=lambda proposal: not asked.append(proposal))
    assert (cluster.server.objects, cluster.around.store.load("demo")) == (before, record)
    assert "going back to revision 1" in " ".join(cluster.around.recorder.lines)


def kill_at(cluster, ordinal):
    """Kill the process before the changing requests 1, 3, 5 and so on, or after them; two replicas always serve."""
    left = [ordinal]

    def moment(asked):
        assert len(cluster.behind) >= 2, cluster.behind
        left[0] -= asked.split()[0] in {"PATCH", "POST", "DELETE"}
        if left[0] == 0:
            raise KilledError

    cluster.server.on_request = cluster.server.on_reply = moment


def watch(cluster):
    """Have every request find two replicas."""
    kill_at(cluster, -1)


def killed_updates(cluster):
    """Yield each time that an update has been killed at another moment."""
    for ordinal in range(1, 1000, SPARSE):
        cluster.renew()
        cluster.up()
        kill_at(cluster, ordinal)
        with suppress(KilledError):
            cluster.up("awq")
            assert ordinal > LEAST_MOMENTS
            return
        watch(cluster)
        yield


@pytest.mark.slow
def test_after_a_kill_the_same_update_goes_on_and_two_replicas_serve_all_the_time(cluster):
    for _ in killed_updates(cluster):
        deployment = cluster.up("awq")
        assert (deployment.rollout, cluster.names("deployments")) == (None, [f"{SHARED}-r{deployment.active}"])
        assert cluster.behind == cluster.names("deployments") * 2


@pytest.mark.slow
def test_after_a_kill_a_rollback_goes_back_and_two_replicas_serve_all_the_time(cluster):
    for _ in killed_updates(cluster):
        record = cluster.around.store.load("demo")
        if record.rollout is None:
            continue
        was_there = OLD in cluster.names("deployments")
        deployment = cluster.roll_back()
        (name,) = cluster.names("deployments")
        assert (deployment.rollout, deployment.plan.chosen.quantize, cluster.behind) == (None, "none", [name, name])
        assert (name == OLD) is was_there


@pytest.mark.slow
def test_a_killed_rollback_goes_on_to_the_old_revision(cluster):
    for ordinal in range(1, 1000, SPARSE):
        cluster.renew()
        cluster.up()
        kill_at(cluster, IN_THE_STEPS)
        with pytest.raises(KilledError):
            cluster.up("awq")
        assert cluster.behind == [OLD, NEW]
        kill_at(cluster, ordinal)
        with suppress(KilledError):
            cluster.roll_back()
            assert ordinal > LEAST_MOMENTS // 3
            return
        watch(cluster)
        assert (cluster.roll_back().active, cluster.behind) == (1, [OLD, OLD])


@pytest.mark.slow
def test_after_a_kill_down_leaves_nothing(cluster):
    for _ in killed_updates(cluster):
        cluster.server.on_request = cluster.server.on_reply = lambda _request: None
        cluster.down()
        assert cluster.server.objects == {}


def test_a_quota_counts_as_room_for_some_or_for_none(tmp_path):
    cluster = Cluster(tmp_path / "state", gpus=4, replicas=2)
    cluster.up()
    quota(cluster, 1)
    assert asked_before(cluster).at_a_time == 1
    quota(cluster, 0)
    recreated(cluster, "the quotas allow 0 more")


def test_a_pool_that_may_add_one_node_makes_room_for_one_replica(tmp_path):
    cluster = Cluster(tmp_path / "state", gpus=2, replicas=2)
    cluster.server.nodes.append(node("cpu", gpus=0, labels={"topology.kubernetes.io/region": "us-east-1"}))
    cluster.up()
    cluster.server.objects["nodepools", "gpu"] = nodepool(1)
    update = asked_before(cluster)
    assert (update.at_a_time, update.extra_usd) == (1, Decimal("1.861") * update.overlap_s / 3600)
    assert f"1 more replica for about {duration(update.overlap_s)}: about $" in update_text(update)


def test_replicas_beside_the_old_ones_cost_nothing_more_on_existing_nodes(cluster):
    cluster.up()
    assert asked_before(cluster).extra_usd is None


def test_if_something_else_takes_the_place_of_an_old_replica_the_update_stops_with_an_error(cluster):
    cluster.up()

    def take(done):
        if done == "scale deployments" and cluster.behind == [OLD, NEW]:
            cluster.server.nodes[0]["requested"] = 1

    cluster.server.after_call = take
    with pytest.raises(DeployError) as raised:
        cluster.up("awq")
    assert raised.value.code == "no_free_gpus"
    assert "1 of 2 replicas of the new revision are ready" in raised.value.message
    assert "ready replicas of revisions 2 and 1 serve at" in raised.value.hint
    assert cluster.behind == [OLD, NEW]
    cluster.server.nodes[0]["requested"] = 0
    assert cluster.up("awq").rollout is None


def test_the_leases_of_both_revisions_are_renewed_in_the_steps(cluster):
    lease, renewed = WantedEnds(lease_s=60), []
    cluster.up(ends=lease)

    def look(_asked):
        annotations = cluster.server.objects["deployments", OLD]["metadata"]["annotations"]
        renewed.append(annotations["tgi-deploy/lease-until"])

    break_second(cluster)
    cluster.server.on_request = look
    with pytest.raises(NotHealthyError):
        cluster.up("awq", ends=lease)
    assert len(set(renewed)) > 10


LIMITS = ("expires", "idle-s", "lease-until", "lease-s")


def limits_of(cluster, name):
    """Return the limits that the cluster holds for a revision; none for those without."""
    annotations = cluster.server.objects["deployments", name]["metadata"]["annotations"]
    return {item: annotations.get(f"tgi-deploy/{item}", "none") for item in LIMITS}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (WantedEnds(ttl_s=7200), WantedEnds(ttl_s=36000, idle_s=900)),
        (WantedEnds(), WantedEnds(ttl_s=7200)),
        (WantedEnds(idle_s=900), WantedEnds()),
    ],
)
def test_both_revisions_end_together_because_the_first_to_end_removes_the_service(cluster, before, after):
    cluster.up(ends=before)
    break_second(cluster)
    with pytest.raises(NotHealthyError):
        cluster.up("awq", ends=after)
    fix(cluster)
    held = limits_of(cluster, NEW)
    assert limits_of(cluster, OLD) == held
    assert ("serviceaccounts", OLD) in cluster.server.objects or not after.ttl_s
    cluster.server.objects = {key: item for key, item in cluster.server.objects.items() if not is_broken(item)}
    deployment = cluster.roll_back(ends=after)
    assert (deployment.rollout, limits_of(cluster, OLD)) == (None, held)
    cluster.down()
    assert cluster.server.objects == {}


def karpenter(cluster, *, slow):
    """Have Karpenter add a node for each pod without a free GPU; old pods keep theirs for so many more requests."""
    server, ending = cluster.server, {}
    before = {name: item for (kind, name), item in server.objects.items() if kind == "pods"}
    placed = set(before)
    server.nodes.append(node("cpu", gpus=0, labels=REGION))
    server.objects["nodepools", "gpu"] = nodepool(8)

    def pods():
        return {name: item for (kind, name), item in server.objects.items() if kind == "pods"}

    def place(_done):
        for name in before.keys() - pods().keys() - ending.keys():
            ended = {**before[name]["metadata"], "deletionTimestamp": "2026-01-09T00:00:00Z"}
            server.objects["pods", name] = {**before[name], "metadata": ended, "owner": ""}
            ending[name] = slow
        for name, pod in pods().items():
            used = sum(item["spec"]["nodeName"] == "node-1" for key, item in pods().items() if key in placed)
            if name not in placed and used == cluster.gpus:
                pod["spec"]["nodeName"] = f"added-{len(server.nodes)}"
                server.nodes.append(node(pod["spec"]["nodeName"], labels=ADDED))
            placed.add(name)

    def wait(_asked):
        for name in [name for name, left in ending.items() if left > 0]:
            ending[name] -= 1
            if not ending[name]:
                server.objects.pop(("pods", name), None)

    server.after_call, server.on_request = place, wait


REGION = {"topology.kubernetes.io/region": "us-east-1"}
ADDED = {
    **REGION,
    "node.kubernetes.io/instance-type": "g6e.xlarge",
    "karpenter.sh/nodepool": "gpu",
    "karpenter.sh/capacity-type": "on-demand",
}


def test_later_steps_wait_for_the_old_replicas_gpus_instead_of_adding_nodes(tmp_path):
    cluster = Cluster(tmp_path / "state", gpus=3, replicas=3)
    cluster.up()
    karpenter(cluster, slow=60)
    asked = []
    deployment = cluster.up("awq", confirm=lambda proposal: not asked.append(proposal))
    (notice,) = [item.message for item in asked[0].findings if item.code == "new_node"]
    assert notice.startswith("2 new nodes by the NodePool gpu: g6e.xlarge, $1.861/h each")
    assert (deployment.rollout, cluster.behind) == (None, [NEW] * 3)
    assert sum(item["metadata"]["name"].startswith("added") for item in cluster.server.nodes) == 2


def test_the_nodes_of_all_steps_together_stay_within_the_budget(tmp_path):
    cluster = Cluster(tmp_path / "state", gpus=3, replicas=3)
    cluster.up()
    karpenter(cluster, slow=1)
    place = cluster.server.after_call

    def take(done):
        place(done)
        if done == "scale deployments":
            cluster.server.nodes[0]["requested"] = 3

    cluster.server.after_call = take
    with pytest.raises(DeployError, match="ready, and the next one has no room") as caught:
        cluster.up("awq")
    assert (caught.value.code, cluster.behind) == ("no_free_gpus", [OLD, NEW, NEW])
    assert sum(item["metadata"]["name"].startswith("added") for item in cluster.server.nodes) == 2


def test_commands_that_start_no_update_do_not_go_on_with_its_steps(cluster):
    fail_second(cluster)
    cluster.server.objects = {key: item for key, item in cluster.server.objects.items() if not is_broken(item)}
    before = dict(cluster.server.objects)
    with pytest.raises(ConflictError) as caught:
        scale(cluster.context(), "demo", Replicas(least=3, most=3))
    assert (caught.value.code, cluster.server.objects) == ("update_unfinished", before)
    assert "'up' resumes it, 'tgi-deploy rollback demo' goes back to revision 1; then try again" in caught.value.hint


def test_limits_are_moved_for_both_revisions_while_both_serve(cluster):
    fail_second(cluster)
    extend(cluster.context(), "demo", WantedEnds(ttl_s=7200, lease_s=600))
    held = limits_of(cluster, NEW)
    assert (limits_of(cluster, OLD), "none" in {held["expires"], held["lease-until"]}) == (held, False)
    assert cluster.behind == [OLD, NEW, NEW]


def test_a_new_revision_that_someone_deletes_is_an_error_at_once_and_a_rollback_goes_back(cluster):
    fail_second(cluster)
    gone = {key: item for key, item in cluster.server.objects.items() if NEW in {key[1], item.get("owner")}}
    cluster.server.objects = {key: item for key, item in cluster.server.objects.items() if key not in gone}
    with pytest.raises(DeployError, match=f"deployment/{NEW} does not exist in") as caught:
        cluster.up("awq")
    assert "'tgi-deploy rollback demo' goes back to revision 1" in caught.value.hint
    assert (cluster.roll_back().rollout, cluster.behind) == (None, [OLD, OLD])


def test_what_can_not_go_in_steps_is_refused_if_the_room_for_all_is_gone_after_a_kill(tmp_path):
    cluster = Cluster(tmp_path / "state", gpus=4, replicas=2)
    cluster.up()
    keyed = {"options": KEYED, "environ": {"LLM_KEY": "key-of-the-engine"}}
    data = {"api-key": b64encode(b"key-of-the-engine").decode()}
    cluster.server.objects["secrets", "engine-api-key"] = {"metadata": {"name": "engine-api-key"}, "data": data}
    kill_at(cluster, 1)
    with pytest.raises(KilledError):
        cluster.up("awq", preflight=False, **keyed)
    watch(cluster)
    cluster.server.nodes[0]["requested"] = 1
    with pytest.raises(DeployError, match="2 replicas of 1 x L40S: the cluster has room for 1") as caught:
        cluster.up("awq", **keyed)
    assert "--strategy recreate needs no second machine" in caught.value.hint
    assert cluster.behind == [OLD, OLD]
