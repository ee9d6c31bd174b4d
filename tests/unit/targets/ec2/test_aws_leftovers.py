"""Addresses and spot requests: found by tags and removed; spot requests are never created separately."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import BadRequestError, InUseError
from tgi_deploy.targets.ec2.instance import Instances
from tgi_deploy.targets.ec2.spot_request import SpotRequests
from tgi_deploy.targets.reply import Reply
from tgi_deploy.values.resource import RECLAIMED

TAGS = {"tgi-deploy:deployment": "demo", "tgi-deploy:id": "abc"}


def tag_list(tags):
    return [{"Key": name, "Value": value} for name, value in tags.items()]


@pytest.fixture
def ec2(bench):
    return bench.sessions.client("ec2", "us-east-1")


def allocate(ec2, tags=None):
    specification = [{"ResourceType": "elastic-ip", "Tags": tag_list(TAGS if tags is None else tags)}]
    return ec2.allocate_address(Domain="vpc", TagSpecifications=specification)["AllocationId"]


def ask_for_spot(ec2, bench):
    image = bench.cloud().image(architecture="x86_64", wanted=None).id
    answer = ec2.request_spot_instances(
        InstanceCount=1,
        LaunchSpecification={"ImageId": image, "InstanceType": "g6e.xlarge"},
        TagSpecifications=[{"ResourceType": "spot-instances-request", "Tags": tag_list(TAGS)}],
    )
    return answer["SpotInstanceRequests"][0]["SpotInstanceRequestId"]


def test_an_address_is_found_by_its_tags_and_released(bench, ec2):
    mine = allocate(ec2)
    allocate(ec2, {"team": "ml"})
    handler = bench.cloud().handler("address")
    (found,) = handler.find({"tgi-deploy:id": "abc"})
    assert (found.id, found.kind, found.state, found.billed) == (mine, "address", "available", True)
    assert handler.find({"tgi-deploy:id": "other"}) == ()
    handler.delete(found.attributes)
    assert handler.read(found.attributes) is None
    handler.delete(found.attributes)
    assert len(ec2.describe_addresses()["Addresses"]) == 1


def test_an_address_in_use_is_released_after_its_machine(bench, ec2):
    mine = allocate(ec2)
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    interface = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    ec2.associate_address(AllocationId=mine, NetworkInterfaceId=interface)
    handler = bench.cloud().handler("address")
    with pytest.raises(InUseError, match=mine):
        handler.delete({"id": mine})


def test_a_spot_request_is_found_by_its_tags_and_canceled(bench, ec2):
    mine = ask_for_spot(ec2, bench)
    handler = bench.cloud().handler("spot-request")
    (found,) = handler.find({"tgi-deploy:id": "abc"})
    assert (found.id, found.attached) == (mine, True)
    assert found.attributes["created"]
    handler.delete(found.attributes)
    assert handler.find({"tgi-deploy:id": "abc"}) == ()
    assert handler.read(found.attributes) is None


class Describes:
    """An API that describes one thing."""

    region = "us-east-1"

    def __init__(self, **answer):
        self.answer = Reply.of(answer, "the answer")

    def list(self, _method, _doing, read, **_parameters):
        return tuple(read(self.answer))


@pytest.mark.parametrize(
    ("code", "reclaimed"),
    [
        ("Server.SpotInstanceTermination", True),
        ("Server.SpotInstanceShutdown", True),
        ("Server.InternalError", False),
        ("", False),
    ],
)
def test_a_reclaimed_machine_is_recognized_by_its_reason(code, reclaimed):
    machine = {"InstanceId": "i-1", "State": {"Name": "shutting-down"}, "StateReason": {"Code": code}}
    handler = Instances(Describes(Reservations=[{"Instances": [machine]}]))
    (found,) = handler.find({})
    assert handler.state("i-1").reclaimed is (RECLAIMED in found.attributes) is reclaimed


@pytest.mark.parametrize(
    ("code", "reclaimed"),
    [
        ("marked-for-termination", "marked-for-termination"),
        ("marked-for-stop", "marked-for-stop"),
        ("instance-terminated-by-price", "instance-terminated-by-price"),
        ("fulfilled", None),
    ],
)
def test_a_spot_request_shows_the_reclaim(code, reclaimed):
    request = {"SpotInstanceRequestId": "sir-1", "State": "active", "Status": {"Code": code}}
    (found,) = SpotRequests(Describes(SpotInstanceRequests=[request])).find({})
    assert found.attributes.get(RECLAIMED) == reclaimed


def test_a_spot_request_is_never_created_separately(bench):
    with pytest.raises(BadRequestError):
        bench.cloud().handler("spot-request").create({}, tags={}, token="t")


def test_an_address_is_tagged_as_it_is_allocated_and_moved_only_if_needed(bench, ec2):
    handler = bench.cloud().handler("address")
    made = handler.create({"domain": "vpc"}, tags={**TAGS, "tgi-deploy:key": "address"}, token="t")
    assert handler.find(TAGS) == (made,)
    image = bench.cloud().image(architecture="x86_64", wanted=None).id
    machines = ec2.run_instances(ImageId=image, InstanceType="g6e.xlarge", MinCount=2, MaxCount=2)["Instances"]
    ids = [item["InstanceId"] for item in machines]
    ec2.get_waiter("instance_running").wait(InstanceIds=ids, WaiterConfig={"Delay": 0.05, "MaxAttempts": 200})
    associations = []
    for machine in (ids[0], ids[1], ids[1]):
        handler.update(made.attributes, {"machine": machine})
        (known,) = ec2.describe_addresses()["Addresses"]
        assert (known["InstanceId"], known["PublicIp"]) == (machine, made.attributes["address"])
        associations.append(known["AssociationId"])
    assert associations[1] == associations[2]


def test_no_address_is_left_in_the_region_and_the_error_has_the_command_for_more(bench, ec2):
    allocate(ec2, {"team": "ml"})

    def refuse(**_parameters):
        result = {"Error": {"Code": "AddressLimitExceeded", "Message": "The maximum number has been reached."}}
        raise ClientError(result, "AllocateAddress")

    bench.sessions.client("ec2", "us-east-1", creating=True).allocate_address = refuse
    with pytest.raises(DeployError) as caught:
        bench.cloud().handler("address").create({"domain": "vpc"}, tags=TAGS, token="t")
    assert (caught.value.code, caught.value.refused) == ("quota_exceeded", True)
    assert "--quota-code L-0263D0A3 --desired-value 2 --region us-east-1" in caught.value.hint


def test_a_region_is_searched_for_every_kind_in_the_order_of_creation(bench, ec2):
    allocate(ec2)
    ask_for_spot(ec2, bench)
    assert [found.kind for found in bench.cloud().find({})] == ["address", "spot-request"]


def test_everything_has_a_command_that_removes_it(bench):
    from tgi_deploy.targets.ec2.commands import removal_command  # noqa: PLC0415 -- the other side of the kinds

    for kind in [kind for kind in bench.cloud().kinds if not bench.cloud().handler(kind).rare]:
        words = removal_command(kind, "x-1", "eu-west-1").split()
        assert words[:2] == ["aws", "ec2"]
        assert words[-3:] == ["x-1", "--region", "eu-west-1"]
        ec2 = bench.sessions.client("ec2", "us-east-1")
        assert words[2].replace("-", "_") in dir(ec2)
        (option,) = [word for word in words[:-2] if word.startswith("--")]
        operation = "".join(part.capitalize() for part in words[2].split("-"))
        members = ec2.meta.service_model.operation_model(operation).input_shape.members
        assert option[2:].replace("-", "") in {name.lower() for name in members}
