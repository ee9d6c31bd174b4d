"""The options of a plan as data: one row each, for the command line, its environment, profiles, locks and sweeps.

`operations/planning/option_texts.py` reads their texts by these rows. Strings and numbers alone: help
pages are printed from them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MONEY: Final = "Money and time"
LOAD: Final = "Load and quality"
HARDWARE: Final = "Hardware"
ENGINE: Final = "Engine"

# What an option fills that is not the request: how machines end by themselves.
ENDS: Final = "ends"
_MOST_COUNT: Final = 100_000_000
_MOST_AMOUNT: Final = 1_000_000
_MOST_REPLICAS: Final = 1000


class PlanOption(NamedTuple):
    """One option. `reader` says how its text is read, `lands` which field of the request it fills, or `ENDS`.

    `profile`: a model's profile may have a value for it; `sweeps`: `plan --sweep` can go through its values. `code` is
    that of the error for a text that can't be read. `unit` is what a number counts, empty for a share; `most` bounds
    it, and `example` is one that a hint shows. `default` is what counts where nothing is given, as text.
    """

    flag: str
    section: str
    metavar: str
    help: str
    reader: str = "text"
    lands: str = ""
    code: str = "bad_number"
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
        """The field of `OptionTexts` that holds its text."""
        return "regions" if self.flag == "--region" else self.name

    @property
    def repeats(self) -> bool:
        return self.reader == "texts"


PLAN_OPTIONS: Final = (
    PlanOption(
        "--budget", MONEY, "USD", "Ceiling in US dollars an hour for all that is billed.",
        "amount", "budget_usd_per_hour", code="bad_budget",
        unit="US dollars an hour", most=_MOST_AMOUNT, profile=True, sweeps=True,
    ),
    PlanOption(
        "--max-spend", MONEY, "USD", "Ceiling in US dollars for all machines of the name, until 'down'.",
        "amount", ENDS, code="bad_max_spend", unit="US dollars", most=_MOST_AMOUNT, example="10",
    ),
    PlanOption("--ttl", MONEY, "TIME", "The machine ends itself after this: 90m, 2h, 1d.", "duration", ENDS),
    PlanOption(
        "--idle-timeout", MONEY, "TIME", "The machine ends itself after this long without a request.", "duration", ENDS
    ),
    PlanOption(
        "--lease", MONEY, "TIME", "The machine ends itself unless 'extend' renews it in time.", "duration", ENDS
    ),
    PlanOption(
        "--context", LOAD, "TOKENS", "Longest prompt plus answer.  [default: up to 8192]",
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
        "--rps", LOAD, "N", "Requests that arrive in a second, instead of those in flight.",
        "number", "arrivals_per_s", unit="requests a second", most=_MOST_AMOUNT, example="2.5", sweeps=True,
    ),
    PlanOption("--traffic", LOAD, "FILE", "Load from a CSV: second,input_tokens,output_tokens."),
    PlanOption(
        "--ttft-ms", LOAD, "MS", "Longest predicted time to first token.  [default: 2000, as a goal]",
        "number", "ttft_ms", unit="milliseconds", most=_MOST_AMOUNT, example="500", profile=True, sweeps=True,
    ),
    PlanOption(
        "--tpot-ms", LOAD, "MS", "Longest predicted time per output token.  [default: 80, as a goal]",
        "number", "tpot_ms", unit="milliseconds", most=_MOST_AMOUNT, example="50", profile=True, sweeps=True,
    ),
    PlanOption(
        "--slo", LOAD, "LEVEL", "default, or none: no goals but the limits given.",
        "choice", "slo", code="bad_slo", choices=("default", "none"), default="default",
    ),
    PlanOption(
        "--confidence", LOAD, "SHARE", "How sure each limit is to be met.  [default: 0.5]",
        "number", "confidence", default="0.5", most=0.99, example="0.9", sweeps=True,
    ),
    PlanOption(
        "--min-tokens-per-s", LOAD, "N", "Least predicted output tokens a second, all requests together.",
        "number", "min_tokens_per_s",
        unit="tokens a second", most=_MOST_AMOUNT, example="200", profile=True, sweeps=True,
    ),
    PlanOption(
        "--utilisation", LOAD, "SHARE", "Share of the time at this load, to price tokens.  [default: 1]",
        "number", "utilisation", default="1", most=1, example="0.3", profile=True, sweeps=True,
    ),
    PlanOption(
        "--prefer", LOAD, "WHAT", "cost, quality, speed or value.  [default: cost]",
        "choice", "prefer", code="bad_prefer",
        choices=("cost", "quality", "speed", "value"), default="cost", profile=True, sweeps=True,
    ),
    PlanOption(
        "--quality", LOAD, "CLASS", "exact, near-lossless or any: the least to take.",
        "choice", "quality", code="bad_quality", choices=("exact", "near-lossless", "any"), default="auto", sweeps=True,
    ),
    PlanOption(
        "--min-bits", LOAD, "N", "Weights of at least this many bits.", "whole", "min_bits", most=16, example="8"
    ),
    PlanOption(
        "--quantize", LOAD, "METHOD", "auto, none, or one of the engine's methods.  [default: auto]",
        "text", "quantize", code="bad_quantize", default="auto", profile=True, sweeps=True,
    ),
    PlanOption(
        "--replicas", HARDWARE, "N", "auto, a number, or a range like 1..4.  [default: auto]",
        "replicas", "replicas", code="bad_replicas", default="auto", most=_MOST_REPLICAS, sweeps=True,
    ),
    PlanOption(
        "--max-machines", HARDWARE, "N", "At most this many machines.",
        "whole", "max_machines", most=_MOST_REPLICAS, example="4",
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
        "--disk", HARDWARE, "GIB", "The root volume at least this big.  [default: as planned]",
        "whole", "disk_gib", most=65_536, example="200",
    ),
    PlanOption(
        "--driver", HARDWARE, "NAME", "A driver that your own machine image has: grid.",
        "choice", "driver", code="bad_option_value", choices=("grid",), example="grid",
    ),
    PlanOption("--hardware", HARDWARE, "NxCARD", "A machine you own: 2xRTX-4090.", lands="hardware"),
    PlanOption(
        "--region", HARDWARE, "REGION", "A region, or 'all'; repeatable.", "texts", "regions", sweeps=True
    ),
    PlanOption(
        "--market", HARDWARE, "MARKET", "on-demand, spot or any.  [default: on-demand]",
        "choice", code="bad_market",
        choices=("on-demand", "spot", "any"), default="on-demand", profile=True, sweeps=True,
    ),
    PlanOption(
        "--engine-version", ENGINE, "VERSION", "Exact engine version.",
        lands="engine_version", profile=True, sweeps=True,
    ),
    PlanOption("--set", ENGINE, "FLAG=VALUE", "Pin an engine flag, checked like ours; repeatable.", "texts"),
    PlanOption("--env", ENGINE, "NAME=VALUE", "A variable for the engine, no secret; repeatable.", "texts"),
    PlanOption(
        "--port", ENGINE, "PORT", "Port the endpoint listens on.  [default: 8080]",
        "whole", "port", default="8080", most=65_535, example="8080", profile=True,
    ),
    PlanOption("--allow-turing", ENGINE, "", "Accept Turing cards where the engine version can.", "switch"),
)  # fmt: skip
OPTION: Final = {row.field: row for row in PLAN_OPTIONS}
END_FIELDS: Final = tuple(row.field for row in PLAN_OPTIONS if row.lands == ENDS)


def variable_of(option: str) -> str:
    """Return the environment variable that stands for an option (`--max-spend`) or its name (`max_spend`)."""
    return f"TGI_DEPLOY_{option.removeprefix('--').replace('-', '_').upper()}"
