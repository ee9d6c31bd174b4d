"""What a running engine serves, and how to monitor and reach it."""

from __future__ import annotations

from typing import Final

from tgi_deploy.values.base import Value
from tgi_deploy.values.probing import Promise

# Notes of a machine's record.
API_KEY_NOTE: Final = "api_key_variable"
API_KEY_PARAMETER_NOTE: Final = "api_key_parameter"
BIND_NOTE: Final = "bind"


class Service(Value, frozen=True, kw_only=True):
    """What a machine serves. `model` is a hub id or a folder; `promise` is None if the tags lack it."""

    engine: str
    release: str
    model: str
    port: int
    promise: Promise | None = None


def url_of(address: str, port: int) -> str:
    host, slash, path = address.partition("/")
    return f"http://[{host}]:{port}{slash}{path}" if ":" in host else f"http://{host}:{port}{slash}{path}"


class Metrics(Value, frozen=True, kw_only=True):
    """The metrics page and the names on it; None for missing ones.

    `request_counters` increase only with requests and their tokens: if they don't change, the engine is idle. `queued`
    and `running` count requests, `kv_used` is the used share of the KV cache.
    """

    path: str | None
    request_counters: tuple[str, ...]
    queued: str | None = None
    running: str | None = None
    kv_used: str | None = None


class Access(Value, frozen=True, kw_only=True):
    """The API key: `key_variable` is the container's variable for it, None if the release does not support one.

    It protects `guarded_routes` and below. `open_inference_routes` answer prompts without it, so a public port must not
    expose them.
    """

    key_variable: str | None
    guarded_routes: tuple[str, ...] = ()
    open_inference_routes: tuple[str, ...] = ()
