"""The number of replicas: which one a plan keeps, and where it can't change."""

from __future__ import annotations

import pytest
from builders.plans import candidate
from fakes.surroundings import Surroundings, plan, request

from tgi_deploy.errors import ConflictError, InputError
from tgi_deploy.operations.deploying.scaling import keeping_size, scale
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Rollout
from tgi_deploy.values.request import Replicas


@pytest.fixture
def around(tmp_path):
    return Surroundings(home=tmp_path / "state")


def running(around, replicas):
    """Return the record of a deployment that was scaled to so many replicas."""
    made = up(around.context(), request(plan(), wait=True)).deployment
    of = made.current
    chosen = replaced(of.plan.chosen, replicas=replicas)
    return made.with_revision(replaced(of, plan=replaced(of.plan, chosen=chosen)))


@pytest.mark.parametrize(
    ("asked", "planned", "stays"),
    [
        (Replicas(), 1, 3),
        (Replicas(least=1, most=4), 2, 3),
        (Replicas(least=1, most=4), 4, 4),
        (Replicas(least=2, most=2), 2, 2),
        (Replicas(least=4, most=6), 5, 5),
    ],
)
def test_a_number_that_is_allowed_and_enough_is_kept(around, asked, planned, stays):
    wanted = plan(chosen=candidate(replicas=planned))
    wanted = replaced(wanted, request=replaced(wanted.request, replicas=asked))
    assert keeping_size(wanted, running(around, 3)).chosen.replicas == stays
    assert keeping_size(wanted, None).chosen.replicas == planned


def test_a_deployment_on_a_machine_of_its_own_has_one_replica(around):
    before = running(around, 1)
    with pytest.raises(InputError) as caught:
        scale(around.context(), "demo", 3)
    assert (caught.value.code, caught.value.exit_code) == ("not_scalable", 2)
    assert around.context().store.load("demo").plan == before.plan


def test_during_an_update_it_is_a_conflict(around):
    before = running(around, 1)
    rollout = Rollout(source=1, destination=1, stage="starting", strategy="recreate")
    around.context().executor().save(replaced(before, rollout=rollout))
    with pytest.raises(ConflictError) as caught:
        scale(around.context(), "demo", 3)
    assert (caught.value.code, caught.value.exit_code) == ("update_unfinished", 4)
