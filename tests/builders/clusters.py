"""A deployment in a cluster in memory, with the commands that change it."""

from __future__ import annotations

from builders.plans import engine
from fakes.computer import FakeComputer, candidate, offer, plan, request
from fakes.kubernetes_api import FakeCluster, node

from tgi_deploy.operations.deploying.rollout import former
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.target import KubernetesTarget
from tgi_deploy.targets.protocol import Supplied
from tgi_deploy.values.request import Replicas
from tgi_deploy.wiring import open_catalog

PLACE = "kubernetes:team-a@dev"
SHARED = "tgi-deploy-demo"


class Cluster:
    """A cluster in memory with room for so many replicas, and the commands of one deployment in it."""

    def __init__(self, home, gpus=2, replicas=1):
        self.around, self.gpus, self.replicas = FakeComputer(home=home), gpus, replicas
        self.renew()

    def renew(self):
        self.server = FakeCluster(nodes=[node(gpus=self.gpus)])
        self.around.store.remove("demo")

    def context(self):
        api = Api(place=Place.of(PLACE), sender=self.server)
        target = KubernetesTarget(
            chosen=lambda _options: PLACE,
            cloud=lambda _place: KubernetesCloud(api=api),
            catalog=open_catalog,
            forward=lambda _end: 12345,
        )
        return self.around.context(cloud=target.cloud, targets=(target,), regions=(PLACE,), loopback=False)

    def up(self, scheme="none", **changes):
        return self.outcome(scheme, **changes).deployment

    def outcome(self, scheme="none", *, replicas=None, shards=1, **changes):
        context, number = self.context(), replicas or self.replicas
        (target,) = context.targets
        values = {
            "target": "kubernetes",
            "options": target.options(),
            "supplied": Supplied(place=PLACE),
            "wait": True,
            "plan_revision": lambda revision: (planned(revision.plan.chosen.quantize, number), ()),
        }
        return up(
            context, request(planned(scheme, number, exactly=replicas is not None, shards=shards), **values | changes)
        )

    def roll_back(self, **changes):
        scheme = former(self.around.store.load("demo")).plan.chosen.quantize
        return self.up(scheme, exact=True, origin="rollback", **changes)

    def down(self):
        return down(self.context(), ("demo",), lambda _removals: True)

    def names(self, plural):
        return sorted(name for kind, name in self.server.objects if kind == plural)

    @property
    def behind(self):
        """Return the pods that get new requests, as the names of their Deployments."""
        wanted = self.server.objects["services", SHARED]["spec"]["selector"].items()
        pods = (item for (kind, _), item in self.server.objects.items() if kind == "pods" and "owner" in item)
        return sorted(item["owner"] for item in pods if wanted <= item["metadata"]["labels"].items())

    @property
    def serving(self):
        """Return the names of the Deployments whose pods get new requests."""
        wanted = self.server.objects["services", SHARED]["spec"]["selector"].items()
        items = (item for (kind, _), item in self.server.objects.items() if kind == "deployments")
        return [item["metadata"]["name"] for item in items if wanted <= labels_of(item).items()]


def labels_of(deployment):
    return deployment["spec"]["template"]["metadata"]["labels"]


def planned(scheme="none", replicas=1, *, exactly=False, shards=1):
    there = offer(region="local", market="owned", usd_per_hour=None)
    run = engine(num_shard=shards) if scheme == "none" else engine(quantize=scheme, num_shard=shards)
    chosen = candidate(offer=there, engine=run, replicas=replicas)
    asked = {"replicas": Replicas(least=replicas, most=replicas)} if exactly else {}
    return plan(chosen=chosen, regions=("local",), markets=("owned",), hardware="1xL40S", quantize=scheme, **asked)


def nodepool(gpus):
    """Return a NodePool that may add so many nodes with an L40S."""
    family = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["g6e"]}
    template = {"spec": {"nodeClassRef": {"group": "karpenter.k8s.aws"}, "requirements": [family]}}
    return {"metadata": {"name": "gpu"}, "spec": {"limits": {"nvidia.com/gpu": str(gpus)}, "template": template}}


def quota(cluster, gpus):
    """Give the namespace a quota with so many GPUs left."""
    status = {"hard": {"requests.nvidia.com/gpu": str(gpus)}, "used": {"requests.nvidia.com/gpu": "0"}}
    cluster.server.objects["resourcequotas", "team"] = {"metadata": {"name": "team"}, "spec": {}, "status": status}
