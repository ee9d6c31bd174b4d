"""Properties of every engine and release: its container and its metadata."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builders import engines, plans
from builders.machine import Machine
from builders.samples import quick

from tgi_deploy.engines.protocol import ServingEngine
from tgi_deploy.values.engine import Pins
from tgi_deploy.wiring import render_artifact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.values.engine import Release

CASES = Path(__file__).parents[2] / "cases/engines"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB_TOKEN = "HF_TOKEN"

every_engine = pytest.mark.parametrize("engine", engines.EVERY, ids=lambda engine: engine.name)
every_release = pytest.mark.parametrize(
    ("engine", "release"), quick(engines.every_release(), 8), ids=lambda of: getattr(of, "version", "") or of.name
)


def flags_and_words(arguments: tuple[str, ...], release: Release) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Split a command line by the release's own table: each flag with its values, "" with what precedes all flags."""
    name, values = "", []
    for word in arguments:
        if word in release.flags:
            yield name, tuple(values)
            name, values = word, []
        else:
            values.append(word)
    yield name, tuple(values)


@every_engine
def test_an_engine_implements_the_protocol(engine: ServingEngine) -> None:
    asked = {name for name in vars(ServingEngine) if not name.startswith("_")}
    assert "probes" in asked
    assert {name for name in asked if not hasattr(engine, name)} == set()


@every_engine
def test_remedy_flags_exist_in_every_release(engine: ServingEngine) -> None:
    for release in engines.releases(engine):
        assert {flag for _, flag in engine.remedy_flags} <= release.flags.keys()


@every_release
def test_each_flag_exists_in_the_exact_release(engine: ServingEngine, release: Release) -> None:
    fit = engines.fit_of(release, num_shard=4, revision=COMMIT, dtype="float16")
    for name, values in flags_and_words(engine.container(fit).args, release):
        assert not any(value.startswith("--") for value in values), (name, values)
        if name:
            flag = release.flags[name]
            assert bool(values) != flag.switch, name
            assert not flag.values or set(values) <= set(flag.values), (name, values)


@every_release
def test_a_command_has_the_exact_checkpoint_and_limits(engine: ServingEngine, release: Release) -> None:
    words = engine.container(engines.fit_of(release, num_shard=4, revision=COMMIT)).args
    assert {"example-org/example-13b", COMMIT, "4", "8192"} <= set(words)


@every_release
def test_a_pinned_flag_replaces_the_setting(engine: ServingEngine, release: Release) -> None:
    usual = engine.container(engines.fit_of(release)).args
    name = usual[usual.index("8192") - 1]
    words = engine.container(engines.fit_of(release, pins=Pins(flags={name: "8000"}))).args
    assert [words[place + 1] for place, word in enumerate(words) if word == name] == ["8000"]


@every_release
def test_the_image_is_named_by_the_exact_version(engine: ServingEngine, release: Release) -> None:
    image = engine.container(engines.fit_of(release)).image
    assert image.reference.partition(":")[2].lstrip("v").startswith(release.version)
    assert image.bytes > 10**9


@every_release
def test_no_secret_is_in_a_container(engine: ServingEngine, release: Release) -> None:
    """The hub token appears only by name, if the model needs one; the API key does not appear."""
    container = engine.container(engines.fit_of(release, gated=True))
    assert [secret.variable for secret in container.secrets] == [HUB_TOKEN]
    assert engine.container(engines.fit_of(release)).secrets == ()
    assert {HUB_TOKEN, engine.access(release).key_variable}.isdisjoint(name for name, _ in container.env)
    assert list(container.env) == sorted(set(container.env))


@every_release
def test_weights_outlive_the_container(engine: ServingEngine, release: Release) -> None:
    container = engine.container(engines.fit_of(release))
    weights = [mount for mount in container.mounts if mount.purpose == "weights"]
    assert [mount.path for mount in weights] == [engine.cache_path]
    assert dict(container.env)[weights[0].layout] == engine.cache_path


