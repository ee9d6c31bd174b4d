"""The packaged facts for comparisons are complete and agree with the catalog's figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import InputError
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from pathlib import Path


MISQUOTED = json.loads((profiles_dir() / "misquoted.json").read_text())["misquoted"]
BACKENDS = json.loads((profiles_dir() / "engines" / "tgi" / "backends.json").read_text())


def test_every_accelerator_has_a_backend_or_a_reason(catalog):
    assert set(BACKENDS["accelerators"]) == set(catalog.accelerators())
    for name in catalog.accelerators():
        support = catalog.comparison.support(name)
        assert support.backend or (support.reason and support.source), name


def test_unplanned_backends_describe_their_purpose(catalog):
    for name in catalog.accelerators():
        support = catalog.comparison.support(name)
        if support.backend and not support.backend.planned:
            assert support.reason.endswith("."), name


def test_each_vendors_accelerators_get_that_vendors_backend(catalog):
    homes = {"nvidia": "cuda", "amd": "rocm", "intel": "gaudi", "aws": "neuron", "google": "tpu", "qualcomm": None}
    for name, chip in catalog.accelerators().items():
        backend = catalog.comparison.support(name).backend
        assert backend is None or backend.name == homes[chip.vendor], name


def test_misquoted_figures_are_corrected_from_the_catalog(catalog):
    for entry in MISQUOTED:
        chip = catalog.accelerator(entry["accelerator"])
        assert chip.name == entry["accelerator"]
        assert str(entry["quoted"]) != str(entry["right"]), entry
        if entry["figure"] == "compute_capability":
            assert ".".join(map(str, chip.compute_capability)) == entry["right"], entry
        elif entry["figure"] != "memory":
            assert getattr(chip, entry["figure"]) == entry["right"], entry


def test_well_known_mistakes_are_flagged(catalog):
    quoted = {(entry["accelerator"], str(entry["quoted"])) for entry in MISQUOTED}
    assert {("A10G", "125"), ("H100-80GB", "1979"), ("L4", "242"), ("B200", "4500")} <= quoted


def test_a_chip_without_an_entry_is_an_error_of_the_profile(tmp_path: Path):
    broken = tmp_path / "engines" / "tgi"
    broken.mkdir(parents=True)
    (broken / "backends.json").write_text(json.dumps({**BACKENDS, "accelerators": {"T4": {"backend": "warp"}}}))
    comparison = open_catalog(tmp_path).comparison
    with pytest.raises(InputError, match="is missing"):
        comparison.support("A10G")
    with pytest.raises(InputError, match="is not one of the backends"):
        comparison.support("T4")
