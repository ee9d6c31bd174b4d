"""An update in steps that another computer has begun: this one has an older record of the deployment, or none."""

from __future__ import annotations

import shutil

import pytest
from builders.clusters import SHARED, Cluster

from tgi_deploy.errors import ConflictError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.pausing import SwitchRequest, restart
from tgi_deploy.operations.deploying.scaling import scale
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.request import Replicas

OLD, NEW = SHARED, f"{SHARED}-r2"


@pytest.fixture
def cluster(tmp_path):
    """Return a cluster with three GPUs, for two replicas."""
    return Cluster(tmp_path / "state", gpus=3, replicas=2)


def elsewhere(cluster, *, recorded=True):
    """Return another computer with the same cluster, and with a copy of the present record."""
    home = cluster.around.home.parent / "elsewhere"
    other = Cluster(home, gpus=cluster.gpus, replicas=cluster.replicas)
    if recorded:
        shutil.copytree(cluster.around.home, home, dirs_exist_ok=True)
    other.server, other.around.clock, other.around.owner = cluster.server, cluster.around.clock, "bob@desk"
    return other


def stop_in_the_steps(cluster, scheme="awq"):
    """Begin an update that stops once one replica of each revision serves."""

    def take(done):
        if done == "scale deployments" and cluster.behind == [OLD, NEW]:
            cluster.server.nodes[0]["requested"] = 1

    cluster.server.after_call = take
    with pytest.raises(Exception, match="no room for the next"):
        cluster.up(scheme)
    cluster.server.after_call, cluster.server.nodes[0]["requested"] = None, 0


COMMANDS = {
    "scale": lambda other: scale(other.context(), "demo", Replicas(least=1, most=1)),
    "extend": lambda other: extend(other.context(), "demo", WantedEnds(ttl_s=7200)),
    "restart": lambda other: restart(other.context(), SwitchRequest(name="demo")),
    "up": lambda other: other.up(),
    "other settings": lambda other: other.up("gptq"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("finished", [False, True], ids=["in the steps", "after them"])
def test_a_record_behind_the_cluster_changes_nothing(cluster, command, finished):
    cluster.up()
    other = elsewhere(cluster)
    stop_in_the_steps(cluster)
    if finished:
        cluster.up("awq")
    before, record = dict(cluster.server.objects), other.around.store.load("demo")
    with pytest.raises(ConflictError) as caught:
        COMMANDS[command](other)
    assert caught.value.code == "name_taken"
    assert f"deployment/{NEW}" in caught.value.message
    assert "it is of revision 2, and the record here ends with 1" in caught.value.message
    assert "copy that record's folder here (deployments/demo)" in caught.value.hint
    assert (cluster.server.objects, other.around.store.load("demo")) == (before, record)


def test_an_update_that_was_finished_elsewhere_is_not_finished_again(cluster):
    cluster.up()
    stop_in_the_steps(cluster)
    other = elsewhere(cluster)
    cluster.up("awq")
    cluster.up("gptq")
    before = dict(cluster.server.objects)
    for command in ("up", "extend", "scale"):
        with pytest.raises(ConflictError, match="it is of revision 3, and the record here ends with 2"):
            COMMANDS[command](other)
    assert cluster.server.objects == before


def test_without_a_record_the_limits_of_one_of_two_revisions_are_not_moved(cluster):
    cluster.up()
    other = elsewhere(cluster, recorded=False)
    stop_in_the_steps(cluster)
    before = dict(cluster.server.objects)
    with pytest.raises(ConflictError) as caught:
        COMMANDS["extend"](other)
    assert (caught.value.code, cluster.server.objects) == ("update_unfinished", before)
    assert f"deployment/{OLD} and deployment/{NEW} run" in caught.value.message
    assert "use the computer that has its record" in caught.value.hint


def test_with_the_copied_record_the_other_computer_goes_on(cluster):
    cluster.up()
    stop_in_the_steps(cluster)
    other = elsewhere(cluster)
    other.around.owner = cluster.around.owner
    assert other.up("awq").rollout is None
    assert cluster.behind == [NEW, NEW]
