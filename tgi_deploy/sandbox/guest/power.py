"""Powers a machine off from inside: `shutdown` now or later, through the cloud."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox import api

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.sandbox.guest.console import Console
    from tgi_deploy.sandbox.guest.layout import MachineSpec
    from tgi_deploy.sandbox.guest.server import Client

_DAY_S: Final = 86400.0


class Power:
    def __init__(
        self, *, spec: MachineSpec, console: Console, down: threading.Event, stop_services: Callable[[], None]
    ) -> None:
        self._spec = spec
        self._stop_services = stop_services
        self._console = console
        self._down = down
        self._timer: threading.Timer | None = None

    def command(self, client: Client) -> int:
        if client.command != "shutdown":
            self._off("reboot" if client.command == "reboot" else "poweroff")
            return 0
        if "-c" in client.argv:
            self._cancel()
            return 0
        event = "reboot" if {"-r", "--reboot"} & set(client.argv) else "poweroff"
        words = [word for word in client.argv if not word.startswith("-")]
        try:
            delay_s = parse_when(words[0] if words else "+1", now=time.time()) / self._spec.timer_speed
        except ValueError:
            client.err(f"Failed to parse time specification: {words[0]}\n")
            return 1
        self._schedule(event, delay_s)
        return 0

    def _schedule(self, event: str, delay_s: float) -> None:
        self._cancel()
        self._timer = threading.Timer(max(delay_s, 0), self._shut_down, args=(event,))
        self._timer.daemon = True
        self._timer.start()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _shut_down(self, event: str) -> None:
        """Stop the services first, like systemd."""
        self._stop_services()
        self._off(event)

    def _off(self, event: str) -> None:
        self._console.kernel(f"systemd-shutdown[1]: {event} requested by the guest")
        path = f"/_sandbox/machines/{self._spec.instance_id}/power"
        try:
            api.control(self._spec.endpoint, "POST", path, {"event": event})
        except (api.ApiError, api.CloudGoneError):
            self._down.set()


def parse_when(text: str, *, now: float) -> float:
    """Parse a shutdown time (`now`, `+MINUTES` or `HH:MM` in UTC) into seconds from now.

    Raises:
        ValueError: for other forms.
    """
    if text == "now":
        return 0.0
    if text.startswith("+") or text.isdigit():
        return int(text.removeprefix("+")) * 60.0
    clock = datetime.strptime(text, "%H:%M")  # noqa: DTZ007 -- a time of day
    return (clock.hour * 3600 + clock.minute * 60 - now % _DAY_S) % _DAY_S
