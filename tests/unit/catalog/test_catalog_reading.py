"""Reading profiles: layers, errors with file and key path, directories with a config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from tgi_deploy.catalog.config import model_spec
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import InputError
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog

CASES = Path(__file__).parents[2] / "cases" / "catalog"
PROFILES = sorted((CASES / "profiles").glob("*.toml"))
CONFIGS = sorted((CASES / "configs").glob("*.json"))


def put(tmp_path: Path, name: str, content: str) -> Catalog:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return open_catalog(tmp_path)


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_profile_case(path, tmp_path):
    content = path.read_text()
    expected = content.partition("\n")[0].removeprefix("# expect: ")
    catalog = put(tmp_path, f"models/{path.stem}.toml", content)
    if expected == "ok":
        assert catalog.resolve(path.stem).model.hub_id == "acme/Tiny-1B"
        return
    with pytest.raises(InputError) as caught:
        catalog.resolve(path.stem)
    assert caught.value.code == "bad_profile"
    assert caught.value.message.startswith(expected)
    assert caught.value.message.isprintable()
    assert caught.value.hint


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_case(path):
    case = json.loads(path.read_text())
    expected = case["expect"]
    if "error" in expected:
        with pytest.raises(InputError) as caught:
            model_spec(case["config"], "acme/model")
        assert caught.value.code == "bad_model_config"
        assert expected["error"] in caught.value.message
        return
    found = msgspec.to_builtins(model_spec(case["config"], "acme/model"))
    near = expected.pop("parameters_near", None)
    if near is not None:
        assert found["parameters"] == pytest.approx(near, rel=0.01)
    assert {key: found[key] for key in expected} == expected


def model_directory(tmp_path: Path, config: object) -> Path:
    folder = tmp_path / "my-model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


def llama_config() -> dict:
    return json.loads((CASES / "configs" / "llama.json").read_text())["config"]


def test_directory_with_a_config_is_a_model(tmp_path):
    folder = model_directory(tmp_path, llama_config())
    profile = open_catalog().resolve(str(folder))
    assert profile.name == profile.model.hub_id == "my-model"
    assert profile.model.local_path == str(folder)
    assert profile.model.stored_bytes is None
    assert profile.model.parameters == 8_030_261_248


def test_directory_by_relative_path(tmp_path, monkeypatch):
    model_directory(tmp_path, llama_config())
    monkeypatch.chdir(tmp_path)
    assert open_catalog().resolve("./my-model").model.local_path == str(tmp_path / "my-model")
    assert open_catalog().resolve("my-model").model.local_path == str(tmp_path / "my-model")


@pytest.mark.parametrize("typed", ["my-model/", "../a/my-model/", "deep/er/my-model", "deep/er/my-model/"])
def test_a_directory_with_a_trailing_slash(tmp_path, monkeypatch, typed):
    for place in ("a", "a/deep/er"):
        model_directory(tmp_path / place, llama_config())
    monkeypatch.chdir(tmp_path / "a")
    assert open_catalog().resolve(typed).model.local_path == str((tmp_path / "a" / typed).resolve())


@pytest.mark.parametrize(("within", "typed"), [("my-model", "."), ("my-model/deeper", "..")])
def test_the_current_directory_can_be_a_model(tmp_path, monkeypatch, within, typed):
    model_directory(tmp_path, llama_config())
    (tmp_path / within).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / within)
    profile = open_catalog().resolve(typed)
    assert (profile.name, profile.model.local_path) == ("my-model", str(tmp_path / "my-model"))


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"text"', "[" * 100_000])
def test_broken_config(tmp_path, content):
    folder = model_directory(tmp_path, content)
    with pytest.raises(InputError) as caught:
        open_catalog().resolve(str(folder))
    assert caught.value.code == "bad_model_config"
    assert "config.json" in caught.value.message


def test_missing_directory_and_missing_config(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError) as caught:
            open_catalog().resolve(str(path))
        assert caught.value.code == "unreadable_path"
        assert caught.value.hint


@pytest.mark.parametrize("path", ["./a\x00b", "./a\x1b[31m", "./\ud800", "/" + "a" * 300])
def test_strange_paths(path):
    with pytest.raises(InputError) as caught:
        open_catalog().resolve(path)
    assert caught.value.code == "unreadable_path"
    assert caught.value.message.isprintable()


def test_a_missing_profiles_folder_is_an_error(tmp_path):
    with pytest.raises(InputError) as caught:
        open_catalog(tmp_path / "nowhere")
    assert caught.value.code == "unreadable_path"


def test_a_config_that_is_not_text(tmp_path):
    folder = model_directory(tmp_path, "{}")
    (folder / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError) as caught:
        open_catalog().resolve(str(folder))
    assert caught.value.code == "bad_model_config"


def test_unreadable_config(tmp_path):
    """A folder in place of the file: root may read every file."""
    folder = model_directory(tmp_path, llama_config())
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    with pytest.raises(InputError) as caught:
        open_catalog().resolve(str(folder))
    assert caught.value.code == "unreadable_path"


def test_user_profiles_override_packaged_ones(tmp_path):
    content = (CASES / "profiles" / "good.toml").read_text()
    catalog = put(tmp_path, "models/llama3-8b.toml", content)
    assert catalog.resolve("llama3-8b").model.hub_id == "acme/Tiny-1B"
    assert catalog.resolve("llama3-70b").model.hub_id == "meta-llama/Meta-Llama-3-70B-Instruct"
    assert "good" not in catalog.profile_names()
    assert put(tmp_path, "models/good.toml", content).profile_names().count("good") == 1


def test_user_prices_override_packaged_ones(tmp_path):
    content = json.loads((profiles_dir() / "aws" / "prices" / "us-east-1.json").read_text())
    content["prices"]["g6e.xlarge"]["on_demand"]["usd_per_hour"] = "1.5"
    catalog = put(tmp_path, "aws/prices/us-east-1.json", json.dumps(content))
    supply = catalog.supply(release="3.3.7", regions=("us-east-1",), markets=("on-demand",))
    offer = next(offer for offer in supply.offers if offer.instance_type.name == "g6e.xlarge")
    assert str(offer.usd_per_hour) == "1.5"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"usd_per_hour": "free"}, 'on_demand/usd_per_hour: should be a price like "1.861"'),
        ({"usd_per_hour": "0"}, "on_demand/usd_per_hour: should be a price above zero"),
        ({"usd_per_hour": "NaN"}, "on_demand/usd_per_hour: should be a price above zero"),
        ({"usd_per_hour": 1.861}, "on_demand/usd_per_hour: should be a string"),
        ({"currency": "EUR"}, "on_demand/currency: is not a known key"),
    ],
)
def test_bad_prices_are_named(tmp_path, change, message):
    content = json.loads((profiles_dir() / "aws" / "prices" / "us-east-1.json").read_text())
    content["prices"]["g6e.xlarge"]["on_demand"].update(change)
    catalog = put(tmp_path, "aws/prices/us-east-1.json", json.dumps(content))
    with pytest.raises(InputError) as caught:
        catalog.supply(release="3.3.7", regions=("us-east-1",), markets=("on-demand",))
    assert caught.value.message == f"aws/prices/us-east-1.json: prices/g6e.xlarge/{message}"


def test_an_unknown_band_of_interruptions_is_named(tmp_path):
    content = json.loads((profiles_dir() / "aws" / "prices" / "us-east-1.json").read_text())
    content["prices"]["g6e.xlarge"]["spot"]["interruptions"] = "often"
    catalog = put(tmp_path, "aws/prices/us-east-1.json", json.dumps(content))
    with pytest.raises(InputError, match=r"prices/g6e\.xlarge/spot/interruptions: is not a band of aws/interruptions"):
        catalog.offers(("us-east-1",), ("spot",))


def test_a_type_without_a_band_gets_the_highest_one(tmp_path):
    content = json.loads((profiles_dir() / "aws" / "prices" / "us-east-1.json").read_text())
    del content["prices"]["g6e.xlarge"]["spot"]["interruptions"]
    catalog = put(tmp_path, "aws/prices/us-east-1.json", json.dumps(content))
    offers = catalog.offers(("us-east-1",), ("on-demand", "spot"))
    found = {offer.market: offer.interruptions for offer in offers if offer.instance_type.name == "g6e.xlarge"}
    assert found["on-demand"] is None
    assert found["spot"].band == ">20%"


def changed_json(tmp_path: Path, name: str, change) -> Catalog:
    content = json.loads((profiles_dir() / name).read_text())
    change(content)
    return put(tmp_path, name, json.dumps(content))


def test_bad_accelerator_and_instance_type(tmp_path):
    catalog = changed_json(
        tmp_path, "accelerators.json", lambda c: c["accelerators"]["T4"].update(compute_capability="seven")
    )
    with pytest.raises(InputError, match=r"accelerators\.json: accelerators/T4/compute_capability: should be a"):
        catalog.accelerators()
    catalog = changed_json(
        tmp_path / "b", "aws/instance_types.json", lambda c: c["instance_types"]["p5.4xlarge"].update(accelerator="X")
    )
    with pytest.raises(InputError, match=r"instance_types/p5\.4xlarge/accelerator: is not an accelerator of"):
        catalog.instance_types()


def test_bad_release_files(tmp_path):
    name = "engines/tgi/releases/3.3.7.json"
    catalog = changed_json(tmp_path, name, lambda c: c.update(flags_removed=["--no-such-flag"]))
    with pytest.raises(InputError, match="flags_removed: --no-such-flag did not exist"):
        catalog.release("3.3.7")
    catalog = changed_json(tmp_path, name, lambda c: c.update(extends="3.3.7"))
    with pytest.raises(InputError, match="is circular"):
        catalog.release("3.3.7")
    catalog = changed_json(tmp_path, name, lambda c: c.update(extends="9.9.9"))
    with pytest.raises(InputError) as caught:
        catalog.release("3.3.7")
    assert caught.value.code == "missing_profile"
    catalog = changed_json(tmp_path, name, lambda c: c.update(flags={"--x": {"kind": "colour"}}))
    with pytest.raises(InputError, match="flags/--x/kind: Invalid enum value 'colour'"):
        catalog.release("3.3.7")


def test_a_users_release_extends_a_packaged_one(tmp_path):
    own = {"version": "3.3.8", "released": "2026-01-01", "extends": "3.3.7", "image": "registry.example/tgi:3.3.8"}
    catalog = put(tmp_path, "engines/tgi/releases/3.3.8.json", json.dumps(own))
    release = catalog.release("3.3.8")
    assert release.image == "registry.example/tgi:3.3.8"
    assert release.flags == catalog.release("3.3.7").flags
    assert release.reported_version is None
    assert catalog.release_versions()[-1] == "3.3.8"
    assert catalog.default_release == "3.3.7"


def test_only_needed_files_are_read(tmp_path):
    broken = "{"
    for name in ("aws/prices/eu-west-1.json", "models/shapes.json", "engines/tgi/releases/2.4.0.json"):
        put(tmp_path, name, broken)
    put(tmp_path, "models/good.toml", (CASES / "profiles" / "good.toml").read_text())
    catalog = open_catalog(tmp_path)
    assert catalog.resolve("good").name == "good"
    assert catalog.accelerator("L40S").name == "L40S"
    assert catalog.release("2.3.1").version == "2.3.1"
    assert catalog.supply(release="2.3.1", regions=("us-east-1",), markets=("spot",)).offers
    with pytest.raises(InputError):
        catalog.supply(release="2.3.1", regions=("eu-west-1",), markets=("spot",))
