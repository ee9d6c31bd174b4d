"""Print the errors of predicted memory compared with engine logs and checkpoints, one line per metric.

python scripts/accuracy_memory.py              print them
python scripts/accuracy_memory.py --misses     name every row that misses by more than 5 %
python scripts/accuracy_memory.py --rows FILE  score other rows with the columns of measured.csv
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tgi_deploy import data_files
from tgi_deploy.operations.planning.memory_formats import metric_of
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.planning.predict_memory import predict_memory_row
from tgi_deploy.values.plan import Plan
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tgi_deploy.catalog.catalog import Catalog

BEGIN, END = "<!-- memory: begin -->", "<!-- memory: end -->"
_MISS: Final = 0.05
# Deployments that are known to have started, and others that are known to have run out of memory.
_OUTCOMES: Final = Path(__file__).parents[1] / "tests" / "cases" / "plan"
_NAMES: Final = {
    "checkpoint_total": "checkpoint files",
    "loaded_weight_bytes_16bit": "16-bit weights, loaded",
    "parameter_count_stored": "stored parameters",
    "weights": "weights per GPU",
    "kv_cache": "KV cache, bytes per GPU",
    "kv_cache_tokens": "KV cache, tokens",
    "nvidia_smi": "total per GPU (nvidia-smi)",
    "peak_gpu_memory": "peak of engines that allocate on demand",
    "activation_peak": "activation peak",
    "non_torch": "context and NCCL",
    "cuda_graph": "CUDA graphs",
    "workspace": "everything except weights and cache",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """A measured row with its prediction. `error` is relative to the measured value."""

    row: Mapping[str, str]
    value: float
    error: float
    inside: bool

    @property
    def exact(self) -> bool:
        return self.row["exactness"] == "exact"


def measured_rows(path: Path | None = None) -> list[dict[str, str]]:
    file = path or data_files.profiles_dir() / "memory" / "measured.csv"
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def scored(rows: Iterable[Mapping[str, str]], catalog: Catalog) -> tuple[list[Scored], list[tuple[str, str]]]:
    """Return every row that can be predicted, and (id, reason) of those that cannot."""
    found, failed = [], []
    for row in rows:
        made = predict_memory_row(row, catalog)
        if made.value is None or made.low is None or made.high is None:
            failed.append((row["id"], made.error or ""))
            continue
        measured = float(row["value"])
        found.append(
            Scored(
                row=row,
                value=made.value,
                error=(made.value - measured) / (abs(measured) or 1.0),
                inside=made.low <= measured <= made.high,
            )
        )
    return found, failed


def table(found: Sequence[Scored]) -> str:
    lines = ["| memory | n | median error | largest | exact rows: largest | inside the interval |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for metric, name in _NAMES.items():
        chosen = [item for item in found if metric_of(item.row).name == metric]
        if chosen:
            lines.append(_line(name, chosen))
    return "\n".join(lines)


def _line(name: str, chosen: Sequence[Scored]) -> str:
    errors = [abs(item.error) for item in chosen]
    exact = [abs(item.error) for item in chosen if item.exact]
    worst = f"{max(exact):.2%}" if exact else "-"
    inside = sum(item.inside for item in chosen) / len(chosen)
    return f"| {name} | {len(chosen)} | {statistics.median(errors):.2%} | {max(errors):.1%} | {worst} | {inside:.0%} |"


def misses(found: Sequence[Scored]) -> Iterable[str]:
    for item in found:
        if abs(item.error) > _MISS:
            row = item.row
            setup = " ".join(
                filter(None, (row["model"], row["quant"], row["gpu"], row["engine"], row["engine_version"]))
            )
            yield f"{row['id']} {setup}: {row['metric']} {row['value']}, predicted {item.value:.4g} ({item.error:+.1%})"


def outcomes(catalog: Catalog) -> str:
    """Return every known outcome, next to the plan's."""
    lines = ["| deployment | outcome | plan |", "| --- | --- | --- |"]
    for file in sorted(_OUTCOMES.glob("outcome-*.toml")):
        case = tomllib.loads(file.read_text(encoding="utf-8"))
        texts = OptionTexts(**{**case["request"], "set": tuple(case["request"].get("set", ()))})
        known = "works" if case["expect"]["outcome"] == "plan" else "fails"
        planned = "works" if isinstance(plan(texts, catalog, {}), Plan) else "rejected"
        lines.append(f"| {case['about'].rstrip('.')} | {known} | {planned} |")
    return "\n".join(lines)


def report(path: Path | None = None) -> str:
    catalog = open_catalog()
    found, failed = scored(measured_rows(path), catalog)
    lines = [table(found), *(f"{row}: {reason}" for row, reason in failed)]
    return "\n".join(lines if path else [*lines, "", outcomes(catalog)])


def updated(document: str) -> str:
    """Return the document with today's tables between its markers."""
    before, _, rest = document.partition(BEGIN)
    return f"{before}{BEGIN}\n{report()}\n{END}{rest.partition(END)[2]}"


def update(document: Path) -> None:
    document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--misses", action="store_true", help="name every row that misses by more than 5 %%")
    parser.add_argument("--rows", type=Path, help="a CSV of other measured rows")
    options = parser.parse_args()
    print(report(options.rows))
    if options.misses:
        print("\n".join(misses(scored(measured_rows(options.rows), open_catalog())[0])))


if __name__ == "__main__":
    main()
