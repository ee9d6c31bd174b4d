"""Parses options into a request. Sources, by precedence: flag, environment, profile, default.

All values are read as text, so that the message about an invalid one can quote it, whatever its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from tgi_deploy.catalog.catalog import LOCAL_REGION
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.load import asked_load
from tgi_deploy.text import quoted
from tgi_deploy.values.base import Frozen, Value
from tgi_deploy.values.ends import SHORTEST_TTL_S, WantedEnds
from tgi_deploy.values.engine import Pins
from tgi_deploy.values.plan_options import ENDS, OPTION, PLAN_OPTIONS, variable_of
from tgi_deploy.values.request import Lengths, Market, Replicas, Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.engine import Release
    from tgi_deploy.values.plan_options import PlanOption

_T = TypeVar("_T")
Source = Literal["flag", "environment", "profile", "default"]

ALL_REGIONS: Final = "all"

_NO_LIMIT: Final = "none"
_LARGEST_AMOUNT: Final = Decimal(1_000_000)
_REPLICAS: Final = re.compile(r"(\d{1,4})(?:\.\.(\d{1,4}))?", re.ASCII)
_MAX_COUNT: Final = 100_000_000
_AMOUNT: Final = re.compile(r"\d{1,9}(\.\d{1,9})?|\.\d{1,9}", re.ASCII)
_DURATION: Final = re.compile(r"(?:(\d{1,5})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_MARKETS: Final[Mapping[str, tuple[Market, ...]]] = {
    "on-demand": ("on-demand",),
    "spot": ("spot",),
    "any": ("on-demand", "spot"),
}
# Options that don't apply to the user's own machine, with the end of the hint.
_BESIDE_HARDWARE: Final = {"instance": "", "disk": ", with the disk that it has"}
_SECRET: Final = re.compile(r"TOKEN$|KEY$|KEY_ID$|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class OptionTexts(Value, frozen=True, kw_only=True):
    """The command line's options as text; None if not given."""

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
    utilization: str | None = None
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
    driver: str | None = None
    allow_turing: bool = False
    port: str | None = None


def texts_of(model: str, given: Mapping[str, object]) -> OptionTexts:
    """Return options as text; `given` has values of any type by option name. Raises InputError `unknown_option`."""
    texts: dict[str, Any] = {}
    for name, value in given.items():
        row = OPTION.get("regions" if name == "region" else name)
        if row is None:
            hint = _suggestions().choice(name, tuple(known.replace("_", "-") for known in OPTION))
            raise InputError("unknown_option", f"{quoted(name)} is not an option of a request", hint=hint)
        if value is not None:
            texts[row.field] = _as_text(row, value)
    return OptionTexts(model=model, **texts)


def _as_text(row: PlanOption, value: object) -> bool | str | tuple[str, ...]:
    if not row.metavar:
        return bool(value)
    if not row.repeats:
        return str(value)
    if isinstance(value, Mapping):
        return tuple(f"{name}={item}" for name, item in value.items())
    return (value,) if isinstance(value, str) else tuple(map(str, value))  # type: ignore[call-overload]  # the rest is a sequence


class Setting(Frozen, frozen=True, kw_only=True):
    """A value and its source."""

    value: str | None
    source: Source

    def named(self, option: str) -> str:
        """Return the setting's name for messages, which depends on its source."""
        if self.source == "environment":
            return variable_of(option)
        return option if self.source == "flag" else f"{option} (from the {self.source})"


class Settings:
    """Looks up each setting in its sources, in order."""

    def __init__(self, texts: OptionTexts, environ: Mapping[str, str], defaults: Mapping[str, object]) -> None:
        self._texts, self._environ, self._defaults = texts, environ, defaults

    def get(self, name: str) -> Setting:
        flag = getattr(self._texts, name)
        if flag is not None:
            return Setting(value=flag, source="flag")
        from_environment = self._environ.get(variable_of(name))
        if from_environment:
            return Setting(value=from_environment, source="environment")
        if name in self._defaults:
            return Setting(value=str(self._defaults[name]), source="profile")
        return Setting(value=OPTION[name].default, source="default")

    def read(self, name: str) -> Any:  # noqa: ANN401 -- the type that the row's reader returns
        """Return the value of an option; None if not set. Raises InputError."""
        row, setting = OPTION[name], self.get(name)
        return None if setting.value is None else _READERS[row.reader](setting, row)

    def found(self, name: str, look: Callable[[], _T]) -> _T:
        """Return the catalog's entry for a setting. An error names the source unless that is the command line."""
        setting = self.get(name)
        try:
            return look()
        except InputError as problem:
            if setting.source in {"flag", "default"}:
                raise
            named = setting.named(OPTION[name].flag)
            raise InputError(problem.code, f"{named}: {problem.message}", hint=problem.hint) from None


def _suggestions() -> ModuleType:
    from tgi_deploy.operations.planning import suggestions  # noqa: PLC0415 -- needed only for an error

    return suggestions


