"""Updates in steps that something disturbs: another computer, other settings, deleted objects, quotas, lost nodes."""

from __future__ import annotations

import shutil
from contextlib import suppress

import pytest
from builders.clusters import SHARED, Cluster, quota

from tgi_deploy.cli.views.deployment import proposal_text, up_text
from tgi_deploy.errors import ConflictError, DeployError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.pausing import SwitchRequest, restart
from tgi_deploy.operations.deploying.scaling import scale
from tgi_deploy.operations.removing.interrupts import guard, settle
from tgi_deploy.operations.stops import Stops
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


def stop_halfway(cluster, scheme="awq"):
    """Begin an update that stops once one replica of each revision serves."""

    def take(done):
        if done == "scale deployments" and cluster.behind == [OLD, NEW]:
            cluster.server.nodes[0]["requested"] = 1

    cluster.server.after_call = take
    with pytest.raises(DeployError, match="ready, and the next one has no room"):
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
    stop_halfway(cluster)
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
    stop_halfway(cluster)
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
    stop_halfway(cluster)
    before = dict(cluster.server.objects)
    with pytest.raises(ConflictError) as caught:
        COMMANDS["extend"](other)
    assert (caught.value.code, cluster.server.objects) == ("update_unfinished", before)
    assert f"deployment/{OLD} and deployment/{NEW} run" in caught.value.message
    assert "use the computer that has its record" in caught.value.hint


def test_with_the_copied_record_the_other_computer_goes_on(cluster):
    cluster.up()
    stop_halfway(cluster)
    other = elsewhere(cluster)
    other.around.owner = cluster.around.owner
    assert other.up("awq").rollout is None
    assert cluster.behind == [NEW, NEW]


def asking(cluster, scheme, answers):
    """Run `up` with these answers; return the outcome, the questions, and what the cluster ran at each."""
    asked = []

    def confirm(proposal):
        asked.append((" ".join(proposal_text(proposal).split()), cluster.names("deployments")))
        return answers[len(asked) - 1]

    return cluster.outcome(scheme, confirm=confirm), asked


HALF = "the update to revision 2 is not finished: 1 of 2 replicas is ready; its steps continue first"


@pytest.mark.parametrize("second", [True, False])
def test_other_settings_ask_before_unfinished_steps_go_on_and_again_before_the_next_update(cluster, second):
    cluster.up()
    stop_halfway(cluster)
    outcome, [(first, there), (then, left)] = asking(cluster, "gptq", [True, second])
    assert HALF in first
    assert "without the new settings, the same 'up' resumes it, 'tgi-deploy rollback demo' goes back to" in first
    assert "update revision 2 -> 3: 1 replica at a time" in then
    assert (there, left) == ([OLD, NEW], [NEW])
    assert cluster.behind == [f"{SHARED}-r3" if second else NEW] * 2
    assert (outcome.declined, outcome.changed) == (not second, True)
    assert second or up_text(outcome) == "declined: the earlier update is finished, and nothing else was changed"


def test_unfinished_steps_do_not_go_on_for_other_settings_without_an_answer(cluster):
    cluster.up()
    stop_halfway(cluster)
    before, record = dict(cluster.server.objects), cluster.around.store.load("demo")
    outcome, asked = asking(cluster, "gptq", [False])
    shown = cluster.outcome("gptq", dry_run=True)
    assert (outcome.declined, len(asked)) == (True, 1)
    assert HALF in " ".join(up_text(shown).split())
    assert [item.code for item in shown.proposal.warnings] == ["update_unfinished"]
    assert (cluster.server.objects, cluster.around.store.load("demo")) == (before, record)


def test_the_same_settings_go_on_without_a_question(cluster):
    cluster.up()
    stop_halfway(cluster)
    before = dict(cluster.server.objects)
    shown = " ".join(up_text(cluster.outcome("awq", dry_run=True)).split())
    assert f"{HALF.removesuffix(' first')}; the same 'up' resumes it, 'tgi-deploy rollback demo' goes back" in shown
    assert cluster.server.objects == before
    outcome, asked = asking(cluster, "awq", [])
    assert (outcome.deployment.rollout, asked, cluster.behind) == (None, [], [NEW, NEW])


def without_service(cluster):
    """Delete the Service."""
    return cluster.server.objects.pop(("services", SHARED))


def test_up_creates_a_service_that_someone_deleted_and_asks_first(cluster):
    cluster.up()
    before = without_service(cluster)
    outcome, [(question, _)] = asking(cluster, "none", [True])
    assert (outcome.changed, "+ service" in question) == (True, True)
    assert cluster.server.objects["services", SHARED]["spec"] == before["spec"]
    assert cluster.behind == [OLD, OLD]
    assert not cluster.outcome().changed


