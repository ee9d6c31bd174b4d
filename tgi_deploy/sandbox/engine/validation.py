"""The launcher's checks before downloading anything, and its number of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.sandbox.engine.failures import ArgumentValidationError, LauncherError, PanicError

if TYPE_CHECKING:
    from tgi_deploy.sandbox.engine.flags import Arguments


def validate(arguments: Arguments) -> None:
    """Apply the launcher's rules for values.

    Raises:
        ArgumentValidationError: with the launcher's message.
    """
    _validate_token_limits(arguments)
    if arguments.number("validation-workers") == 0:
        raise ArgumentValidationError("`validation_workers` must be > 0")


def _validate_token_limits(arguments: Arguments) -> None:
    if {"max-input-tokens", "max-input-length"} <= arguments.given:
        raise ArgumentValidationError(
            f"Both `max_input_tokens` ({arguments.number('max-input-tokens')}) and `max_input_length` "
            f"({arguments.number('max-input-length')}) are set. Please define only `max_input_tokens` as "
            "`max_input_length is deprecated for naming consistency."
        )
    given_input, total = input_limit(arguments), arguments.number("max-total-tokens")
    if given_input is not None and total is not None and given_input >= total:
        problem = f"`max_input_tokens`({given_input}) must be < `max_total_tokens`({total})"
        raise ArgumentValidationError(problem)
    batch_total = arguments.number("max-batch-total-tokens")
    if batch_total is not None and total is not None and total > batch_total:
        raise ArgumentValidationError(
            f"`max_total_tokens` must be <= `max_batch_total_tokens`. Given: {total} and {batch_total}"
        )


def validate_adapters(arguments: Arguments) -> None:
    """Check the form of adapters, which happens after the download.

    Raises:
        ArgumentValidationError: with the launcher's message.
    """
    for adapter in (arguments.text("lora-adapters") or "").split(","):
        if adapter.count("@") > 1:
            raise ArgumentValidationError(f"Invalid LoRA adapter format: {adapter}")


def input_limit(arguments: Arguments) -> int | None:
    limit = arguments.number("max-input-tokens")
    return arguments.number("max-input-length") if limit is None else limit


def resolve_shards(arguments: Arguments, devices: int | None) -> int:
    """Return how many processes the launcher starts. `--sharded false --num-shard n` is n, despite the help text.

    Raises:
        LauncherError: `NotEnoughCUDADevices` or `ArgumentValidation`.
        PanicError: with neither a number nor a variable that names devices.
    """
    wanted = arguments.number("num-shard")
    count = _shards_if_sharded(wanted, devices) if arguments.sharded() else _shards(arguments, wanted, devices)
    if count < 1:
        raise ArgumentValidationError("`num_shard` cannot be < 1")
    if count > 1 and arguments.text("quantize") == "exl2":
        raise ArgumentValidationError("Sharding is currently not supported with `exl2` quantization")
    return count


def _shards_if_sharded(wanted: int | None, devices: int | None) -> int:
    if wanted is not None:
        if wanted <= 1:
            raise ArgumentValidationError("`sharded` is true but `num_shard` <= 1")
        return wanted
    if devices is None:
        raise PanicError(
            "thread 'main' panicked at launcher/src/main.rs:\n"
            "--num-shard and CUDA_VISIBLE_DEVICES/NVIDIA_VISIBLE_DEVICES/ZE_AFFINITY_MASK are not set"
        )
    if devices <= 1:
        raise LauncherError(f'NotEnoughCUDADevices("`sharded` is true but only found {devices} CUDA devices")')
    return devices


def _shards(arguments: Arguments, wanted: int | None, devices: int | None) -> int:
    if wanted is not None:
        return wanted
    return 1 if arguments.sharded() is False else devices or 1
