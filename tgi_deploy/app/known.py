"""Which deployments there are: recorded ones, and those that only the cloud's tags know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.reconcile.model import TAG_NAME

if TYPE_CHECKING:
    from tgi_deploy.app.context import Context
    from tgi_deploy.reconcile.model import Found


def known_names(context: Context) -> tuple[str, ...]:
    """Every name, sorted. Raises what the cloud raises: a list that may lack something is no list."""
    return tuple(sorted({*context.store.names(), *by_name(find_all(context))}))


def find_all(context: Context) -> tuple[Found, ...]:
    """Everything this tool has made in the regions at hand."""
    return tuple(found for region in context.regions for found in context.cloud(region).find({}))


def by_name(found: tuple[Found, ...]) -> dict[str, tuple[Found, ...]]:
    names: dict[str, list[Found]] = {}
    for item in found:
        if TAG_NAME in item.tags:
            names.setdefault(item.tags[TAG_NAME], []).append(item)
    return {name: tuple(items) for name, items in names.items()}
