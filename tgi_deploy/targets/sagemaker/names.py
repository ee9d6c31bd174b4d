"""Names in SageMaker. A model and an endpoint configuration can't be changed, so their names have the revision.

A place is `sagemaker:REGION`.
"""

from __future__ import annotations

from typing import Final

from tgi_deploy.targets.sagemaker.options import NAME

PREFIX: Final = "tgi-deploy-"
VARIANT: Final = "engine"


def place_of(region: str) -> str:
    return f"{NAME}:{region}"


def region_of(place: str) -> str:
    return place.partition(":")[2]


def endpoint_name(deployment: str) -> str:
    """Return the endpoint's name, unique in a region and account, which reserves the deployment's name.

    At most 51 characters of the 63 that AWS allows.
    """
    return f"{PREFIX}{deployment}"


def revision_name(deployment: str, revision: int) -> str:
    """Return the name of a revision's model and of its endpoint configuration."""
    return f"{endpoint_name(deployment)}-r{revision}"


def log_group(deployment: str) -> str:
    """Return the log group that SageMaker writes the container's output to."""
    return log_group_of(endpoint_name(deployment))


def log_group_of(endpoint: str) -> str:
    return f"/aws/sagemaker/Endpoints/{endpoint}"


def endpoint_of(revision: str) -> str:
    """Return the endpoint's name, from the name of a revision's model or configuration; other names are unchanged."""
    return revision.rpartition("-r")[0] if number_of(revision) else revision


def number_of(revision: str) -> int:
    """Return the number of the revision in a name; 0 if it has none."""
    number = revision.rpartition("-r")[2]
    return int(number) if number.isascii() and number.isdecimal() else 0
