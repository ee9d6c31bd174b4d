"""Options of `up` for SageMaker only."""

from __future__ import annotations

import re
from typing import Annotated, Final

from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted
from tgi_deploy.values.base import Value
from tgi_deploy.values.options import EVERYWHERE, HubTokenFromEnv, flag_of, option

NAME: Final = "sagemaker"
_WITH_DOCTOR: Final = (*EVERYWHERE, "doctor")
# An ARN of a role, as CreateModel takes it (botocore, `RoleArn`).
_ROLE: Final = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,1024}")
# `S3ModelUri` (botocore) in the form that a folder of weights needs.
_WEIGHTS: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[A-Za-z0-9!_.*'()/-]{1,900}/")


class SageMakerOptions(Value, frozen=True, kw_only=True):
    """Raises InputError `bad_option_value` for what AWS would not take, `conflicting_options` for two roles."""

    role: Annotated[
        str | None, option("SageMaker: role that the endpoint has, by its ARN.", "ARN", commands=_WITH_DOCTOR)
    ] = None
    create_role: Annotated[
        bool, option("SageMaker: create that role, with the least permissions.", commands=_WITH_DOCTOR)
    ] = False
    weights: Annotated[
        str | None,
        option(
            "SageMaker: folder with the weights, in the region.  [default: the hub]",
            "s3://BUCKET/FOLDER/",
            commands=_WITH_DOCTOR,
        ),
    ] = None
    hub_token_from_env: HubTokenFromEnv = False

    def __post_init__(self) -> None:
        for name, grammar, hint in (
            ("role", _ROLE, "'aws iam list-roles' prints them: arn:aws:iam::ACCOUNT:role/NAME"),
            ("weights", _WEIGHTS, "name a folder, with a slash at its end: s3://BUCKET/FOLDER/"),
        ):
            value = getattr(self, name)
            if value is not None and not grammar.fullmatch(value):
                raise InputError("bad_option_value", f"{flag_of(name)} {quoted(value)} is not valid", hint=hint)
        if self.role is not None and self.create_role:
            raise InputError(
                "conflicting_options", "--role and --create-role exclude each other", hint="leave out one of them"
            )
        if self.weights is not None and self.hub_token_from_env:
            raise InputError(
                "conflicting_options",
                "--hub-token-from-env is for weights from the hub, and --weights names a folder in S3",
                hint="leave out one of them",
            )
