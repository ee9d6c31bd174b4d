"""Shell completion of values from the catalog. Silent if the catalog can't be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError

if TYPE_CHECKING:
    from collections.abc import Callable

    import click
    from click.shell_completion import CompletionItem

    from tgi_deploy.api import NameKind

    Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def words(*values: str) -> Completer:
    def offer(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return offer


def _names(*kinds: NameKind) -> Completer:
    """Complete the names of these kinds. Deployments are those recorded here or, after `--sandbox`, in the sandbox."""

    def offer(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from tgi_deploy.api import Client  # noqa: PLC0415 -- needed only for completion

        given = ctx.params
        client = Client(profiles_dir=given.get("profiles_dir"), sandbox=bool(given.get("sandbox")))
        try:
            names = [name for kind in kinds for name in client.names(kind)]
        except (DeployError, OSError):
            return []
        return [name for name in names if name.lower().startswith(incomplete.lower())]

    return offer


def _with(*fixed: str, names: Completer) -> Completer:
    return lambda ctx, param, incomplete: [*words(*fixed)(ctx, param, incomplete), *names(ctx, param, incomplete)]


def deployments_or_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
    """Complete recorded deployments, else files."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 -- needed only for completion

    return [*deployments(ctx, param, incomplete)] or [CompletionItem(incomplete, type="file")]


def hardware(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `2xRTX` to `2xRTX-4090` and so on; a bare name gets a count of 1."""
    count, times, start = incomplete.partition("x")
    prefix, start = (f"{count}x", start) if times and count.isdigit() else ("1x", incomplete)
    return [f"{prefix}{name}" for name in accelerators(ctx, _param, start)]


deployments = _names("deployments")
deployments_or_models = _names("deployments", "models")
codes = _names("codes")
models = _names("models")
instance_types = _names("instances")
accelerators = _names("accelerators")
regions = _with("all", names=_names("regions"))
engine_versions = _names("engines")
entries = _names("accelerators", "instances", "engines", "models")
kinds_or_hardware = _with(
    "accelerators", "instances", "regions", "engines", "models", names=_names("accelerators", "instances")
)
