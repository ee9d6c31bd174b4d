"""The planner's choices start in the stub server, and a slightly smaller machine is not enough."""

from __future__ import annotations

from io import StringIO

import pytest

from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.sandbox.engine.launcher import Launcher, image_environment, prepare, run
from tgi_deploy.sandbox.engine.situation import Container, Host, Pace
from tgi_deploy.values.plan import Plan
from tgi_deploy.wiring import open_catalog

# About fifteen profiles and three older releases keep this fast.
EVERY = open_catalog().profile_names()
PROFILES = EVERY[:: len(EVERY) // 15]
REQUESTS = [
    *((name, "3.3.7") for name in PROFILES),
    ("llama3-8b", "2.0.4"),
    ("llama3-8b", "2.4.1"),
    ("llama3-70b", "3.0.1"),
]


def _container(catalog, candidate, memory_bytes):
    hardware, release = candidate.offer.instance_type, catalog.release(candidate.engine.version)
    return Container(
        release=release,
        host=Host(
            accelerator=hardware.accelerator, gpus=candidate.engine.container.accelerators, memory_bytes=memory_bytes
        ),
        environ={**image_environment(release), **dict(candidate.engine.container.env), "HF_TOKEN": "hf_made_up"},
        faults=frozenset(),
        models=catalog,
        listen=("127.0.0.1", 0),
        pace=Pace(speed=1e9),
        out=StringIO(),
        err=StringIO(),
    )


@pytest.mark.parametrize("prefer", ["quality", "cost"])
@pytest.mark.parametrize(("name", "version"), REQUESTS)
def test_the_chosen_candidate_starts(catalog, name, version, prefer):
    made = plan(OptionTexts(model=name, prefer=prefer, engine_version=version, regions=("us-east-1",)), catalog, {})
    assert isinstance(made, Plan)
    chosen = made.chosen
    container = _container(catalog, chosen, chosen.offer.instance_type.memory_bytes_per_accelerator)
    situation = prepare(container, chosen.engine.container.args)
    Launcher(situation).start()
    limits = situation.limits
    assert limits.max_total_tokens == chosen.engine.settings.max_total_tokens
    assert limits.max_input_tokens == chosen.engine.settings.max_input_tokens
    assert limits.max_batch_total_tokens >= chosen.memory.kv_capacity_tokens


def test_the_same_command_on_less_memory_fails(catalog):
    made = plan(OptionTexts(model="llama3-13b", regions=("us-east-1",)), catalog, {})
    container = _container(catalog, made.chosen, made.chosen.memory.weights_bytes)
    assert run(container, made.chosen.engine.container.args) == 1
    assert container.err.getvalue() == "Error: ShardCannotStart\n"
    assert "CUDA out of memory" in container.out.getvalue()
