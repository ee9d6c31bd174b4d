"""`what-if`: one request planned for many values of a setting."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy import wiring
from tgi_deploy.cli.files import write_file
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import offline_option, plan_options, profiles_dir_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.views.text import WIDTH, table
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.what_if import csv_rows, read_sweep, row_document, what_if
from tgi_deploy.text import count, one_line, usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.operations.planning.what_if import Row
    from tgi_deploy.values.plan import Candidate

_STDOUT: Final = Path("-")
_COLUMNS: Final = ("INSTANCE TYPE", "CARDS", "QUANTIZE", "$/H", "TTFT", "TPOT", "TOKENS/S", "$/1M")
_RIGHT: Final = frozenset({4, 5, 6, 7, 8})


@command(
    "what-if",
    examples=(
        "tgi-deploy what-if llama3-13b --sweep concurrency=1,2,4,8,16 --budget 5",
        "tgi-deploy what-if llama3.1-8b --sweep 'context=2048..16384*2' --prefer cost",
        "tgi-deploy what-if llama3-8b --sweep budget=1..10+1 --csv budgets.csv",
        "tgi-deploy what-if llama3-8b --sweep region=us-east-1,eu-west-1 --csv - > regions.csv",
    ),
)
@plan_options
@click.option(
    "--sweep",
    "sweep_text",
    required=True,
    metavar="SETTING=VALUES",
    help="What to vary: values with commas, 2048..16384*2 to multiply, 1..10+1 to add.",
)
@click.option(
    "--csv", "csv_path", type=click.Path(path_type=Path), metavar="FILE|-", help="Write the table as CSV; - is stdout."
)
@profiles_dir_option
@offline_option
def what_if_command(
    *, texts: OptionTexts, sweep_text: str, csv_path: Path | None, profiles_dir: Path | None, offline: bool
) -> Result:
    """Plan MODEL once for each value of one setting, and print the choices side by side.

    The setting is any of budget, concurrency, context, engine-version, input-tokens, instance, market,
    min-tokens-per-s, num-shard, output-tokens, prefer, quantize, region, tpot-ms, ttft-ms and utilisation. A value
    without a plan shows the reason.
    """
    if csv_path == _STDOUT and click.get_current_context().find_root().obj.as_json:
        raise InputError(
            "conflicting_options", "--csv - and --json exclude each other: both are written to stdout",
            hint="give --csv a file",
        )  # fmt: skip
    sweep = read_sweep(sweep_text)
    rows = what_if(texts, sweep, wiring.catalog(profiles_dir, offline=offline), os.environ)
    text = _text(rows, sweep.setting)
    if csv_path is not None:
        lines = _csv(rows, sweep.setting)
        if csv_path == _STDOUT:
            text = lines
        else:
            write_file(csv_path, lines, what="the table", option="--csv")
    return Result(data={"setting": sweep.setting, "rows": [row_document(row) for row in rows]}, text=text)


def _csv(rows: Sequence[Row], setting: str) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(csv_rows(rows, setting))
    return written.getvalue()


def _text(rows: Sequence[Row], setting: str) -> str:
    """A value without a plan has its reason in place of the figures."""
    lines = table(
        (setting.upper(), *_COLUMNS), [(row.value, *_cells(row.choice)) for row in rows], right=_RIGHT
    ).splitlines()
    width = max(len(setting), *(len(row.value) for row in rows))
    for number, row in enumerate(rows, start=1):
        if row.choice is None:
            reason = one_line(f"{row.code}: {row.reason}", limit=WIDTH - width - 2)
            lines[number] = f"{row.value:<{width}}  {reason}"
    return "\n".join(lines) + "\n"


def _cells(choice: Candidate | None) -> tuple[str, ...]:
    if choice is None:
        return ("",) * len(_COLUMNS)
    kind, speed = choice.offer.instance_type, choice.performance
    price = choice.rent_usd_per_hour
    million = speed.usd_per_million_output_tokens
    return (
        kind.name,
        f"{choice.num_shard}/{kind.accelerator_count} {kind.accelerator.name}",
        choice.quantize,
        usd(price),
        f"{count(speed.ttft_ms)} ms",
        f"{speed.tpot_ms:.1f} ms",
        count(speed.output_tokens_per_s),
        usd(None if million is None or price is None else round(million, 2)),
    )
