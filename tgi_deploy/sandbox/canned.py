"""Responses missing in moto: public image parameters, vCPU quotas, the serial console, and that there are no prices."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from moto.core.models import DEFAULT_ACCOUNT_ID

from tgi_deploy.catalog.quotas import ADDRESSES, read_quotas
from tgi_deploy.sandbox import rules, world
from tgi_deploy.sandbox.wire import AMZ_JSON, Answer, Call, RefusedError, json_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONSOLE_BYTES: Final = 64 * 1024
# Four of the largest machines. The fault `low-quota` overrides it.
QUOTA_VCPUS: Final = 768.0
_QUOTAS: Final = cache(read_quotas)
_EPOCH: Final = 1792108800


def answer(call: Call, ask_moto: Callable[[Call], Answer], console: Callable[[str], bytes | None]) -> Answer | None:
    """Return None if moto's response suffices. `console` returns an instance's console, None for an unknown one."""
    if call.service == "ssm" and call.action == "GetParameter":
        return _get_parameter(call)
    if call.service == "ssm" and call.action == "GetParameters":
        return _get_parameters(call, ask_moto)
    if call.service == "servicequotas" and call.action == "GetServiceQuota":
        return _quota(call)
    if call.service == "ec2" and call.action == "GetConsoleOutput":
        text = console(call.text("InstanceId"))
        return None if text is None else _console(call, text)
    if call.service == "pricing":
        raise RefusedError("AccessDeniedException", "the sandbox has no price list")
    return None


def _parameter(region: str, name: str) -> Mapping[str, object]:
    return {
        "Name": name,
        "Type": "String",
        "Value": world.image_id(region, name),
        "Version": 1,
        "LastModifiedDate": _EPOCH,
        "ARN": f"arn:aws:ssm:{region}::parameter{name}",
        "DataType": "aws:ec2:image",
    }


def _get_parameter(call: Call) -> Answer | None:
    name = call.text("Name")
    if name not in world.IMAGES:
        return None
    return json_answer({"Parameter": _parameter(call.region, name)}, content_type=AMZ_JSON)


def _get_parameters(call: Call, ask_moto: Callable[[Call], Answer]) -> Answer:
    known = [name for name in call.params.get("Names", []) if name in world.IMAGES]
    reply = ask_moto(call)
    if not known or not reply.ok:
        return reply
    document = json.loads(reply.get_data())
    others = [one for one in document["Parameters"] if one["Name"] not in known]
    document["Parameters"] = [*others, *(_parameter(call.region, name) for name in known)]
    document["InvalidParameters"] = [name for name in document.get("InvalidParameters", []) if name not in known]
    return json_answer(document, content_type=AMZ_JSON)


def _quota(call: Call) -> Answer | None:
    """EC2's vCPU quotas of accelerated machines, and its quota of Elastic IP addresses."""
    code = call.text("QuotaCode")
    quota = _QUOTAS().get(code)
    name = "EC2-VPC Elastic IPs" if code == ADDRESSES else quota.name if quota else ""
    if call.text("ServiceCode") != "ec2" or not name:
        return None
    document = {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{call.region}:{DEFAULT_ACCOUNT_ID}:ec2/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": float(rules.MOST_ADDRESSES) if code == ADDRESSES else QUOTA_VCPUS,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
    return json_answer({"Quota": document}, content_type=AMZ_JSON)


def with_vcpus(answer: Answer, vcpus: float) -> Answer:
    """Return the quota response with another value."""
    document = json.loads(answer.get_data())
    for quota in document.get("Quotas") or [document["Quota"]]:
        quota["Value"] = vcpus
    return json_answer(document, content_type=AMZ_JSON)


def _console(call: Call, text: bytes) -> Answer:
    output = base64.b64encode(text[-CONSOLE_BYTES:]).decode()
    body = (
        '<GetConsoleOutputResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        "<requestId>sandbox</requestId>"
        f"<instanceId>{escape(call.text('InstanceId'))}</instanceId>"
        "<timestamp>2026-10-16T00:00:00.000Z</timestamp>"
        f"<output>{output}</output></GetConsoleOutputResponse>"
    )
    return Answer(body)
