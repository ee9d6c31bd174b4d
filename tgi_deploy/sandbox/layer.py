"""Wraps moto: logs calls, injects faults and applies the rules that moto lacks; updates machines after each call.

Only the owner's access key is accepted, and no request from a web page, because RunInstances runs commands as the
owner, and the call log and the parameters contain secrets.
"""

from __future__ import annotations

import hmac
import io
import json
import re
import socket
import time
from collections import deque
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from moto.moto_api._internal.models import moto_api_backend
from msgspec import to_builtins
from werkzeug.test import run_wsgi_app

from tgi_deploy.sandbox import api, roles, rules, world
from tgi_deploy.sandbox.faults import CallFault, MachineFault, read_fault, send_signal
from tgi_deploy.sandbox.machines import find
from tgi_deploy.sandbox.sessions.service import Sessions
from tgi_deploy.sandbox.wire import (
    AMZ_JSON,
    Answer,
    Application,
    BadRequestError,
    Call,
    Environ,
    RefusedError,
    dropped,
    error,
    json_answer,
    read_call,
    read_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tgi_deploy.sandbox.machines import Machines, Settings
    from tgi_deploy.sandbox.sagemaker.hosting import Hosting

# With DNS rebinding, a page's own host name appears here.
_OWN_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
_BEARER: Final = "Bearer "
_STRANGER: Final = "the sandbox accepts only the access key that 'tgi-deploy sandbox start' prints"


def _refuse_page(call: Call) -> None:
    """Reject requests from web pages."""
    if not _OWN_HOST.fullmatch(call.headers.get("HTTP_HOST", "")):
        raise BadRequestError("the sandbox answers only at 127.0.0.1 and localhost", 421)
    if "HTTP_ORIGIN" in call.headers:
        raise BadRequestError("the sandbox does not answer web pages", 403)


def _is_same(given: str, key: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), key.encode())


_CONTROL: Final = "/_sandbox/"
_FAILED: Final = 500


