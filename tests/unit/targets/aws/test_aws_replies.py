"""Every reply of AWS that the adapters read, with each of its members missing, empty or of another type.

The replies are recorded once from the sandbox and played back changed, below the SDK's own parsers. What comes of it is
a result or an error that says what to do; never a defect, and a creating call never claims more than it knows.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from builders.aws_profiles import profile_data
from builders.samples import some
from fakes.computer import FakeClock
from fakes.wire import SPOILED, Spoiled, Tape, variants

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import InUseError, LostReplyError
from tgi_deploy.sandbox import api as sandbox_api
from tgi_deploy.secret import Secret
from tgi_deploy.targets.aws.api import Api
from tgi_deploy.targets.aws.errors import ErrorTable
from tgi_deploy.targets.aws.retry import Retrier
from tgi_deploy.targets.aws.session import SessionFactory
from tgi_deploy.targets.ec2.account_probe import Ec2Inspector
from tgi_deploy.targets.ec2.cloud import Ec2Cloud
from tgi_deploy.targets.ec2.inspection import RehearsedLaunch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# One server, and its recorded replies.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("aws replies")]
REGION = "us-east-1"
TAGS = {"Name": "x", "tgi-deploy:deployment": "demo", "tgi-deploy:id": "0123456789ab", "tgi-deploy:spec": "s1"}
KINDS = (
    "security-group",
    "launch-template",
    "parameter",
    "role",
    "instance-profile",
    "instance",
    "schedule",
    "volume",
    "network-interface",
    "address",
    "spot-request",
)
MADE = KINDS[:7]
# Nothing of these changes in place: AWS is not asked.
_SILENT = ("update launch-template", "update parameter")
# Whole replies without a member.
_EMPTY = ("delete schedule", "delete parameter")
TRUST = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
STATEMENT = {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "*"}


@dataclass
class Life:
    """A deployment's things, made and removed step by step. `found` are those of each kind."""

    cloud: Ec2Cloud
    inspector: Ec2Inspector
    found: dict[str, Any] = field(default_factory=dict)
    place: Any = None
    image: Any = None

    def properties(self, kind: str) -> dict[str, Any]:
        name = f"tgi-deploy-demo-{TAGS['tgi-deploy:id']}"
        ids = {made: found.id for made, found in self.found.items()}
        arns = {made: found.attributes.get("arn") for made, found in self.found.items()}
        return {
            "security-group": lambda: {
                "name": name,
                "description": "d",
                "network": self.place.network,
                "port": 8080,
                "cidrs": ["203.0.113.7/32", "2001:db8::7/128"],
            },
            "launch-template": lambda: {"name": name, "data": {"ImageId": self.image.id, "InstanceType": "g6e.xlarge"}},
            "parameter": lambda: {"name": "/tgi-deploy/demo-x/key", "description": "d", "value": "env:KEY"},
            "role": lambda: {"name": name, "deployment": "demo", "trust": TRUST, "statements": [STATEMENT]},
            "instance-profile": lambda: {"name": name, "deployment": "demo", "role": ids["role"]},
            "instance": lambda: {"spot": True, "tags": {"more": "yes"}, "request": self.request(ids)},
            "schedule": lambda: {
                "name": name,
                "at": "2036-01-09T12:00:00",
                "instance": ids["instance"],
                "role": arns["role"],
            },
        }[kind]()

    def request(self, ids: dict[str, str]) -> dict[str, Any]:
        return {
            "LaunchTemplate": {"LaunchTemplateId": ids["launch-template"], "Version": "1"},
            "InstanceType": "g6e.xlarge",
            "Placement": {"AvailabilityZone": self.place.zone},
            "NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": self.place.subnet, "Groups": [ids["security-group"]]}],
            "InstanceMarketOptions": {"MarketType": "spot"},
        }

    def launch(self) -> RehearsedLaunch:
        return RehearsedLaunch(
            image=self.image.id,
            instance_type="g6e.xlarge",
            subnet=self.place.subnet,
            network=self.place.network,
            market="spot",
            tags={"tgi-deploy:id": "abc"},
            instance_profile=None,
        )

    def create(self, kind: str) -> Any:
        tags = {**TAGS, "tgi-deploy:key": kind}
        return self.cloud.handler(kind).create(self.properties(kind), tags=tags, token=f"token-of-{kind}")

    def update(self, kind: str) -> None:
        self.cloud.handler(kind).update(self.found[kind].attributes, self.properties(kind))

    def find(self, kind: str) -> Any:
        return self.cloud.handler(kind).find({"tgi-deploy:deployment": "demo", "tgi-deploy:id": TAGS["tgi-deploy:id"]})

    def read(self, kind: str) -> Any:
        return self.cloud.handler(kind).read(self.found[kind].attributes)

    def delete(self, kind: str) -> None:
        self.cloud.handler(kind).delete(self.found[kind].attributes)


