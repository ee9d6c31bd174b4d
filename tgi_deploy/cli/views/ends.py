"""Formats the limits of a machine: when it terminates automatically."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from tgi_deploy.text import option_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.api import End
    from tgi_deploy.values.ends import Ends
    from tgi_deploy.values.results import EndData, ExtensionData


def ends_lines(ends: Sequence[End | EndData]) -> list[str]:
    return [_line(end) for end in ends]


def ends_cell(ends: Sequence[End | EndData]) -> str:
    """Return the first end, as a time if one is known."""
    at = min((end.at for end in ends if end.at is not None), default=None)
    if at is not None:
        return f"{at.astimezone(UTC):%m-%d %H:%M} UTC"
    idle = next((end.seconds for end in ends if end.reason == "idle"), None)
    return "-" if idle is None else f"idle {option_duration(idle)}"


def terms(ends: Ends) -> str:
    """Return the limits of a machine that is not launched yet; empty if there are none."""
    words = (
        f"after {option_duration(ends.ttl_s)}" if ends.ttl_s else "",
        f"after {option_duration(ends.idle_s)} without a request" if ends.idle_s else "",
        f"{option_duration(ends.lease_s)} after its last renewal" if ends.lease_s else "",
    )
    text = ", or ".join(filter(None, words))
    return f"ends automatically {text}" if text else ""


def extension_text(extension: ExtensionData) -> str:
    lines = ends_lines(extension.ends) or ["only with 'down'"]
    return "\n".join((f"{extension.name} ends", *(f"  {line}" for line in lines)))


def _line(end: End | EndData) -> str:
    if end.reason == "idle":
        return f"after {option_duration(end.seconds or 0)} without a request"
    at = "" if end.at is None else end.at.astimezone(UTC).isoformat(timespec="seconds")
    if end.reason == "ttl":
        return f"{at}  when --ttl or --max-spend is reached"
    return f"{at}  unless its lease is renewed"
