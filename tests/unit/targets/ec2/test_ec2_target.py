from __future__ import annotations

from dataclasses import replace

import pytest
from builders.plans import candidate, deployable, offer
from fakes.computer import on

from tgi_deploy.targets.ec2.launch_data import launch_template_data
from tgi_deploy.targets.ec2.region import MachineImage, Placement
from tgi_deploy.targets.ec2.resources import Machine, pool_name, resources
from tgi_deploy.values.resource import Ref
from tgi_deploy.values.serving import url_of
from tgi_deploy.wiring import render_artifact

IMAGE = MachineImage(id="ami-0123456789abcdef0", root_device="/dev/xvda", minimum_gib=8, source="test")
PLACE = Placement(zone="us-east-1a", subnet="subnet-a", network="vpc-1")


def machine(chosen=None, **changes):
    chosen = chosen or candidate()
    wanted = deployable(candidate=chosen, image_id=IMAGE.id)
    data = launch_template_data(
        wanted, user_data=render_artifact("user-data", wanted).text, root_device_name="/dev/xvda"
    )
    values = {
        "name": "demo",
        "revision": 1,
        "candidate": chosen,
        "data": data,
        "placement": PLACE,
        "image": IMAGE,
        "cidrs": ("203.0.113.7/32",),
    }
    return Machine(**(values | changes))


def made(*args, **changes):
    return {resource.kind: resource for resource in resources(machine(*args, **changes))}


def request_of(found):
    return found["instance"].properties["request"]


def test_group_template_and_machine_refer_to_each_other():
    found = made()
    assert found["instance"].needs == ("launch-template@1", "security-group")
    assert found["security-group"].needs == found["launch-template"].needs == ()
    assert request_of(found)["LaunchTemplate"]["Version"] == Ref(key="launch-template@1", attribute="version")


def test_only_given_networks_are_allowed_and_change_in_place():
    narrow, wide = made(), made(cidrs=("198.51.100.1/32",))
    assert narrow["security-group"].properties["cidrs"] == ["203.0.113.7/32"]
    assert narrow["security-group"].properties["port"] == 8080
    assert narrow["security-group"].spec == wide["security-group"].spec


def test_safety_settings_are_in_the_launch_request():
    request = request_of(made())
    assert request["MetadataOptions"]["HttpTokens"] == "required"
    assert request["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert "InstanceMarketOptions" not in request


def test_spot_settings_are_in_the_launch_request():
    found = made(candidate(offer=offer(market="spot")))
    assert found["instance"].properties["spot"]
    assert request_of(found)["InstanceMarketOptions"]["MarketType"] == "spot"


def test_the_network_is_in_the_launch_request_not_the_template():
    found = made()
    assert {"NetworkInterfaces", "TagSpecifications"}.isdisjoint(found["launch-template"].properties["data"])
    (interface,) = request_of(found)["NetworkInterfaces"]
    assert interface["SubnetId"] == "subnet-a"
    assert interface["Groups"] == [Ref(key="security-group", attribute="id")]
    assert "SubnetId" not in request_of(found)


@pytest.mark.parametrize(("minimum_gib", "size"), [(8, 95), (500, 500)])
def test_the_root_volume_is_never_smaller_than_its_image(minimum_gib, size):
    found = made(image=replace(IMAGE, minimum_gib=minimum_gib))
    (disk,) = found["launch-template"].properties["data"]["BlockDeviceMappings"]
    assert (disk["DeviceName"], disk["Ebs"]["VolumeSize"], disk["Ebs"]["Encrypted"]) == ("/dev/xvda", size, True)


def test_another_zone_keeps_the_template():
    here, there = made(), made(placement=replace(PLACE, zone="us-east-1b", subnet="subnet-b"))
    assert here["launch-template"].spec == there["launch-template"].spec
    assert here["instance"].spec != there["instance"].spec


def test_changed_content_changes_the_template():
    one, other = made(), made(on("g6.12xlarge"))
    assert one["launch-template"].spec != other["launch-template"].spec


def test_the_group_name_depends_only_on_the_deployment_name():
    one, other = made(), made(on("g6.12xlarge"))
    for key in ("security-group", "launch-template"):
        assert one[key].properties["name"] == other[key].properties["name"] == "tgi-deploy-demo"


def test_the_same_input_gives_the_same_resources():
    assert resources(machine()) == resources(machine())


def test_names_fit_the_clouds_limits():
    found = made(name="a" * 40)
    assert 3 <= len(found["launch-template"].properties["name"]) <= 128
    assert len(found["security-group"].properties["name"]) <= 255
    assert len(found["security-group"].properties["description"]) <= 255


def test_pools_are_region_zone_type_and_market():
    assert pool_name(candidate(), "us-east-1a") == "us-east-1/us-east-1a/g6e.xlarge/on-demand"
    assert made()["instance"].notes == {"pool": "us-east-1/us-east-1a/g6e.xlarge/on-demand"}


@pytest.mark.parametrize(
    ("address", "url"), [("203.0.113.9", "http://203.0.113.9:8080"), ("2001:db8::9", "http://[2001:db8::9]:8080")]
)
def test_endpoints_are_urls(address, url):
    assert url_of(address, 8080) == url
