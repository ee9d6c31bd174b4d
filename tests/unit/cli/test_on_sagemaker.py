"""What is said about a service before anything is created there."""

from __future__ import annotations

import shlex

import pytest

from tgi_deploy import Client, DeployError
from tgi_deploy.errors import InputError, NoFeasiblePlanError


@pytest.fixture
def client() -> Client:
    return Client(target="sagemaker", region="us-east-1", offline=True)


def test_a_lock_is_compared_with_the_catalog_that_has_its_machine(client, tmp_path):
    lock = tmp_path / "llama3-13b.lock.json"
    client.plan("llama3-13b", budget=5, lock=lock)
    found = Client(offline=True).locked(lock)
    assert found.data.plan.chosen.instance_type == "ml.g5.xlarge"
    assert {item.code for item in found.warnings} == {"notice"}


def test_a_suggested_command_names_the_target(client):
    with pytest.raises(NoFeasiblePlanError) as caught:
        client.plan("llama3-8b", budget="0.5")
    assert caught.value.commands
    begin = ["tgi-deploy", "plan", "--target", "sagemaker"]
    assert all(shlex.split(line)[:4] == begin for line in caught.value.commands)


@pytest.mark.parametrize("options", [{"hardware": "1xL4"}, {"port": 9000}, {"disk": 200}, {"driver": "grid"}])
def test_what_sagemaker_decides_is_refused(client, options):
    with pytest.raises(InputError) as caught:
        client.plan("llama3-8b", **options)
    assert caught.value.code == "not_on_sagemaker"


def test_a_form_is_rendered_from_the_plan_of_its_target():
    stack = Client(offline=True).render("llama3-13b", "sagemaker", region="us-east-1").data.artifact.text
    assert 'InstanceType: "ml.g5.xlarge"' in stack
    with pytest.raises(InputError, match="not a machine of SageMaker"):
        Client(offline=True).render("llama3-13b", "sagemaker", hardware="1xL4")


def test_its_machines_are_of_no_use_to_other_targets(client):
    plan = client.plan("llama3-13b", budget=5).outcome
    for name in ("ec2", "docker", "kubernetes"):
        rejection = Client(target=name).target.rejection(plan)
        assert isinstance(rejection, DeployError), name
    assert client.target.rejection(plan) is None
    assert client.target.rejection(Client(offline=True).plan("llama3-13b", region="us-east-1").outcome) is not None
