"""What was found, by the deployment that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.reconcile.model import TAG_NAME

if TYPE_CHECKING:
    from tgi_deploy.reconcile.model import Found


def by_name(found: tuple[Found, ...]) -> dict[str, tuple[Found, ...]]:
    names: dict[str, list[Found]] = {}
    for item in found:
        if TAG_NAME in item.tags:
            names.setdefault(item.tags[TAG_NAME], []).append(item)
    return {name: tuple(items) for name, items in names.items()}
