"""Options that several commands share.

Values stay text: `operations/planning/option_texts.py` owns their rules and their other sources.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tgi_deploy import wiring
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import PROGRAM, SectionOption, standing_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.cli.output import Result
    from tgi_deploy.operations.planning.option_texts import OptionTexts

    CommandFunction = Callable[..., Result]
    Decorator = Callable[[CommandFunction], CommandFunction]

_MONEY: Final = "Money and time"
_LOAD: Final = "Load and quality"
_HARDWARE: Final = "Hardware"
_ENGINE: Final = "Engine"
_PLACES: Final = "Places"


def _option(*names: str, section: str, **settings: Any) -> Decorator:  # noqa: ANN401 -- click's own signature
    return click.option(*names, cls=SectionOption, section=section, **settings)


class _PlanOption(NamedTuple):
    """An option whose raw text becomes the field of `OptionTexts` named like it."""

    section: str
    flag: str
    metavar: str
    help: str
    complete: complete.Completer | None = None
    repeats: bool = False

    @property
    def field(self) -> str:
        name = self.flag.removeprefix("--").replace("-", "_")
        return f"{name}s" if name == "region" else name

    def option(self) -> Decorator:
        return _option(
            self.flag,
            self.field,
            metavar=self.metavar,
            help=self.help,
            section=self.section,
            shell_complete=self.complete,
            multiple=self.repeats,
        )


_PREFERENCES: Final = complete.words("cost", "quality", "speed", "value")
_QUALITIES: Final = complete.words("exact", "near-lossless", "any")
_MARKETS: Final = complete.words("on-demand", "spot", "any")
_PLAN_OPTIONS: Final = (
    _PlanOption(_MONEY, "--budget", "USD", "Ceiling in US dollars an hour for all that is billed."),
    _PlanOption(_MONEY, "--max-spend", "USD", "Ceiling in US dollars for all machines of the name, until 'down'."),
    _PlanOption(_MONEY, "--ttl", "TIME", "The machine ends itself after this: 90m, 2h, 1d."),
    _PlanOption(_MONEY, "--idle-timeout", "TIME", "The machine ends itself after this long without a request."),
    _PlanOption(_MONEY, "--lease", "TIME", "The machine ends itself unless 'renew' puts it off in time."),
    _PlanOption(_LOAD, "--context", "TOKENS", "Longest prompt plus answer.  [default: up to 8192]"),
    _PlanOption(_LOAD, "--input-tokens", "N", "Prompt length: a mean, or mean:p95.  [default: 1024]"),
    _PlanOption(_LOAD, "--output-tokens", "N", "Answer length: a mean, or mean:p95.  [default: 256]"),
    _PlanOption(_LOAD, "--concurrency", "N", "Requests in flight.  [default: 8]"),
    _PlanOption(_LOAD, "--rps", "N", "Requests that arrive in a second, instead of those in flight."),
    _PlanOption(_LOAD, "--traffic", "FILE", "Load from a CSV: second,input_tokens,output_tokens."),
    _PlanOption(_LOAD, "--ttft-ms", "MS", "Longest predicted time to first token.  [default: 2000, as a goal]"),
    _PlanOption(_LOAD, "--tpot-ms", "MS", "Longest predicted time per output token.  [default: 80, as a goal]"),
    _PlanOption(
        _LOAD, "--slo", "LEVEL", "default, or none: no goals but the limits given.", complete.words("default", "none")
    ),
    _PlanOption(_LOAD, "--confidence", "SHARE", "How sure each limit is to be met.  [default: 0.5]"),
    _PlanOption(_LOAD, "--min-tokens-per-s", "N", "Least predicted output tokens a second, all requests together."),
    _PlanOption(_LOAD, "--utilisation", "SHARE", "Share of the time at this load, to price tokens.  [default: 1]"),
    _PlanOption(_LOAD, "--prefer", "WHAT", "cost, quality, speed or value.  [default: cost]", _PREFERENCES),
    _PlanOption(_LOAD, "--quality", "CLASS", "exact, near-lossless or any: the least to take.", _QUALITIES),
    _PlanOption(_LOAD, "--min-bits", "N", "Weights of at least this many bits."),
    _PlanOption(_LOAD, "--quantize", "METHOD", "auto, none, or one of the engine's methods.  [default: auto]"),
    _PlanOption(_HARDWARE, "--replicas", "N", "auto, a number, or a range like 1..4.  [default: auto]"),
    _PlanOption(_HARDWARE, "--max-machines", "N", "At most this many machines."),
    _PlanOption(_HARDWARE, "--num-shard", "N", "Exactly this many tensor-parallel shards."),
    _PlanOption(_HARDWARE, "--instance", "TYPE", "Only this EC2 instance type.", complete.instance_types),
    _PlanOption(_HARDWARE, "--disk", "GIB", "The root volume at least this big.  [default: as planned]"),
    _PlanOption(_HARDWARE, "--hardware", "NxCARD", "A machine you own: 2xRTX-4090.", complete.hardware),
    _PlanOption(
        _HARDWARE,
        "--region",
        "REGION",
        "A region, or 'all'; repeatable.",
        complete.regions,
        repeats=True,
    ),
    _PlanOption(_HARDWARE, "--market", "MARKET", "on-demand, spot or any.  [default: on-demand]", _MARKETS),
    _PlanOption(_ENGINE, "--engine-version", "VERSION", "Exact engine version.", complete.engine_versions),
    _PlanOption(_ENGINE, "--set", "FLAG=VALUE", "Pin an engine flag, checked like ours; repeatable.", repeats=True),
    _PlanOption(_ENGINE, "--env", "NAME=VALUE", "A variable for the engine, no secret; repeatable.", repeats=True),
    _PlanOption(_ENGINE, "--port", "PORT", "Port the endpoint listens on.  [default: 8080]"),
)


def plan_options(function: CommandFunction) -> CommandFunction:
    """Add MODEL and every option of a plan; the function gets them as one argument, `texts`."""
    return _with_options(function, None)


def plan_options_or(lock: str) -> Decorator:
    """The same for a command that may take its request from a lock: MODEL is empty where option `lock` is given."""
    return lambda function: _with_options(function, lock)


def _with_options(function: CommandFunction, lock: str | None) -> CommandFunction:
    def with_texts(model: str | None, **given: Any) -> Result:  # noqa: ANN401 -- the command's own parameters
        from tgi_deploy.operations.planning.option_texts import OptionTexts  # noqa: PLC0415 -- help is printed without the planner

        if model is None and given[lock or ""] is None:
            raise click.MissingParameter(ctx=click.get_current_context(), param_hint="'MODEL'", param_type="argument")
        given_here = {name: given.pop(name) for name in (*(option.field for option in _PLAN_OPTIONS), "allow_turing")}
        return function(texts=OptionTexts(model=model or "", **given_here), **given)

    decorated: CommandFunction = _ALLOW_TURING(standing_in(with_texts, function))
    for option in reversed(_PLAN_OPTIONS):
        decorated = option.option()(decorated)
    return click.argument("model", required=lock is None, shell_complete=complete.models)(decorated)


def plan_option_words(function: CommandFunction) -> CommandFunction:
    """Add every option of a plan without a MODEL; the function gets them as words of a command line, `plan_words`."""

    def with_words(**given: Any) -> Result:  # noqa: ANN401 -- the command's own parameters
        words: list[str] = ["--allow-turing"] if given.pop("allow_turing") else []
        for option in _PLAN_OPTIONS:
            value = given.pop(option.field)
            values = value if option.repeats else filter(None, [value])
            words.extend(word for item in values for word in (option.flag, item))
        return function(plan_words=tuple(words), **given)

    decorated: CommandFunction = _ALLOW_TURING(standing_in(with_words, function))
    for option in reversed(_PLAN_OPTIONS):
        decorated = option.option()(decorated)
    return decorated


_ALLOW_TURING: Final = _option(
    "--allow-turing", is_flag=True, section=_ENGINE, help="Accept Turing cards where the engine version can."
)
profiles_dir_option: Final = _option(
    "--profiles-dir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="TGI_DEPLOY_PROFILES_DIR",
    section=_PLACES,
    help="Your own profiles; the packaged ones stay behind them.",
)
offline_option: Final = _option(
    "--offline",
    is_flag=True,
    envvar="TGI_DEPLOY_OFFLINE",
    section=_PLACES,
    help="Ask no hub: only models known or read before.",
)
templates_dir_option: Final = _option(
    "--templates-dir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="TGI_DEPLOY_TEMPLATES_DIR",
    section=_PLACES,
    help="Your own templates; the packaged ones stay behind them.",
)
sandbox_option: Final = _option(
    "--sandbox",
    is_flag=True,
    envvar="TGI_DEPLOY_SANDBOX",
    section=_PLACES,
    help="Use the local cloud; it is started when needed.",
)
target_option: Final = _option(
    "--target",
    type=click.Choice(wiring.target_names()),
    default=wiring.target_names()[0],
    envvar="TGI_DEPLOY_TARGET",
    show_default=True,
    section=_PLACES,
    help="Where the deployment runs.",
)


def target_options(name: str) -> Decorator:
    """Add what targets add to the command of that name."""

    def add(function: CommandFunction) -> CommandFunction:
        for item in reversed(wiring.target_options(name)):
            kind: dict[str, Any] = {"metavar": item.metavar} if item.metavar else {"is_flag": True}
            function = click.option(item.flag, help=item.help, multiple=item.repeats, **kind)(function)
        return function

    return add


name_option: Final = _option(
    "--name", metavar="NAME", section=_PLACES, help="Name of the deployment.  [default: the profile's name]"
)
name_argument: Final = click.argument("name", shell_complete=complete.deployments)
yes_option: Final = _option("--yes", "-y", is_flag=True, section="Output", help="Do not ask.")

_LOOK_IN: Final = click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    shell_complete=complete.regions,
    help="Where to look beside the recorded regions; repeatable, or 'all'.  [default: the configured one]",
)
_LOOK_AT: Final = click.option(
    "--target",
    type=click.Choice(wiring.target_names()),
    default=wiring.target_names()[0],
    envvar="TGI_DEPLOY_TARGET",
    show_default=True,
    help="Look in regions of EC2, or on the current Docker host.",
)


def region_option(function: CommandFunction) -> CommandFunction:
    """Add both; the function gets one argument, `regions`: the locations of the target."""

    def with_places(*, target: str, regions: tuple[str, ...], **given: Any) -> Result:  # noqa: ANN401 -- the command's own parameters
        return function(regions=wiring.target_named(target).locations(regions), **given)

    return _LOOK_IN(_LOOK_AT(standing_in(with_places, function)))


_FLAG_OF_FIELD: Final = {"regions": "region"}


def with_option(command: str, texts: OptionTexts, option: str) -> str:
    """`command` with the options that were given, of which those that `option` sets again are left out."""
    changed = shlex.split(option)
    replaced = {word for word in changed if word.startswith("--")}
    kept = [word for flag, words in _given(texts) if flag not in replaced for word in words]
    return shlex.join([PROGRAM, *command.split(), texts.model, *kept, *changed])


def _given(texts: OptionTexts) -> list[tuple[str, list[str]]]:
    """Each option that was given: its flag, and the words that set it."""
    from tgi_deploy.values.base import as_dict  # noqa: PLC0415 -- help is printed without it

    options = []
    for name, value in as_dict(texts).items():
        if name == "model" or not value:
            continue
        flag = f"--{_FLAG_OF_FIELD.get(name, name).replace('_', '-')}"
        options.append((flag, _words(flag, value)))
    return options


def _words(flag: str, value: bool | str | tuple[str, ...]) -> list[str]:  # noqa: FBT001 -- a switch's own value
    if isinstance(value, bool):
        return [flag]
    values = value if isinstance(value, tuple) else (value,)
    return [word for item in values for word in (flag, item)]
