"""The default region, as the AWS tools would find it, without loading them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.targets.aws.default_region import default_region
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
[default]
region = eu-west-3
output = 100%json

[profile work]
region = ap-south-1

[profile empty]
output = json
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(CONFIG, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, ("eu-west-3", "the AWS configuration file")),
        ({"AWS_PROFILE": "work"}, ("ap-south-1", "the AWS configuration file")),
        ({"AWS_PROFILE": "empty"}, ("us-east-1", "default")),
        ({"AWS_PROFILE": "nobody"}, ("us-east-1", "default")),
        ({"AWS_DEFAULT_REGION": "sa-east-1"}, ("sa-east-1", "AWS_DEFAULT_REGION")),
        ({"AWS_DEFAULT_REGION": "sa-east-1", "AWS_REGION": "eu-north-1"}, ("eu-north-1", "AWS_REGION")),
        ({"AWS_REGION": ""}, ("eu-west-3", "the AWS configuration file")),
    ],
)
def test_the_region_comes_from_these_sources(config: Path, environ: dict[str, str], found: tuple[str, str]) -> None:
    assert default_region({"AWS_CONFIG_FILE": str(config), **environ}) == found


@pytest.mark.parametrize("content", [b"", b"no section\n", b"\xff\xfe broken", b"[default\nregion = x"])
def test_a_broken_file_is_ignored(config: Path, content: bytes) -> None:
    config.write_bytes(content)
    assert default_region({"AWS_CONFIG_FILE": str(config)}) == ("us-east-1", "default")


def test_the_file_in_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(CONFIG, encoding="utf-8")
    assert default_region({"HOME": str(tmp_path)})[0] == "eu-west-3"
    assert default_region({"HOME": str(tmp_path / "elsewhere")}) == ("us-east-1", "default")


@pytest.mark.parametrize(
    ("regions", "environ", "source"),
    [
        (("mars",), {"TGI_DEPLOY_REGION": "venus"}, "--region"),
        ((), {"TGI_DEPLOY_REGION": "mars", "AWS_REGION": "venus"}, "TGI_DEPLOY_REGION"),
        ((), {"AWS_REGION": "mars"}, "AWS_REGION"),
        ((), {"AWS_DEFAULT_REGION": "mars"}, "AWS_DEFAULT_REGION"),
        ((), {"AWS_PROFILE": "lost"}, "the AWS configuration file"),
    ],
)
def test_a_region_without_prices_is_rejected_with_its_source(config, regions, environ, source):
    config.write_text(f"{CONFIG}\n[profile lost]\nregion = mars\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        plan(
            OptionTexts(model="llama3-8b", regions=regions), open_catalog(), {"AWS_CONFIG_FILE": str(config), **environ}
        )
    assert caught.value.code == "unknown_region"
    assert caught.value.message.startswith(f"{source}: ")
    assert "mars" in caught.value.message
