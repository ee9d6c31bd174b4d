"""A user's computer and an AWS account with SageMaker, and plans for its endpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from fakes.cloud import KilledError
from fakes.computer import FakeComputer, fake_ec2, plan, request
from fakes.hosting_api import FakeHosting

from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.secret import Secret
from tgi_deploy.targets.aws.api import Api
from tgi_deploy.targets.aws.retry import Retrier
from tgi_deploy.targets.sagemaker.cloud import SageMakerCloud
from tgi_deploy.targets.sagemaker.options import SageMakerOptions
from tgi_deploy.targets.sagemaker.target import SageMakerTarget
from tgi_deploy.values.base import replaced
from tgi_deploy.values.request import Replicas
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from tgi_deploy.values.deployment import Deployment

PLACE = "sagemaker:us-east-1"
TOKEN = "hf_sekret"
ROLE = "arn:aws:iam::123456789012:role/hosting"


@dataclass
class Account:
    """A user's computer and an account. `up` and `down` are each a new process."""

    around: FakeComputer
    hosting: FakeHosting = field(default_factory=FakeHosting)

    @property
    def target(self) -> SageMakerTarget:
        api = Api(region="us-east-1", sessions=self.hosting, retrier=Retrier(self.around.clock))
        cloud = SageMakerCloud(api=api, secret_of=lambda _name: Secret(TOKEN))
        return SageMakerTarget(cloud_of=lambda _place: cloud, catalog=open_catalog, default_region=lambda: "us-east-1")

    @property
    def context(self) -> Any:
        target = self.target
        return self.around.context(
            targets=(fake_ec2(self.around.world.cloud), target), cloud=target.cloud, regions=(PLACE,), loopback=False
        )

    def up(self, *, options: SageMakerOptions | None = None, **changes: Any) -> Deployment:
        own = options or SageMakerOptions(create_role=True)
        chosen = changes.pop("plan", None) or first()
        changes = {"environ": {"HF_TOKEN": TOKEN}, "wait": True} | changes
        asked = request(chosen, target="sagemaker", options=own, **changes)
        return up(self.context, asked).deployment

    def down(self) -> Any:
        return down(self.context, ("demo",), lambda _removals: True)

    def kill_at(self, number: int | None, *, changing: bool = True) -> None:
        left = [number]

        def after(name: str) -> None:
            if left[0] is not None and changing != name.startswith(("describe", "list", "get")):
                left[0] -= 1
                if left[0] == 0:
                    raise KilledError

        self.hosting.after_call = after


def first() -> Any:
    """Return a plan whose budget allows several machines."""
    made = plan()
    return replaced(made, request=replaced(made.request, budget_usd_per_hour=Decimal(100)))


def another(batch: str = "7", **changes: Any) -> Any:
    """Return a plan for something else, which needs a new revision."""
    made = first()
    engine = made.chosen.engine
    container = replaced(engine.container, env=(*engine.container.env, ("MAX_BATCH_SIZE", batch)))
    chosen = replaced(made.chosen, engine=replaced(engine, container=container), **changes)
    return replaced(made, chosen=chosen, request=replaced(made.request, env={"MAX_BATCH_SIZE": batch}))


def exactly(number: int) -> Replicas:
    return Replicas(least=number, most=number)


def ranged(least: int, most: int, replicas: int = 1) -> Any:
    made = first()
    asked = replaced(made.request, replicas=Replicas(least=least, most=most))
    return replaced(made, request=asked, chosen=replaced(made.chosen, replicas=replicas))


FIRST = {
    "models": ["tgi-deploy-demo-r1"],
    "configs": ["tgi-deploy-demo-r1"],
    "endpoints": ["tgi-deploy-demo"],
    "roles": ["tgi-deploy-id000001-us-east-1-endpoint"],
}
SECOND = {
    **FIRST,
    "models": ["tgi-deploy-demo-r2"],
    "configs": ["tgi-deploy-demo-r2"],
    "alarms": ["tgi-deploy-demo-r2"],
}
