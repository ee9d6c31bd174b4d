"""Receipts of removals: the lines of the ledger, the resources kept on purpose, and a hash of both."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import ResourceRef
from tgi_deploy.operations.watching.ledger import given_up, lines_of
from tgi_deploy.text import duration, usd_spent
from tgi_deploy.values.base import Frozen, as_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.watching.ledger import Line
    from tgi_deploy.targets.protocol import Target

SCHEMA: Final = 2
HASH: Final = "sha256"


class KeptResource(ResourceRef, frozen=True, kw_only=True):
    """A resource that is kept on purpose and is not billed by the hour. `what` is its content."""

    what: str
    size_bytes: int | None


class Unsearched(Frozen, frozen=True, kw_only=True):
    """A type of resource that could not be searched for in a region, and may exist there."""

    region: str
    kind: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """The receipt of a removal. `left` are the resources that still exist; empty after a complete removal.

    `given_up` is whether `up` removed what it had created, without a request by the user.
    """

    name: str
    id: str
    version: str
    at: datetime
    lines: tuple[Line, ...]
    regions: tuple[str, ...]
    left: tuple[ResourceRef, ...] = ()
    kept: tuple[KeptResource, ...] = ()
    unsearched: tuple[Unsearched, ...] = ()
    given_up: bool = False
    path: str = ""

    @property
    def machines(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if line.is_machine)

    @property
    def exact(self) -> bool:
        return all(line.exact and line.clocks_agree for line in self.machines)

    @property
    def seconds(self) -> int | None:
        """The total seconds of all machines; None if one is unknown."""
        known = [line.seconds for line in self.machines if line.seconds is not None]
        return sum(known) if len(known) == len(self.machines) else None

    @property
    def usd(self) -> Decimal | None:
        billed = [line for line in self.lines if line.is_machine or line.usd_per_hour is not None]
        known = [line.usd for line in billed if line.usd is not None]
        return sum(known, Decimal(0)) if len(known) == len(billed) else None

    def sentence(self, target_at: Callable[[str], Target]) -> str:
        """Return `llama3-13b ran 12 min, cost about $0.37`; `target_at` returns the target of a location."""
        if not self.machines:
            return f"{self.name} had no machine, and cost nothing by the hour"
        most = "" if self.exact else "at most "
        ran = f"ran {most}{duration(self.seconds)}" if self.seconds is not None else "ran for an unknown time"
        return f"{self.name} {ran}, {self._cost(most or 'about ', target_at)}"

    def _cost(self, how: str, target_at: Callable[[str], Target]) -> str:
        if self.usd is None:
            return target_at(self.machines[0].region).facts.unpriced or "at an unknown price"
        return f"cost {how}{usd_spent(self.usd)}"

    def document(self) -> dict[str, Any]:
        """Return the receipt for JSON. Times and money are strings, so that the hash is the same everywhere."""
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "deployment": self.name,
            "id": self.id,
            "version": self.version,
            "at": self.at.isoformat(),
            "status": "incomplete" if self.left else "removed",
            "given_up": self.given_up,
            "regions": list(self.regions),
            "resources": [_line(line) for line in self.lines],
            "left": [as_dict(item) for item in self.left],
            "kept": [_kept(item) for item in self.kept],
            "unsearched": [as_dict(item) for item in self.unsearched],
            "cost": {
                "seconds": self.seconds,
                "usd": _text(self.usd),
                "bound": "exact" if self.exact else "at_most",
            },
        }
        return {**content, HASH: canonical_hash(content)}


def write(context: Context, receipt: Receipt) -> Receipt:
    """Store the receipt on disk; return it with its path. It never replaces one with resources that it lacks."""
    ids = {line.id for line in receipt.lines}
    same = [item for item in context.store.receipts(receipt.name) if item.get("id") == receipt.id]
    earlier = sum(not {str(line.get("id")) for line in lines_of(item)} <= ids for item in same)
    number = f"-{earlier + 1}" if earlier else ""
    text = json.dumps(receipt.document(), indent=2) + "\n"
    return replace(receipt, path=context.store.save_receipt(f"{receipt.name}-{receipt.id}{number}.json", text))


def reset_spending(context: Context, name: str) -> None:
    """Reset the spending of this name with an empty receipt."""
    if not given_up(context, name):
        return
    closing = Receipt(
        name=name, id=context.new_id(), version=context.version, at=context.clock.now(), lines=(), regions=()
    )
    write(context, closing)
    context.reporter.note(f"earlier costs of '{name}' no longer count toward --max-spend")


def _kept(item: KeptResource) -> dict[str, str]:
    size = "" if item.size_bytes is None else str(item.size_bytes)
    return {"kind": item.kind, "id": item.id, "region": item.region, "what": item.what, "bytes": size}


def _line(line: Line) -> dict[str, Any]:
    return {
        "kind": line.kind,
        "id": line.id,
        "region": line.region,
        "created": line.created.isoformat() if line.created else None,
        "removed": line.removed_at.isoformat() if line.removed_at else None,
        "removed_is": "observed" if line.exact else "upper_bound",
        "seconds": line.seconds,
        "usd_per_hour": _text(line.usd_per_hour),
        "usd": _text(line.usd),
    }


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"


def canonical_hash(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the document without its hash: sorted keys, no spaces, ASCII."""
    plain = {key: value for key, value in content.items() if key != HASH}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
