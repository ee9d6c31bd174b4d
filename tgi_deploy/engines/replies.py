"""Shared parts of all engines' probes and reply parsing."""

from __future__ import annotations

import json
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import bounded_json
from tgi_deploy.errors import Problem

if TYPE_CHECKING:
    from tgi_deploy.values.probing import HttpReply, ProbeRequest

OK: Final = 200
PROMPT: Final = "What is deep learning?"
NEW_TOKENS: Final = 16
REPEATED_TOKENS: Final = 32
SHORT_PROMPT_TOKENS: Final = 24
_WORDS: Final = ("cloud", "river", "stone", "north", "paper", "seven", "green", "music", "table", "winter", "field")


def failed(probe: ProbeRequest, why: str) -> Problem:
    return Problem(code=f"{probe.step}_failed", message=why)


def prompt_of(words: int, seed: int) -> str:
    """Return a prompt with at least one token per word, in a different order for each of 110 seeds."""
    step = seed % (len(_WORDS) - 1) + 1
    order = [_WORDS[(seed + place * step) % len(_WORDS)] for place in range(len(_WORDS))]
    return " ".join(islice(cycle(order), words))


def events_of(probe: ProbeRequest, reply: HttpReply) -> tuple[dict[str, Any], ...] | Problem:
    """Return a stream's events. Even failing streams have status 200 and report the failure in an event."""
    if reply.status != OK:
        return failed(probe, reply.text)
    events = []
    for payload in reply.events:
        event = _json_object(payload)
        if event is None:
            return failed(probe, f"an event is not a JSON object: {payload}")
        events.append(event)
    wrong = next((event for event in events if "error" in event), None)
    return tuple(events) if wrong is None else failed(probe, f"an event reports {json.dumps(wrong)}")


def object_of(payload: str) -> dict[str, Any]:
    """Return a stream event; empty if it is not an object."""
    return _json_object(payload) or {}


def _json_object(payload: str) -> dict[str, Any] | None:
    try:
        return bounded_json.parse_object(payload)
    except ValueError:
        return None
