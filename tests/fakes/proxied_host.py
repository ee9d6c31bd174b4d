"""An in-memory Docker host on which a deployment runs behind its proxy."""

from __future__ import annotations

import json
import re
from pathlib import Path

from builders.plans import engine
from fakes.computer import FakeComputer, candidate, offer, plan, request
from fakes.docker_host import FakeDocker

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.operations.deploying.rollout import former
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.targets.docker.api import Api
from tgi_deploy.targets.docker.cloud import DockerCloud
from tgi_deploy.targets.docker.endpoint import Endpoint
from tgi_deploy.targets.docker.errors import ErrorTable
from tgi_deploy.targets.docker.options import DockerOptions
from tgi_deploy.targets.docker.target import DockerTarget
from tgi_deploy.targets.protocol import Supplied
from tgi_deploy.values.base import replaced

_TABLE = ErrorTable.of(json.loads(Path(profiles_dir(), "docker/errors.json").read_text(encoding="utf-8")))


class Host:
    """`asked` are the proposals, `probed` the URLs and `certificates` the pins of probes; `environ` has secrets."""

    def __init__(self, home, accelerators=4):
        self.docker, self.around = FakeDocker(), FakeComputer(home=home)
        self.accelerators, self.asked, self.probed = accelerators, [], []
        self.certificates, self.environ = set(), {}

    def context(self, **changes):
        endpoint = Endpoint(url="unix:///var/run/docker.sock")
        api = Api(endpoint=endpoint, table=_TABLE, environ=self.environ, connect=lambda _at: self.docker)
        pulled = lambda _place, image, _listener: self.docker.images.add(image)  # noqa: E731 -- one line of a fake
        target = DockerTarget(cloud=lambda _place: DockerCloud(api=api), pull_image=pulled, environ={})
        values = {"cloud": target.cloud, "targets": (target,), "regions": ("docker",), "probe": self.probe}
        return self.around.context(**{**values, **changes})

    def probe(self, address):
        self.probed.append(address.url)
        self.certificates.add(address.certificate)
        return self.around.probe

    def plan(self, scheme="none"):
        there = offer(region="local", market="owned", usd_per_hour=None)
        kind = replaced(there.instance_type, accelerator_count=self.accelerators)
        made = engine() if scheme == "none" else engine(quantize=scheme)
        chosen = candidate(offer=replaced(there, instance_type=kind), engine=made)
        return plan(chosen=chosen, regions=("local",), markets=("owned",), hardware="4xA10G", quantize=scheme)

    def up(self, scheme="none", *, front="proxy", context=None, options=None, **changes):
        asked = request(
            self.plan(scheme),
            **{
                "target": "docker",
                "options": DockerOptions(front=front, **(options or {})),
                "supplied": Supplied(place="docker", local=True),
                "wait": True,
                "confirm": lambda proposal: self.asked.append(proposal) or True,
                "plan_revision": lambda revision: (self.plan(revision.plan.chosen.quantize), ()),
                **changes,
            },
        )
        return up(context or self.context(), asked)

    def roll_back(self, **changes):
        revision = former(self.around.store.load("demo"))
        scheme = revision.plan.chosen.quantize
        return self.up(scheme, front=revision.options.get("front"), exact=True, origin="rollback", **changes)

    @property
    def names(self):
        return sorted(item["Name"].removeprefix("/") for item in self.docker.containers_by_id.values())

    def container(self, name):
        return next(item for item in self.docker.containers_by_id.values() if item["Name"] == f"/{name}")

    def file(self, name):
        return self.docker.files[f"{self.container('tgi-deploy-demo')['Id']}:/etc/{name}"].decode()

    @property
    def serving(self):
        """Return the container in the proxy's configuration file, or None."""
        text = self.file("front.cfg")
        found = re.search(r'server (\w{12}) "\1:\$\{ENGINE_PORT\}"', text)
        named = found and [item["Name"] for key, item in self.docker.containers_by_id.items() if key[:12] == found[1]]
        return named[0].removeprefix("/") if named else None
