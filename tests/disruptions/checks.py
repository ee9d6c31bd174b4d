"""The content of an account, read from the cloud without tags, filters or our own code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

import boto3
from botocore.config import Config

from tgi_deploy.sandbox import api

_ENDED = ("terminated", "shutting-down")
_STOPPED = ("stopping", "stopped")
_CLOSED = ("cancelled", "closed", "failed")


@dataclass(frozen=True, kw_only=True)
class Life:
    """One machine: when it was launched and when its termination was requested, None if it shut itself down."""

    launched: datetime
    ended: datetime | None
    usd_per_hour: str


class Account:
    """Reads with an observer's key, whose calls get no faults and are not counted."""

    def __init__(self, program, region="us-east-1"):
        session = boto3.Session(
            aws_access_key_id=api.observer_key(program.access_key), aws_secret_access_key="x", region_name=region
        )
        config = Config(proxies={}, retries={"total_max_attempts": 1})
        self._clients = {
            name: session.client(name, endpoint_url=program.url, config=config)
            for name in ("ec2", "ssm", "iam", "scheduler")
        }

    def launched(self):
        """Return every instance ever launched, including terminated ones."""
        return {one["InstanceId"]: one["State"]["Name"] for one in self._instances()}

    def tags(self):
        """Return the tags of each live machine."""
        alive = self.alive()
        return {one["InstanceId"]: _tags(one) for one in self._instances() if one["InstanceId"] in alive}

    def lives(self):
        """Return every terminated instance."""
        return {one["InstanceId"]: _life(one) for one in self._instances() if one["State"]["Name"] in _ENDED}

    def stops(self):
        """Return when each stopped machine was stopped."""
        return {one["InstanceId"]: _life(one).ended for one in self._instances() if one["State"]["Name"] in _STOPPED}

    def _instances(self):
        reservations = self._clients["ec2"].describe_instances()["Reservations"]
        return [one for item in reservations for one in item["Instances"]]

    def alive(self):
        return sorted(name for name, state in self.launched().items() if state not in _ENDED)

    def leftovers(self):
        """Everything that should not outlive a `down`, as `kind id`."""
        found = [("instance", name) for name in self.alive()]
        found += self._network()
        found += self._identities()
        return sorted(f"{kind} {name}" for kind, name in found)

    def _network(self):
        ec2 = self._clients["ec2"]
        yield from (("volume", one["VolumeId"]) for one in ec2.describe_volumes()["Volumes"])
        interfaces = ec2.describe_network_interfaces()["NetworkInterfaces"]
        yield from (("network-interface", one["NetworkInterfaceId"]) for one in interfaces)
        groups = ec2.describe_security_groups()["SecurityGroups"]
        yield from (("security-group", one["GroupId"]) for one in groups if one["GroupName"] != "default")
        templates = ec2.describe_launch_templates()["LaunchTemplates"]
        yield from (("launch-template", one["LaunchTemplateId"]) for one in templates)
        yield from (("address", one["AllocationId"]) for one in ec2.describe_addresses()["Addresses"])
        requests = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
        yield from (("spot-request", one["SpotInstanceRequestId"]) for one in requests if one["State"] not in _CLOSED)

    def _identities(self):
        yield from (("role", one["RoleName"]) for one in self._all("iam", "list_roles", "Roles"))
        profiles = self._all("iam", "list_instance_profiles", "InstanceProfiles")
        yield from (("instance-profile", one["InstanceProfileName"]) for one in profiles)
        # The thousands of String parameters are all AWS's own.
        secret = [{"Key": "Type", "Values": ["SecureString"]}]
        parameters = self._all("ssm", "describe_parameters", "Parameters", ParameterFilters=secret)
        yield from (("parameter", one["Name"]) for one in parameters)
        yield from (("schedule", one["Name"]) for one in self._all("scheduler", "list_schedules", "Schedules"))
        groups = self._all("scheduler", "list_schedule_groups", "ScheduleGroups")
        yield from (("schedule-group", one["Name"]) for one in groups if one["Name"] != "default")

    def _all(self, service, method, key, **filters):
        pages = self._clients[service].get_paginator(method).paginate(**filters)
        return [item for page in pages for item in page[key]]


def _tags(instance):
    return {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}


def _life(instance):
    ended = re.search(r"\((.*) UTC\)", instance["StateTransitionReason"])
    return Life(
        launched=instance["LaunchTime"],
        ended=datetime.strptime(ended[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if ended else None,
        usd_per_hour=_tags(instance)["tgi-deploy:usd-per-hour"],
    )
