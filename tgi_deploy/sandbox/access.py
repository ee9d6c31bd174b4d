"""Access control: only the owner's access key is accepted; no web pages, no other accounts of the computer.

RunInstances runs commands as the owner, and the call log and the parameters hold the owner's secrets.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.wire import error, json_answer

if TYPE_CHECKING:
    from tgi_deploy.sandbox.wire import Answer, Call

# With DNS rebinding, a page's own host name appears here.
_OWN_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
_BEARER: Final = "Bearer "
_STRANGER: Final = "the sandbox accepts only the access key that 'tgi-deploy sandbox start' prints"


def refuse_page(call: Call) -> Answer | None:
    """Reject requests from web pages."""
    if not _OWN_HOST.fullmatch(call.headers.get("HTTP_HOST", "")):
        return json_answer({"error": "the sandbox answers only at 127.0.0.1 and localhost"}, 421)
    if "HTTP_ORIGIN" in call.headers:
        return json_answer({"error": "the sandbox does not answer web pages"}, 403)
    return None


def refuse_control(call: Call, access_key: str) -> Answer | None:
    """Reject a call of the control interface without the access key."""
    given = call.headers.get("HTTP_AUTHORIZATION", "")
    if given.startswith(_BEARER) and _is_same(given.removeprefix(_BEARER), access_key):
        return None
    return json_answer({"error": _STRANGER}, 401)


def reject_unsigned(call: Call, access_key: str) -> Answer | None:
    """Reject an AWS call that is neither the owner's nor a machine's."""
    if _is_same(call.access_key, access_key) or api.machine_of(call.access_key, access_key) is not None:
        return None
    return error(call, "AuthFailure", _STRANGER, 401)


def _is_same(given: str, key: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), key.encode())
