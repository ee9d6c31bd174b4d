"""`what-if`: one wish planned for many values of a setting."""

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
from tgi_deploy.cli.options import offline_option, profiles_dir_option, wish_options
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.views.what_if import sweep_text as as_text
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.what_if import csv_rows, read_sweep, row_document, what_if

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.operations.planning.what_if import Row
    from tgi_deploy.operations.planning.wish import Wish

_STDOUT: Final = Path("-")


@command(
    "what-if",
    examples=(
        "tgi-deploy what-if llama3-13b --sweep concurrency=1,2,4,8,16 --budget 5",
        "tgi-deploy what-if llama3.1-8b --sweep 'context=2048..16384*2' --prefer cost",
        "tgi-deploy what-if llama3-8b --sweep budget=1..10+1 --csv budgets.csv",
        "tgi-deploy what-if llama3-8b --sweep region=us-east-1,eu-west-1 --csv - > regions.csv",
    ),
)
@wish_options
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
    *, wish: Wish, sweep_text: str, csv_path: Path | None, profiles_dir: Path | None, offline: bool
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
    rows = what_if(wish, sweep, wiring.catalog(profiles_dir, offline=offline), os.environ)
    text = as_text(rows, sweep.setting)
    if csv_path is not None:
        table = _csv(rows, sweep.setting)
        if csv_path == _STDOUT:
            text = table
        else:
            write_file(csv_path, table, what="the table", option="--csv")
    return Result(data={"setting": sweep.setting, "rows": [row_document(row) for row in rows]}, text=text)


def _csv(rows: Sequence[Row], setting: str) -> str:
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(csv_rows(rows, setting))
    return table.getvalue()
