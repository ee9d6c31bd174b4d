"""From what was typed to what is wanted: settings come from flag > environment > profile > default.

Everything arrives as text, so that a wrong value is answered with a sentence about that value, whichever way it came.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast, get_args

from tgi_deploy.catalog.catalog import LOCAL_REGION
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.load import asked_load
from tgi_deploy.text import quoted
from tgi_deploy.values.base import Frozen, Value
from tgi_deploy.values.ends import SHORTEST_TTL_S, WantedEnds, least_spend
from tgi_deploy.values.engine import Pins
from tgi_deploy.values.quality import QualityFloor
from tgi_deploy.values.request import Lengths, Market, Preference, Replicas, Request, ServiceLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.engine import Release

_T = TypeVar("_T")
Source = Literal["flag", "environment", "profile", "default"]

DEFAULT_PORT: Final = 8080
ALL_REGIONS: Final = "all"

_MAX_BUDGET: Final = Decimal(1_000_000)
_MOST_REPLICAS: Final = 1000
_SUREST: Final = Decimal("0.99")
_REPLICAS: Final = re.compile(r"(\d{1,4})(?:\.\.(\d{1,4}))?", re.ASCII)
_MAX_COUNT: Final = 100_000_000
_AMOUNT: Final = re.compile(r"\d{1,9}(\.\d{1,9})?|\.\d{1,9}", re.ASCII)
_DURATION: Final = re.compile(r"(?:(\d{1,5})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?")
_MAX_DISK_GIB: Final = 65_536  # the largest gp3 volume
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_SECRET: Final = re.compile(r"TOKEN$|KEY$|KEY_ID$|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class OptionTexts(Value, frozen=True, kw_only=True):
    """What was asked for on the command line, as text; None where nothing was."""

    model: str
    budget: str | None = None
    max_spend: str | None = None
    ttl: str | None = None
    idle_timeout: str | None = None
    lease: str | None = None
    context: str | None = None
    input_tokens: str | None = None
    output_tokens: str | None = None
    concurrency: str | None = None
    rps: str | None = None
    traffic: str | None = None
    slo: str | None = None
    confidence: str | None = None
    ttft_ms: str | None = None
    tpot_ms: str | None = None
    min_tokens_per_s: str | None = None
    utilisation: str | None = None
    prefer: str | None = None
    quality: str | None = None
    min_bits: str | None = None
    quantize: str | None = None
    replicas: str | None = None
    max_machines: str | None = None
    num_shard: str | None = None
    instance: str | None = None
    hardware: str | None = None
    regions: tuple[str, ...] = ()
    market: str | None = None
    engine_version: str | None = None
    set: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    disk: str | None = None
    allow_turing: bool = False
    port: str | None = None


def variable_of_option(setting: str) -> str:
    """The environment variable that stands for an option (`--max-spend`) or its field (`max_spend`)."""
    return f"TGI_DEPLOY_{setting.removeprefix('--').replace('-', '_').upper()}"


class Setting(Frozen, frozen=True, kw_only=True):
    """A value and where it came from."""

    value: str | None
    source: Source

    def named(self, option: str) -> str:
        """How a message calls the setting: by the way it came."""
        if self.source == "environment":
            return variable_of_option(option)
        return option if self.source == "flag" else f"{option} (from the {self.source})"


class Settings:
    """Looks each setting up in its sources, in order."""

    def __init__(self, texts: OptionTexts, environ: Mapping[str, str], defaults: Mapping[str, object]) -> None:
        self._texts, self._environ, self._defaults = texts, environ, defaults

    def get(self, name: str) -> Setting:
        flag = getattr(self._texts, name)
        if flag is not None:
            return Setting(value=flag, source="flag")
        from_environment = self._environ.get(variable_of_option(name))
        if from_environment:
            return Setting(value=from_environment, source="environment")
        if name in self._defaults:
            return Setting(value=str(self._defaults[name]), source="profile")
        return Setting(value=None, source="default")

    def count(self, name: str, default: int, *, most: int = _MAX_COUNT) -> int:
        setting = self.get(name)
        return default if setting.value is None else whole_number(setting, option_of(name), most=most)

    def whole(self, name: str, *, most: int) -> int | None:
        setting = self.get(name)
        return None if setting.value is None else whole_number(setting, option_of(name), most=most)

    def lengths(self, name: str) -> Lengths | None:
        """`1024`, or the mean and what 95 % do not exceed: `700:3000`."""
        setting = self.get(name)
        if setting.value is None:
            return None
        mean, colon, p95 = setting.value.partition(":")
        one = whole_number(Setting(value=mean, source=setting.source), option_of(name))
        if not colon:
            return Lengths(mean=one, most=one)
        longer = whole_number(Setting(value=p95, source=setting.source), option_of(name))
        return Lengths(mean=one, p95=max(one, longer), most=max(one, longer))

    def found(self, name: str, look: Callable[[], _T]) -> _T:
        """What the catalogue has by a setting; its error names a setting that was not typed here."""
        setting = self.get(name)
        try:
            return look()
        except InputError as problem:
            if setting.source in {"flag", "default"}:
                raise
            raise InputError(
                problem.code, f"{setting.named(option_of(name))}: {problem.message}", hint=problem.hint
            ) from None

    def positive(self, name: str, unit: str, most: Decimal = _MAX_BUDGET) -> float | None:
        setting = self.get(name)
        if setting.value is None:
            return None
        return float(positive_decimal(setting, option_of(name), unit=unit, code="bad_number", most=most))

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        setting = self.get(name)
        if setting.value is None or setting.value in choices:
            return setting.value or default
        raise InputError(
            f"bad_{name}",
            f"{setting.named(option_of(name))} can't be {quoted(setting.value)}",
            hint=_meant().choice(setting.value, choices),
        )


def option_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def _meant() -> ModuleType:
    from tgi_deploy.operations.planning import meant  # noqa: PLC0415 -- only on the way to an error

    return meant


def whole_number(setting: Setting, option: str, *, most: int = _MAX_COUNT) -> int:
    """A whole number from 1 to `most`."""
    text = setting.value or ""
    if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most:
        return int(text)
    raise InputError(
        "bad_number",
        f"{setting.named(option)}: {quoted(text)} is no whole number from 1 to {most}",
        hint=_meant().count(option),
    )


def positive_decimal(setting: Setting, option: str, *, unit: str, code: str, most: Decimal = _MAX_BUDGET) -> Decimal:
    """A plain positive number of `unit` (empty: a share), at most `most`."""
    text = (setting.value or "").strip()
    value = Decimal(text) if _AMOUNT.fullmatch(text) else None
    if value is not None and 0 < value <= most:
        return value
    wrong = "is no positive number" if value is None else f"is more than {most}" if value else "is not more than 0"
    raise InputError(
        code, f"{setting.named(option)}: {quoted(text)} {wrong}", hint=_meant().amount(text, option, unit, most)
    )


def duration_s(setting: Setting, option: str) -> int:
    """`2h`, `90m`, `1d12h`, `45m30s` → seconds; at least five minutes."""
    text = (setting.value or "").strip().lower()
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise InputError(
            "bad_duration", f"{setting.named(option)}: {quoted(text)} is no duration",
            hint=_meant().duration(text, option),
        )  # fmt: skip
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total < SHORTEST_TTL_S:
        raise InputError(
            "bad_duration", f"{setting.named(option)}: {quoted(text)} is shorter than five minutes",
            hint="a machine needs longer than that to start",
        )  # fmt: skip
    return total


def lifetime_s(texts: OptionTexts, environ: Mapping[str, str], usd_per_hour: Decimal) -> int | None:
    """Seconds until a first machine ends itself: the earlier of --ttl and --max-spend at this price.

    Raises InputError; `bad_max_spend` also for an amount that is spent before a machine has started.
    """
    settings = Settings(texts, environ, {})
    ends = []
    ttl = settings.get("ttl")
    if ttl.value is not None:
        ends.append(duration_s(ttl, "--ttl"))
    dollars = max_spend_usd(texts, environ)
    if dollars is not None and usd_per_hour > 0:
        ends.append(_seconds_for(dollars, usd_per_hour, settings.get("max_spend")))
    return min(ends) if ends else None


def max_spend_usd(texts: OptionTexts, environ: Mapping[str, str]) -> Decimal | None:
    """Return the ceiling for all machines of the deployment. Raises InputError."""
    spend = Settings(texts, environ, {}).get("max_spend")
    if spend.value is None:
        return None
    return positive_decimal(spend, "--max-spend", unit="US dollars", code="bad_max_spend")


def _seconds_for(dollars: Decimal, usd_per_hour: Decimal, spend: Setting) -> int:
    seconds = int(dollars / usd_per_hour * 3600)
    if seconds < SHORTEST_TTL_S:
        raise InputError(
            "bad_max_spend",
            f"{spend.named('--max-spend')}: ${dollars} is spent after {seconds} s at ${usd_per_hour} an hour",
            hint=f"a machine needs five minutes to start: give at least ${least_spend(usd_per_hour)}",
        )
    return seconds


def wanted_ends(texts: OptionTexts, environ: Mapping[str, str]) -> WantedEnds:
    """Return how a machine is to end by itself. Raises InputError."""
    return WantedEnds(
        lifetime_s=lambda usd_per_hour: lifetime_s(texts, environ, usd_per_hour),
        max_spend_usd=max_spend_usd(texts, environ),
        idle_s=idle_timeout_s(texts, environ),
        lease_s=lease_s(texts, environ),
    )


def idle_timeout_s(texts: OptionTexts, environ: Mapping[str, str]) -> int | None:
    """Seconds without a request after which the machine ends itself."""
    return _duration_s(texts, environ, "idle_timeout")


def lease_s(texts: OptionTexts, environ: Mapping[str, str]) -> int | None:
    """Seconds after which the machine ends itself unless its lease is renewed."""
    return _duration_s(texts, environ, "lease")


def _duration_s(texts: OptionTexts, environ: Mapping[str, str], name: str) -> int | None:
    setting = Settings(texts, environ, {}).get(name)
    return None if setting.value is None else duration_s(setting, option_of(name))


def check_lifetime(texts: OptionTexts, environ: Mapping[str, str]) -> None:
    """Reads --ttl, --max-spend, --idle-timeout and --lease for their form alone, before anything else is done."""
    lifetime_s(texts, environ, Decimal(0))
    idle_timeout_s(texts, environ)
    lease_s(texts, environ)


def resolve(texts: OptionTexts, environ: Mapping[str, str], catalog: Catalog) -> Request:
    """Return the request, complete with defaults. Raises InputError for what an option cannot be."""
    profile = catalog.resolve(texts.model)
    settings = Settings(texts, environ, profile.defaults)
    version = settings.get("engine_version").value or catalog.default_release
    release = settings.found("engine_version", lambda: catalog.release(version))
    check_lifetime(texts, environ)
    hardware = settings.get("hardware").value
    flags = tuple(_flag(text, catalog.engine.pin_example) for text in texts.set)
    longest = catalog.engine.longest_context(profile.model, Pins.of(flags))
    load = asked_load(settings, longest, profile.model.hub_id)
    return Request(
        model=profile,
        engine_version=version,
        input_tokens=load.input_tokens.mean,
        output_tokens=load.output_tokens.mean,
        input_p95=load.input_tokens.p95,
        output_p95=load.output_tokens.p95,
        concurrency=load.concurrency,
        arrivals_per_s=load.arrivals_per_s,
        context_tokens=load.context_tokens,
        budget_usd_per_hour=None if hardware else _budget(settings),
        prefer=cast("Preference", settings.choice("prefer", get_args(Preference), "cost")),
        quality=cast("QualityFloor", settings.choice("quality", get_args(QualityFloor)[1:], "auto")),
        min_bits=settings.whole("min_bits", most=16),
        quantize=_quantize(settings, release),
        replicas=_replicas(settings),
        max_machines=settings.whole("max_machines", most=_MOST_REPLICAS),
        num_shard=settings.whole("num_shard", most=64),
        instance_type=_instance(settings, catalog, hardware),
        hardware=hardware,
        regions=_regions(texts, environ, catalog, hardware),
        markets=("owned",) if hardware else _markets(settings),
        ttft_ms=settings.positive("ttft_ms", "milliseconds"),
        tpot_ms=settings.positive("tpot_ms", "milliseconds"),
        slo=cast("ServiceLevel", settings.choice("slo", get_args(ServiceLevel), "default")),
        confidence=settings.positive("confidence", "", most=_SUREST) or 0.5,
        min_tokens_per_s=settings.positive("min_tokens_per_s", "tokens a second"),
        utilisation=settings.positive("utilisation", "", most=Decimal(1)) or 1.0,
        allow_turing=texts.allow_turing,
        flags=flags,
        env=tuple(_variable(text, release) for text in texts.env),
        disk_gib=_disk_gib(settings, hardware),
        port=settings.count("port", DEFAULT_PORT, most=65535),
    )


def _budget(settings: Settings) -> Decimal | None:
    setting = settings.get("budget")
    if setting.value is None:
        return None
    return positive_decimal(setting, "--budget", unit="US dollars an hour", code="bad_budget")


def _quantize(settings: Settings, release: Release) -> str:
    methods = tuple(sorted(release.methods))
    return settings.choice("quantize", ("auto", "none", *methods), "auto")


def _replicas(settings: Settings) -> Replicas:
    setting = settings.get("replicas")
    if setting.value in {None, "auto"}:
        return Replicas()
    match = _REPLICAS.fullmatch(setting.value or "")
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if 1 <= least <= most <= _MOST_REPLICAS:
        return Replicas(least=least, most=most)
    raise InputError(
        "bad_replicas", f"{setting.named('--replicas')}: {quoted(setting.value or '')} is not a number of replicas",
        hint="write --replicas auto, --replicas 2, or --replicas 1..4",
    )  # fmt: skip


def _instance(settings: Settings, catalog: Catalog, hardware: str | None) -> str | None:
    name = settings.get("instance").value
    if name is None:
        return None
    if hardware:
        raise InputError(
            "conflicting_options", "--instance and --hardware exclude each other",
            hint="--hardware plans for a machine you own",
        )  # fmt: skip
    found = settings.found("instance", lambda: catalog.instance_type(name))
    if found.status != "offered":
        state = "no longer offered" if found.status == "gone" else "announced but not yet offered"
        why = f": {found.note}" if found.note else ""
        raise InputError(
            "instance_not_offered", f"{found.name} is {state} by EC2{why}",
            hint="'tgi-deploy catalog list instances' shows which types are",
        )  # fmt: skip
    return found.name


def _regions(texts: OptionTexts, environ: Mapping[str, str], catalog: Catalog, hardware: str | None) -> tuple[str, ...]:
    if hardware:
        return (LOCAL_REGION,)
    asked = texts.regions or tuple(filter(None, environ.get("TGI_DEPLOY_REGION", "").split(",")))
    if ALL_REGIONS in asked:
        return catalog.regions()
    return tuple(dict.fromkeys(asked)) or (catalog.default_region(environ)[0],)


def region_source(texts: OptionTexts, environ: Mapping[str, str], catalog: Catalog) -> str:
    """Where the requested regions came from, as a message names it."""
    if texts.regions:
        return "--region"
    return "TGI_DEPLOY_REGION" if environ.get("TGI_DEPLOY_REGION") else catalog.default_region(environ)[1]


def _markets(settings: Settings) -> tuple[Market, ...]:
    market = settings.choice("market", ("on-demand", "spot", "any"), "on-demand")
    return ("on-demand", "spot") if market == "any" else (cast("Market", market),)


def _flag(text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip("-"):
        raise InputError(
            "bad_set", f"--set {quoted(text)} is not FLAG=VALUE", hint=f"write --set {example}, for example"
        )
    return name, value


def _disk_gib(settings: Settings, hardware: str | None) -> int | None:
    setting = settings.get("disk")
    if setting.value is None:
        return None
    if hardware:
        raise InputError(
            "conflicting_options", "--disk and --hardware exclude each other",
            hint="--hardware plans for a machine you own, with the disk that it has",
        )  # fmt: skip
    return whole_number(setting, "--disk", most=_MAX_DISK_GIB)


def _variable(text: str, release: Release) -> tuple[str, str]:
    """A variable of the engine's environment: no secret, and nothing that is checked elsewhere."""
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name) or not value.isprintable():
        raise InputError(
            "bad_env", f"--env {quoted(name)} is not NAME=VALUE", hint="write --env NCCL_P2P_DISABLE=1, for example"
        )
    if _SECRET.search(name):
        raise InputError(
            "secret_in_env",
            f"--env {name} looks like a secret: it would be seen in the plan, on the disk and in the process list",
            hint="hub token and API key are taken from this shell's environment, by their names",
        )
    flag = next((flag for flag, known in release.flags.items() if known.env == name), None)
    if flag is not None or name in release.reserved_env:
        raise InputError(
            "env_is_planned",
            f"--env {name} is the planner's to set",
            hint=f"pin it with --set {flag.removeprefix('--')}=VALUE: it is checked then" if flag else "leave it out",
        )
    return name, value
