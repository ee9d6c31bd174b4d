"""Validates everything that goes into an artifact."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted
from tgi_deploy.values.names import check_name

if TYPE_CHECKING:
    from tgi_deploy.targets.protocol import Deployable

HUB_TOKEN: Final = "HF_TOKEN"  # noqa: S105 -- the variable's name, not a token

# YAML parsers reject keys of more than 1,024 characters; real names are a tenth of this.
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_PARAMETER: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]{0,1010}")
_IMAGE_ID: Final = re.compile(r"ami-[0-9a-f]{8,17}")
_INSTANCE_PROFILE: Final = re.compile(r"(arn:[a-z-]+:iam::[0-9]*:instance-profile/)?[A-Za-z0-9_+=,.@/-]{1,512}")
_COUNTER: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,200}")
_METRICS_PATH: Final = re.compile(r"/[A-Za-z0-9_./-]{0,200}")


def check(deployable: Deployable) -> None:
    """Check everything that goes into an artifact. Raises InputError."""
    check_name(deployable.name)
    for parameter in deployable.parameters:
        _check_grammar(_PARAMETER, parameter, "an SSM parameter")
    _check_grammar(_IMAGE_ID, deployable.image_id, "a machine image (ami-…)")
    _check_grammar(_INSTANCE_PROFILE, deployable.instance_profile, "an instance profile")
    _check_ends(deployable)
    local_path = deployable.model.model.local_path
    if local_path is not None:
        _check_printable(local_path, f"the model's path {quoted(local_path)}")
    _check_engine(deployable)


def check_single(deployable: Deployable, form: str) -> None:
    """Raise InputError `several_replicas` if the plan has more replicas than the one that a format describes."""
    replicas = deployable.candidate.replicas
    if replicas > 1:
        raise InputError(
            "several_replicas",
            f"the plan of '{deployable.name}' has {replicas} replicas, and {form} describes one",
            hint="add --replicas 1, or render a format that has replicas: kubernetes or sagemaker",
        )


def _check_ends(deployable: Deployable) -> None:
    ends = (("ttl", deployable.ttl_s), ("idle_timeout", deployable.idle_s), ("lease", deployable.lease_s))
    for name, seconds in ends:
        if seconds is not None and seconds <= 0:
            hint = f"use a --{name.replace('_', '-')} above 0"
            raise InputError("bad_option_value", f"a limit of {seconds} s is too short", hint=hint)
    engine, metrics = deployable.candidate.engine, deployable.candidate.engine.metrics
    if deployable.idle_s is not None and not (metrics.request_counters and metrics.path):
        raise InputError(
            "idle_timeout_unsupported",
            f"--idle-timeout: it is unknown how {engine.name} {engine.version} counts its requests",
            hint="omit --idle-timeout, or set metrics_path and request_counters in the release's profile",
        )
    for counter in metrics.request_counters:
        _check_grammar(_COUNTER, counter, "a counter")
    _check_grammar(_METRICS_PATH, metrics.path, "a metrics page")


def _check_grammar(grammar: re.Pattern[str], value: str | None, what: str) -> None:
    if value is not None and not grammar.fullmatch(value):
        raise InputError(
            "bad_option_value", f"{quoted(value)} is not a valid name for {what}", hint="correct it, or omit it"
        )


def _check_engine(deployable: Deployable) -> None:
    """Check arguments and variables: no quoting can pass a line break through an env file or a unit file."""
    container = deployable.candidate.engine.container
    for argument in (container.image.reference, *container.args):
        _check_printable(argument, f"the engine argument {quoted(argument)}")
    for name in (*dict(container.env), *(secret.variable for secret in container.secrets)):
        if not _ENV_NAME.fullmatch(name):
            raise InputError(
                "bad_env",
                f"{quoted(name)} is not a valid name for an environment variable",
                hint="use at most 255 letters, digits and underscores, not starting with a digit",
            )
    for name, value in container.env:
        _check_printable(value, f"the value of {name}")


def _check_printable(value: str, what: str) -> None:
    if not value.isprintable():
        raise InputError(
            "bad_option_value",
            f"{what} contains a line break or another control character",
            hint="remove the character: it can't be passed to the engine",
        )
