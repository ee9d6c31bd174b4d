"""Reads `profiles/aws/quotas.json`: the names of vCPU quotas and the instance types that count toward them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.fields import REQUIRED_TEXT, Field, list_of, one_of, read, table, text
from tgi_deploy.catalog.store import Store
from tgi_deploy.values.base import Value, Where

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FILE: Final = "aws/quotas.json"
# "EC2-VPC Elastic IPs", 5 a region by default: Amazon VPC User Guide, "Amazon VPC quotas".
ADDRESSES: Final = "L-0263D0A3"
_QUOTA: Final = {
    "name": REQUIRED_TEXT,
    "market": Field(check=one_of("on-demand", "spot")),
    "types": Field(check=list_of(text)),
}


class Quota(Value, frozen=True, kw_only=True):
    """A vCPU quota of a region. `types` are patterns of instance types, with `*`."""

    code: str
    name: str
    market: str
    types: tuple[str, ...]


def read_quotas(user_dir: Path | None = None) -> Mapping[str, Quota]:
    """Return the quotas by code; a user's file replaces ours. Raises InputError `bad_profile`."""
    where = Where(_FILE).child("quotas")
    quotas = table(Store.behind(user_dir).json(_FILE).get("quotas"), where)
    return {code: Quota(code=code, **read(raw, _QUOTA, where.child(code))) for code, raw in quotas.items()}
