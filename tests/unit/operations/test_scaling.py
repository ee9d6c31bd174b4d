"""The number of replicas: which one a plan keeps, and where it can't change."""

from __future__ import annotations

import pytest
from builders.plans import candidate
from fakes.computer import FakeComputer, plan, request

from tgi_deploy.errors import ConflictError, InputError
from tgi_deploy.operations.deploying.scaling import keeping_size, number_or_range, scale
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.targets.kubernetes.target import FACTS
from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Rollout
from tgi_deploy.values.request import Replicas


@pytest.fixture
def around(tmp_path):
    return FakeComputer(home=tmp_path / "state")


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
        (Replicas(least=1, most=4), 2, 2),
        (Replicas(least=1, most=4), 4, 4),
        (Replicas(least=2, most=2), 2, 2),
        (Replicas(least=4, most=6), 5, 5),
    ],
)
def test_a_number_that_is_allowed_and_enough_is_kept(around, asked, planned, stays):
    wanted = plan(chosen=candidate(replicas=planned))
    wanted = replaced(wanted, request=replaced(wanted.request, replicas=asked))
    assert keeping_size(wanted, running(around, 3), FACTS).chosen.replicas == stays
    assert keeping_size(wanted, None, FACTS).chosen.replicas == planned


@pytest.mark.parametrize(
    ("asked", "goes_back", "range_", "planned", "starts"),
    [
        (Replicas(), False, (2, 4), 1, 2),
        (Replicas(), False, (2, 4), 3, 3),
        (Replicas(least=1, most=1), False, (1, 1), 1, 1),
        (Replicas(least=1, most=1), True, (2, 4), 1, 2),
        (Replicas(least=1, most=8), False, (1, 8), 6, 6),
    ],
)
def test_a_range_on_record_stays_unless_the_request_names_another(around, asked, goes_back, range_, planned, starts):
    before = running(around, 3)
    requirements = replaced(before.plan.requirements, replicas=Replicas(least=2, most=4))
    revision = replaced(before.current, plan=replaced(before.plan, requirements=requirements))
    wanted = plan(chosen=candidate(replicas=planned))
    wanted = replaced(wanted, request=replaced(wanted.request, replicas=asked))
    kept = keeping_size(wanted, before.with_revision(revision), FACTS, back=goes_back)
    assert (kept.request.replicas.least, kept.request.replicas.most or 4) == range_
    assert kept.chosen.replicas == starts


@pytest.mark.parametrize(("asked", "back"), [(Replicas(), False), (Replicas(least=1, most=1), True)])
def test_a_range_that_belongs_to_the_revision_is_not_kept(around, asked, back):
    before = running(around, 3)
    requirements = replaced(before.plan.requirements, replicas=Replicas(least=2, most=4))
    revision = replaced(before.current, plan=replaced(before.plan, requirements=requirements))
    wanted = replaced(plan(), request=replaced(plan().request, replicas=asked))
    of_revision = replaced(FACTS, range_of_revision=True)
    kept = keeping_size(wanted, before.with_revision(revision), of_revision, back=back)
    assert kept.request.replicas == asked


@pytest.mark.parametrize(("text", "found"), [("3", (3, 3)), ("1..4", (1, 4)), ("2..2", (2, 2))])
def test_a_number_or_a_range_is_read(text, found):
    assert (number_or_range(text).least, number_or_range(text).most) == found


@pytest.mark.parametrize("text", ["0", "4..1", "1..99999", "auto", "1-4", "", "three"])
def test_anything_else_is_refused_with_both_forms(text):
    with pytest.raises(InputError) as caught:
        number_or_range(text)
    assert (caught.value.code, "1..4" in caught.value.hint) == ("bad_option_value", True)


def test_a_deployment_on_a_machine_of_its_own_has_one_replica(around):
    before = running(around, 1)
    with pytest.raises(InputError) as caught:
        scale(around.context(), "demo", Replicas(least=3, most=3))
    assert (caught.value.code, caught.value.exit_code) == ("not_scalable", 2)
    assert around.context().store.load("demo").plan == before.plan


def test_during_an_update_it_is_a_conflict(around):
    before = running(around, 1)
    rollout = Rollout(source=1, destination=1, stage="starting", strategy="recreate")
    around.context().executor().save(replaced(before, rollout=rollout))
    with pytest.raises(ConflictError) as caught:
        scale(around.context(), "demo", Replicas(least=3, most=3))
    assert (caught.value.code, caught.value.exit_code) == ("update_unfinished", 4)
