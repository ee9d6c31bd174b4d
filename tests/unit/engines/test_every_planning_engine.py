"""Properties of every planned engine: it judges any configuration and never raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import engines, plans
from builders.samples import quick

from tgi_deploy.errors import Problem
from tgi_deploy.values.base import replaced
from tgi_deploy.values.engine import DefaultRun, Load, Pins, Rates, Scheme

if TYPE_CHECKING:
    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.values.engine import Release

every_engine = pytest.mark.parametrize("engine", engines.PLANNING, ids=lambda engine: engine.name)
every_release = pytest.mark.parametrize(
    ("engine", "release"),
    quick([(engine, release) for engine in engines.PLANNING for release in engines.releases(engine)], 6),
    ids=lambda of: getattr(of, "version", "") or of.name,
)
TINY = Load(input_tokens=1, output_tokens=1, concurrency=1, context_tokens=2)
HUGE = Load(input_tokens=10**9, output_tokens=10**9, concurrency=10**6, context_tokens=2 * 10**9)
USUAL = Load(input_tokens=1000, output_tokens=200, concurrency=8, context_tokens=8192)


def unknown_scheme() -> Scheme:
    return Scheme(name="new", hub_id=plans.HUB_ID, bits=2.5, lost_bits=13, prequantized=True, method="new", known=False)


MODELS: tuple[dict[str, Any], ...] = (
    {},
    {"model_type": "of_next_year", "architecture": "OfNextYear"},
    {"attention_heads": 7, "kv_heads": 7, "head_dim": 3},
    {"parameters": 1, "layers": 1, "hidden_size": 1, "intermediate_size": 1, "vocab_size": 1},
    {"parameters": 10**13},
    # Its embeddings are all that it has.
    {"parameters": 128256 * 5120},
)


@every_release
@pytest.mark.parametrize("load", [TINY, USUAL, HUGE], ids=["tiny", "usual", "huge"])
def test_any_configuration_can_be_judged(engine: Engine, release: Release, load: Load) -> None:
    for model in MODELS:
        judged = engine.fit(replaced(engines.fit_of(release, num_shard=4).case, model=plans.model(**model), load=load))
        memory = judged.memory
        assert all(isinstance(problem, Problem) and problem.code and problem.message for problem in judged.problems)
        parts = memory.reserved_bytes + memory.weights_bytes + memory.activation_bytes + memory.overhead_bytes
        assert parts + memory.kv_cache_bytes == memory.total_bytes, model


@every_release
def test_an_unknown_scheme_is_a_problem(engine: Engine, release: Release) -> None:
    case = replaced(engines.fit_of(release).case, scheme=unknown_scheme())
    assert engine.fit(case).problems


@every_release
def test_a_configuration_that_fits_has_a_container(engine: Engine, release: Release) -> None:
    offer = plans.instance_type(accelerator_count=4)
    judged = engine.fit(replaced(engines.fit_of(release, num_shard=4).case, hardware=offer, load=USUAL))
    assert judged.problems == ()
    assert str(judged.settings.max_total_tokens) in engine.container(judged).args


@every_release
def test_schemes_are_ordered_best_first(engine: Engine, release: Release) -> None:
    schemes = engine.schemes(plans.profile(), release, "auto")
    lost = [scheme.lost_bits for scheme in schemes]
    assert lost == sorted(lost)
    assert {scheme.name for scheme in engine.schemes(plans.profile(), release, "of-next-year")} == {"of-next-year"}


@every_release
def test_an_unknown_flag_is_rejected_by_name(engine: Engine, release: Release) -> None:
    problems = engine.check_pins(Pins(flags={"--of-next-year": "1"}), USUAL, plans.model(), release)
    assert "--of-next-year" in problems[0].message


@every_engine
def test_the_example_in_a_hint_is_accepted(engine: Engine) -> None:
    name, _, value = engine.pin_example.partition("=")
    newest = engines.releases(engine)[-1]
    assert engine.check_pins(Pins(flags={f"--{name}": value}), USUAL, plans.model(), newest) == ()


@every_release
def test_default_settings_account_for_all_memory(engine: Engine, release: Release) -> None:
    run = DefaultRun(
        model=plans.model(), bits=16.0, num_shard=1, accelerator="L40S", total_bytes=48 * plans.GIB, share=0.9,
        prefill_tokens=4096,
    )  # fmt: skip
    memory = engine.default_memory(run, release)
    parts = memory.reserved_bytes + memory.weights_bytes + memory.activation_bytes + memory.overhead_bytes
    assert parts + memory.kv_cache_bytes == memory.total_bytes == run.total_bytes


@every_engine
def test_the_longest_context_is_the_models(engine: Engine) -> None:
    assert engine.longest_context(plans.model(max_position_embeddings=4096), Pins(flags={})) == 4096


@every_engine
def test_an_edit_is_a_valid_engine_flag(engine: Engine) -> None:
    newest = engines.releases(engine)[-1]
    assert engine.edits
    for name in engine.edits:
        edit = engine.edit(name, plans.settings())
        pins = Pins(flags={f"--{edit.flag}": edit.value})
        assert engine.check_pins(pins, USUAL, plans.model(), newest) == ()


@every_release
def test_shard_counts_are_ascending(engine: Engine, release: Release) -> None:
    counts = engine.shard_counts(plans.model(), release, 8)
    assert list(counts) == sorted(set(counts))
    assert set(counts) <= set(range(1, 9))


@every_engine
def test_every_startup_phase_has_a_duration(engine: Engine) -> None:
    rates = Rates(weights_bytes=26 * 10**9, download_s=120.0, read_s=30.0)
    phases = engine.startup(plans.settings(num_shard=4), rates)
    assert [phase.phase for phase in phases][-1] == "ready"
    for phase in phases:
        assert phase.expected_s > 0
        assert phase.silent_s > 0
        assert 0 <= phase.step_s <= phase.expected_s
