"""The options of a plan as data, for the command line, its environment, profiles, locks and sweeps.

`operations/planning/option_texts.py` parses them by these rows, and help pages are printed from them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MONEY: Final = "Money and time"
LOAD: Final = "Load and quality"
HARDWARE: Final = "Hardware"
ENGINE: Final = "Engine"

# Target of options that set limits instead of request fields.
ENDS: Final = "ends"
_MOST_COUNT: Final = 100_000_000
_MOST_AMOUNT: Final = 1_000_000
MOST_REPLICAS: Final = 1000


class PlanOption(NamedTuple):
    """One option. `reader` is its parser, `lands` the request field that it sets, or `ENDS`.

    `profile`: a model's profile may set it; `sweeps`: `plan --sweep` accepts it.
    `unit` is its unit, empty for a share; `most` is its maximum, and `example` is shown in a hint. `default` is
    the default, as text.
    """

    flag: str
    section: str
    metavar: str
    help: str
    reader: str = "text"
    lands: str = ""
    choices: tuple[str, ...] = ()
    default: str | None = None
    unit: str = ""
    most: float = _MOST_COUNT
    example: str = "5"
    profile: bool = False
    sweeps: bool = False

    @property
    def name(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def field(self) -> str:
        """The field of `OptionTexts` with its text."""
        return "regions" if self.flag == "--region" else self.name

    @property
    def repeats(self) -> bool:
        return self.reader == "texts"


PLAN_OPTIONS: Final = (
    PlanOption(
        "--budget", MONEY, "USD", "Maximum hourly cost in US dollars, everything included.",
        "amount", "budget_usd_per_hour",
        unit="US dollars an hour", most=_MOST_AMOUNT, profile=True, sweeps=True,
    ),
    PlanOption(
        "--max-spend", MONEY, "USD", "Maximum total cost in US dollars under this name, until 'down'.",
        "amount", ENDS, unit="US dollars", most=_MOST_AMOUNT, example="10",
    ),
    PlanOption("--ttl", MONEY, "TIME", "End the machine after this time: 90m, 2h, 1d.", "duration", ENDS),
    PlanOption(
        "--idle-timeout", MONEY, "TIME", "End the machine after this time without a request.", "duration", ENDS
    ),
    PlanOption(
        "--lease", MONEY, "TIME", "End the machine unless 'extend' renews the lease in time.", "duration", ENDS
    ),
    PlanOption(
        "--context", LOAD, "TOKENS", "Maximum length of prompt plus answer.  [default: up to 8192]",
        "whole", "context_tokens", example="8192", profile=True, sweeps=True,
    ),
    PlanOption(
        "--input-tokens", LOAD, "N", "Prompt length: a mean, or mean:p95.  [default: 1024]",
        "lengths", "input_tokens", example="1024", profile=True, sweeps=True,
    ),
    PlanOption(
        "--output-tokens", LOAD, "N", "Answer length: a mean, or mean:p95.  [default: 256]",
        "lengths", "output_tokens", example="256", profile=True, sweeps=True,
    ),
    PlanOption(
        "--concurrency", LOAD, "N", "Requests in flight.  [default: 8]",
        "whole", "concurrency", most=100_000, example="8", profile=True, sweeps=True,
    ),
    PlanOption(
        "--rps", LOAD, "N", "Requests per second, instead of --concurrency.",
        "number", "arrivals_per_s", unit="requests per second", most=_MOST_AMOUNT, example="2.5", sweeps=True,
    ),
    PlanOption("--traffic", LOAD, "FILE", "Load from a CSV: second,input_tokens,output_tokens."),
    PlanOption(
        "--ttft-ms", LOAD, "MS", "Maximum predicted time to first token.  [default: 2000, as a goal]",
        "number", "ttft_ms", unit="milliseconds", most=_MOST_AMOUNT, example="500", profile=True, sweeps=True,
    ),
    PlanOption(
        "--tpot-ms", LOAD, "MS", "Maximum predicted time per output token.  [default: 80, as a goal]",
        "number", "tpot_ms", unit="milliseconds", most=_MOST_AMOUNT, example="50", profile=True, sweeps=True,
    ),
    PlanOption(
        "--slo", LOAD, "LEVEL", "default, or none: only the limits that you set.",
        "choice", "slo", choices=("default", "none"), default="default",
    ),
    PlanOption(
        "--confidence", LOAD, "SHARE", "Required probability of meeting each limit.  [default: 0.5]",
        "number", "confidence", default="0.5", most=0.99, example="0.9", sweeps=True,
    ),
    PlanOption(
        "--min-tokens-per-s", LOAD, "N", "Minimum total throughput, in predicted output tokens/s.",
        "number", "min_tokens_per_s",
        unit="tokens per second", most=_MOST_AMOUNT, example="200", profile=True, sweeps=True,
    ),
    PlanOption(
        "--utilization", LOAD, "SHARE", "Share of the time under load, for token prices.  [default: 1]",
        "number", "utilization", default="1", most=1, example="0.3", profile=True, sweeps=True,
    ),
    PlanOption(
        "--prefer", LOAD, "WHAT", "cost, quality, speed or value.  [default: cost]",
        "choice", "prefer",
        choices=("cost", "quality", "speed", "value"), default="cost", profile=True, sweeps=True,
    ),
    PlanOption(
        "--quality", LOAD, "CLASS", "Minimum quality: exact, near-lossless or any.",
        "choice", "quality", choices=("exact", "near-lossless", "any"), default="auto", sweeps=True,
    ),
    PlanOption(
        "--min-bits", LOAD, "N", "Minimum bits per weight.", "whole", "min_bits", most=16, example="8"
    ),
    PlanOption(
        "--quantize", LOAD, "METHOD", "auto, none, or one of the engine's methods.  [default: auto]",
        "text", "quantize", default="auto", profile=True, sweeps=True,
    ),
    PlanOption(
        "--replicas", HARDWARE, "N", "auto, a number, or a range like 1..4.  [default: auto]",
        "replicas", "replicas", default="auto", most=MOST_REPLICAS, sweeps=True,
    ),
    PlanOption(
        "--max-machines", HARDWARE, "N", "At most this many machines.",
        "whole", "max_machines", most=MOST_REPLICAS, example="4",
    ),
    PlanOption(
        "--num-shard", HARDWARE, "N", "Exactly this many tensor-parallel shards.",
        "whole", "num_shard", most=64, example="2", profile=True, sweeps=True,
    ),
    PlanOption(
        "--instance", HARDWARE, "TYPE", "Only this instance type.", lands="instance_type", profile=True, sweeps=True
    ),
    # 65,536 GiB: the largest gp3 volume.
    PlanOption(
        "--disk", HARDWARE, "GIB", "Minimum size of the root volume.  [default: planned]",
        "whole", "disk_gib", most=65_536, example="200",
    ),
    PlanOption(
        "--driver", HARDWARE, "NAME", "Driver in your machine image: grid.",
        "choice", "driver", choices=("grid",), example="grid",
    ),
    PlanOption("--hardware", HARDWARE, "NxGPU", "Use your own machine: 2xRTX-4090.", lands="hardware"),
    PlanOption(
        "--region", HARDWARE, "REGION", "A region, or 'all'; repeatable.", "texts", "regions", sweeps=True
    ),
    PlanOption(
        "--market", HARDWARE, "MARKET", "on-demand, spot or any.  [default: on-demand]",
        "choice", choices=("on-demand", "spot", "any"), default="on-demand", profile=True, sweeps=True,
    ),
    PlanOption(
        "--engine-version", ENGINE, "VERSION", "Exact engine version.",
        lands="engine_version", profile=True, sweeps=True,
    ),
    PlanOption("--set", ENGINE, "FLAG=VALUE", "Set an engine flag; validated; repeatable.", "texts"),
    PlanOption("--env", ENGINE, "NAME=VALUE", "Variable for the engine, not a secret; repeatable.", "texts"),
    PlanOption(
        "--port", ENGINE, "PORT", "Port the endpoint listens on.  [default: 8080]",
        "whole", "port", default="8080", most=65_535, example="8080", profile=True,
    ),
    PlanOption("--allow-turing", ENGINE, "", "Accept Turing GPUs if the engine version supports them.", "switch"),
)  # fmt: skip
OPTION: Final = {row.field: row for row in PLAN_OPTIONS}
END_FIELDS: Final = tuple(row.field for row in PLAN_OPTIONS if row.lands == ENDS)


def variable_of(option: str) -> str:
    """Return the environment variable of an option (`--max-spend`) or its name (`max_spend`)."""
    return f"TGI_DEPLOY_{option.removeprefix('--').replace('-', '_').upper()}"
