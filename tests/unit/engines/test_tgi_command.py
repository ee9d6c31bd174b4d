"""The release's launcher and router accept every command line of the planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.requests import shared_catalog
from builders.samples import some
from naive import launcher
from naive.search import KERNEL_BLOCKS_ARE_CHUNKED, attention_kernels

from tgi_deploy.engines.tgi.fit import concurrent_requests
from tgi_deploy.engines.tgi.memory import graph_batches
from tgi_deploy.engines.tgi.pins import flag_problems
from tgi_deploy.operations.planning.option_texts import OptionTexts, resolve
from tgi_deploy.planner.search import Search
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.values.engine import Flag
    from tgi_deploy.values.plan import Candidate
    from tgi_deploy.values.request import Request

NEW, OLD = "8xH100-80GB", "4xT4"
EVERY_FOURTH = 4


def search_over(hardware: str, request: Request) -> Search:
    supply = shared_catalog().owned_supply(release=request.engine_version, hardware=hardware)
    return Search(replaced(request, allow_turing=True), supply, shared_catalog().engine)


def one_of_each_method(search: Search) -> Iterator[Candidate]:
    seen: set[tuple[str, bool]] = set()
    configuration: Configuration
    for configuration in search.run().configurations:
        scheme = configuration.evaluation.scheme
        kind = scheme.hub_id + scheme.name, configuration.evaluation.num_shard > 1
        if kind not in seen:
            seen.add(kind)
            yield search.candidate(configuration)


def prefills_in_chunks(candidate: Candidate, release: TgiRelease, request: Request) -> bool:
    served = release.model_classes[request.model.model.model_type]
    capability = candidate.offer.instance_type.accelerator.compute_capability
    rule = next(rule for rule in release.architectures if rule.minimum <= (capability or (0, 0)) <= rule.maximum)
    kernels = attention_kernels(request.model.model, served, release, rule.env.get("ATTENTION", ""))
    return release.chunked_prefill and served.prefill_chunking and kernels in KERNEL_BLOCKS_ARE_CHUNKED


@pytest.mark.slow
@pytest.mark.parametrize("version", some(shared_catalog().release_versions(), 5))
def test_launcher_and_router_accept_every_command(version: str) -> None:
    catalog = shared_catalog()
    release = catalog.release(version)
    checked = 0
    for number, name in enumerate(catalog.profile_names()):
        request = resolve(OptionTexts(model=name, engine_version=version), {}, catalog)
        for hardware in (NEW,) if number % EVERY_FOURTH else (NEW, OLD):
            for candidate in one_of_each_method(search_over(hardware, request)):
                chunks = prefills_in_chunks(candidate, release, request)
                found = launcher.complaints(candidate.engine.container, release, prefills_in_chunks=chunks)
                assert found == (), (name, candidate.quantize, candidate.engine.container.args)
                checked += 1
    assert checked > 2 * len(catalog.profile_names())


def test_the_naive_launcher_rejects_invalid_commands() -> None:
    """A checker that cannot fail checks nothing."""
    catalog = shared_catalog()
    release = catalog.release("3.3.7")
    request = resolve(OptionTexts(model="llama3-8b"), {}, catalog)
    good = next(one_of_each_method(search_over(NEW, request))).engine.container
    spoilt = {
        "unexpected argument": (*good.args, "--made-up", "1"),
        "multiple times": (*good.args, "--num-shard", "8"),
        "invalid value": (*good.args, "--max-best-of", "two"),
        "left to guess": tuple(word for word in good.args if word not in {"--num-shard", "8"}),
        "`dtype` and `quantize`": (*good.args, "--quantize", "eetq"),
        "not supported with `exl2`": (
            *(w for w in good.args if w not in {"--dtype", "bfloat16"}),
            "--quantize",
            "exl2",
        ),
    }
    for complaint, args in spoilt.items():
        found = launcher.complaints(replaced(good, args=args), release, prefills_in_chunks=True)
        assert any(complaint in result for result in found), (complaint, found)
    shorter = replaced(good, args=tuple("8193" if word == "8191" else word for word in good.args))
    assert launcher.complaints(shorter, release, prefills_in_chunks=False) != ()


@pytest.mark.parametrize(
    ("concurrency", "graphs"),
    [
        (1, (1, 2, 4, 8, 16, 32)),
        (32, (1, 2, 4, 8, 16, 32)),
        (64, (1, 2, 4, 8, 16, 32, 64)),
        (4000, (1, 2, 4, 8, 16, 32, 64, 128)),
    ],
)
def test_cuda_graphs_cover_the_concurrency(concurrency: int, graphs: tuple[int, ...]) -> None:
    assert graph_batches(concurrency, supported=True) == graphs
    assert graph_batches(concurrency, supported=False) == (0,)


@pytest.mark.parametrize(("concurrency", "limit"), [(1, 128), (32, 128), (33, 132), (1000, 4000)])
def test_waiting_requests_are_not_turned_away(concurrency: int, limit: int) -> None:
    assert concurrent_requests(concurrency) == limit


def sample(flag: Flag) -> tuple[str, str]:
    """A value of the flag's type, and one that is not."""
    if flag.values and flag.kind != "bool":
        return flag.values[0], "made-up"
    return {
        "bool": ("true", "yes"), "float": ("0.5", "half"), "list[uint]": ("1,2", "1;2"), "string": ("a/b", ""),
        "list[string]": ("a,b", ""),
    }.get(flag.kind, ("2", "-2"))  # fmt: skip


@pytest.mark.parametrize("version", ["2.0.4", "3.3.7"])
def test_flag_values_are_parsed_by_type(version: str) -> None:
    release = shared_catalog().release(version)
    taken = 0
    for name, flag in release.flags.items():
        good, bad = sample(flag)
        problems = [problem.code for problem in flag_problems({name: good}, release)]
        if problems:
            assert problems == ["flag_not_allowed"]
            continue
        taken += 1
        assert [problem.code for problem in flag_problems({name: bad}, release)] == ["bad_flag_value"]
    assert taken > 20
