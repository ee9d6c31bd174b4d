"""The layer around moto: log, faults, tokens, rules before it; machines synchronized after it.

Only the owner's access key is accepted; no web pages, no other accounts of the computer: RunInstances runs commands as
the owner, and the call log and the parameters hold the owner's secrets.
"""

from __future__ import annotations

import hmac
import json
import re
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from tgi_deploy.sandbox import api, roles, rules, schedules
from tgi_deploy.sandbox.faults import (
    BadFaultError,
    CallFault,
    Fault,
    FaultTable,
    MachineFault,
    read_fault,
    send_signal,
)
from tgi_deploy.sandbox.sessions.service import Sessions
from tgi_deploy.sandbox.tokens import TokenMemory
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
    forward,
    json_answer,
    read_call,
    read_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tgi_deploy.sandbox.machines import Machines
    from tgi_deploy.sandbox.sagemaker.hosting import Hosting

# With DNS rebinding, a page's own host name appears here.
_OWN_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
_BEARER: Final = "Bearer "
_STRANGER: Final = "the sandbox accepts only the access key that 'tgi-deploy sandbox start' prints"


def _refuse_page(call: Call) -> Answer | None:
    """Reject requests from web pages."""
    if not _OWN_HOST.fullmatch(call.headers.get("HTTP_HOST", "")):
        return json_answer({"error": "the sandbox answers only at 127.0.0.1 and localhost"}, 421)
    if "HTTP_ORIGIN" in call.headers:
        return json_answer({"error": "the sandbox does not answer web pages"}, 403)
    return None


def _is_same(given: str, key: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), key.encode())


_KEPT_CALLS: Final = 10_000
_CONTROL: Final = "/_sandbox/"
_SECRET: Final = frozenset({"Value"})  # of PutParameter
_HIDDEN: Final = "***"
_FAILED: Final = 500
_REFUSALS: Final = {"ec2": rules.refuse, "iam": roles.refuse_role}
_HOSTED: Final = frozenset({"sagemaker", "application-autoscaling"})
_POWER: Final = frozenset({"poweroff", "reboot"})


