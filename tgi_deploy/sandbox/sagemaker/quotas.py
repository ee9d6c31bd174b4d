"""SageMaker's quotas "for endpoint usage", one for each instance type. Their codes are made up."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID

from tgi_deploy.sandbox.sagemaker.rules import instance_types
from tgi_deploy.sandbox.wire import AMZ_JSON, Answer, Call, RefusedError, json_answer

INSTANCES: Final = 8
_PAGE: Final = 100
# As bug reports quote it.
_EXCEEDED: Final = (
    "The account-level service limit '{kind} for endpoint usage' is {most} Instances, with current utilization of "
    "{used} Instances and a request delta of {more} Instances. Please use AWS Service Quotas to request an increase "
    "for this quota. If AWS Service Quotas is not available, contact AWS support to request an increase for this quota."
)


def refuse(kind: str, used: int, more: int) -> None:
    """Raise RefusedError for more instances than the account may have."""
    if more > 0 and used + more > INSTANCES:
        message = _EXCEEDED.format(kind=kind, most=INSTANCES, used=used, more=more)
        raise RefusedError("ResourceLimitExceeded", message)


def answer(call: Call) -> Answer | None:
    """Answer a call of Service Quotas about them; None for what it does not know."""
    every = [_quota(call.region, kind) for kind in instance_types()]
    if call.action != "ListServiceQuotas":
        return None
    start, size = int(call.params.get("NextToken", 0)), int(call.params.get("MaxResults", _PAGE))
    page: dict[str, Any] = {"Quotas": every[start : start + size]}
    if start + size < len(every):
        page["NextToken"] = str(start + size)
    return json_answer(page, content_type=AMZ_JSON)


def _quota(region: str, kind: str) -> dict[str, Any]:
    code = f"L-{sha256(kind.encode()).hexdigest()[:8].upper()}"
    return {
        "ServiceCode": "sagemaker",
        "ServiceName": "Amazon SageMaker",
        "QuotaArn": f"arn:aws:servicequotas:{region}:{DEFAULT_ACCOUNT_ID}:sagemaker/{code}",
        "QuotaCode": code,
        "QuotaName": f"{kind} for endpoint usage",
        "Value": float(INSTANCES),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
