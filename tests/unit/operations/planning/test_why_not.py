"""Explanations agree with the plan they explain, and their sums add up."""

from __future__ import annotations

import itertools
import json

import pytest
from builders.samples import quick

from tgi_deploy.cli.views.why_not import why_not_text
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.planning.why_not import why_not
from tgi_deploy.values.plan import Plan

REQUESTS = (
    OptionTexts(model="llama3-13b", budget="5"),
    OptionTexts(model="llama3-8b", budget="1", prefer="cost"),
    OptionTexts(model="llama3-70b", regions=("us-east-1", "eu-west-1"), market="any", prefer="speed"),
    OptionTexts(model="llama2-13b", num_shard="2", quantize="none", prefer="value"),
    OptionTexts(model="llama3-8b", tpot_ms="30"),
)
TYPES = (
    "g5.xlarge",
    "g6.xlarge",
    "g6e.xlarge",
    "g6.12xlarge",
    "g4dn.xlarge",
    "p4d.24xlarge",
    "g5g.xlarge",
    "p2.xlarge",
)


@pytest.mark.parametrize(("texts", "name"), quick(zip(itertools.cycle(REQUESTS), TYPES, strict=False), 2))
def test_an_explanation_agrees_with_the_plan(catalog, texts, name):
    made = plan(texts, catalog, {})
    assert isinstance(made, Plan)
    item = why_not(texts, name, catalog, {}).explanations[0]
    refused = {
        (rejection.num_shard, rejection.quantize): set(rejection.codes)
        for rejection in made.rejections
        if rejection.instance_type == name
    }
    assert item.chosen == made.chosen
    if item.best == made.chosen:
        best = made.chosen
        (chosen,) = (it for it in item.variants if (it.num_shard, it.quantize) == (best.num_shard, best.quantize))
        assert chosen.memory == made.chosen.memory
    for variant in item.variants:
        if not variant.codes:
            assert item.best is not None
        elif variant.codes != ("over_budget",) and "not_offered" not in variant.codes:
            assert set(variant.codes) <= refused[variant.num_shard, variant.quantize] | {"over_budget", "price_unknown"}
    assert (item.best is None) == all(variant.codes for variant in item.variants)


@pytest.mark.slow
@pytest.mark.parametrize("texts", REQUESTS, ids=lambda texts: texts.model)
def test_the_choice_is_first_and_others_name_the_deciding_criterion(catalog, texts):
    made = plan(texts, catalog, {})
    assert isinstance(made, Plan)
    item = why_not(texts, made.chosen.offer.instance_type.name, catalog, {}).explanations[0]
    assert (item.verdict, item.rank, item.decided_by) == ("chosen", 1, None)
    for other in TYPES:
        found = why_not(texts, other, catalog, {}).explanations[0]
        if found.rank is not None and found.rank > 1:
            assert found.decided_by is not None
            assert found.ranked == item.ranked


def test_the_memory_of_a_card_adds_up(catalog):
    variants = why_not(REQUESTS[0], "g5.xlarge", catalog, {}).explanations[0].variants
    assert variants
    for variant in variants:
        memory = variant.memory
        parts = (
            memory.reserved_bytes, memory.weights_bytes, memory.activation_bytes, memory.overhead_bytes,
            memory.kv_cache_bytes,
        )  # fmt: skip
        assert sum(parts) == memory.total_bytes
        assert memory.fits == (memory.kv_capacity_tokens >= memory.required_kv_tokens)


def test_prices_add_up_and_are_compared_with_the_budget(catalog):
    texts = OptionTexts(model="llama3-13b", budget="1.5", regions=("us-east-1", "eu-west-1"), market="any")
    variants = why_not(texts, "g6e.xlarge", catalog, {}).explanations[0].variants
    for price in variants[0].prices:
        assert price.cost is not None
        assert price.within_budget == (price.cost.usd_per_hour <= 1.5)
    assert {price.within_budget for price in variants[0].prices} == {True, False}
    assert variants[0].codes == ()


def test_a_pinned_instance_is_still_compared(catalog):
    texts = OptionTexts(model="llama3-13b", instance="g6.12xlarge")
    item = why_not(texts, "g6e.xlarge", catalog, {}).explanations[0]
    assert item.verdict == "works"
    assert item.chosen is not None
    assert item.chosen.offer.instance_type.name == "g6.12xlarge"