class Layer:
    """A WSGI application. Everything except health requires the access key."""

    def __init__(self, moto: Application, machines: Machines, settings: Settings) -> None:
        self._moto = moto
        self._machines = machines
        self._settings = settings
        self._sessions = Sessions(machines.guest)
        self._calls: deque[dict[str, Any]] = deque(maxlen=10_000)
        roles.prepare_account()

    @cached_property
    def hosting(self) -> Hosting:
        """SageMaker's endpoints, simulated from the first call about them."""
        from tgi_deploy.sandbox.sagemaker.hosting import Hosting  # noqa: PLC0415 -- half a second that EC2 saves

        shared = self._settings
        home = shared.home / "machines" / "sagemaker"
        return Hosting(home=home, faults=shared.faults, speed=shared.speed, lock=shared.lock)

    def close(self) -> None:
        """End SageMaker's endpoints."""
        if "hosting" in self.__dict__:
            self.hosting.close()

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            answer = self._answer(environ, read_call(environ))
        except BadRequestError as problem:
            answer = json_answer({"error": str(problem)}, problem.status)
        if answer.drop:
            with suppress(OSError, KeyError):
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer(environ, start_response)

    def _answer(self, environ: Environ, call: Call) -> Answer:
        _refuse_page(call)
        if call.path.startswith(_CONTROL):
            return json_answer(self._control(call) or {})
        observer = _is_same(call.access_key, api.observer_key(self._settings.access_key))
        if not observer and not _is_same(call.access_key, self._settings.access_key):
            return error(call, "AuthFailure", _STRANGER, 401)
        if call.action and not observer:
            secret = {"Value": "***"} if call.action == "PutParameter" else {}
            record = {"time": time.time(), "service": call.service, "region": call.region, "action": call.action_name}
            self._calls.append({**record, "path": call.path, "params": {**call.params, **secret}})
        return self._aws(environ, call, None if observer else self._settings.faults.take_for_call(call))

    def _aws(self, environ: Environ, call: Call, fault: CallFault | None) -> Answer:
        if fault and fault.delay_s:
            time.sleep(fault.delay_s)
        if fault and fault.code and not fault.after:
            return error(call, fault.code, fault.message or fault.code, fault.status)
        if fault and fault.signal and not (fault.after or fault.replied):
            send_signal(call, fault.signal)
            if fault.signal == "KILL":
                return dropped()
        try:
            if call.action.startswith("InvokeEndpoint"):
                with self._settings.lock:
                    hosting = self.hosting
                answer = hosting.invoke(call)
            else:
                with self._settings.lock:
                    answer = self._carry_out(environ, call)
                    self._machines.sync()
        except RefusedError as refused:
            answer = error(call, refused.code, refused.message, refused.status)
        return _ended(call, answer, fault) if fault else answer

    def _carry_out(self, environ: Environ, call: Call) -> Answer:
        if call.service == "pricing":
            raise RefusedError("AccessDeniedException", "the sandbox has no price list")
        if call.action == "SimulatePrincipalPolicy":
            raise RefusedError("AccessDenied", "the sandbox does not simulate policies", 403)
        if call.service == "ec2" and not world.is_region(call.region):
            raise RefusedError("InvalidRegion", f"the region {call.region!r} does not exist")
        answer = self._sessions.answer(call)
        if answer is None and {"sagemaker", "application-autoscaling"} & {call.service, call.text("ServiceCode")}:
            answer = self.hosting.answer(call)
        if answer is None:
            answer = Answer(*run_wsgi_app(self._moto, environ | {"wsgi.input": io.BytesIO(call.body)}, buffered=True))
        if answer.status_code == _FAILED and "html" in str(answer.content_type):  # moto failed, and logs why
            return error(call, "InternalError", "An internal error has occurred", _FAILED)
        return answer

    def _control(self, call: Call) -> dict[str, Any] | None:
        """Answer a control call. Health is public; everything else requires the key."""
        what = call.path.removeprefix(_CONTROL).strip("/")
        given = call.headers.get("HTTP_AUTHORIZATION", "")
        is_owner = given.startswith(_BEARER) and _is_same(given.removeprefix(_BEARER), self._settings.access_key)
        if not is_owner and (call.method, what) != ("GET", "health"):
            raise BadRequestError(_STRANGER, 401)
        document, wanted = read_document(call.body), call.params.get("action")
        actions: Mapping[str, Callable[[], dict[str, Any] | None]] = {
            "GET health": lambda: {"status": "ok", **self._proof(call.params.get("challenge"))},
            "GET calls": lambda: {"calls": [one for one in list(self._calls) if wanted in {None, one["action"]}]},
            "DELETE calls": self._calls.clear,
            "GET faults": lambda: {"faults": to_builtins(self._settings.faults.pending())},
            "POST faults": lambda: self._add_fault(document),
            "DELETE faults": self._settings.faults.clear,
            "GET machines": lambda: {"machines": self._machines.listed()},
            "POST reset": self._reset,
            "POST shutdown": self._settings.shut_down,
        }
        action = actions.get(f"{call.method} {what}")
        if action is None:
            raise BadRequestError(f"no {call.method} {call.path}", 404)
        return action()

    def _proof(self, challenge: str | None) -> dict[str, Any]:
        """Prove possession of the key."""
        return {} if challenge is None else {"proof": api.proof(self._settings.access_key, challenge)}

    def _add_fault(self, document: dict[str, Any]) -> dict[str, Any]:
        """Inject a fault, or end a running machine by one."""
        instance_id = document.pop("instance_id", None)
        fault = read_fault(document)
        if instance_id is None:
            self._settings.faults.add(fault)
        elif isinstance(fault, MachineFault) and fault.reason:
            with self._settings.lock:
                find(str(instance_id)).machine.ends.append((time.monotonic() + fault.after_s, fault.reason))
        else:
            raise BadRequestError("this fault does not end a running machine")
        return {"fault": to_builtins(fault)}

    def _reset(self) -> None:
        """Reset to an empty account: end the machines, clear state, faults, tokens and calls."""
        with self._settings.lock:
            self._machines.clear()
            moto_api_backend.reset()
            roles.prepare_account()
            if "hosting" in self.__dict__:
                self.hosting.clear()
            rules.TOKENS.clear()
        self._settings.faults.clear()
        self._calls.clear()


def _ended(call: Call, answer: Answer, fault: CallFault) -> Answer:
    """Return the response, or drop it or signal the caller, after the call took effect."""
    if fault.vcpus is not None:
        document = json.loads(answer.get_data())
        for quota in document.get("Quotas") or [document["Quota"]]:
            quota["Value"] = fault.vcpus
        answer = json_answer(document, content_type=AMZ_JSON)
    if fault.signal and fault.replied:
        sent = Answer(answer.get_data(), answer.status, answer.headers)
        sent.call_on_close(lambda: send_signal(call, fault.signal))
        return sent
    if fault.signal and fault.after:
        send_signal(call, fault.signal)
    return dropped() if fault.after else answer
