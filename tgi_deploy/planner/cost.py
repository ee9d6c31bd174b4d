"""The hourly bill of a deployment, line by line, and the disks it needs."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from tgi_deploy.values.plan import Cost, Storage
from tgi_deploy.values.sizes import GIB
from tgi_deploy.values.supply import HOURS_PER_MONTH, PUBLIC_ADDRESS, ROOT_VOLUME, CostLine

if TYPE_CHECKING:
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.supply import ExtraPrices, Offer

_S_PER_HOUR: Final = 3600
_CENT: Final = Decimal("0.01")
_CENT_OF_A_CENT: Final = Decimal("0.0001")

# Operating system, driver and tools of the GPU machine image, and room for logs.
_SYSTEM_GIB: Final = 60
_HEADROOM_GIB: Final = 20


def storage_for(hardware: InstanceType, *, weights_bytes: int, image_bytes: int, least_gib: int = 0) -> Storage:
    """Return the storage: weights on instance NVMe if they fit with a 10 % margin, else on the root volume.

    `least_gib` is the minimum size of the root volume. A service's machine with NVMe has none, and no volume of a
    service holds the system.
    """
    on_nvme = hardware.nvme_bytes >= weights_bytes * 11 // 10
    weights_on_root = 0 if on_nvme else weights_bytes * 11 // 10
    is_hosted = hardware.status == "hosted"
    root_gib = (0 if is_hosted else _SYSTEM_GIB) + _HEADROOM_GIB + -(-(image_bytes + weights_on_root) // GIB)
    return Storage(
        root_volume_gib=0 if is_hosted and hardware.nvme_bytes else max(root_gib, least_gib),
        weights_on_nvme=on_nvme,
        weights_bytes=weights_bytes,
        image_bytes=image_bytes,
    )


def served_usd_per_hour(usd_per_hour: Decimal, interruptions_per_month: Decimal, restart_s: float) -> Decimal:
    """Return the price of an hour of service, including the billed restart after each interruption.

    Does not account for missing capacity at the restart.
    """
    lost = interruptions_per_month * Decimal(restart_s) / (HOURS_PER_MONTH * _S_PER_HOUR)
    return (usd_per_hour * (1 + lost)).quantize(_CENT_OF_A_CENT, ROUND_HALF_UP)


def hourly_cost(offer: Offer, storage: Storage, extras: ExtraPrices | None, *, machines: int = 1) -> Cost:
    """Return everything billed by the hour. An owned machine costs nothing here; callers check for unknown prices.

    Several machines need a load balancer; a service has one, and its own addresses.
    """
    several = f"{machines} x " if machines > 1 else ""
    lines = [(f"{several}{line.item}", line.usd_per_hour) for line in offer.bill]
    if not lines:
        lines.append((f"{several}instance", offer.usd_per_hour or Decimal(0)))
    hosted = offer.instance_type.status == "hosted"
    if extras is not None and storage.root_volume_gib:
        volume = extras.volume_usd_per_gib_month * storage.root_volume_gib / HOURS_PER_MONTH
        gib = f"{several}{ROOT_VOLUME}, {storage.root_volume_gib} GiB {extras.volume_type}"
        lines.append((gib, volume.quantize(_CENT_OF_A_CENT, ROUND_HALF_UP)))
    if extras is not None and not hosted:
        lines.append((f"{several}{PUBLIC_ADDRESS}", extras.public_ipv4_usd_per_hour))
    bill = [CostLine(item=item, usd_per_hour=usd_per_hour * machines) for item, usd_per_hour in lines]
    if machines > 1 and extras is not None and not hosted:
        bill.append(CostLine(item="load balancer", usd_per_hour=extras.load_balancer_usd_per_hour))
    return Cost(lines=tuple(bill))
