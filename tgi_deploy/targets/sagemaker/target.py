"""The target SageMaker: real-time endpoints, in one or more regions.

Planning (`hosting`, in the catalog), what `render` writes and the account's checks come first; `launch`, `cloud` and
`by_hand` act. A place is `sagemaker:REGION` (`names.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from tgi_deploy.errors import InputError
from tgi_deploy.targets.protocol import Supplied, TargetFacts, no_spending
from tgi_deploy.targets.sagemaker.names import place_of
from tgi_deploy.targets.sagemaker.options import NAME, SageMakerOptions
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.plan_options import MOST_REPLICAS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.reconcile.ports import Cloud
    from tgi_deploy.targets.protocol import Artifact, ByHand, Deployable, Front, Launch, LaunchRequest, Surroundings
    from tgi_deploy.targets.sagemaker.cloud import SageMakerCloud
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.ends import Spent
    from tgi_deploy.values.plan import Plan

FACTS: Final = TargetFacts(
    begins="starting an endpoint that costs money",
    machine_kind="endpoint",
    state_label="SageMaker's state of the endpoint",
    who_connects="whoever may call sagemaker:InvokeEndpoint in the account can connect",
    shows_at_once=True,
    regions=True,
    stops=False,
    service=NAME,
    not_changed=frozenset({"--ami", "--disk", "--hub-token-parameter", "--market"}),
    most_replicas=MOST_REPLICAS,
)
FORMS: Final = {"sagemaker": "a SageMaker endpoint for CloudFormation"}


class SageMakerTarget(Frozen, frozen=True, kw_only=True):
    """`cloud` returns a place's cloud, `catalog` opens the one with SageMaker's machines and prices."""

    cloud_of: Callable[[str], SageMakerCloud]
    catalog: Callable[[], Catalog]
    default_region: Callable[[], str]
    name: ClassVar = NAME
    facts: ClassVar = FACTS
    options: ClassVar[type[Value]] = SageMakerOptions
    forms: ClassVar[Mapping[str, str]] = FORMS

    def locations(self, named: tuple[str, ...]) -> tuple[str, ...]:
        if "all" in named:
            return tuple(map(place_of, self.catalog().regions()))
        for region in named:
            self.catalog().check_region(region)
        return tuple(map(place_of, dict.fromkeys(named))) or (place_of(self.default_region()),)

    def supply(self, catalog: Catalog, *, release: str, hardware: bool) -> Supplied:  # noqa: ARG002 -- the protocol's
        """Return nothing to add: the catalog's offers count."""
        return Supplied()

    def refusal(self, plan: Plan) -> InputError | None:
        """Return the error for a plan with other machines than SageMaker's, or with a folder of this computer."""
        offer, model = plan.chosen.offer, plan.request.model.model
        if offer.instance_type.status != "hosted":
            return InputError(
                "not_hosted",
                f"{offer.instance_type.name} is not a machine that SageMaker has",
                hint="plan with --target sagemaker and without --hardware",
            )
        if model.local_path is not None:
            return InputError(
                "local_model",
                f"the model {model.local_path} exists only on this computer: an endpoint can't load it",
                hint="copy it to S3 and name the folder with --weights, or push it to the hub and use its id",
            )
        return None

    def launch(
        self, around: Surroundings, request: LaunchRequest, *, spent: Callable[[Deployment], Spent] = no_spending
    ) -> Launch:
        from tgi_deploy.targets.sagemaker.launch import SageMakerLaunch  # noqa: PLC0415 -- planning loads nothing that acts

        return SageMakerLaunch(around=around, request=request, spent=spent, cloud=self.cloud_of)

    def front(self, around: Surroundings, deployment: Deployment) -> Front | None:  # noqa: ARG002 -- the protocol's
        """Return None: SageMaker itself replaces an endpoint's machines."""
        return None

    def cloud(self, place: str) -> Cloud:
        return self.cloud_of(place)

    def artifact(self, form: str, deployable: Deployable, *, templates_dir: Path | None) -> Artifact:
        from tgi_deploy.targets.sagemaker.artifacts import written  # noqa: PLC0415 -- startup time

        return written(form, deployable, templates_dir=templates_dir)

    @property
    def by_hand(self) -> ByHand:
        from tgi_deploy.targets.sagemaker import commands  # noqa: PLC0415 -- startup time

        return commands