def whole_number(setting: Setting, option: str, *, most: int = _MAX_COUNT) -> int:
    """Parse a whole number from 1 to `most`."""
    text = setting.value or ""
    if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most:
        return int(text)
    raise InputError(
        "bad_option_value",
        f"{setting.named(option)}: {quoted(text)} is not a whole number from 1 to {most}",
        hint=_suggestions().count(text, option),
    )


def positive_decimal(setting: Setting, option: str, *, unit: str, most: Decimal = _LARGEST_AMOUNT) -> Decimal:
    """Parse a positive number, at most `most`. `unit` is for the hint; a share has none."""
    text = (setting.value or "").strip()
    value = Decimal(text) if _AMOUNT.fullmatch(text) else None
    if value is not None and 0 < value <= most:
        return value
    wrong = "is not a positive number" if value is None else f"is more than {most}" if value else "is not more than 0"
    raise InputError(
        "bad_option_value",
        f"{setting.named(option)}: {quoted(text)} {wrong}",
        hint=_suggestions().amount(text, option, unit, most),
    )


def duration_s(setting: Setting, option: str) -> int:
    """Parse `2h`, `90m`, `1d12h` or `45m30s` into seconds; at least five minutes."""
    text = (setting.value or "").strip().lower()
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise InputError(
            "bad_option_value", f"{setting.named(option)}: {quoted(text)} is not a duration",
            hint=_suggestions().duration(text, option),
        )  # fmt: skip
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total < SHORTEST_TTL_S:
        raise InputError(
            "bad_option_value", f"{setting.named(option)}: {quoted(text)} is shorter than five minutes",
            hint="a machine needs longer than that to start",
        )  # fmt: skip
    return total


def wanted_ends(texts: OptionTexts, environ: Mapping[str, str]) -> WantedEnds:
    """Return a machine's limits. Raises InputError."""
    settings = Settings(texts, environ, {})
    return WantedEnds(
        ttl_s=settings.read("ttl"),
        max_spend_usd=settings.read("max_spend"),
        max_spend_option=settings.get("max_spend").named("--max-spend"),
        idle_s=settings.read("idle_timeout"),
        lease_s=settings.read("lease"),
    )


def moved_limits(texts: Mapping[str, str | None]) -> WantedEnds:
    """Return the new limits of a running machine; `none` removes one. Raises InputError."""
    return WantedEnds(
        ttl_s=_moved_limit(texts, "ttl"),
        max_spend_usd=_moved_limit(texts, "max_spend"),
        idle_s=_moved_limit(texts, "idle_timeout"),
        lease_s=_moved_limit(texts, "lease"),
    )


def _moved_limit(texts: Mapping[str, str | None], name: str) -> Any:  # noqa: ANN401 -- the type that the row's reader returns
    row, text = OPTION[name], texts[name]
    if text is None:
        return None
    if text.strip().lower() == _NO_LIMIT:
        return Decimal(0) if row.reader == "amount" else 0
    return _READERS[row.reader](Setting(value=text, source="flag"), row)


def resolve(texts: OptionTexts, environ: Mapping[str, str], catalog: Catalog) -> Request:
    """Return the request, resolved with defaults. Raises InputError for invalid options."""
    profile = catalog.resolve(texts.model)
    settings = Settings(texts, environ, profile.defaults)
    version = settings.get("engine_version").value or catalog.default_release
    release = settings.found("engine_version", lambda: catalog.release(version))
    wanted_ends(texts, environ)
    hardware = settings.get("hardware").value
    if hardware:
        _reject_hardware_conflicts(settings)
    flags = tuple(_flag(text, catalog.engine.pin_example) for text in texts.set)
    longest = catalog.engine.longest_context(profile.model, Pins.of(flags))
    load = asked_load(settings, longest, profile.model.hub_id)
    derived: dict[str, Any] = {
        "model": profile,
        "engine_version": version,
        "input_tokens": load.input_tokens.mean,
        "output_tokens": load.output_tokens.mean,
        "input_p95": load.input_tokens.p95,
        "output_p95": load.output_tokens.p95,
        "concurrency": load.concurrency,
        "arrivals_per_s": load.arrivals_per_s,
        "context_tokens": load.context_tokens,
        "budget_usd_per_hour": None if hardware and not catalog.added else settings.read("budget"),
        "quantize": _quantize(settings, release),
        "instance_type": _instance(settings, catalog),
        "regions": _regions(texts, environ, catalog, hardware),
        "markets": ("owned",) if hardware else _MARKETS[settings.read("market")],
        "allow_turing": texts.allow_turing,
        "flags": flags,
        "env": tuple(_variable(text, release) for text in texts.env),
    }
    plain = [row for row in PLAN_OPTIONS if row.lands not in {"", ENDS, *derived}]
    return Request(**derived, **{row.lands: settings.read(row.name) for row in plain})


