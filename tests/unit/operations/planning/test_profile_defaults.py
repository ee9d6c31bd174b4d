"""A profile's defaults override the tool's, and the environment overrides both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts, resolve
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog

PROFILE = """
hub_id = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
summary = "A profile of one's own"

[defaults]
{defaults}
"""


def catalog_with(folder: Path, defaults: str) -> Catalog:
    models = folder / "models"
    models.mkdir()
    (models / "mine.toml").write_text(PROFILE.format(defaults=defaults), encoding="utf-8")
    return open_catalog(folder)


def test_a_profile_default_applies_until_overridden(tmp_path: Path) -> None:
    catalog = catalog_with(tmp_path, "context = 1024\nconcurrency = 3")
    by_profile = resolve(OptionTexts(model="mine"), {}, catalog)
    by_environment = resolve(OptionTexts(model="mine"), {"TGI_DEPLOY_CONCURRENCY": "4"}, catalog)
    by_flag = resolve(OptionTexts(model="mine", concurrency="5"), {"TGI_DEPLOY_CONCURRENCY": "4"}, catalog)
    assert by_profile.context_tokens == 1024
    assert (by_profile.concurrency, by_environment.concurrency, by_flag.concurrency) == (3, 4, 5)


def test_an_error_in_a_profile_default_names_the_profile(tmp_path: Path) -> None:
    catalog = catalog_with(tmp_path, "concurrency = 0")
    with pytest.raises(InputError, match="concurrency"):
        resolve(OptionTexts(model="mine"), {}, catalog)
