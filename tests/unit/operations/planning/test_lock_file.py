"""Lock files: their content, lossless round trips, and rejection of broken ones."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.lock import (
    catalog_sha256,
    config_sha256,
    lock_document,
    lock_text,
    read_lock,
    read_plan,
    texts_document,
)
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.values.base import plain, replaced

SHA256 = re.compile(r"[0-9a-f]{64}")


@pytest.fixture(scope="module")
def made(catalog):
    return plan(OptionTexts(model="llama3-13b", budget="5"), catalog, {})


def document_of(made, catalog, texts=None, environ=None):
    return lock_document(
        made,
        texts or OptionTexts(model="llama3-13b", budget="5"),
        environ or {},
        catalog.release(made.request.engine_version),
        printed={},
    )


def test_a_lock_has_the_documented_contents(locked):
    document = json.loads(locked[0].read_text())
    assert list(document) == ["kind", "schema", "model", "engine", "catalog", "request", "plan"]
    assert document["model"]["id"] == "elinas/Llama-3-13B-Instruct"
    assert SHA256.fullmatch(document["model"]["config_sha256"])
    assert document["engine"].keys() == {"name", "version", "image"}
    assert SHA256.fullmatch(document["catalog"]["sha256"])
    assert document["catalog"]["date"] == document["plan"]["catalog_date"]
    assert document["request"] == {"model": "llama3-13b", "budget": "5", "regions": ["us-east-1"]}
    assert document["plan"].keys() >= {"chosen", "cost", "performance", "requirements", "engine"}


def test_a_lock_is_short_enough_to_review(locked):
    document = json.loads(locked[0].read_text())
    assert not any(
        document["plan"][key] for key in ("rejections", "fallbacks", "alternatives", "frontier", "breakeven")
    )
    assert len(locked[0].read_text().splitlines()) < 350


def test_the_same_plan_gives_the_same_lock(made, catalog):
    assert lock_text(document_of(made, catalog)) == lock_text(document_of(made, catalog))


def test_a_lock_reads_back_the_same(locked):
    lock = read_lock(locked[0].read_text(), "plan.lock")
    assert lock.texts == OptionTexts(model="llama3-13b", budget="5", regions=("us-east-1",))
    assert lock.plan.chosen.instance_type == "g5.xlarge"


def test_the_environment_becomes_part_of_the_request(made, catalog):
    environ = {"TGI_DEPLOY_CONTEXT": "4096", "TGI_DEPLOY_BUDGET": "9", "TGI_DEPLOY_REGION": "eu-west-1", "HOME": "/"}
    document = document_of(made, catalog, environ=environ)
    assert document["request"] == {
        "model": "llama3-13b", "budget": "5", "context": "4096", "regions": list(made.request.regions),
    }  # fmt: skip


def test_every_option_survives_a_round_trip(catalog):
    texts = OptionTexts(
        model="llama3-8b", regions=("eu-west-1",), market="any", set=("max-best-of=4",), allow_turing=True, port="9000",
        context="4096", prefer="cost", quantize="awq", num_shard="1", ttft_ms="5000", max_spend="10",
    )  # fmt: skip
    outcome = plan(texts, catalog, {})
    document = json.loads(lock_text(document_of(outcome, catalog, texts)))
    document["plan"] = plain(_plan_document(outcome))
    assert read_lock(json.dumps(document), "x").texts == texts


def _plan_document(outcome):
    from tgi_deploy.operations.planning.documents import plan_document  # noqa: PLC0415 -- one test needs it

    return plan_document(outcome)


def test_an_owned_machine_has_no_region_in_its_request(catalog):
    texts = OptionTexts(model="llama3-8b", hardware="1xRTX-4090")
    document = document_of(plan(texts, catalog, {}), catalog, texts)
    assert document["request"] == {"model": "llama3-8b", "hardware": "1xRTX-4090"}


def test_the_source_of_a_shape_does_not_change_the_lock(made):
    model = made.request.model.model
    assert config_sha256(model) == config_sha256(replace(model, local_path="/models/x", source="a file", note="n"))
    assert config_sha256(model) != config_sha256(replace(model, layers=model.layers + 1))
    assert config_sha256(model) != config_sha256(replace(model, revision="0" * 40))


def test_the_catalog_hash_covers_only_used_figures(made, catalog):
    release = catalog.release(made.request.engine_version)
    offer = made.chosen.offer
    dearer = replaced(made, chosen=replaced(made.chosen, offer=replaced(offer, usd_per_hour=offer.usd_per_hour + 1)))
    assert catalog_sha256(made, release) == catalog_sha256(replaced(made, rejections=()), release)
    assert catalog_sha256(made, release) != catalog_sha256(dearer, release)
    assert catalog_sha256(made, release) != catalog_sha256(made, replaced(release, memory_share=0.5))


def test_a_request_is_written_without_unset_options(made):
    assert texts_document(OptionTexts(model="x")) == {"model": "x"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("kind", "something"), ("schema", 1), ("schema", "2"), ("request", []),
        ("request.model", None), ("request.budget", 5), ("request.regions", "us-east-1"), ("request.set", [1]),
        ("request.allow_turing", "yes"), ("request.what", "x"), ("plan", None), ("plan.cost", []),
        ("plan.cost.usd_per_hour", "one"), ("plan.cost.usd_per_hour", True), ("plan.engine.args", "--x"),
        ("plan.engine.args", [1]), ("plan.engine.env", []), ("plan.chosen.num_shard", "1"), ("model", 3),
        ("plan.performance.usd_per_million_output_tokens", "x"), ("engine", None), ("catalog", "today"),
    ],
)  # fmt: skip
def test_an_invalid_lock_is_rejected(locked, path, value):
    document = json.loads(locked[0].read_text())
    *parents, key = path.split(".")
    table = document
    for parent in parents:
        table = table[parent]
    table[key] = value
    with pytest.raises(InputError) as raised:
        read_lock(json.dumps(document), "plan.lock")
    assert raised.value.code == "bad_lock"
    assert "plan.lock" in raised.value.message
    assert raised.value.hint


def test_a_printed_plan_can_be_read_like_a_lock(tool, locked):
    printed = tool("plan", "llama3-13b", "--budget", "5", "--json")[1]
    from_plan = read_plan(printed, "plan.json")
    assert from_plan.rejections
    assert from_plan.alternatives
    omitted = dict.fromkeys(("alternatives", "breakeven", "fallbacks", "frontier", "rejections"), ())
    assert replaced(from_plan, **omitted) == read_plan(locked[0].read_text(), "plan.lock")


def test_the_output_of_another_command_is_not_a_plan(tool):
    printed = tool("catalog", "list", "regions", "--json")[1]
    with pytest.raises(InputError, match="neither a lock nor a plan"):
        read_plan(printed, "x")
