"""TGI's container, with explicit limits and only flags of the exact release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.engines.tgi.kernels import ATTENTION_VARIABLE, PADDED, attention_for
from tgi_deploy.values.base import UNSET, replaced
from tgi_deploy.values.container import Container, Health, Image, Mount, Redaction, Restart, SecretRef, Stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.values.engine import EngineSettings, Fit, Pins

PORT: Final = 80  # the image sets PORT=80
CACHE_PATH: Final = "/data"
HUB_TOKEN: Final = "HF_TOKEN"  # noqa: S105 -- the variable's name, not a token
SHM_BYTES: Final = 1024**3  # Docker's 64 MB is too small for NCCL; 1 GiB is enough
_GLOB_CHARACTERS: Final = "*?["
HEALTH: Final = Health(path="/health", every_s=20, failures=5, refuses_while_starting=True)
_RESTART: Final = Restart(policy="on-failure", never_after=(2,), most=3)
_DRAIN_FLAG: Final = "--graceful-termination-timeout"
_STOP: Final = Stop(signal="SIGTERM", grace_s=120, accepts_while_draining=False)  # by default it drains for up to 90 s
# The launcher logs all arguments at startup, and its parser quotes invalid ones. The router logs the parameters of each
# request in 900 bytes: 70 requests would push the start out of the 64 KiB that a console keeps.
REDACTIONS: Final = (
    Redaction(text="GenerateParameters {"),
    Redaction(text="Args {", closed_by="}"),
    *(Redaction(text=name) for name in ("api_key", "api-key", "ngrok_authtoken", "ngrok-authtoken")),
)


def container(fit: Fit, release: TgiRelease) -> Container:
    """Return the container of a configuration: settings by meaning, then the user's flags."""
    pins, release = fit.case.pins, release.on(fit.case.hardware.accelerator)
    by_env = {name: value for name, value in pins.flags.items() if _split_by_entry_point(value)}
    from_flags = {release.flags[name].env or name: value for name, value in by_env.items()}
    env = {**release.cache_env, **_kernel_env(fit, release), **pins.env, **from_flags}
    args = (*_setting_args(release, fit, pins.flags), *_pin_args(release, pins.flags, by_env))
    if fit.case.variables_only:
        env, args = env | dict(_as_variables(release, args)), ()
    return Container(
        image=Image(reference=release.image, bytes=release.image_bytes, needs_root=release.needs_root or UNSET),
        args=args,
        env=tuple(sorted(env.items())),
        secrets=(SecretRef(variable=HUB_TOKEN),) if fit.case.model.gated else (),
        port=PORT,
        accelerators=fit.settings.num_shard,
        shm_bytes=SHM_BYTES if fit.settings.num_shard > 1 else 0,
        mounts=(Mount(path=CACHE_PATH, purpose="weights", layout=cache_layout(release)),),
        health=HEALTH,
        restart=_RESTART,
        stop=_stop(release, pins),
        redactions=REDACTIONS,
        host=release.host,
    )


def _stop(release: TgiRelease, pins: Pins) -> Stop:
    """Return how to stop it. A target may let it drain for longer, unless the user has set the time."""
    flag = release.flags.get(_DRAIN_FLAG)
    if flag is None or flag.env is None:
        return _STOP
    pinned = pins.flags.get(_DRAIN_FLAG, pins.env.get(flag.env))
    if pinned is None:
        return replaced(_STOP, drain_variable=flag.env)
    return replaced(_STOP, drain_s=int(pinned)) if pinned.isascii() and pinned.isdecimal() else _STOP


def _as_variables(release: TgiRelease, args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the variables with the meaning of these arguments."""
    rest = iter(args)
    for name in rest:
        flag = release.flags[name]
        yield flag.env or name, "true" if flag.switch else next(rest)


def cache_layout(release: TgiRelease) -> str:
    """Return the layout of the cache, named after the variable by which releases differ."""
    pointing = sorted(name for name, value in release.cache_env.items() if value == CACHE_PATH)
    return pointing[0] if pointing else ""


def _kernel_env(fit: Fit, release: TgiRelease) -> Mapping[str, str]:
    """Select the plan's attention kernels, if the release has a variable for that."""
    model_class = release.model_classes.get(fit.case.model.model_type)
    rule = release.architecture_rule(fit.case.hardware.accelerator.compute_capability)
    if model_class is None or rule is None:
        return {}
    attention = attention_for(fit.case.model, model_class, release, rule)
    chosen = {ATTENTION_VARIABLE: attention} if release.default_attention and attention != PADDED else {}
    return {**chosen, **rule.env}


def _setting_args(release: TgiRelease, fit: Fit, pins: Mapping[str, str]) -> Iterator[str]:
    batches = _fixed_batches(fit) if release.fixed_batches else ()
    for names, value in (*_wanted(fit.settings), *batches):
        name = next((name for name in names if name in release.flags), None)
        if value is not None and name is not None and not any(known in pins for known in names):
            yield name
            yield value


def _wanted(settings: EngineSettings) -> Iterator[tuple[tuple[str, ...], str | None]]:
    """Yield the settings: the flag's names, newest first, and the value (None: omit it)."""
    yield ("--model-id",), settings.model_id
    yield ("--revision",), settings.revision
    yield ("--num-shard",), str(settings.num_shard)
    yield ("--quantize",), settings.quantize
    yield ("--dtype",), settings.dtype
    yield ("--max-input-tokens", "--max-input-length"), str(settings.max_input_tokens)
    yield ("--max-total-tokens",), str(settings.max_total_tokens)
    yield ("--max-batch-prefill-tokens",), str(settings.max_batch_prefill_tokens)
    yield ("--max-batch-total-tokens",), str(settings.max_batch_total_tokens)
    yield ("--max-concurrent-requests",), str(settings.max_concurrent_requests)
    yield ("--cuda-graphs",), ",".join(map(str, settings.cuda_graphs))
    yield ("--usage-stats",), "off"


def _fixed_batches(fit: Fit) -> Iterator[tuple[tuple[str, ...], str | None]]:
    """Set Gaudi's flags: its image compiles for one batch size and needs an explicit `--sharded`."""
    yield ("--max-batch-size",), str(fit.case.load.concurrency)
    yield ("--sharded",), "true" if fit.settings.num_shard > 1 else None


def _split_by_entry_point(value: str) -> bool:
    """Return whether a value must be a variable: the image's entry point forwards arguments unquoted."""
    return any(char.isspace() or char in _GLOB_CHARACTERS for char in value)


def _pin_args(release: TgiRelease, pins: Mapping[str, str], by_env: Mapping[str, str]) -> Iterator[str]:
    for name, value in sorted(pins.items()):
        if name in by_env:
            continue
        if not release.flags[name].switch:
            yield name
            yield value
        elif value == "true":
            yield name
