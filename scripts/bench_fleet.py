"""Measure how `list`, `status` and `down --all` scale with the number of deployments, on the sandbox.

    python scripts/bench_fleet.py [250 500 1000]

The deployments are created through the sandbox's API, tagged and recorded as by `up`; their machines have no user data
and so never boot. The output has the calls to the API, how many of them search, the pages per search, the CPU time of
the program and of the sandbox's server in seconds, the elapsed time, and the program's CPU time per deployment relative
to the smallest number: 1.0 is linear, less is better.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import boto3

from tgi_deploy.sandbox import api, control
from tgi_deploy.state.local import LocalStore
from tgi_deploy.targets.aws.api import PAGE_SIZE
from tgi_deploy.values.deployment import Deployment, ResourceRecord, Revision
from tgi_deploy.values.resource import TAG_CREATED, TAG_ID, TAG_KEY, TAG_NAME, TAG_OWNER, TAG_PRICE, TAG_SPEC

REGION: Final = "us-east-1"
TYPE: Final = "g6e.xlarge"
COMMANDS: Final = (("list",), ("status",), ("down", "--all", "--yes"))
_AMI: Final = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    command: str
    deployments: int
    calls: int
    describes: int
    program_cpu_s: float
    server_cpu_s: float
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """Deployments of one sandbox, made without `up`."""

    home: Path
    info: control.SandboxInfo
    ec2: Any
    image: str

    @classmethod
    def open(cls, home: Path) -> Fleet:
        info = control.start(home / "sandbox", speed=600.0)
        session = boto3.Session(info.access_key, "loopback", region_name=REGION)
        ec2 = session.client("ec2", endpoint_url=info.endpoint_url)
        ssm = session.client("ssm", endpoint_url=info.endpoint_url)
        image = ssm.get_parameter(Name=_AMI)["Parameter"]["Value"]
        return cls(home=home, info=info, ec2=ec2, image=image)

    def fill(self, number: int) -> None:
        api.control(self.info.endpoint, "POST", "/_sandbox/reset")
        network = self.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        store = LocalStore(self.home / "sandbox" / "records")
        for index in range(number):
            self._make(store, f"demo-{index:04d}", f"id{index:08d}", network)

    def _make(self, store: LocalStore, name: str, deployment_id: str, network: str) -> None:
        now = datetime.now(UTC).replace(microsecond=0)
        group = self.ec2.create_security_group(
            GroupName=f"tgi-deploy-{name}", Description=name, VpcId=network,
            TagSpecifications=_tags("security-group", name, deployment_id, now),
        )["GroupId"]  # fmt: skip
        template = self.ec2.create_launch_template(
            LaunchTemplateName=f"tgi-deploy-{name}", LaunchTemplateData={"ImageId": self.image},
            TagSpecifications=_tags("launch-template", name, deployment_id, now),
        )["LaunchTemplate"]["LaunchTemplateId"]  # fmt: skip
        machine = self.ec2.run_instances(
            ImageId=self.image, InstanceType=TYPE, MinCount=1, MaxCount=1, SecurityGroupIds=[group],
            TagSpecifications=_tags("instance", name, deployment_id, now)
            + _tags("volume", name, deployment_id, now, key="instance"),
        )["Instances"][0]["InstanceId"]  # fmt: skip
        made = {"security-group": group, "launch-template": template, "instance": machine}
        store.save(_record(name, deployment_id, made, now), expected_serial=0)

    def measure(self, words: tuple[str, ...], number: int) -> Measured:
        api.control(self.info.endpoint, "DELETE", "/_sandbox/calls")
        started, program_s, server_s = time.monotonic(), _cpu_of_children_s(), _cpu_s(self.info.pid)
        done = subprocess.run(  # noqa: S603 -- our own program
            [sys.executable, "-m", "tgi_deploy", *words, "--sandbox", "--json"],
            env={**os.environ, "TGI_DEPLOY_HOME": str(self.home)},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - started
        program_s, server_s = _cpu_of_children_s() - program_s, _cpu_s(self.info.pid) - server_s
        if done.returncode:
            raise SystemExit(
                f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            )
        calls = Counter(call["action"] for call in api.control(self.info.endpoint, "GET", "/_sandbox/calls")["calls"])
        describes = sum(count for action, count in calls.items() if action.startswith(("Describe", "List")))
        return Measured(
            command=words[0],
            deployments=number,
            calls=calls.total(),
            describes=describes,
            program_cpu_s=program_s,
            server_cpu_s=server_s,
            seconds=seconds,
        )


def _cpu_of_children_s() -> float:
    """Return the CPU time of the children that have ended; the sandbox's server is not one of them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu_s(pid: int) -> float:
    """Return the CPU time of one process so far, from Linux's /proc; nan elsewhere."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return math.nan
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _tags(kind: str, name: str, deployment_id: str, at: datetime, *, key: str = "") -> list[dict[str, Any]]:
    tags = {
        TAG_NAME: name,
        TAG_ID: deployment_id,
        TAG_KEY: key or kind,
        TAG_SPEC: f"spec-of-{kind}",
        TAG_CREATED: at.isoformat(),
        TAG_OWNER: "bench@here",
        TAG_PRICE: "1.861",
    }
    return [{"ResourceType": kind, "Tags": [{"Key": name, "Value": value} for name, value in tags.items()]}]


def _record(name: str, deployment_id: str, made: dict[str, str], at: datetime) -> Deployment:
    return Deployment(
        name=name, id=deployment_id, target="ec2", status="running", created_at=at, updated_at=at,
        revisions=(Revision(number=1, origin="up", state="serving", created_at=at, pools=()),),
        resources=tuple(
            ResourceRecord(
                key=kind, kind=kind, place=REGION, state="created", spec=f"spec-of-{kind}", request_number=1,
                attributes={"id": made_id}, is_machine=kind == "instance",
            )
            for kind, made_id in made.items()
        ),
    )  # fmt: skip


def pages(number: int) -> int:
    """Return the pages of one search: of groups, templates, volumes and machines, and one each of six empty kinds."""
    return 4 * math.ceil(number / PAGE_SIZE) + 6


def table(rows: list[Measured]) -> str:
    first = {row.command: row.program_cpu_s / row.deployments for row in reversed(rows)}
    heads = "command", "deployments", "calls", "searches", "pages per search", "program, CPU s", "server, CPU s"
    lines = [f"| {' | '.join(heads)} | clock, s | ratio |", f"|---{'|---:' * (len(heads) + 1)}|"]
    for row in sorted(rows, key=lambda row: row.command):
        ratio = row.program_cpu_s / row.deployments / first[row.command]
        lines.append(
            f"| {row.command} | {row.deployments} | {row.calls} | {row.describes} | {pages(row.deployments)} "
            f"| {row.program_cpu_s:.1f} | {row.server_cpu_s:.1f} | {row.seconds:.0f} | x {ratio:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, default=[250, 500, 1000])
    numbers = parser.parse_args().numbers
    rows: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="bench-fleet") as folder:
        fleet = Fleet.open(Path(folder))
        try:
            for number in numbers:
                fleet.fill(number)
                for words in COMMANDS:
                    rows.append(fleet.measure(words, number))
                    sys.stderr.write(f"{rows[-1]}\n")
        finally:
            control.stop(fleet.home / "sandbox")
    sys.stdout.write(f"{table(rows)}\n")


if __name__ == "__main__":
    main()