@pytest.mark.parametrize("fails", [False, True])
def test_an_update_without_a_service_sends_requests_to_the_old_revision_first(cluster, fails):
    cluster.up()
    without_service(cluster)
    cluster.around.engine.model_id = "someone/else" if fails else cluster.around.engine.model_id
    seen = []

    def look(_asked):
        if ("services", SHARED) in cluster.server.objects:
            seen.append(cluster.behind)

    cluster.server.on_reply = look
    if fails:
        with pytest.raises(DeployError):
            cluster.up("awq")
    else:
        cluster.up("awq")
    assert seen[0] == [OLD, OLD]
    assert seen[-1] == [OLD, OLD] if fails else [NEW, NEW]
    assert min(map(len, seen)) == 2


@pytest.mark.parametrize("command", ["up", "rollback"])
def test_steps_go_on_with_a_new_service_if_someone_deletes_it(cluster, command):
    cluster.up()
    stop_halfway(cluster)
    before = without_service(cluster)
    deployment = cluster.up("awq") if command == "up" else cluster.roll_back()
    assert (deployment.rollout, cluster.behind) == (None, [NEW if command == "up" else OLD] * 2)
    after = cluster.server.objects["services", SHARED]
    assert after["spec"]["ports"] == before["spec"]["ports"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    cluster.down()
    assert cluster.server.objects == {}


def test_of_two_updates_at_the_same_moment_the_second_changes_no_pod_of_the_first(cluster):
    cluster.up()
    other, finished = elsewhere(cluster), []

    def meanwhile(asked):
        if asked == "POST deployments" and not finished:
            finished.append(None)
            finished.append(other.up("gptq"))

    cluster.server.on_request = meanwhile
    with pytest.raises(ConflictError) as caught:
        cluster.up("awq")
    assert caught.value.code == "name_taken"
    assert (cluster.behind, other.around.store.load("demo").active) == ([NEW, NEW], 2)
    args = cluster.server.objects["deployments", NEW]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "gptq" in args
    assert cluster.around.store.load("demo").rollout is None


def test_a_quota_that_shrinks_between_two_steps_stops_them_with_both_revisions_serving(cluster):
    def shrink(done):
        if done == "scale deployments" and cluster.behind == [OLD, NEW]:
            quota(cluster, 0)

    cluster.up()
    cluster.server.after_call = shrink
    with pytest.raises(DeployError, match="1 of 2 replicas of the new revision are ready") as caught:
        cluster.up("awq")
    assert (caught.value.code, cluster.behind) == ("no_free_gpus", [OLD, NEW])
    quota(cluster, 5)
    assert (cluster.up("awq").rollout, cluster.behind) == (None, [NEW, NEW])


@pytest.mark.parametrize("command", ["up", "rollback"])
def test_after_someone_else_has_removed_both_revisions_it_is_brought_up_again(cluster, command):
    cluster.up()
    other = elsewhere(cluster)
    stop_halfway(cluster)
    other.down()
    assert cluster.server.objects == {}
    deployment = cluster.up("awq") if command == "up" else cluster.roll_back()
    assert (deployment.rollout, len(cluster.behind), len(cluster.names("deployments"))) == (None, 2, 1)
    assert deployment.plan.chosen.quantize == ("awq" if command == "up" else "none")


def test_steps_whose_new_revision_someone_deleted_name_what_is_possible(cluster):
    cluster.up()
    stop_halfway(cluster)
    cluster.server.objects = {
        key: item for key, item in cluster.server.objects.items() if NEW not in {key[1], item.get("owner")}
    }
    with pytest.raises(DeployError, match=f"deployment/{NEW} does not exist in") as caught:
        cluster.up("awq")
    assert "the same 'up' resumes it" not in caught.value.hint
    assert "'tgi-deploy rollback demo' goes back to revision 1, 'tgi-deploy down demo' removes" in caught.value.hint
    assert (cluster.roll_back().rollout, cluster.behind) == (None, [OLD, OLD])


def interrupt_at(cluster, moment, run):
    """Run a command with Ctrl-C at a wait, and agree to remove what it created; return whether it came so far."""
    clock, plain, stops, left = cluster.around.clock, cluster.context, Stops(), [moment]
    sleep = clock.sleep

    def interrupted(seconds):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        sleep(seconds)

    cluster.context, clock.sleep = lambda: guard(plain(), stops), interrupted
    with suppress(KeyboardInterrupt):
        run()
    if left[0] <= 0:
        settle(cluster.context(), "demo", stops, ask=lambda _exists: True)
    cluster.context, clock.sleep = plain, sleep
    return left[0] <= 0


@pytest.mark.parametrize("command", ["up", "rollback"])
def test_after_ctrl_c_at_any_wait_two_replicas_serve_and_the_same_command_goes_on(cluster, command):
    run = cluster.roll_back if command == "rollback" else lambda: cluster.up("awq")
    for moment in range(1, 99):
        cluster.renew()
        cluster.up()
        if command == "rollback":
            stop_halfway(cluster)
        if not interrupt_at(cluster, moment, run):
            assert moment > 2
            return
        assert len(cluster.behind) >= 2
        assert (run().rollout, len(cluster.behind), len(cluster.names("deployments"))) == (None, 2, 1)
