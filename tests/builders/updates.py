"""Updates of the deployment `demo` on fakes: the plans of three revisions, and the commands between them."""

from __future__ import annotations

from builders.plans import candidate, engine
from fakes.computer import FakeEngine, plan, request

from tgi_deploy.operations.deploying.rollout import former
from tgi_deploy.operations.deploying.up import up


def _quantized(scheme):
    return plan(chosen=candidate(engine=engine(quantize=scheme)), quantize=scheme)


OLD, NEW, THIRD = plan(), _quantized("awq"), _quantized("gptq")
PLANS = {"none": OLD, "awq": NEW, "gptq": THIRD}


def again(revision):
    """Plan a recorded revision again."""
    return PLANS[revision.plan.chosen.quantize], ()


def bring_up(around, wanted=OLD, **changes):
    return up(around.context(), request(wanted, **{"wait": True, "plan_revision": again} | changes))


def roll_back(around, **changes):
    wanted, _ = again(former(around.store.load("demo")))
    return bring_up(around, wanted, exact=True, origin="rollback", **changes)


def fails_for(around, scheme):
    """Make every engine with that scheme report another model's name."""
    real = around.context

    def client(_url):
        wanted = around.store.load("demo").wanted
        return FakeEngine(model_id="someone/else") if wanted.plan.chosen.quantize == scheme else around.engine

    around.context = lambda **changes: real(**{"engine_client": client} | changes)
