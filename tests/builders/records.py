"""Deployments as in records, and receipts as stored."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Deployment, Pool, Revision
from tgi_deploy.values.ends import Ends

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = datetime(2026, 1, 9, tzinfo=UTC)


def deployment(*, place: str = "us-east-1", plan: Any = None, usd_per_hour: Any = None, **changes: Any) -> Deployment:
    pool = Pool(place=place, machine_usd_per_hour=usd_per_hour)
    revision = Revision(number=1, origin="up", state="pending", created_at=NOW, pools=(pool,), plan=plan)
    values: dict[str, Any] = {
        "name": "demo",
        "id": "abc123",
        "target": "ec2",
        "status": "running",
        "created_at": NOW,
        "updated_at": NOW,
        "revisions": (revision,),
    }
    return Deployment(**(values | changes))


def moved(made: Deployment, place: str) -> Deployment:
    """Return the record as if its newest machine had been launched elsewhere."""
    newest = made.revision
    assert newest is not None
    return made.with_revision(replaced(newest, pools=(replaced(newest.pools[0], place=place),)))


def ending(made: Deployment, **ends: Any) -> Deployment:
    """Return the record with only these limits."""
    return replaced(made, ends=Ends(**ends))


def is_untouched(receipt: Mapping[str, Any]) -> bool:
    """Return whether a receipt is unmodified: its hash covers everything except itself."""
    rest = {key: value for key, value in receipt.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return receipt.get("sha256") == hashlib.sha256(text.encode()).hexdigest()