class Layer:
    """A WSGI application. `shut_down` ends the server. Everything except health requires `access_key`."""

    def __init__(
        self,
        moto: Application,
        machines: Machines,
        *,
        faults: FaultTable,
        lock: threading.RLock,
        access_key: str,
        home: Path,
        speed: float,
    ) -> None:
        self.shut_down: Callable[[], None] = lambda: None
        self._moto = moto
        self._machines = machines
        self._faults = faults
        self._lock = lock
        self._access_key = access_key
        self._home = home
        self._speed = speed
        self._tokens = TokenMemory()
        self._sessions = Sessions(machines.guest)
        roles.prepare_account()
        self._calls: deque[dict[str, Any]] = deque(maxlen=_KEPT_CALLS)

    @cached_property
    def hosting(self) -> Hosting:
        """SageMaker's endpoints, from the first call about them."""
        from tgi_deploy.sandbox.sagemaker.hosting import Hosting  # noqa: PLC0415 -- half a second that EC2 needs not

        home = self._home / "machines" / "sagemaker"
        return Hosting(home=home, faults=self._faults, speed=self._speed, lock=self._lock)

    def close(self) -> None:
        """End the endpoints."""
        if "hosting" in self.__dict__:
            self.hosting.close()

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            answer = self._answer(environ, read_call(environ))
        except BadRequestError as problem:
            answer = json_answer({"error": str(problem)}, problem.status)
        if answer.drop:
            _hang_up(environ)
        return answer(environ, start_response)

    def _answer(self, environ: Environ, call: Call) -> Answer:
        page = _refuse_page(call)
        if page is not None:
            return page
        if call.path.startswith(_CONTROL):
            return self._control(environ, call)
        machine = api.machine_of(call.access_key, self._access_key)
        if machine is None and not _is_same(call.access_key, self._access_key):
            return error(call, "AuthFailure", _STRANGER, 401)
        self._record(call)
        try:
            if machine and call.service == "ssm":
                with self._lock:
                    roles.refuse_machine(call, machine)
            return self._aws(environ, call)
        except RefusedError as refused:
            return error(call, refused.code, refused.message, refused.status)

    def _record(self, call: Call) -> None:
        if call.action and call.access_key == self._access_key:
            self._calls.append(
                {
                    "time": time.time(),
                    "service": call.service,
                    "region": call.region,
                    "action": call.action_name,
                    "path": call.path,
                    "params": {name: _HIDDEN if name in _SECRET else value for name, value in call.params.items()}
                    if call.action == "PutParameter"
                    else dict(call.params),
                }
            )

    def _aws(self, environ: Environ, call: Call) -> Answer:
        by_machine = call.access_key != self._access_key
        fault = None if by_machine else self._faults.take_for_call(call)
        if fault and fault.delay_s:
            time.sleep(fault.delay_s)
        if fault and fault.code and not fault.after:
            raise RefusedError(fault.code, fault.message or fault.code, fault.status)
        if fault and fault.signal and not (fault.after or fault.replied):
            send_signal(call, fault.signal)
            if fault.signal == "KILL":
                return dropped()
        if call.action.startswith("InvokeEndpoint"):
            with self._lock:
                hosting = self.hosting
            answer = hosting.invoke(call)
            return _ended(call, answer, fault) if fault else answer
        with self._lock:
            try:
                answer = self._carry_out(environ, call)
            except RefusedError as refused:
                answer = error(call, refused.code, refused.message, refused.status)
            self._machines.sync()
        return _ended(call, answer, fault) if fault else answer

    def _carry_out(self, environ: Environ, call: Call) -> Answer:
        def ask_moto(what: Call) -> Answer:
            return forward(self._moto, environ, what)

        repeated = self._tokens.replay(call, ask_moto)
        if repeated is not None:
            return repeated
        if call.service == "pricing":
            raise RefusedError("AccessDeniedException", "the sandbox has no price list")
        answer = self._sessions.answer(call)
        if answer is None and (call.service in _HOSTED or call.text("ServiceCode") == "sagemaker"):
            answer = self.hosting.answer(call)
        if answer is None:
            completed = rules.complete(call) if call.service == "ec2" else call
            _REFUSALS.get(call.service, schedules.refuse)(completed)
            answer = ask_moto(completed)
            if answer.status_code == _FAILED and "html" in str(answer.content_type):  # moto failed, and logs why
                return error(call, "InternalError", "An internal error has occurred", _FAILED)
        self._tokens.remember(call, answer)
        return answer

    def _control(self, environ: Environ, call: Call) -> Answer:
        """Answer a control call. Health is public; everything else requires the key."""
        what = call.path.removeprefix(_CONTROL).strip("/")
        given = call.headers.get("HTTP_AUTHORIZATION", "")
        is_owner = given.startswith(_BEARER) and _is_same(given.removeprefix(_BEARER), self._access_key)
        if not is_owner and (call.method, what) != ("GET", "health"):
            return json_answer({"error": _STRANGER}, 401)
        document = read_document(call.body)
        if what.startswith("machines/"):
            return self._of_machine(call, what.removeprefix("machines/"), document)
        action: Callable[[], Answer] | None = {
            ("GET", "health"): lambda: self._health(call),
            ("GET", "calls"): lambda: self._list_calls(call),
            ("DELETE", "calls"): self._forget_calls,
            ("GET", "faults"): self._list_faults,
            ("POST", "faults"): lambda: self._add_fault(document),
            ("DELETE", "faults"): self._clear_faults,
            ("GET", "machines"): lambda: json_answer({"machines": self._machines.listed()}),
            ("POST", "reset"): lambda: self._reset(environ),
            ("POST", "shutdown"): self._shutdown,
        }.get((call.method, what))
        return action() if action else _no_such(call)

    def _of_machine(self, call: Call, path: str, document: Mapping[str, Any]) -> Answer:
        instance_id, _, what = path.partition("/")
        if (call.method, what) == ("POST", "power"):
            return self._power(call, instance_id, document)
        found = self._machines.metadata(instance_id) if (call.method, what) == ("GET", "metadata") else None
        return _no_such(call) if found is None else json_answer(found)

    def _health(self, call: Call) -> Answer:
        """Prove possession of the key."""
        challenge = call.params.get("challenge")
        proof = {} if challenge is None else {"proof": api.proof(self._access_key, challenge)}
        return json_answer({"status": "ok", **proof})

    def _list_calls(self, call: Call) -> Answer:
        action = call.params.get("action")
        made = list(self._calls)  # copied at once, because a deque must not grow during iteration
        calls = [one for one in made if action in {None, one["action"]}]
        return json_answer({"calls": calls})

    def _forget_calls(self) -> Answer:
        self._calls.clear()
        return json_answer({})

    def _list_faults(self) -> Answer:
        return json_answer({"faults": [to_builtins(fault) for fault in self._faults.pending()]})

    def _add_fault(self, document: dict[str, Any]) -> Answer:
        instance_id = document.pop("instance_id", None)
        try:
            fault = read_fault(document)
        except BadFaultError as problem:
            return json_answer({"error": str(problem)}, 400)
        if instance_id is None:
            self._faults.add(fault)
        elif not self._end_by_fault(str(instance_id), fault):
            return json_answer({"error": f"nothing to do to {instance_id}"}, 404)
        return json_answer({"fault": to_builtins(fault)})

    def _end_by_fault(self, instance_id: str, fault: Fault) -> bool:
        """Apply a fault to a running machine, which can only be an end."""
        return (
            isinstance(fault, MachineFault) and bool(fault.reason) and self._machines.schedule_end(instance_id, fault)
        )

    def _clear_faults(self) -> Answer:
        self._faults.clear()
        return json_answer({})

    def _power(self, call: Call, instance_id: str, document: Mapping[str, Any]) -> Answer:
        event = str(document.get("event", "poweroff"))
        if event not in _POWER:
            return json_answer({"error": f"event is one of {', '.join(sorted(_POWER))}"}, 400)
        return json_answer({}) if self._machines.power(instance_id, event) else _no_such(call)

    def _reset(self, environ: Environ) -> Answer:
        """Reset to an empty account: end the machines, clear state, faults, tokens and calls."""
        inner = Call(
            method="POST", path="/moto-api/reset", service="", region="", action="", params={}, body=b"", headers={}
        )
        with self._lock:
            forward(self._moto, {**environ, "PATH_INFO": "/moto-api/reset", "REQUEST_METHOD": "POST"}, inner)
            roles.prepare_account()
            self._machines.clear()
            if "hosting" in self.__dict__:
                self.hosting.clear()
            self._tokens.clear()
        self._faults.clear()
        return self._forget_calls()

    def _shutdown(self) -> Answer:
        threading.Thread(target=self.shut_down, name="shutdown").start()
        return json_answer({})


def _no_such(call: Call) -> Answer:
    return json_answer({"error": f"no {call.method} {call.path}"}, 404)


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


def _hang_up(environ: Environ) -> None:
    with suppress(OSError, KeyError):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
