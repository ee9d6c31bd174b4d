"""Fallbacks in regions that lack a requirement of the launch are skipped."""

from __future__ import annotations

import pytest
from fakes.cloud import FakeCloud
from fakes.computer import on, plan, request

from tgi_deploy.errors import InputError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.reconcile.errors import NoCapacityError


class BareCloud(FakeCloud):
    """`lacks` is what is in us-east-1 alone: the code of the error elsewhere."""

    lacks = ""

    def image(self, *, architecture, wanted):
        self.check("no_machine_image")
        return super().image(architecture=architecture, wanted=wanted)

    def placements(self, instance_type, *, subnet):
        self.check("unknown_subnet")
        self.check("no_default_subnet")
        return super().placements(instance_type, subnet=subnet)

    def check(self, code):
        if code == self.lacks and self.region != "us-east-1":
            raise InputError(code, f"{code} in {self.region}")


def bring_up(around, wanted, lacks):
    def cloud(region):
        made = BareCloud(world=around.world, region=region)
        made.lacks = lacks
        return made

    return up(around.context(cloud=cloud, targets=around.targets(region=cloud)), request(wanted))


LACKS = ["no_machine_image", "unknown_subnet", "no_default_subnet"]


@pytest.mark.parametrize("lacks", LACKS)
def test_a_fallback_that_its_region_lacks_is_skipped(around, lacks):
    def nothing_free(name, _properties):
        if name == "create instance":
            raise NoCapacityError("none")

    around.world.on_call = nothing_free
    with pytest.raises(NoCapacityError, match=rf"us-east-1b.*eu-west-1.*{lacks} in eu-west-1"):
        bring_up(around, plan(on("g6.xlarge", region="eu-west-1")), lacks)
    assert around.world.left() == []


@pytest.mark.parametrize("lacks", LACKS)
def test_a_plan_for_such_a_region_is_rejected_first(around, lacks):
    with pytest.raises(InputError, match=f"{lacks} in eu-west-1"):
        bring_up(around, plan(chosen=on("g6.xlarge", region="eu-west-1")), lacks)
    assert around.world.creations == []