@pytest.mark.parametrize(
    "name", quick(["2xg6e.xlarge", "2 g6e.xlarge", "2 x g6e.xlarge", "two g6e.xlarge", "Two G6E.xlarge"], 2)
)
def test_several_machines_can_be_written_in_every_documented_form(name, catalog):
    """Two cheap machines compared with the chosen one, including the load balancer that two need."""
    found = why_not(OptionTexts(model="llama3.1-8b", concurrency="128"), name, catalog, {})
    item = found.explanations[0]
    assert (found.name, item.hardware.name) == ("2xg6e.xlarge", "g6e.xlarge")
    assert item.best is not None
    assert (item.best.machines, item.best.replicas) == (2, 2)
    assert "load balancer" in {line.item for line in item.best.cost.lines}


def test_an_accelerator_stands_for_every_type_that_has_it(catalog):
    found = why_not(REQUESTS[0], "l4", catalog, {})
    assert (found.name, found.kind, found.rentable) == ("L4", "accelerator", True)
    names = {item.hardware.name for item in found.explanations}
    assert names == {item.name for item in catalog.instance_types().values() if item.accelerator.name == "L4"}


def test_an_unrentable_gpu_is_explained_as_an_owned_machine(catalog):
    found = why_not(OptionTexts(model="llama3-70b"), "RTX-4090", catalog, {})
    assert not found.rentable
    assert [item.verdict for item in found.explanations] == ["memory_weights", "memory_weights", "works", "works"]


def test_unknown_names_are_refused(catalog):
    for name, code in (("g99.xlarge", "unknown_instance_type"), ("Voodoo", "unknown_accelerator")):
        with pytest.raises(InputError) as raised:
            why_not(REQUESTS[0], name, catalog, {})
        assert raised.value.code == code


def test_the_json(tool):
    exit_code, out, _ = tool("plan", "llama3-13b", "--why-not", "g6.xlarge", "--budget", "5", "--json")
    found = json.loads(out)["data"]["why_not"]
    assert exit_code == 0
    assert found.keys() == {"name", "kind", "rentable", "chosen", "instance_types"}
    [item] = found["instance_types"]
    assert (found["name"], found["kind"], found["chosen"]["instance_type"]) == (
        "g6.xlarge",
        "instance_type",
        "g5.xlarge",
    )
    assert (item["verdict"], item["decided_by"]) == ("works", "service level")
    variant = item["variants"][0]
    assert variant.keys() == {
        "num_shard", "quantize", "replicas", "works", "codes", "reasons", "memory", "performance", "prices",
    }  # fmt: skip
    assert variant["codes"] == ["memory_weights"]
    assert variant["reasons"][0]["numbers"]["weights_bytes"] == variant["memory"]["per_accelerator"]["weights_bytes"]
    price = variant["prices"][0]
    assert sum(line["usd_per_hour"] for line in price["lines"]) == pytest.approx(price["usd_per_hour"])
    assert (price["price_date"], price["estimated"]) == ("2026-07-20", False)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("g6.xlarge", "behind g5.xlarge by service level"),
        ("g5.xlarge", "is the plan's choice"),
        ("g4dn.xlarge", "nearest misses: arch_flash_attention"),
        ("p2.xlarge", "it is no longer offered"),
        ("A10G", "g5.48xlarge"),
        ("RTX-4090", "1xRTX-4090 serves llama3-13b"),
        ("g5g.xlarge", "host_architecture"),
        ("trn1.2xlarge", "vendor_unsupported"),
    ],
)
def test_the_text(tool, name, says):
    exit_code, out, err = tool("plan", "llama3-13b", "--why-not", name, "--budget", "5")
    assert (exit_code, err) == (0, "")
    assert says in " ".join(out.split())
    assert all(len(line) <= 100 for line in out.splitlines())
    assert "memory of one accelerator:" in out


def test_a_type_missing_from_the_region_is_explained(tool):
    _, out, _ = tool("plan", "llama3-13b", "--why-not", "p5.48xlarge", "--region", "eu-west-3")
    assert "not_offered" in out
    assert "no on-demand offer in eu-west-3" in out


def test_every_price_of_an_explanation_has_its_date_and_no_scheme_is_none(catalog):
    found = why_not_text(why_not(REQUESTS[0], "g6.12xlarge", catalog, {}))
    sentence = " ".join(found.partition("\n\n")[0].split())
    assert sentence.count("listed 20") == sentence.count("$")
    assert "none" not in found
    overview = why_not_text(why_not(REQUESTS[0], "L4", catalog, {})).split("\n\n")[1]
    assert overview.splitlines()[-1].startswith("prices listed 20")
