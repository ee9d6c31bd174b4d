"""Parses a measured row: model, number format, engine with its constants, accelerators and their memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning import memory_formats
from tgi_deploy.values import sizes
from tgi_deploy.values.base import replaced
from tgi_deploy.values.engine import DefaultRun
from tgi_deploy.values.model import LATENT_ROPE_DIM
from tgi_deploy.values.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.engine import MemoryBudget
    from tgi_deploy.values.model import ModelSpec

_SMALL_CARD_GIB: Final = 70
_BASE_MODEL: Final = re.compile(r"base model ([\w.-]+/[\w.-]+)")
_PADDED_TO: Final = 256  # MXFP4 kernels pad a matrix's rows
_CACHED_BYTES: Final = 2
_MOST_SHARDS: Final = 1024
# The profile for all other engines in Python.
_LIKE_TRANSFORMERS: Final = "transformers"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A parsed row. Bytes are per accelerator."""

    row: Mapping[str, str]
    model: ModelSpec
    packed: sizes.Format
    engine: str
    catalog: Catalog

    @classmethod
    def of(cls, row: Mapping[str, str], catalog: Catalog) -> Setup:
        return cls(
            row=row, model=_model(row, catalog), packed=memory_formats.format_of(row),
            engine=catalog.predictions.memory_engine(row.get("engine", "")) or _LIKE_TRANSFORMERS, catalog=catalog,
        )  # fmt: skip

    @cached_property
    def num_shard(self) -> int:
        shards = _number(self.row, "tp", most=_MOST_SHARDS) or 1
        if shards != int(shards):
            raise _bad_number("tp", self.row["tp"], "a whole number, 1 or more")
        return int(shards)

    @cached_property
    def total_bytes(self) -> int:
        given = _number(self.row, "gpu_memory_gib")
        return int(given * GIB) if given else self.catalog.accelerator(self.row.get("gpu", "")).memory_bytes

    @cached_property
    def context_tokens(self) -> int:
        """Return the row's number; 0 if it has none."""
        return int(_number(self.row, "max_model_len"))

    @cached_property
    def constants(self) -> Mapping[str, Any]:
        """Return the engine's constants for the row's version."""
        profile = self.catalog.predictions.memory(self.engine)
        version = memory_formats.version_key(self.row.get("engine_version", ""))
        for older in profile.get("versions", ()):
            if version and version < memory_formats.version_key(older["before"]):
                return {**profile, **older}
        return profile

    @property
    def planned(self) -> bool:
        """Whether plans support the engine; its memory is then predicted with the planner's arithmetic."""
        return bool(self.constants.get("planned"))

    @cached_property
    def small(self) -> bool:
        """Whether the engine uses its defaults for small GPUs: below 70 GiB, and all A100s."""
        return self.total_bytes < _SMALL_CARD_GIB * GIB or "a100" in self.row.get("gpu", "").lower()

    def constant(self, name: str) -> float:
        """Return a constant of the engine. Raises InputError if it was never measured for this engine."""
        value = self.constants.get(f"small_{name}" if self.small else name)
        if value is None:
            raise InputError(
                "bad_cases",
                f"this metric was never measured for {self.engine}",
                hint="ask for weights or the peak instead",
            )
        return float(value)

    @cached_property
    def share(self) -> float:
        return self._given_share or float(self.constants.get("share", 1.0))

    @cached_property
    def _given_share(self) -> float:
        """Return the row's limit as a share; 0 means the engine's default."""
        if (self.row.get("gpu_memory_utilization") or "").strip().lower() == "default":
            return 0.0
        return _number(self.row, "gpu_memory_utilization", most=1)

    @cached_property
    def counts(self) -> sizes.Counts:
        return sizes.count(self.model)

    @cached_property
    def linear_bytes(self) -> float:
        """Return the bytes of the linear layers as stored; for a packed checkpoint, its own figure if known."""
        model, counts = self.model, self.counts
        if model.quantized_bytes and self.packed != sizes.UNQUANTIZED:
            return model.quantized_bytes + max(0, counts.linear - model.quantized_parameters) * 2
        scales = 0.0
        if "w8a8" in self.row.get("quant", "").lower():  # a 16-bit scale per row
            scales = counts.linear / model.hidden_size * 2
        return sizes.linear_bytes(model, counts, self.packed) + scales

    @cached_property
    def weights_bytes(self) -> int:
        """Return the bytes of the resident weights.

        The planned engine stores a tied head twice, and MXFP4 kernels store padded matrices.
        """
        linear, packed, rows = self.linear_bytes, self.packed, self.model.expert_intermediate_size
        if packed.expert_bits < packed.linear_bits and rows:
            wider = -(-rows // _PADDED_TO) * _PADDED_TO / rows
            padded = replaced(packed, expert_bits=packed.expert_bits * wider)
            linear = sizes.linear_bytes(self.model, self.counts, padded)
        return sizes.resident_bytes(self.model, linear, self.counts, self.num_shard, tied_once=not self.planned)

    @cached_property
    def kv_bytes_per_token(self) -> int:
        if self.model.kv_lora_rank and not self.planned:
            return self.model.layers * (self.model.kv_lora_rank + LATENT_ROPE_DIM) * _CACHED_BYTES
        return sizes.kv_bytes_per_token(self.model, self.num_shard)

    @cached_property
    def budget(self) -> MemoryBudget:
        """Return the memory that the planner computes for the release nearest to the row's."""
        release = self.catalog.release(nearest_release(self.row.get("engine_version", ""), self.catalog))
        run = DefaultRun(
            model=self.model, bits=self.linear_bytes * 8 / max(1, self.counts.linear), num_shard=self.num_shard,
            accelerator=self.row.get("gpu", ""), total_bytes=self.total_bytes, share=self._given_share or 1.0,
            prefill_tokens=int(self.constants["old_prefill_tokens"]),
        )  # fmt: skip
        return self.catalog.engine.default_memory(run, release)


def _number(row: Mapping[str, str], column: str, *, most: float = 1e12) -> float:
    """Return a number above 0, or 0 if the row has none or `nan`."""
    text = (row.get(column) or "").strip()
    if text.lower() in {"", "nan"}:
        return 0.0
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number <= most:
        raise _bad_number(column, text, f"a number above 0, at most {most:,g}")
    return number


def _bad_number(column: str, text: str, wanted: str) -> InputError:
    return InputError("bad_cases", f"{column} is {text[:80]!r}, not {wanted}", hint=f"give {wanted}, or leave it empty")


def _model(row: Mapping[str, str], catalog: Catalog) -> ModelSpec:
    """Return the model by its id, by the base model in the notes, or by its exact parameter count."""
    base = _BASE_MODEL.search(row.get("notes", ""))
    names = [row.get("model", "").strip(), *([base.group(1)] if base else [])]
    known = set(catalog.hub_ids())
    found = next((name for name in names if name in known), None)
    if found is None and (row.get("parameters") or "").isdigit():
        found = _by_parameters(int(row["parameters"]), catalog)
    return catalog.resolve(found or names[0]).model


def _by_parameters(parameters: int, catalog: Catalog) -> str | None:
    """Return the model with this exact number of parameters: a copy under another name has the same shape."""
    return next((name for name in catalog.hub_ids() if catalog.resolve(name).model.parameters == parameters), None)


def nearest_release(text: str, catalog: Catalog) -> str:
    """Return the newest release that is not newer than the given one; if all are newer, the oldest."""
    wanted = memory_formats.version_key(text)
    releases = sorted(catalog.release_versions(), key=memory_formats.version_key)
    known = [
        version for version in releases if not wanted or memory_formats.version_key(version)[: len(wanted)] <= wanted
    ]
    return known[-1] if known else releases[0]