def _reject_hardware_conflicts(settings: Settings) -> None:
    """Raise InputError `conflicting_options` for options that --hardware determines."""
    for name, hint in _BESIDE_HARDWARE.items():
        if settings.get(name).value is not None:
            raise InputError(
                "conflicting_options", f"{OPTION[name].flag} and --hardware exclude each other",
                hint=f"--hardware plans for a machine you own{hint}",
            )  # fmt: skip


def _quantize(settings: Settings, release: Release) -> str:
    methods = tuple(sorted(release.methods))
    return _choice(settings.get("quantize"), OPTION["quantize"]._replace(choices=("auto", "none", *methods)))


def _instance(settings: Settings, catalog: Catalog) -> str | None:
    name = settings.get("instance").value
    if name is None:
        return None
    found = settings.found("instance", lambda: catalog.instance_type(name))
    if found.status not in {"offered", "hosted"}:
        state = "no longer offered" if found.status == "retired" else "not offered by itself"
        why = f": {found.note}" if found.note else ""
        raise InputError(
            "not_offered", f"{found.name} is {state}{why}",
            hint="'tgi-deploy catalog list instances' shows the types that are",
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
    """Return the source of the requested regions, for messages."""
    if texts.regions:
        return "--region"
    return "TGI_DEPLOY_REGION" if environ.get("TGI_DEPLOY_REGION") else catalog.default_region(environ)[1]


def _flag(text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip("-"):
        raise InputError(
            "bad_option_value", f"--set {quoted(text)} is not FLAG=VALUE", hint=f"write --set {example}, for example"
        )
    return name, value


def _variable(text: str, release: Release) -> tuple[str, str]:
    """Parse a variable of the engine's environment; reject secrets and variables that the planner sets."""
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name) or not value.isprintable():
        raise InputError(
            "bad_env", f"--env {quoted(name)} is not NAME=VALUE", hint="write --env NCCL_P2P_DISABLE=1, for example"
        )
    if _SECRET.search(name):
        raise InputError(
            "secret_in_env",
            f"--env {name} looks like a secret: it would be visible in the plan, on the disk and in the process list",
            hint="the hub token and the API key are read from this shell's environment, by name",
        )
    flag = next((flag for flag, known in release.flags.items() if known.env == name), None)
    if flag is not None or name in release.reserved_env:
        raise InputError(
            "env_is_planned",
            f"--env {name} is set by the planner",
            hint=f"pin it with --set {flag.removeprefix('--')}=VALUE, which is checked" if flag else "leave it out",
        )
    return name, value


def _lengths(setting: Setting, row: PlanOption) -> Lengths:
    """Parse `1024`, or the mean and the 95th percentile: `700:3000`."""
    mean, colon, p95 = (setting.value or "").partition(":")
    one = whole_number(Setting(value=mean, source=setting.source), row.flag)
    if not colon:
        return Lengths(mean=one, most=one)
    longer = whole_number(Setting(value=p95, source=setting.source), row.flag)
    if longer < one:
        raise InputError(
            "bad_option_value", f"{setting.named(row.flag)}: the 95th percentile, {longer}, is below the mean, {one}",
            hint=f"write the mean first: {row.flag} {longer}:{one}",
        )  # fmt: skip
    return Lengths(mean=one, p95=longer, most=longer)


def _choice(setting: Setting, row: PlanOption) -> str:
    text = setting.value or ""
    if text in row.choices or setting.source == "default":
        return text
    raise InputError(
        "bad_option_value",
        f"{setting.named(row.flag)} can't be {quoted(text)}",
        hint=_suggestions().choice(text, row.choices),
    )


def replicas_of(text: str, most: int) -> Replicas | None:
    """Return a number of replicas or a range, up to `most`; None if the text is neither."""
    match = _REPLICAS.fullmatch(text)
    found = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    return Replicas(least=found[0], most=found[1]) if 1 <= found[0] <= found[1] <= most else None


def _replicas(setting: Setting, row: PlanOption) -> Replicas:
    text = setting.value or ""
    found = Replicas() if text == "auto" else replicas_of(text, int(row.most))
    if found is not None:
        return found
    raise InputError(
        "bad_option_value",
        f"{setting.named(row.flag)}: {quoted(text)} is not a number of replicas",
        hint="write --replicas auto, --replicas 2, or --replicas 1..4",
    )


def _amount(setting: Setting, row: PlanOption) -> Decimal:
    return positive_decimal(setting, row.flag, unit=row.unit, most=Decimal(str(row.most)))


_READERS: Final[Mapping[str, Callable[[Setting, PlanOption], object]]] = {
    "text": lambda setting, _row: setting.value,
    "whole": lambda setting, row: whole_number(setting, row.flag, most=int(row.most)),
    "amount": _amount,
    "number": lambda setting, row: float(_amount(setting, row)),
    "duration": lambda setting, row: duration_s(setting, row.flag),
    "lengths": _lengths,
    "choice": _choice,
    "replicas": _replicas,
}
