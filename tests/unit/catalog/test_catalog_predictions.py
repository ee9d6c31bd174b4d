"""The constants of predictions: read on demand, the user's first; errors name file and key."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from tgi_deploy.catalog.predictions import MEMORY_FILE, SPEED_FILE
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.compare import compare
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.planning.predict import PredictionRequest, answer
from tgi_deploy.planner import speed_numerics
from tgi_deploy.values.hardware import Interconnect
from tgi_deploy.values.speed_constants import missing
from tgi_deploy.wiring import open_catalog

REQUEST = OptionTexts(model="llama3-8b", regions=("us-east-1",))


@pytest.fixture
def changed(tmp_path):
    """Return a catalog with a changed copy of one packaged file."""

    def put(file, change):
        document = json.loads((profiles_dir() / file).read_text(encoding="utf-8"))
        change(document)
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document), encoding="utf-8")
        return open_catalog(tmp_path)

    return put


def result(file, read):
    with pytest.raises(InputError) as caught:
        read()
    assert caught.value.code == "bad_profile"
    assert caught.value.hint == f"fix {file} and try again"
    return caught.value.message.removeprefix(f"{file}: ")


def put_at(*path, value):
    """Return a change of a document: `value` at `path`; None deletes the key."""

    def change(document):
        for key in path[:-1]:
            document = document[key]
        if value is None:
            del document[path[-1]]
        else:
            document[path[-1]] = value

    return change


STEP = "engine.default.step_ms"
A_NUMBER = "should be a number, zero or more"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put_at("constants", value=None), "constants: is missing"),
        (put_at("constants", value=[]), "constants: should be a table"),
        (put_at("constants", STEP, value=None), f"constants/{STEP}: is missing"),
        (put_at("constants", STEP, value=1.0), f"constants/{STEP}: should be a table"),
        (put_at("constants", STEP, value={"guess": 1}), f"constants/{STEP}/value: {A_NUMBER}"),
        (put_at("constants", STEP, "value", value="1"), f"constants/{STEP}/value: {A_NUMBER}"),
        (put_at("constants", STEP, "value", value=True), f"constants/{STEP}/value: {A_NUMBER}"),
        (
            put_at("constants", "card.default.bandwidth", "value", value=0),
            "constants/card.default.bandwidth/value: should be a number above zero",
        ),
        (put_at("constants", "kernel.mxfp4.compute", value=None), "constants/kernel.mxfp4.compute: is missing"),
        (put_at("constants", "link.pcie.gb_s", value=None), "constants/link.pcie.gb_s: is missing"),
        (put_at("constants", "engine.tgi.colour", value={}), "constants/engine.tgi.colour: is not a known key"),
        (put_at("constants", "bandwidth", value={}), "constants/bandwidth: is not a known key"),
        (put_at("colours", value={}), "colours: is not a known key"),
        (put_at("card_families", value={"L4": 4}), "card_families: should be a string"),
        (put_at("own_fabrics", value="Gaudi2"), "own_fabrics: should be a list"),
        (put_at("windowed_layers", value={"gemma2": "half"}), f"windowed_layers: {A_NUMBER}"),
        (put_at("slowness", "throughput", value=None), "slowness/throughput: is missing"),
        (put_at("slowness", "growth", value=[0.8]), f"slowness: {A_NUMBER}"),
        (put_at("engines", "profiles", "default", value=None), "engines/profiles/default: is missing"),
        (put_at("engines", "profiles", "tgi", "otherwise", value=None), "engines/profiles/tgi/otherwise: is missing"),
        (put_at("engines", "aliases", value=[]), "engines/aliases: should be a table"),
        (put_at("engines", "pcie_through_host", value={}), "engines/pcie_through_host: should be a list"),
    ],
)  # fmt: skip
def test_broken_constants_of_speed(changed, change, message):
    catalog = changed(SPEED_FILE, change)
    assert result(SPEED_FILE, lambda: plan(REQUEST, catalog, {})) == message
    assert (
        result(
            SPEED_FILE, lambda: answer(PredictionRequest(model="llama3-8b", accelerator="L4", engine="tgi"), catalog)
        )
        == message
    )


def test_every_required_constant_is_used():
    catalog = open_catalog()
    constants = catalog.predictions.speed.with_values(dict.fromkeys(missing(()), 1.0))
    for card in catalog.accelerators().values():
        kernels = {speed_numerics.of_words(words, "fp16", card).kernel for words in speed_numerics.WEIGHT_WORDS}
        assert {constants.kernel(name).compute for name in kernels} == {1.0}
        assert {constants.link(name, card, 2).gb_s for name in get_args(Interconnect)} == {1.0}
        assert constants.card(card).bandwidth == 1.0
    for engine in ("tgi", "vllm", "nobody's"):
        assert constants.engine(engine).layer_us == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put_at("engines", value=[]), "engines: should be a table"),
        (put_at("engines", "vllm", value=None), "engines/vllm: is missing"),
        (put_at("engines", "vllm", value=0.9), "engines/vllm: should be a table"),
        (put_at("engines", "vllm", "context_gib", value=None), "engines/vllm/context_gib: is missing"),
        (put_at("engines", "vllm", "share", value="0.9"), f"engines/vllm/share: {A_NUMBER}"),
        (put_at("engines", "vllm", "colour", value=1), "engines/vllm/colour: is not a known key"),
        (put_at("engines", "vllm", "block_tokens", value=0), "engines/vllm/block_tokens: should be a positive integer"),
        (put_at("engines", "vllm", "versions", value={}), "engines/vllm/versions: should be a list"),
        (put_at("engines", "vllm", "versions", 0, "before", value=None), "engines/vllm/versions/0/before: is missing"),
        (put_at("engines", "vllm", "versions", 1, "x", value=1), "engines/vllm/versions/1/x: is not a known key"),
        (put_at("engines", "transformers", "growth", value=None), "engines/transformers/growth: is missing"),
        (put_at("engines", "tgi", "old_prefill_tokens", value=None), "engines/tgi/old_prefill_tokens: is missing"),
    ],
)  # fmt: skip
def test_broken_rules_of_memory(changed, change, message):
    catalog = changed(MEMORY_FILE, change)
    assert result(MEMORY_FILE, lambda: catalog.predictions.memory("vllm")) == message


def test_user_constants_override_packaged_ones(changed):
    request = PredictionRequest(model="llama3-8b", accelerator="L4", engine="tgi", concurrency=1)
    slow = changed(SPEED_FILE, put_at("constants", "engine.tgi.step_ms", value={"value": 1000}))
    assert answer(request, slow).tpot_ms.median > 1000 > answer(request, open_catalog()).tpot_ms.median
    assert plan(REQUEST, slow, {}).chosen.performance.tpot_ms > 1000


def test_user_memory_rules_override_packaged_ones(changed):
    catalog = changed(MEMORY_FILE, put_at("engines", "vllm", "share", value=0.5))
    assert catalog.predictions.memory("vllm")["share"] == 0.5
    assert catalog.predictions.memory("vllm")["versions"][0]["before"] == "0.8"


def test_commands_without_predictions_read_no_constants(changed):
    catalog = changed(SPEED_FILE, put_at("constants", value=None))
    assert compare(("L4",), catalog, region="us-east-1", release=catalog.default_release)
    assert catalog.offers(("us-east-1",), ("on-demand",))
    assert catalog.predictions.memory("tgi")


def test_constants_are_read_once(changed):
    catalog = changed(SPEED_FILE, lambda document: None)
    assert catalog.predictions.speed is catalog.predictions.speed
    first, second = (
        catalog.supply(release="3.3.7", regions=(region,), markets=()) for region in ("us-east-1", "us-west-2")
    )
    assert first.speed is second.speed is catalog.owned_supply(release="3.3.7", hardware="L4").speed
