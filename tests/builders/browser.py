"""A headless Chromium, controlled through its debugging pipe: no port, no driver, no library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAMS = ("chromium", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)
_PATIENCE_S = 60
_AT_REST = {"name": "prefers-reduced-motion", "value": "reduce"}


def program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One browser process with one page. Collects the page's errors and warnings."""

    def __init__(self, executable: str, home: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The browser reads its third descriptor and writes its fourth.
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        command = [
            "/bin/bash", "-c", script, "bash", executable, *_FLAGS, f"--user-data-dir={home}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._last_id = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        self._attach()

    def _attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def close(self) -> None:
        os.close(self._write)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._read)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == self._last_id:
                assert "error" not in answer, answer
                return answer["result"]
        raise AssertionError("the browser has gone")

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Yield messages as they arrive; events are collected."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            while b"\0" in self._buffer:
                line, self._buffer = self._buffer.split(b"\0", 1)
                message = json.loads(line)
                if "method" in message:
                    self.events.append(message)
                yield message
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            got = os.read(self._read, 1 << 20)
            if not got:
                return
            self._buffer += got

    def open(self, path: Path, *, width: int, height: int = 900, scheme: str = "light") -> None:
        """Load a file in a window of this width, and wait until it is loaded."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}, _AT_REST])
        self.call("Page.navigate", url=path.as_uri())
        if not any(event["method"] == "Page.loadEventFired" for event in self.events):
            next(message for message in self._messages() if message.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def screenshot(self, *, whole: bool = False) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    @property
    def requests(self) -> list[str]:
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]

    @property
    def complaints(self) -> list[str]:
        """Console messages, uncaught errors, and what the browser itself logs (refused loads, broken policies)."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.consoleAPICalled":
                found.append(f"console.{params['type']}: {params['args']}")
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(f"uncaught: {params['exceptionDetails']}")
            elif event["method"] == "Log.entryAdded":
                found.append(f"log: {params['entry']['text']}")
        return found
