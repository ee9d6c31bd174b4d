"""One hostile input to the real program gives a result or a named error."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from mutations.models import Special

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT

LIMIT_S = 20.0
UNFORESEEN = frozenset({"internal_error", "output_failed"})


class TooSlow(BaseException):
    """An input needed more than `LIMIT_S` of a processor. Not an Exception: the frame would catch that."""


@dataclass
class Trials:
    """Runs in `home`; `slowest_s` and the `codes` that were answered are for a report."""

    home: Path
    slowest_s: float = 0.0
    codes: dict[str, int] = field(default_factory=dict)

    def run(self, *argv):
        """Run one command with `--json`; return its exit code and the code of its error."""
        began = time.monotonic()
        with _captured() as out, _limited():
            exit_code = frame.run(ROOT, [*argv, "--json"])
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        envelope = json.loads(out.buffer.getvalue())
        crash = envelope["data"].get("crash_file") if isinstance(envelope["data"], dict) else None
        assert crash is None, Path(crash).read_text(encoding="utf-8")
        code = _code(exit_code, envelope)
        self.codes[code] = self.codes.get(code, 0) + 1
        return exit_code, code

    def folder(self, files):
        """A model's folder of `files`, by name their content and length, or `Special`."""
        folder = self.home / "model"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, (content, size) in files.items():
            _put(folder / name, content, size)
        return folder

    def forget(self):
        """What was read of models before."""
        shutil.rmtree(self.home / "state" / "cache", ignore_errors=True)

    def strangers(self):
        """Whatever lies in the home and was not put there on purpose."""
        known = {"model", "state", "file.json", "file.toml", "file.log", "mine"}
        return {path.name for path in self.home.iterdir()} - known


@contextmanager
def trials(home: Path, **environment):
    """Trials in an environment of their own, with records and caches under `home`."""
    own = {"TGI_DEPLOY_HOME": str(home / "state"), "HF_HOME": str(home / "state" / "hf"), **environment}
    with mock.patch.dict(os.environ, own):
        yield Trials(home)


def _put(path, content, size):
    if not isinstance(content, Special):
        with path.open("wb") as file:
            file.write(content)
            if size is not None:
                file.truncate(max(0, size))
    elif content.kind == "fifo":
        os.mkfifo(path)
    elif content.kind == "folder":
        path.mkdir()
    elif content.kind != "nothing":
        path.symlink_to(content.kind)


def _code(exit_code, envelope):
    """The code of an outcome. Fails for what no outcome may look like."""
    errors = envelope["errors"]
    assert exit_code in {0, 2, 3, 4}, envelope
    assert bool(errors) == (exit_code != 0), envelope
    for error in errors:
        assert error["code"] not in UNFORESEEN, error
        assert error["hint"], error
        assert error["message"].isprintable(), error
        assert len(error["message"]) < 2_000, error
    return errors[0]["code"] if errors else "ok"


@contextmanager
def _captured():
    """Standard output as strict UTF-8, as it is in a terminal."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict", write_through=True)
    with mock.patch.object(sys, "stdout", out):
        yield out


@contextmanager
def _limited():
    """End an input that computes for `LIMIT_S`, or takes ten times as long: other programs may be busy."""

    def stop(*_):
        raise TooSlow(f"more than {LIMIT_S:g} s")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, LIMIT_S), signal.SIGALRM: (signal.ITIMER_REAL, 10 * LIMIT_S)}
    before = {number: signal.signal(number, stop) for number in timers}
    for timer, limit_s in timers.values():
        signal.setitimer(timer, limit_s)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