def test_the_default_releases_of_two_engines_share_their_weights() -> None:
    layouts = {
        mount.layout
        for engine in engines.EVERY
        for mount in engine.container(engines.fit_of(engines.releases(engine)[-1])).mounts
        if mount.purpose == "weights"
    }
    assert layouts == {"HF_HOME"}


@every_release
def test_only_several_gpus_need_shared_memory(engine: ServingEngine, release: Release) -> None:
    alone, several = (engine.container(engines.fit_of(release, num_shard=count)) for count in (1, 4))
    assert alone.shm_bytes == 0
    assert several.shm_bytes >= 2**30
    assert (alone.accelerators, several.accelerators) == (1, 4)


@every_release
def test_the_health_check_uses_the_probed_route(engine: ServingEngine, release: Release) -> None:
    container = engine.container(engines.fit_of(release))
    assert container.port == engine.port
    assert container.health.path == engine.probes(engines.PROMISE)[0].path


@every_release
def test_a_wrong_configuration_is_not_retried(engine: ServingEngine, release: Release) -> None:
    """Both engines' argument parsers exit with 2."""
    assert engine.container(engines.fit_of(release)).restart.never_after == (2,)


@every_engine
def test_an_api_key_never_leaves_the_machine(engine: ServingEngine, tmp_path: Path) -> None:
    """The script of the user data runs, with the lines of a real start as the container's log."""
    recorded = (CASES / engine.name / "logs_its_api_key.txt").read_text()
    hidden = engine.container(engines.fit_of(engines.releases(engine)[0])).redactions
    deployable = plans.deployable(candidate=plans.candidate(engine=plans.engine(redactions=hidden)))
    text = render_artifact("user-data", deployable).text
    shown = Machine(folder=tmp_path, user_data=text, engine_log=f"{recorded}after\n").run("run-engine").stdout
    assert "sekret-key-1" in recorded
    assert "sekret-key-1" not in shown
    assert "\nafter\n" in shown


@every_release
def test_the_api_key_guards_every_probed_route(engine: ServingEngine, release: Release) -> None:
    access = engine.access(release)
    assert (access.key_variable is None) == (access.guarded_routes == ())
    asked = {probe.path for probe in engine.probes(engines.PROMISE) if probe.body is not None}
    if access.key_variable is not None:
        assert all(path.startswith(access.guarded_routes) for path in asked)
    assert not set(access.open_inference_routes) & set(access.guarded_routes)


@every_engine
def test_metrics_are_on_the_page_of_a_real_engine(engine: ServingEngine) -> None:
    page = (CASES / engine.name / "metrics.txt").read_text()
    metrics = engine.metrics(engines.releases(engine)[-1])
    on_it = set(re.findall(r"^[a-z][a-z_:]*", page, re.MULTILINE))
    assert {metrics.queued, metrics.running} <= on_it
    assert metrics.kv_used is None or metrics.kv_used in on_it


def test_requests_are_counted_on_the_page_of_a_real_engine() -> None:
    """vLLM's recording ends before its counters."""
    tgi = engines.EVERY[0]
    counters = engines.EVERY[0].metrics(engines.releases(tgi)[-1]).request_counters
    page = (CASES / "tgi/metrics.txt").read_text()
    assert counters
    assert all(f"\n{name}" in page for name in counters)


@every_release
def test_counters_of_requests_come_with_their_page(engine: ServingEngine, release: Release) -> None:
    metrics = engine.metrics(release)
    assert (metrics.path is None) == (metrics.request_counters == ())


@every_engine
@pytest.mark.parametrize("text", ["What is it?", 'it\'s "quoted"\n\\ and {braces}', "“é”"])
def test_the_python_line_reads_the_key_from_its_variable(engine: ServingEngine, text: str) -> None:
    asked = engine.question("org/model", text, 20)
    assert text in (asked.body or {}).values()
    line = engine.client_line("http://127.0.0.1:8080", "MY_KEY", asked)
    compile(line, "line", "exec")
    assert "os.environ['MY_KEY']" in line
    assert "environ" not in engine.client_line("http://127.0.0.1:8080", None, asked)
