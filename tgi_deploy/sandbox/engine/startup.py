"""From the command line to the moment the router may bind its socket."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.engine.checkpoint import find_checkpoint
from tgi_deploy.sandbox.engine.cpu import warn_of_driver
from tgi_deploy.sandbox.engine.download import check_access, deny_unknown, download
from tgi_deploy.sandbox.engine.host import devices_found
from tgi_deploy.sandbox.engine.shards import load_shards
from tgi_deploy.sandbox.engine.situation import Situation
from tgi_deploy.sandbox.engine.validation import resolve_shards, validate
from tgi_deploy.sandbox.engine.warmup import DEFAULT_GRAPHS, start_router, warm_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.sandbox.engine.arguments import Arguments
    from tgi_deploy.sandbox.engine.checkpoint import Models
    from tgi_deploy.sandbox.engine.faults import Fault
    from tgi_deploy.sandbox.engine.host import Host
    from tgi_deploy.sandbox.engine.situation import Stage
    from tgi_deploy.sandbox.engine.warmup import TokenLimits

_ARGUMENTS_S: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """One container as it is started: image (release), machine, environment, what shall go wrong."""

    release: TgiRelease
    host: Host
    environ: Mapping[str, str]
    faults: frozenset[Fault]
    models: Models


def start(container: Container, arguments: Arguments, stage: Stage) -> tuple[Situation, TokenLimits]:
    """Run every phase before the socket.

    Raises:
        LauncherError: when the launcher, a shard or the router gives up.
        StoppedError: when asked to stop meanwhile.
    """
    stage.log.launcher(arguments.debug())
    _mention_hostname(arguments, stage)
    stage.pace.pause(_ARGUMENTS_S)
    validate(arguments)
    shards = resolve_shards(arguments, devices_found(container.environ, container.host, container.release))
    model_id = arguments.text("model-id") or ""
    checkpoint = find_checkpoint(container.models, container.release, model_id)
    if checkpoint is None:
        deny_unknown(model_id, stage)
    situation = Situation(
        arguments=arguments,
        environ=container.environ,
        release=container.release,
        host=container.host,
        num_shard=shards,
        checkpoint=checkpoint,
        faults=container.faults,
    )
    _announce_plan(situation, stage)
    check_access(situation, stage)
    download(situation, stage)
    load_shards(situation, stage)
    limits = warm_up(situation, stage)
    start_router(situation, stage)
    return situation, limits


def _mention_hostname(arguments: Arguments, stage: Stage) -> None:
    """Docker sets HOSTNAME to the container's name, which is also the variable of `--hostname`."""
    try:
        ipaddress.ip_address(arguments.text("hostname") or "0.0.0.0")  # noqa: S104 -- the launcher's default
    except ValueError:
        stage.log.router("Invalid hostname, defaulting to 0.0.0.0", level="WARN")


def _announce_plan(situation: Situation, stage: Stage) -> None:
    arguments, log = situation.arguments, stage.log
    warn_of_driver(situation, stage)
    if situation.release.default_attention:
        caching = str(situation.attention != "paged").lower()
        log.launcher(f"Using attention {situation.attention} - Prefix caching {caching}")
    if arguments.number("max-batch-prefill-tokens") is None:
        log.launcher(f"Default `max_batch_prefill_tokens` to {situation.prefill_tokens}")
    if arguments.values.get("cuda-graphs") is None:
        log.launcher(f"Using default cuda graphs {list(DEFAULT_GRAPHS)}")
    if situation.num_shard > 1:
        log.launcher(f"Sharding model on {situation.num_shard} processes")
