"""The EC2 calls that the program makes, in boto3's form: parameters in, reply or ClientError out. Each rule that a
reader could doubt is in simulation/rules.toml, with AWS's documentation of it.
"""

from __future__ import annotations

import json
from datetime import timedelta

from botocore.exceptions import ClientError
from fakes.cloud import BEGINNING
from simulation.world import LOOK_S, ZONES

IMAGE = "ami-00000001"
_CODES = {
    "instance": "InvalidInstanceID.NotFound",
    "security-group": "InvalidGroup.NotFound",
    "launch-template": "InvalidLaunchTemplateId.NotFound",
    "volume": "InvalidVolume.NotFound",
    "network-interface": "InvalidNetworkInterfaceID.NotFound",
    "spot-request": "InvalidSpotInstanceRequestID.NotFound",
    "address": "InvalidAllocationID.NotFound",
}
_NOTHING = {
    "list_roles": "Roles",
    "list_instance_profiles": "InstanceProfiles",
    "list_schedule_groups": "ScheduleGroups",
    "describe_parameters": "Parameters",
}
_METADATA = {"RequestId": "request", "HTTPStatusCode": 200}
CREATING = {"run_instances", "create_security_group", "create_launch_template", "allocate_address"}


def refusal(method, code, message="", status=400):
    """Return the SDK's error for a refused request."""
    operation = "".join(word.capitalize() for word in method.split("_"))
    result = {"Error": {"Code": code, "Message": message or code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(result, operation)


def moment(seconds):
    return BEGINNING + timedelta(seconds=seconds)


def tags_in(specifications):
    return {item["ResourceType"]: {tag["Key"]: tag["Value"] for tag in item["Tags"]} for item in specifications}


class Api:
    """One caller's requests to a world. `maker` is the command that sends them. `lag` and `stale_s` are how far the
    answering replica is behind (World.lag_of); `machine_faults` are the faults of requested machines, by number.
    """

    def __init__(self, world, maker, machine_faults):
        self.world, self.maker, self.machine_faults = world, maker, machine_faults
        self.lag, self.stale_s, self.launched = 1.0, 0.0, 0

    def call(self, region, method, parameters):
        """Carry out a request; return its reply. Raises ClientError."""
        self.world.advance()
        if method in _NOTHING:
            return {_NOTHING[method]: [], "ResponseMetadata": _METADATA}
        content = getattr(self, f"_{method}")(region, parameters)
        return {**content, "ResponseMetadata": _METADATA}

    @property
    def _now(self):
        return self.world.clock()

    def _lag_of(self, thing):
        return self.world.lag_of(thing, self.lag, self.stale_s)

    def _shown(self, kind, region, filters=(), ids=None, method=""):
        """Return what a read shows: (thing, members) of each match."""
        seen = [(thing, thing.seen(self._now - self._lag_of(thing))) for thing in self.world.of(kind, region)]
        there = {thing.id: (thing, members) for thing, members in seen if members is not None}
        for thing_id in ids or ():
            if thing_id not in there:
                raise refusal(method, _CODES[kind], f"{thing_id} does not exist")
        chosen = there.values() if ids is None else [there[thing_id] for thing_id in ids]
        return [item for item in chosen if all(_fits(item[1], one) for one in filters)]

    def _named(self, kind, thing_id, method):
        """Return the thing that a request changes; one that is not visible yet is unknown to it."""
        thing = self.world.things.get(thing_id)
        if thing is None or thing.now is None or self._now - thing.made_at < self._lag_of(thing):
            raise refusal(method, _CODES[kind], f"{thing_id} does not exist")
        return thing

    def _describe_instances(self, region, asked):
        found = self._shown(
            "instance", region, asked.get("Filters", ()), asked.get("InstanceIds"), "describe_instances"
        )
        return {"Reservations": [{"Instances": [self._instance(thing, members)]} for thing, members in found]}

    def _instance(self, thing, members):
        return _instance(thing, {**members, "address": self.world.address_of(thing, members)})

    def _describe_addresses(self, region, asked):
        found = self._shown(
            "address", region, asked.get("Filters", ()), asked.get("AllocationIds"), "describe_addresses"
        )
        return {"Addresses": [self._address(thing, members) for thing, members in found]}

    def _address(self, thing, members):
        holder = self.world.holder_of(thing)
        held = {"AssociationId": f"eipassoc-{holder.id[2:]}", "InstanceId": holder.id} if holder else {}
        return {"AllocationId": thing.id, "PublicIp": members["ip"], "Tags": _tags(members), **held}

    def _allocate_address(self, region, asked):
        tags = tags_in(asked["TagSpecifications"]).get("elastic-ip", {})
        members = {"ip": self.world.new_address(), "machine": "", "tags": tags}
        made = self.world.add("address", region, self.maker, self._now, **members)
        return {"AllocationId": made.id, "PublicIp": made.now["ip"]}

    def _associate_address(self, _region, asked):
        method = "associate_address"
        address = self._named("address", asked["AllocationId"], method)
        machine = self._named("instance", asked["InstanceId"], method)
        if machine.state not in {"running", "stopped"}:
            raise refusal(method, "IncorrectInstanceState")
        address.change(self._now, machine=machine.id)
        return {"AssociationId": f"eipassoc-{machine.id[2:]}"}

    def _release_address(self, _region, asked):
        method = "release_address"
        address = self._named("address", asked["AllocationId"], method)
        if self.world.holder_of(address) is not None:
            raise refusal(method, "InvalidIPAddress.InUse")
        address.end(self._now)
        return {}

    def _describe_security_groups(self, region, asked):
        found = self._shown(
            "security-group", region, asked.get("Filters", ()), asked.get("GroupIds"), "describe_security_groups"
        )
        return {"SecurityGroups": [_group(thing, members) for thing, members in found]}

    def _describe_launch_templates(self, region, asked):
        found = self._shown(
            "launch-template",
            region,
            asked.get("Filters", ()),
            asked.get("LaunchTemplateIds"),
            "describe_launch_templates",
        )
        return {"LaunchTemplates": [_template(thing, members) for thing, members in found]}

    def _describe_volumes(self, region, asked):
        found = self._shown("volume", region, asked.get("Filters", ()), asked.get("VolumeIds"), "describe_volumes")
        return {
            "Volumes": [
                {"VolumeId": thing.id, "State": now["state"], "CreateTime": moment(thing.made_at), "Tags": _tags(now)}
                for thing, now in found
            ]
        }

    def _describe_network_interfaces(self, region, asked):
        method = "describe_network_interfaces"
        found = self._shown(
            "network-interface", region, asked.get("Filters", ()), asked.get("NetworkInterfaceIds"), method
        )
        return {
            "NetworkInterfaces": [
                {"NetworkInterfaceId": thing.id, "Status": now["state"], "TagSet": _tags(now)} for thing, now in found
            ]
        }

    def _describe_spot_instance_requests(self, region, asked):
        method = "describe_spot_instance_requests"
        found = self._shown(
            "spot-request", region, asked.get("Filters", ()), asked.get("SpotInstanceRequestIds"), method
        )
        return {
            "SpotInstanceRequests": [
                {
                    "SpotInstanceRequestId": thing.id,
                    "State": now["state"],
                    "Status": {"Code": now["status"]},
                    "CreateTime": moment(thing.made_at),
                    "Tags": _tags(now),
                }
                for thing, now in found
            ]
        }

    def _describe_instance_type_offerings(self, region, _asked):
        return {"InstanceTypeOfferings": [{"Location": zone} for zone in ZONES[region]]}

    def _describe_subnets(self, region, _asked):
        return {
            "Subnets": [
                {"AvailabilityZone": zone, "SubnetId": f"subnet-{zone}", "VpcId": f"vpc-{region}"}
                for zone in ZONES[region]
            ]
        }

    def _get_parameters(self, _region, asked):
        return {"Parameters": [{"Name": asked["Names"][0], "Value": IMAGE}]}

    def _describe_images(self, _region, asked):
        disk = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}
        return {
            "Images": [{"ImageId": asked["ImageIds"][0], "RootDeviceName": "/dev/sda1", "BlockDeviceMappings": [disk]}]
        }

    def _get_console_output(self, region, asked):
        self._shown("instance", region, ids=[asked["InstanceId"]], method="get_console_output")
        return {"InstanceId": asked["InstanceId"], "Output": "[tgi-deploy] phase=booting\n"}

    def _create_security_group(self, region, asked):
        name = asked["GroupName"]
        self._refuse_taken("security-group", region, name, "InvalidGroup.Duplicate", "create_security_group")
        tags = tags_in(asked["TagSpecifications"]).get("security-group", {})
        members = {"name": name, "network": asked["VpcId"], "tags": tags, "rules": ()}
        return {"GroupId": self.world.add("security-group", region, self.maker, self._now, **members).id}

    def _create_launch_template(self, region, asked):
        method, kind, name = "create_launch_template", "launch-template", asked["LaunchTemplateName"]
        made = self._earlier(region, method, asked)
        if made is None or made.now is None:
            self._refuse_taken(kind, region, name, "InvalidLaunchTemplateName.AlreadyExistsException", method)
            tags = tags_in(asked["TagSpecifications"]).get(kind, {})
            members = {"name": name, "data": asked["LaunchTemplateData"], "tags": tags}
            made = self.world.add(kind, region, self.maker, self._now, **members)
            self._remember(region, method, asked, made)
        return {"LaunchTemplate": _template(made, made.now)}

    def _refuse_taken(self, kind, region, name, code, method):
        if any(thing.now is not None and thing.now["name"] == name for thing in self.world.of(kind, region)):
            raise refusal(method, code, f"{name} already exists")

    def _earlier(self, region, method, asked):
        """Return what an earlier request with this token created. Raises for one with other parameters."""
        text, made = self.world.tokens.get((region, method, asked.get("ClientToken")), ("", None))
        if made is not None and text != json.dumps(asked, sort_keys=True):
            raise refusal(method, "IdempotentParameterMismatch")
        return made

    def _remember(self, region, method, asked, made):
        if "ClientToken" in asked:
            self.world.tokens[region, method, asked["ClientToken"]] = json.dumps(asked, sort_keys=True), made

    def _authorize_security_group_ingress(self, _region, asked):
        method = "authorize_security_group_ingress"
        group = self._named("security-group", asked["GroupId"], method)
        rules = tuple(json.dumps(rule, sort_keys=True) for rule in asked["IpPermissions"])
        if set(rules) & set(group.now["rules"]):
            raise refusal(method, "InvalidPermission.Duplicate")
        group.change(self._now, rules=(*group.now["rules"], *rules))
        return {"Return": True}

    def _revoke_security_group_ingress(self, _region, asked):
        """Match rules by network and port; descriptions don't count."""
        method = "revoke_security_group_ingress"
        group, gone = self._named("security-group", asked["GroupId"], method), asked["IpPermissions"]
        left = tuple(rule for rule in group.now["rules"] if _bare(json.loads(rule)) not in map(_bare, gone))
        if left == group.now["rules"]:
            raise refusal(method, "InvalidPermission.NotFound")
        group.change(self._now, rules=left)
        return {"Return": True}

    def _run_instances(self, region, asked):
        method = "run_instances"
        made = self._earlier(region, method, asked)
        if made is None or made.now is None:
            if short := self.world.shortage(region, asked["Placement"]["AvailabilityZone"]):
                raise refusal(method, short[0], status=short[1])
            wanted, fault = self._launch(asked, method), self.machine_faults.get(self.launched, "")
            made = self.world.launch(region, self.maker, self._now, wanted, fault)
            self.launched += 1
            self._remember(region, method, asked, made)
        return {"Instances": [_instance(made, made.now)]}

    def _launch(self, asked, method):
        """Return the parameters of a launch. Raises for a missing template or group."""
        template = self._named("launch-template", asked["LaunchTemplate"]["LaunchTemplateId"], method)
        groups = [group for interface in asked["NetworkInterfaces"] for group in interface["Groups"]]
        for group in groups:
            self._named("security-group", group, method)
        return {
            "tags": tags_in(asked.get("TagSpecifications", ())),
            "zone": asked["Placement"]["AvailabilityZone"],
            "type": asked["InstanceType"],
            "spot": "InstanceMarketOptions" in asked,
            "groups": groups,
            "shutdown": asked.get("InstanceInitiatedShutdownBehavior", "stop"),
            "user_data": template.now["data"]["UserData"],
        }

    def _terminate_instances(self, _region, asked):
        machines = [self._named("instance", thing_id, "terminate_instances") for thing_id in asked["InstanceIds"]]
        for machine in machines:
            self.world.end(machine, self._now)
        return {"TerminatingInstances": []}

    def _stop_instances(self, _region, asked):
        method = "stop_instances"
        for machine in self._switched(method, asked, {"running", "stopping", "stopped"}):
            if machine.now["spot"]:
                raise refusal(method, "UnsupportedOperation")
            self.world.stop(machine, self._now)
        return {"StoppingInstances": []}

    def _start_instances(self, region, asked):
        method = "start_instances"
        for machine in self._switched(method, asked, {"stopped", "pending", "running"}):
            if machine.state == "stopped" and (short := self.world.shortage(region, machine.now["zone"])):
                raise refusal(method, short[0], status=short[1])
            self.world.start(machine, self._now)
        return {"StartingInstances": []}

    def _reboot_instances(self, _region, asked):
        for machine in self._switched("reboot_instances", asked, {"running"}):
            machine.running_at, machine.proved = self._now, False
        return {}

    def _switched(self, method, asked, states):
        """Return the machines to stop, start or reboot. Raises for one in another state."""
        machines = [self._named("instance", thing_id, method) for thing_id in asked["InstanceIds"]]
        if any(machine.state not in states for machine in machines):
            raise refusal(method, "IncorrectInstanceState")
        return machines

    def _delete_security_group(self, region, asked):
        method, group_id = "delete_security_group", asked["GroupId"]
        group = self._named("security-group", group_id, method)
        if any(item.now and group_id in item.now["groups"] for item in self.world.of("network-interface", region)):
            raise refusal(method, "DependencyViolation", f"{group_id} has a dependent object")
        group.end(self._now)
        return {}

    def _delete_launch_template(self, _region, asked):
        self._named("launch-template", asked["LaunchTemplateId"], "delete_launch_template").end(self._now)
        return {}

    def _delete_volume(self, _region, asked):
        return self._delete_part("volume", asked["VolumeId"], "delete_volume", "VolumeInUse")

    def _delete_network_interface(self, _region, asked):
        method, code = "delete_network_interface", "InvalidNetworkInterface.InUse"
        return self._delete_part("network-interface", asked["NetworkInterfaceId"], method, code)

    def _delete_part(self, kind, thing_id, method, code):
        part = self._named(kind, thing_id, method)
        if part.now["state"] != "available":
            raise refusal(method, code)
        part.end(self._now)
        return {}

    def _cancel_spot_instance_requests(self, _region, asked):
        for thing_id in asked["SpotInstanceRequestIds"]:
            request = self._named("spot-request", thing_id, "cancel_spot_instance_requests")
            request.change(self._now, state="cancelled")
        return {"CancelledSpotInstanceRequests": []}

    def _create_tags(self, _region, asked):
        added = {tag["Key"]: tag["Value"] for tag in asked["Tags"]}
        for thing_id in asked["Resources"]:
            thing = self._named(self.world.things[thing_id].kind, thing_id, "create_tags")
            thing.change(self._now, tags={**thing.now["tags"], **added})
            if thing.kind == "instance":
                self.world.at(self._now + LOOK_S, lambda moment, thing=thing: self.world.look(thing, moment))
        return {}


def _bare(rule):
    """A rule without its description."""
    bare = {name: [{"CidrIp": item["CidrIp"]} for item in rule[name]] for name in ("IpRanges",) if name in rule}
    return {**rule, **bare}


def _fits(members, one):
    name, values = one["Name"], one["Values"]
    if name == "tag-key":
        return values[0] in members["tags"]
    if name.startswith("tag:"):
        return members["tags"].get(name[4:]) in values
    if name in {"instance-state-name", "state"}:
        return members["state"] in values
    raise NotImplementedError(name)


def _tags(members):
    return [{"Key": name, "Value": value} for name, value in members["tags"].items()]


def _instance(thing, members):
    reason = {"StateReason": {"Code": members["reason"], "Message": members["reason"]}} if members["reason"] else {}
    address = {"PublicIpAddress": members["address"]} if members["state"] == "running" else {}
    lifecycle = {"InstanceLifecycle": "spot"} if members["spot"] else {}
    return {
        "InstanceId": thing.id,
        "InstanceType": members["type"],
        "State": {"Name": members["state"]},
        "Placement": {"AvailabilityZone": members["zone"]},
        "LaunchTime": moment(members["launched_at"]),
        "Tags": _tags(members),
        **reason,
        **address,
        **lifecycle,
    }


def _group(thing, members):
    return {
        "GroupId": thing.id,
        "GroupName": members["name"],
        "VpcId": members["network"],
        "Tags": _tags(members),
        "IpPermissions": [json.loads(rule) for rule in members["rules"]],
    }


def _template(thing, members):
    return {
        "LaunchTemplateId": thing.id,
        "LaunchTemplateName": members["name"],
        "LatestVersionNumber": 1,
        "CreateTime": moment(thing.made_at),
        "Tags": _tags(members),
    }
