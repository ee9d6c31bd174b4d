"""Runs this program in child processes and reads their `--json` output."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import bounded_json
from tgi_deploy.reconcile.programs import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PROGRAM: Final = (sys.executable, "-m", "tgi_deploy")
_LAUNCH: Final = "up"
_REMOVAL: Final = "down"


class ChildPrograms:
    """Runs child processes. `on_line` receives every line of a child's stderr, with its arguments. Thread-safe.

    Children run in sessions separate from the terminal's, so that a Ctrl-C reaches them only once, through `stop`.
    """

    def __init__(self, on_line: Callable[[Sequence[str], str], None], *, program: Sequence[str] = _PROGRAM) -> None:
        self._on_line = on_line
        self._program = tuple(program)
        self._running: dict[subprocess.Popen[str], str] = {}
        # Signal handlers call `stop`, which another signal can interrupt.
        self._lock = threading.RLock()
        self._stops = 0

    @property
    def stopping(self) -> bool:
        return self._stops > 0

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Pass a stop request on to the running children. Removals may finish, unless the request is repeated."""
        with self._lock:
            self._stops += 1
            for process, command in tuple(self._running.items()):
                if command != _REMOVAL or self._stops > 1:
                    process.send_signal(number)

    def run(self, words: Sequence[str]) -> Reply:
        """Run a child and return its envelope, which is empty if the child printed none. Never raises."""
        with subprocess.Popen(  # noqa: S603 -- this program itself
            [*self._program, *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            with self._lock:
                self._running[process] = words[0]
                if self.stopping and words[0] == _LAUNCH:
                    process.send_signal(signal.SIGTERM)
            listener = threading.Thread(target=self._listen, args=(process, words), daemon=True)
            listener.start()
            out = process.stdout.read() if process.stdout else ""
            process.wait()
            listener.join()
        with self._lock:
            del self._running[process]
        return Reply(exit_code=process.returncode, envelope=_envelope(out))

    def _listen(self, process: subprocess.Popen[str], words: Sequence[str]) -> None:
        for line in process.stderr or ():
            self._on_line(words, line.rstrip("\n"))


def _envelope(text: str) -> dict[str, Any]:
    try:
        return bounded_json.parse_object(text)
    except ValueError:
        return {}
