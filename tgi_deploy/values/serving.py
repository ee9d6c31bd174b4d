"""What a running engine serves, and how it is watched and reached."""

from __future__ import annotations

from typing import Final

from tgi_deploy.values.base import Value
from tgi_deploy.values.probing import Promise

# Notes of a machine's record.
API_KEY_NOTE: Final = "api_key_variable"
API_KEY_PARAMETER_NOTE: Final = "api_key_parameter"
BIND_NOTE: Final = "bind"


class Service(Value, frozen=True, kw_only=True):
    """What a machine serves. `model` is a hub id or a folder; `promise` is None where tags do not say it."""

    engine: str
    release: str
    model: str
    port: int
    promise: Promise | None = None


def url_of(address: str, port: int) -> str:
    host, slash, path = address.partition("/")
    return f"http://[{host}]:{port}{slash}{path}" if ":" in host else f"http://{host}:{port}{slash}{path}"


class Metrics(Value, frozen=True, kw_only=True):
    """The page of metrics, and names on it; None for what is not there.

    `request_counters` rise with requests and their tokens, and with nothing else: an engine whose counters stand still
    is idle. `queued` and `running` count requests, `kv_used` is the share of the KV cache in use.
    """

    path: str | None
    request_counters: tuple[str, ...]
    queued: str | None = None
    running: str | None = None
    kv_used: str | None = None


class Access(Value, frozen=True, kw_only=True):
    """The API key: `key_variable` is the container's that sets it, None where a release cannot ask for one.

    It guards what is below `guarded_routes`. `open_inference_routes` answer prompts without it: a port that anybody
    can reach must not have them.
    """

    key_variable: str | None
    guarded_routes: tuple[str, ...] = ()
    open_inference_routes: tuple[str, ...] = ()
