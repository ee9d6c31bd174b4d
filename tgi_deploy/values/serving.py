"""How a running engine is watched and reached."""

from __future__ import annotations

from tgi_deploy.values.base import Value


class Metrics(Value, frozen=True, kw_only=True):
    """The page of metrics, and names on it.

    `request_counters` rise with requests and their tokens, and with nothing else: what they tell of idleness is true.
    """

    path: str | None
    request_counters: tuple[str, ...]


class Access(Value, frozen=True, kw_only=True):
    """The API key: which variable of the container sets it, None where a release cannot ask for one."""

    key_variable: str | None
