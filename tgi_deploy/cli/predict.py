"""`predict`: the speed of a given configuration, or of a file of cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy import bounded_files, wiring
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import offline_option, profiles_dir_option
from tgi_deploy.cli.output import Result
from tgi_deploy.errors import InputError, warning
from tgi_deploy.operations.planning.predict import Answer, Question, answer, predict_cases

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.plan import Span

_SATURATED: Final = "saturated"
_LARGEST: Final = 1_000_000_000
_MOST_CASES_BYTES: Final = 32 * bounded_files.MIB
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
@click.option("--accelerator", metavar="CARD", help="The card: A10G, L40S, H100-80GB.")
@click.option("--num-shard", type=click.IntRange(1, 1024), default=1, show_default=True, help="Tensor-parallel shards.")
@click.option("--interconnect", metavar="LINK", help="none, pcie, pcie-p2p or nvlink.  [default: the card's own]")
@click.option("--weights", metavar="TYPE", default="fp16", show_default=True, help="bf16, fp8, awq-int4, ...")
@click.option("--kv", metavar="TYPE", default="fp16", show_default=True, help="KV cache: fp16, fp8, int8, int4.")
@click.option("--input-tokens", type=_TOKENS, default=1024, show_default=True, help="Prompt length.")
@click.option("--output-tokens", type=_TOKENS, default=256, show_default=True, help="Answer length.")
@click.option(
    "--concurrency", metavar="N", default=_SATURATED, show_default=True, help="Requests at once, or 'saturated'."
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
    **words: Any,  # noqa: ANN401 -- the options above, one field of a question each
) -> Result:
    """Predict time to first token, time per output token and tokens per second, each with an 80 % interval.

    MODEL is a profile's name, a hub id (org/name, org/name@revision), or a directory with a config.json. With --cases
    FILE, predict every row of a CSV file, in order. Needs no account, and no network unless MODEL is a hub model that
    is neither in the catalog nor cached; rows of a file are never looked up on the hub.
    """
    catalog = wiring.catalog(profiles_dir, offline=offline or cases is not None)
    if cases is not None:
        if model is not None:
            raise _usage("both MODEL and --cases were given", "Give one of them.")
        return _cases(cases, catalog)
    question = _question(model, **words)
    return _answered(question, answer(question, catalog))


def _question(model: str | None, *, accelerator: str | None, concurrency: str, **words: Any) -> Question:  # noqa: ANN401 -- as above
    if model is None or accelerator is None:
        raise _usage("MODEL or --accelerator is missing", "Give both, or --cases FILE.")
    clients = None if concurrency == _SATURATED else _clients(concurrency)
    words["interconnect"] = words["interconnect"] or ""
    return Question(model=model, accelerator=accelerator, concurrency=clients, **words)


def _clients(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= _LARGEST:
        raise _usage(
            f"--concurrency {text[:40]!r} is neither a positive whole number nor 'saturated'", "Give one of them."
        )
    return int(text)


def _usage(message: str, hint: str) -> InputError:
    return InputError("bad_usage", message, hint=hint)


def _cases(path: Path, catalog: Catalog) -> Result:
    try:
        text = bounded_files.read_text(path, most=_MOST_CASES_BYTES).removeprefix("\ufeff")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            "unreadable_path", f"reading {str(path)!r} failed: {reason}", hint="Give a CSV file with a header."
        ) from error
    predictions = predict_cases(text, catalog)
    failed = sum("error" in item for item in predictions)
    lines = "".join(_case_line(number, item) for number, item in enumerate(predictions, start=1))
    warnings = (warning("bad_cases", f"{failed} of {len(predictions)} rows have no valid prediction"),)
    return Result(data={"predictions": predictions}, text=lines, warnings=warnings if failed else ())


def _case_line(number: int, item: dict[str, Any]) -> str:
    if "error" in item:
        return f"{number:>6}  {item['error']}\n"
    return f"{number:>6}  {item['value']:>12,.2f}  ({item['low']:,.2f} to {item['high']:,.2f})\n"


def _answered(question: Question, answer: Answer) -> Result:
    data = _document(question, answer)
    title = (
        f"{question.model} on {question.num_shard} x {answer.accelerator}, {answer.concurrency:,} requests of "
        f"{question.input_tokens:,} + {question.output_tokens:,} tokens at once ({answer.engine_profile})"
    )
    lines = [
        title,
        _metric_line("Time to first token", data["ttft_ms"], "ms"),
        _metric_line("Time per output token", data["tpot_ms"], "ms"),
        _metric_line("Tokens/s of a request", data["tokens_per_s_per_user"], ""),
        _metric_line("Tokens/s in total", data["output_tokens_per_s"], ""),
        f"  {'Most requests at once':<24}{data['saturation_concurrency']:>10,}",
    ]
    unfit = warning(
        "does_not_fit",
        "the weights leave no room for a KV cache: the figures assume a card with enough memory",
    )
    return Result(data=data, text="\n".join(lines) + "\n", warnings=() if answer.fits else (unfit,))


def _metric_line(name: str, figures: dict[str, float], unit: str) -> str:
    spread = f"80 %: {figures['low']:,.1f} to {figures['high']:,.1f}"
    return f"  {name:<24}{figures['median']:>10,.1f} {unit:<3} {spread}"


def _document(question: Question, answer: Answer) -> dict[str, Any]:
    speed = answer.performance
    tpot = _figures(speed.tpot_ms, speed.tpot_ms_span)
    return {
        "model": question.model,
        "accelerator": answer.accelerator,
        "num_shard": question.num_shard,
        "interconnect": answer.interconnect,
        "weights": question.weights,
        "kv": question.kv,
        "engine": question.engine,
        "engine_profile": answer.engine_profile,
        "input_tokens": question.input_tokens,
        "output_tokens": question.output_tokens,
        "concurrency": answer.concurrency,
        "fits": answer.fits,
        "kv_capacity_tokens": answer.kv_capacity_tokens,
        "ttft_ms": _figures(speed.ttft_ms, speed.ttft_ms_span),
        "tpot_ms": tpot,
        "tokens_per_s_per_user": {
            "median": 1e3 / tpot["median"], "low": 1e3 / tpot["high"], "high": 1e3 / tpot["low"],
        },
        "output_tokens_per_s": _figures(speed.output_tokens_per_s, speed.output_tokens_per_s_span),
        "saturation_concurrency": speed.saturation_concurrency,
    }  # fmt: skip


def _figures(median: float, span: Span | None) -> dict[str, float]:
    low, high = (span.low, span.high) if span else (median, median)
    return {"median": median, "low": low, "high": high}