def _steps() -> dict[str, Callable[[Life], Any]]:
    """What is done in this order; a step's name is its first word and what it is about."""
    looks: dict[str, Callable[[Life], Any]] = {
        "look for placements": lambda life: life.cloud.placements("g6e.xlarge", subnet=None),
        "look for the image": lambda life: life.cloud.image(architecture="x86_64", wanted=None),
    }
    made = {
        f"{verb} {kind}": lambda life, verb=verb, kind=kind: getattr(life, verb)(kind)
        for kind in MADE
        for verb in ("create", "update")
        if f"{verb} {kind}" not in _SILENT
    }
    found = {
        f"{verb} {kind}": lambda life, verb=verb, kind=kind: getattr(life, verb)(kind)
        for kind in KINDS
        for verb in ("find", "read")
    }
    inspected = {
        "look at the machine": lambda life: life.cloud.machine(life.found["instance"].id),
        "look at the console": lambda life: life.cloud.console(life.found["instance"].id),
        "look who asks": lambda life: life.inspector.identity(),
        "look at the region": lambda life: life.inspector.region_status(),
        "look at the quota": lambda life: life.inspector.quota("L-DB2E81BA"),
        "look at the usage": lambda life: life.inspector.usage(("g*",), "spot"),
        "look at the addresses": lambda life: life.inspector.free_addresses(life.place.subnet),
        "rehearse a launch": lambda life: life.inspector.rehearse("ec2:RunInstances", life.launch()),
        "rehearse a look": lambda life: life.inspector.rehearse("ec2:DescribeVolumes", life.launch()),
    }
    removed = {f"delete {kind}": lambda life, kind=kind: life.delete(kind) for kind in reversed(KINDS)}
    return {**looks, **made, **found, **inspected, **removed}


STEPS = _steps()


@dataclass
class Recording:
    """`before` and `replies` of each step: what it was done with, and what came back."""

    tape: Tape
    before: dict[str, Life]
    replies: dict[str, dict[str, list[Spoiled]]]

    def play(self, step: str, action: str, number: int, body: bytes) -> Any:
        """Do a step whose `number`-th reply to `action` has another body; its result or the error that it raises."""
        self.tape.play(self.replies[step], action, number, body)
        try:
            return STEPS[step](replace(self.before[step]))
        except DeployError as error:
            return error

    def each(self, step: str) -> Iterator[tuple[str, int, Spoiled]]:
        for action, replies in self.replies[step].items():
            yield from ((action, number, reply) for number, reply in enumerate(replies))


@pytest.fixture(scope="module")
def recording(sandbox):
    sandbox_api.control(sandbox.endpoint, "POST", "/_sandbox/reset")
    made = Recording(tape=Tape(), before={}, replies={})
    life = _life(sandbox, made.tape)
    for name, step in STEPS.items():
        made.before[name] = replace(life, found=dict(life.found))
        made.replies[name] = made.tape.record()
        with suppress(InUseError):  # the machine holds its disk and its interface for a moment longer
            _remember(life, name, step(life))
        if name == "update schedule":
            _bring_the_rest(life)
    yield made
    made.tape.close()


def _life(sandbox: Any, tape: Tape) -> Life:
    table = ErrorTable.of(profile_data("errors.json"))
    sessions = SessionFactory(table=table, endpoint_url=sandbox.endpoint_url, access_key=sandbox.access_key)
    tape.attach(sessions._session().events)
    cloud = Ec2Cloud(
        api=Api(region=REGION, sessions=sessions, retrier=Retrier(FakeClock())),
        image_parameters=profile_data("amis.json")["parameters"],
        secret_of=lambda _reference: Secret("hf_made-up"),
    )
    return Life(cloud=cloud, inspector=Ec2Inspector(region=REGION, sessions=sessions))


def _bring_the_rest(life: Life) -> None:
    """What the adapters never make, and the tags of the machine's interface, which the sandbox forgets."""
    tags = [{"Key": name, "Value": value} for name, value in TAGS.items()]
    client = life.cloud.api.sessions.client("ec2", REGION)
    (interface,) = client.describe_network_interfaces()["NetworkInterfaces"]
    client.create_tags(Resources=[interface["NetworkInterfaceId"]], Tags=tags)
    client.allocate_address(Domain="vpc", TagSpecifications=[{"ResourceType": "elastic-ip", "Tags": tags}])
    client.request_spot_instances(
        LaunchSpecification={"ImageId": life.image.id, "InstanceType": "g6e.xlarge"},
        TagSpecifications=[{"ResourceType": "spot-instances-request", "Tags": tags}],
    )


def _remember(life: Life, name: str, outcome: Any) -> None:
    verb, _, kind = name.partition(" ")
    if name == "look for placements":
        life.place = outcome[0]
    elif name == "look for the image":
        life.image = outcome
    elif verb == "create":
        life.found[kind] = outcome
    elif verb == "find":
        (life.found[kind],) = outcome


@pytest.mark.parametrize("step", some([step for step in STEPS if step not in _EMPTY], 12))
def test_a_reply_with_any_changed_member_is_read_or_rejected_clearly(recording, step):
    tried, made = 0, False
    for action, number, reply in recording.each(step):
        made = made or (step.startswith("create") and not action.startswith(("Describe", "Get", "List")))
        for what, body in variants(reply.body):
            tried += 1
            outcome = recording.play(step, action, number, body)
            if made and isinstance(outcome, DeployError):
                assert isinstance(outcome, LostReplyError), (action, what, outcome)
    assert tried


@pytest.mark.parametrize(("step", "kind"), some([*product(STEPS, ("cut", "empty", "of another protocol"))], 18))
def test_an_unrelated_reply_counts_as_lost(recording, step, kind):
    for action, number, reply in recording.each(step):
        body = SPOILED[kind][1](reply.body)
        if acknowledges(reply, body):
            continue
        outcome = recording.play(step, action, number, body)
        if step.startswith("create"):
            assert isinstance(outcome, LostReplyError), (action, outcome)
        elif step.startswith(("update", "delete")):
            assert outcome is None or outcome.code in {"cloud_unreachable", "lost_reply"}, (action, outcome)
        else:
            assert isinstance(outcome, DeployError), (action, outcome)
            assert outcome.code == "cloud_unreachable", (action, outcome)


def acknowledges(reply, body):
    """The whole reply of a service that says in its headers which request it answers: nothing is lacking."""
    return not body and b"".join(reply.body.split()) in {b"", b"{}"}
