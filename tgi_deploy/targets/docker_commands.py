"""What to type into Docker's own command line to remove one thing, for the case that this tool could not."""

from __future__ import annotations

import shlex
from typing import Final
from urllib.parse import urlsplit

_COMMANDS: Final = {"container": "rm --force", "volume": "volume rm"}


def removal_command(kind: str, thing_id: str, place: str) -> str | None:
    """None for a kind that has no such command."""
    words = _COMMANDS.get(kind)
    if words is None:
        return None
    host = place.partition(":")[2]
    return " ".join(("docker", *(("--host", shlex.quote(host)) if host else ()), words, shlex.quote(thing_id)))


def tunnel(place: str, port: int) -> str:
    """Through SSH to the host; empty for this computer's own."""
    host = urlsplit(place.partition(":")[2]).hostname
    return f"ssh -N -L {port}:127.0.0.1:{port} {shlex.quote(host)}" if host else ""
