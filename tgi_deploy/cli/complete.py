"""Shell completion of values from the catalog. Silent if the catalog can't be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click
    from click.shell_completion import CompletionItem

    from tgi_deploy.catalog.catalog import Catalog

    Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def words(*values: str) -> Completer:
    def offer(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return offer


def _from_catalog(read: Callable[[Catalog], Iterable[str]]) -> Completer:
    def offer(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from tgi_deploy.wiring import open_catalog  # noqa: PLC0415 -- only completion reads it here

        try:
            values = read(open_catalog(ctx.params.get("profiles_dir")))
        except (DeployError, OSError):
            return []
        return [value for value in values if value.lower().startswith(incomplete.lower())]

    return offer


def deployments(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete deployments recorded here, after `--sandbox` those of the sandbox."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- only completion reads it here

    try:
        names = wiring.recorded_names(sandbox=bool(ctx.params.get("sandbox")))
    except (DeployError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def deployments_or_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
    """Complete recorded deployments, else files."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 -- only completion pays for it

    return [*deployments(ctx, param, incomplete)] or [CompletionItem(incomplete, type="file")]


def deployments_or_models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [*deployments(ctx, param, incomplete), *models(ctx, param, incomplete)]


def codes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Whatever `explain` explains."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- only completion reads it here
    from tgi_deploy.operations.watching.explain import all_codes  # noqa: PLC0415 -- startup time

    try:
        return [item.code for item in all_codes(wiring.engine_named().name) if item.code.startswith(incomplete)]
    except DeployError:
        return []


def hardware(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`2xRTX` completes to `2xRTX-4090`, …; a bare name gets a count of 1."""
    count, times, start = incomplete.partition("x")
    prefix, start = (f"{count}x", start) if times and count.isdigit() else ("1x", incomplete)
    return [f"{prefix}{name}" for name in accelerators(ctx, _param, start)]


models = _from_catalog(lambda catalog: (*catalog.profile_names(), *catalog.hub_ids()))
instance_types = _from_catalog(lambda catalog: catalog.instance_types())
accelerators = _from_catalog(lambda catalog: catalog.accelerators())
regions = _from_catalog(lambda catalog: ("all", *catalog.regions()))
engine_versions = _from_catalog(lambda catalog: catalog.release_versions())
entries = _from_catalog(
    lambda catalog: (
        *catalog.accelerators(),
        *catalog.instance_types(),
        *catalog.release_versions(),
        *catalog.profile_names(),
        *catalog.hub_ids(),
    )
)
_KINDS = ("accelerators", "instances", "regions", "engines", "models")
kinds_or_hardware = _from_catalog(
    lambda catalog: (*_KINDS, *catalog.accelerators(), *catalog.instance_types()),
)
