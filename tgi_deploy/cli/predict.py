"""`predict`: predicts the speed of a given configuration, or of each case in a file."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.api import Client
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import offline_option, profiles_dir_option
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.values.plan_results import FiguresData, PredictionData

_SATURATED: Final = "saturated"
_LARGEST: Final = 1_000_000_000
_TOKENS: Final = click.IntRange(1, _LARGEST)


@command(
    "predict",
    examples=(
        "tgi-deploy predict llama3-8b --accelerator A10G --input-tokens 1024 --output-tokens 256",
        "tgi-deploy predict llama2-70b --accelerator A100-80GB --num-shard 4 --concurrency 16",
        "tgi-deploy predict --cases measured.csv --json",
    ),
)
@click.argument("model", required=False, shell_complete=complete.models)
@click.option("--accelerator", metavar="NAME", help="The accelerator: A10G, L40S, H100-80GB.")
@click.option("--num-shard", type=click.IntRange(1, 1024), default=1, show_default=True, help="Tensor-parallel shards.")
@click.option("--interconnect", metavar="LINK", help="none, pcie, pcie-p2p or nvlink.  [default: the accelerator's]")
@click.option("--weights", metavar="TYPE", default="fp16", show_default=True, help="bf16, fp8, awq-int4, ...")
@click.option("--kv", metavar="TYPE", default="fp16", show_default=True, help="KV cache: fp16, fp8, int8, int4.")
@click.option("--input-tokens", type=_TOKENS, default=1024, show_default=True, help="Prompt length.")
@click.option("--output-tokens", type=_TOKENS, default=256, show_default=True, help="Answer length.")
@click.option(
    "--concurrency", metavar="N", default=_SATURATED, show_default=True, help="Concurrent requests, or 'saturated'."
)
@click.option("--engine", default="tgi", show_default=True, help="tgi, vllm, tensorrt-llm, sglang, lmdeploy, ...")
@click.option("--engine-version", default="", metavar="VERSION", help="Version of the engine.  [default: latest]")
@click.option("--cases", type=click.Path(path_type=Path), help="Predict each row of a CSV file instead.")
@profiles_dir_option
@offline_option
def predict_command(
    *,
    model: str | None,
    cases: Path | None,
    profiles_dir: Path | None,
    offline: bool,
    **words: Any,  # noqa: ANN401 -- the options above, each a field of the request
) -> Result:
    """Predict time to first token, time per output token and tokens per second, each with an 80% interval.

    MODEL is a profile's name, a hub id (org/name, org/name@revision), or a directory with a config.json. With --cases
    FILE, predict every row of a CSV file, in order. Needs no account, and no network unless MODEL is a hub model that
    is neither in the catalog nor cached; rows of a file are never looked up on the hub.
    """
    client = Client(profiles_dir=profiles_dir, offline=offline)
    if cases is not None:
        if model is not None:
            raise _usage("MODEL and --cases exclude each other", "leave one of them out")
        rows = client.predict_cases(cases)
        return printed(rows, "".join(map(_case_line, count(1), rows.data.predictions)))
    if model is None or words["accelerator"] is None:
        raise _usage("MODEL or --accelerator is missing", "give both, or --cases FILE")
    found = client.predict(model, **words)
    return printed(found, _answered(found.data))


def _usage(message: str, hint: str) -> InputError:
    return InputError("bad_usage", message, hint=hint)


def _case_line(number: int, item: Mapping[str, Any]) -> str:
    if "error" in item:
        return f"{number:>6}  {item['error']}\n"
    return f"{number:>6}  {item['value']:>12,.2f}  ({item['low']:,.2f} to {item['high']:,.2f})\n"


def _answered(data: PredictionData) -> str:
    title = (
        f"{data.model} on {data.num_shard} x {data.accelerator}, {data.concurrency:,} requests of "
        f"{data.input_tokens:,} + {data.output_tokens:,} tokens at once ({data.engine_profile})"
    )
    lines = [
        title,
        _metric_line("Time to first token", data.ttft_ms, "ms"),
        _metric_line("Time per output token", data.tpot_ms, "ms"),
        _metric_line("Tokens/s of a request", data.tokens_per_s_per_user, ""),
        _metric_line("Tokens/s in total", data.output_tokens_per_s, ""),
        f"  {'Maximum concurrency':<24}{data.saturation_concurrency:>10,}",
    ]
    return "\n".join(lines) + "\n"


def _metric_line(name: str, figures: FiguresData, unit: str) -> str:
    spread = f"80%: {figures.low:,.1f} to {figures.high:,.1f}"
    return f"  {name:<24}{figures.median:>10,.1f} {unit:<3} {spread}"
