"""Startup, from the command line until the router may bind its socket."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.checkpoint import find_checkpoint
from tgi_deploy.sandbox.engine.cpu import warn_of_driver
from tgi_deploy.sandbox.engine.download import check_access, deny_unknown, download
from tgi_deploy.sandbox.engine.host import devices_found
from tgi_deploy.sandbox.engine.prefill import FALLBACK
from tgi_deploy.sandbox.engine.shards import load_shards
from tgi_deploy.sandbox.engine.situation import Situation
from tgi_deploy.sandbox.engine.validation import resolve_shards, validate, validate_adapters
from tgi_deploy.sandbox.engine.warmup import DEFAULT_GRAPHS, start_router, warm_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.sandbox.engine.arguments import Arguments
    from tgi_deploy.sandbox.engine.checkpoint import Checkpoint, Models
    from tgi_deploy.sandbox.engine.faults import Fault
    from tgi_deploy.sandbox.engine.host import Host
    from tgi_deploy.sandbox.engine.situation import Stage
    from tgi_deploy.sandbox.engine.warmup import TokenLimits

_ARGUMENTS_S: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """A container to start: image (release), machine, environment, faults."""

    release: TgiRelease
    host: Host
    environ: Mapping[str, str]
    faults: frozenset[Fault]
    models: Models


def start(container: Container, arguments: Arguments, stage: Stage) -> tuple[Situation, TokenLimits]:
    """Run every phase before the socket.

    Raises:
        LauncherError: if the launcher, a shard or the router fails.
        StoppedError: on a stop signal.
    """
    stage.log.launcher(arguments.debug())
    _mention_hostname(arguments, stage)
    stage.pace.pause(_ARGUMENTS_S)
    warn_of_driver(container.host, container.release, stage)
    model_id = arguments.text("model-id") or ""
    checkpoint = find_checkpoint(container.models, container.release, model_id)
    if checkpoint is not None:
        _announce_attention(container, arguments, checkpoint, stage)
    shards = resolve_shards(arguments, devices_found(container.environ, container.host, container.release))
    if checkpoint is None:
        _deny(container, arguments, model_id, stage)
    situation = _situation(container, arguments, checkpoint, shards)
    _announce_plan(situation, stage)
    validate(arguments)
    check_access(situation, stage)
    download(situation, stage)
    validate_adapters(arguments)
    load_shards(situation, stage)
    limits = warm_up(situation, stage)
    start_router(situation, stage)
    return situation, limits


def _situation(container: Container, arguments: Arguments, checkpoint: Checkpoint, shards: int) -> Situation:
    return Situation(
        arguments=arguments,
        environ=container.environ,
        release=container.release,
        host=container.host,
        num_shard=shards,
        checkpoint=checkpoint,
        faults=container.faults,
    )


def _announce_attention(container: Container, arguments: Arguments, checkpoint: Checkpoint, stage: Stage) -> None:
    """Choose the kernels like the launcher, before the number of shards is known."""
    situation = _situation(container, arguments, checkpoint, 1)
    if not situation.release.default_attention:
        return
    paged = situation.attention == "paged"
    if paged and "ATTENTION" not in situation.environ:
        reason = "head dim is not supported by flashinfer"
        stage.log.launcher(f"Forcing attention to 'paged' because {reason}, also disabling prefix caching")
    caching = "0" if paged else "true"
    stage.log.launcher(f"Using attention {situation.attention} - Prefix caching {caching}")


def _mention_hostname(arguments: Arguments, stage: Stage) -> None:
    """Log the launcher's warning: Docker sets HOSTNAME, the variable of `--hostname`, to the container's name."""
    try:
        ipaddress.ip_address(arguments.text("hostname") or "0.0.0.0")  # noqa: S104 -- the launcher's default
    except ValueError:
        stage.log.router("Invalid hostname, defaulting to 0.0.0.0", level="WARN")


def _deny(container: Container, arguments: Arguments, model_id: str, stage: Stage) -> NoReturn:
    """Return the launcher's assumptions for a model of unknown shape."""
    if container.release.default_attention:
        stage.log.launcher(f"Using attention {container.release.default_attention} - Prefix caching true")
    if arguments.number("max-batch-prefill-tokens") is None:
        stage.log.launcher(f"Default `max_batch_prefill_tokens` to {FALLBACK}")
    if arguments.values.get("cuda-graphs") is None:
        stage.log.launcher(f"Using default cuda graphs {list(DEFAULT_GRAPHS)}")
    validate(arguments)
    deny_unknown(model_id, stage)


def _announce_plan(situation: Situation, stage: Stage) -> None:
    arguments, log = situation.arguments, stage.log
    if situation.num_shard > 1:
        log.launcher(f"Sharding model on {situation.num_shard} processes")
    if arguments.number("max-batch-prefill-tokens") is None:
        log.launcher(f"Default `max_batch_prefill_tokens` to {situation.prefill_tokens}")
    if arguments.values.get("cuda-graphs") is None:
        log.launcher(f"Using default cuda graphs {list(DEFAULT_GRAPHS)}")
