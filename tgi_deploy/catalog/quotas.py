"""Reader of `profiles/aws/quotas.json`: what each vCPU quota is called and which machines count for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.fields import Where
from tgi_deploy.catalog.store import Store
from tgi_deploy.resources import profiles_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FILE: Final = "aws/quotas.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """A quota of vCPUs in a region. `types` are patterns of instance types, with `*`."""

    code: str
    name: str
    market: str
    types: tuple[str, ...]


def read_quotas(user_dir: Path | None = None) -> Mapping[str, Quota]:
    """Quotas by code. Raises InputError `bad_profile`."""
    roots = (user_dir, profiles_dir()) if user_dir is not None else (profiles_dir(),)
    table = Store(roots).json(_FILE).get("quotas")
    if not isinstance(table, dict):
        raise Where(_FILE).error("should have a table 'quotas'")
    return {code: _quota(code, raw) for code, raw in table.items()}


def _quota(code: str, raw: object) -> Quota:
    try:
        fields: dict[str, object] = dict(raw)  # type: ignore[call-overload]
        return Quota(
            code=code,
            name=str(fields["name"]),
            market=str(fields["market"]),
            types=tuple(fields["types"]),  # type: ignore[arg-type]
        )
    except (KeyError, TypeError, ValueError):
        raise Where(_FILE).child("quotas").child(code).error("should have name, market and types") from None
