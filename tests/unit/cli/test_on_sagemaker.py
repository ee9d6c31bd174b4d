"""What is said about a service before anything is created there."""

from __future__ import annotations

import shlex
from decimal import Decimal

import pytest

from tgi_deploy import Client, DeployError
from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
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


def test_its_machines_are_of_no_use_to_other_targets(client):
    plan = client.plan("llama3-13b", budget=5).outcome
    for name in ("ec2", "docker", "kubernetes"):
        refusal = Client(target=name).target.rejection(plan)
        assert isinstance(refusal, DeployError), name
    assert client.target.rejection(plan) is None
    assert client.target.rejection(Client(offline=True).plan("llama3-13b", region="us-east-1").outcome) is not None


def listed(*names, **options):
    return {item.name: item for item in Client(offline=True).catalog_list(*names, **options).data.items}


def test_the_catalog_lists_its_machines_with_their_own_prices():
    found = listed("instances", region="us-east-1")
    own, rented = found["ml.g5.xlarge"], found["g5.xlarge"]
    assert (own.accelerator, own.price.usd_per_hour, own.price.estimated) == ("A10G", Decimal("1.4084"), False)
    assert own.price.usd_per_hour > rented.price.usd_per_hour
    assert "tgi3.3.6" in own.engine.image
    assert list(listed("ml.g6.xlarge", "L4", region="us-east-1")) == ["ml.g6.xlarge", "L4"]


def test_a_derived_price_is_listed_as_an_estimate(capsys):
    found = listed("ml.g5.xlarge", region="eu-west-1")["ml.g5.xlarge"]
    assert found.price.estimated
    assert frame.run(ROOT, ("catalog", "list", "ml.g5.xlarge", "--region", "eu-west-1")) == 0
    assert f"~${found.price.usd_per_hour}" in capsys.readouterr().out


def test_a_release_without_an_image_does_not_run_on_its_machines():
    found = listed("ml.g6.xlarge", "g6.xlarge", region="us-east-1", engine_version="2.4.1")
    assert (found["ml.g6.xlarge"].engine.verdict, found["g6.xlarge"].engine.verdict) == ("no", "runs")
    assert "newest is 3.3.6" in found["ml.g6.xlarge"].engine.reason


def test_one_of_its_machines_is_shown():
    found = Client(offline=True).catalog_show("ml.g6.xlarge").data.item
    assert (found.name, found.accelerator.name, found.price.instance_type) == ("ml.g6.xlarge", "L4", "ml.g6.xlarge")
