"""From a checkpoint's files to the plan: method, disk and memory match the files."""

from __future__ import annotations

import json

import pytest
from fakes import checkpoints

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.wiring import open_catalog

SHAPES = json.loads((profiles_dir() / "models" / "shapes.json").read_text())["shapes"]
LLAMA = SHAPES["meta-llama/Llama-3.1-8B"]
CATALOG = open_catalog()
GROUPS = {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}}
FORMATS = {
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128}, checkpoints.awq),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128}, checkpoints.gptq),
    "fp8": ({"quant_method": "fp8"}, checkpoints.fp8),
    "compressed-tensors": ({"quant_method": "compressed-tensors", "config_groups": GROUPS}, checkpoints.compressed),
    "exl2": ({"quant_method": "exl2", "bits": 5.0}, checkpoints.exl2),
}


def planned(folder, **texts):
    made = plan(OptionTexts(model=str(folder), **{"instance": "g6e.xlarge", **texts}), CATALOG, {})
    return made.chosen


@pytest.fixture
def llama(tmp_path):
    config = checkpoints.config_of(LLAMA)
    return checkpoints.write_tree(tmp_path / "llama", config, checkpoints.tensors_of(config), shards=4)


def weights_on_disk(folder):
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


@pytest.mark.parametrize("method", FORMATS)
def test_a_quantized_checkpoint_is_served_unchanged(method, tmp_path):
    settings, pack = FORMATS[method]
    config = checkpoints.config_of(LLAMA, quantization_config=settings)
    folder = checkpoints.write_tree(tmp_path / "m", config, pack(checkpoints.tensors_of(config, "F16")))
    chosen = planned(folder)
    assert chosen.quantize == method
    assert chosen.lost_bits == 0
    assert chosen.storage.weights_bytes == weights_on_disk(folder)
    assert chosen.memory.weights_bytes == pytest.approx(weights_on_disk(folder), rel=0.02)


def test_plain_weights_take_their_stored_size(llama):
    chosen = planned(llama, quantize="none")
    assert chosen.storage.weights_bytes == weights_on_disk(llama)
    assert chosen.memory.weights_bytes == pytest.approx(16_060_522_496, rel=0.001)


def test_a_second_copy_takes_disk_and_no_memory(llama):
    before = planned(llama, quantize="none")
    checkpoints.write_file(llama / "consolidated.safetensors", checkpoints.tensors_of(checkpoints.config_of(LLAMA)))
    after = planned(llama, quantize="none")
    assert after.storage.weights_bytes == pytest.approx(2 * before.storage.weights_bytes, rel=0.001)
    assert after.memory.weights_bytes == before.memory.weights_bytes


def test_weights_to_convert_take_the_disk_twice(tmp_path):
    folder = checkpoints.write_tree(tmp_path / "m", checkpoints.config_of(LLAMA))
    with (folder / "pytorch_model.bin").open("wb") as file:
        file.truncate(16_060_556_363)
    chosen = planned(folder, quantize="none")
    assert chosen.storage.weights_bytes == 2 * 16_060_556_363
    assert chosen.memory.weights_bytes == pytest.approx(16_060_522_496, rel=0.001)


def test_a_folder_plans_like_the_catalogs_shape(llama):
    own = plan(OptionTexts(model="meta-llama/Llama-3.1-8B", instance="g6e.xlarge"), CATALOG, {}).chosen
    chosen = planned(llama)
    assert (chosen.quantize, chosen.num_shard, chosen.memory) == (own.quantize, own.num_shard, own.memory)
