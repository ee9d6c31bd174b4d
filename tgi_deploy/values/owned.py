"""The cost of an owned machine: purchase, power, hosting; and when buying beats renting.

Everything is per machine and in US dollars; a month has 730 hours. The purchase is depreciated linearly over the useful
life, without interest or residual value.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from tgi_deploy.values.base import Value
from tgi_deploy.values.hardware import Interconnect
from tgi_deploy.values.request import Market
from tgi_deploy.values.supply import HOURS_PER_MONTH, CostLine

_MONTHS_PER_YEAR: Final = 12
_WATTS_PER_KW: Final = 1000
_CENT_OF_A_CENT: Final = Decimal("0.0001")
_TENTH: Final = Decimal("0.1")


class OwnedMachine(Value, frozen=True, kw_only=True):
    """An owned machine and its costs. `hardware` has the form of `--hardware`.

    `board_w` is the power of each busy accelerator, `host_w` that of the rest of the machine, `idle_w` that of the
    whole idle machine (None: as when busy). `machines` is their number, `utilization` the share of time at the planned
    load if the file has it, `source` the origin of the figures.
    """

    hardware: str
    name: str = ""
    source: str = ""
    interconnect: Interconnect | None = None
    machines: int = 1
    purchase_usd: Decimal
    useful_life_years: Decimal
    board_w: Decimal
    host_w: Decimal
    idle_w: Decimal | None = None
    pue: Decimal
    usd_per_kwh: Decimal
    hosting_usd_per_month: Decimal = Decimal(0)
    utilization: Decimal | None = None

    @property
    def life_months(self) -> Decimal:
        return self.useful_life_years * _MONTHS_PER_YEAR


class OwnershipCost(Value, frozen=True, kw_only=True):
    """The cost of one machine at a utilization. `power_kw` is its mean power including cooling and losses (PUE)."""

    lines: tuple[CostLine, ...]
    power_kw: Decimal
    running_usd_per_hour: Decimal

    @property
    def usd_per_hour(self) -> Decimal:
        return sum((line.usd_per_hour for line in self.lines), start=Decimal(0))


def ownership_cost(machine: OwnedMachine, accelerators: int, utilization: Decimal) -> OwnershipCost:
    """Return the hourly cost of a machine with this many accelerators, each line with its arithmetic."""
    watts = _mean_watts(machine, accelerators, utilization)
    power_kw = watts / _WATTS_PER_KW * machine.pue
    purchase = _per_hour(machine.purchase_usd / machine.life_months)
    power = _rounded(power_kw * machine.usd_per_kwh)
    hosting = _per_hour(machine.hosting_usd_per_month)
    kilowatts = f"{_plain(watts / _WATTS_PER_KW)} kW x {_plain(machine.pue)} PUE"
    lines = (
        (f"purchase, ${machine.purchase_usd:,} over {_plain(machine.useful_life_years)} years", purchase),
        (f"power, {kilowatts} x ${_plain(machine.usd_per_kwh)}/kWh", power),
        (f"hosting, ${machine.hosting_usd_per_month:,} a month", hosting),
    )
    return OwnershipCost(
        lines=tuple(CostLine(item=item, usd_per_hour=usd) for item, usd in lines),
        power_kw=power_kw.quantize(Decimal("0.001"), ROUND_HALF_UP),
        running_usd_per_hour=power + hosting,
    )


def break_even_months(
    purchase_usd: Decimal, running_usd_per_month: Decimal, rental_usd_per_month: Decimal
) -> Decimal | None:
    """Return after how many months the saved rent has paid for the purchase; None: never."""
    saved = rental_usd_per_month - running_usd_per_month
    return (purchase_usd / saved).quantize(_TENTH, ROUND_HALF_UP) if saved > 0 else None


def _mean_watts(machine: OwnedMachine, accelerators: int, utilization: Decimal) -> Decimal:
    busy = machine.board_w * accelerators + machine.host_w
    idle = busy if machine.idle_w is None else machine.idle_w
    return busy * utilization + idle * (1 - utilization)


def _per_hour(usd_per_month: Decimal) -> Decimal:
    return _rounded(usd_per_month / HOURS_PER_MONTH)


def _rounded(usd: Decimal) -> Decimal:
    return usd.quantize(_CENT_OF_A_CENT, ROUND_HALF_UP)


def _plain(number: Decimal) -> str:
    """Format with at most four decimals, without trailing zeros."""
    return f"{number.quantize(_CENT_OF_A_CENT).normalize():f}"


class Rental(Value, frozen=True, kw_only=True):
    """A rental that meets the same request, and after how many months the purchase is cheaper; None: never.

    `break_even_months` compares with a rental that is never switched off, the other with one that is billed only for
    the busy share of the time. A spot price is per hour of service. `same_hardware`: the same number of the same
    accelerators.
    """

    instance_type: str
    region: str
    market: Market
    accelerator: str
    accelerator_count: int
    machines: int
    replicas: int
    num_shard: int
    quantize: str
    usd_per_hour: Decimal
    usd_per_million_output_tokens: Decimal | None
    output_tokens_per_s: float
    estimated: bool
    price_source: str
    price_date: str
    same_hardware: bool
    break_even_months: Decimal | None
    break_even_months_if_switched_off: Decimal | None


class Owned(Value, frozen=True, kw_only=True):
    """`data.own`: the costs of the machines in the plan, and comparable rentals, best first.

    Dollars are for all `machines` of the plan together; `power_kw` is per machine, at the meter.
    """

    name: str
    source: str
    hardware: str
    machines: int
    utilization: Decimal
    useful_life_years: Decimal
    purchase_usd: Decimal
    power_kw: Decimal
    lines: tuple[CostLine, ...]
    usd_per_hour: Decimal
    usd_per_month: Decimal
    running_usd_per_month: Decimal
    usd_per_million_output_tokens: Decimal | None
    rentals: tuple[Rental, ...]
