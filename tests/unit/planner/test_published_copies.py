"""Published quantized copies: each is a separate candidate and must split into whole groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from tgi_deploy.engines.tgi.kernels import indivisible
from tgi_deploy.engines.tgi.schemes import schemes
from tgi_deploy.planner.search import Search
from tgi_deploy.values.base import replaced
from tgi_deploy.values.model import QuantizedRepository

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.request import Request


def copy(bits: int, hub_id: str, group_size: int = 128) -> QuantizedRepository:
    return QuantizedRepository(method="gptq", hub_id=hub_id, bits=bits, group_size=group_size, source="made up")


def test_two_copies_with_one_method_are_judged_separately(
    catalog: Catalog, make_request: Callable[..., Request]
) -> None:
    request = make_request("Qwen/Qwen2.5-7B-Instruct", quantize="gptq")
    copies = (copy(4, "example/four-bit"), copy(8, "example/eight-bit"))
    request = replaced(request, model=replace(request.model, quantized=copies))
    supply = catalog.supply(release=request.engine_version, regions=("us-east-1",), markets=("on-demand",))
    search = Search(request, supply, catalog.engine)
    on_one_l4 = [found for found in search.run().configurations if found.offer.instance_type.name == "g6.xlarge"]
    weights = {
        configuration.evaluation.scheme.hub_id: configuration.evaluation.memory.weights_bytes
        for configuration in on_one_l4
    }
    assert weights["example/four-bit"] < 0.7 * weights["example/eight-bit"]
    assert search.candidate(on_one_l4[0]).engine.settings.model_id == "example/eight-bit"


@pytest.mark.parametrize(("group_size", "wrong"), [(128, ["attention output in quantization groups of 128"]), (64, [])])
def test_each_attention_output_shard_has_whole_groups(
    catalog: Catalog, make_request: Callable[..., Request], group_size: int, wrong: list[str]
) -> None:
    """14 heads of 64: two shards would get 448 inputs each, which is three and a half groups of 128."""
    request = make_request("Qwen/Qwen2.5-0.5B-Instruct")
    profile = replace(request.model, quantized=(copy(4, "example/four-bit", group_size),))
    (scheme,) = schemes(profile, catalog.release(request.engine_version), "gptq")
    assert [name for name, _ in indivisible(profile.model, scheme, 2)] == wrong
