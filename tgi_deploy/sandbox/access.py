"""Who is answered: the sandbox's owner, by the access key. No page in a browser, no other account of the computer.

RunInstances runs commands as the owner, and the log of calls and the parameters hold what the owner keeps secret.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.wire import error, json_answer

if TYPE_CHECKING:
    from tgi_deploy.sandbox.wire import Answer, Call

# A page whose name was made to lead to loopback (DNS rebinding) names itself here.
_OWN_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
_BEARER: Final = "Bearer "
_STRANGER: Final = "the sandbox lets in only the access key that 'tgi-deploy sandbox start' prints to its owner"


def refuse_page(call: Call) -> Answer | None:
    """Refuse what a page in a browser sends, whoever asks for it."""
    if not _OWN_HOST.fullmatch(call.headers.get("HTTP_HOST", "")):
        return json_answer({"error": "the sandbox answers at 127.0.0.1 and localhost alone"}, 421)
    if "HTTP_ORIGIN" in call.headers:
        return json_answer({"error": "the sandbox does not answer web pages"}, 403)
    return None


def refuse_control(call: Call, access_key: str) -> Answer | None:
    """Refuse a call of the control interface without the access key."""
    given = call.headers.get("HTTP_AUTHORIZATION", "")
    if given.startswith(_BEARER) and _is_same(given.removeprefix(_BEARER), access_key):
        return None
    return json_answer({"error": _STRANGER}, 401)


def reject_foreign(call: Call, access_key: str) -> Answer | None:
    """Refuse a call of AWS's that neither the owner nor a machine sends."""
    if _is_same(call.access_key, access_key) or api.machine_of(call.access_key, access_key) is not None:
        return None
    return error(call, "AuthFailure", _STRANGER, 401)


def _is_same(given: str, key: str) -> bool:
    """Compare in a time that does not depend on how much of a guess is right."""
    return hmac.compare_digest(given.encode(), key.encode())
