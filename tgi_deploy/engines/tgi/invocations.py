"""TGI behind a service that forwards requests to one route, `/invocations`, which distinguishes them by their shape.

Source: the router of 3.3.6, `server.rs` and `sagemaker.rs`. There, native requests get the same answer as on `/`: a
list of one answer, which begins with the prompt unless `return_full_text` is false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.engines.openai import CHAT, COMPLETIONS
from tgi_deploy.engines.replies import OK, object_of
from tgi_deploy.engines.tgi.probes import GENERATE, STREAM
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from tgi_deploy.values.probing import HttpReply, ProbeRequest

_ROUTE: Final = "/invocations"
# The step whose answer may take longer than such a service waits for a whole one.
_LONG: Final = "longest"


def invocation(probe: ProbeRequest) -> ProbeRequest | None:
    """Return the request to that route that gets the same answer; None if it can't answer this one."""
    body = dict(probe.body or {})
    if probe.path in {CHAT, COMPLETIONS}:
        return replaced(probe, path=_ROUTE)
    if probe.path not in {GENERATE, STREAM}:
        return None
    streamed = probe.streamed or probe.step == _LONG
    body["parameters"] = {**body.get("parameters", {}), "return_full_text": False}
    return replaced(probe, path=_ROUTE, body={**body, "stream": streamed}, streamed=streamed)


def as_answered(probe: ProbeRequest, reply: HttpReply) -> HttpReply:
    """Return the reply to an invocation in the form of the probe's own route."""
    if probe.path != GENERATE or reply.status != OK:
        return reply
    if reply.events:
        return replaced(reply, body=_whole(object_of(reply.events[-1]), reply.events[-1]), events=())
    body = reply.body
    return replaced(reply, body=body[0]) if isinstance(body, list) and body else reply


def _whole(last: dict[str, Any], payload: str) -> object:
    """Return a whole answer from the last event of a stream, or the error in it."""
    if not isinstance(last.get("generated_text"), str):
        return {"error": payload}
    return {"generated_text": last["generated_text"], "details": last.get("details")}
