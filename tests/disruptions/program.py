"""The program and its sandbox, as the matrix and the storm use them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from disruptions.matrix import KEY, WRITE

from tgi_deploy.sandbox import api, control

REPOSITORY = Path(__file__).parents[2]
# Anything slower than this, even on a busy computer, counts as hanging.
TIMEOUT_S = 600
SPEED = 600.0
# Machines check their limits every 30 s, and an update waits for that.
TIMER_SPEED = 6.0


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One run. `code` is negative for the signal that ended it, None if it was killed for taking too long."""

    code: int | None
    out: str
    err: str

    @property
    def document(self):
        try:
            return json.loads(self.out)
        except json.JSONDecodeError:
            return {}

    @property
    def error(self):
        """Return the code of the first error; empty if there is none."""
        errors = self.document.get("errors") or [{}]
        return errors[0].get("code", "")

    def summary(self):
        """Return the part of the output that explains a failure."""
        return f"exit {self.code} {self.error}: {(self.err or self.out)[-600:]}"


# On a busy computer the sandbox also starts slowly.
control._START_S = TIMEOUT_S


class Program:
    """One sandbox with a separate home folder, and the program run against it. A context manager."""

    def __init__(self, home, *, speed=SPEED):
        self.home = home
        self._speed = speed

    def __enter__(self):
        info = control.start(self.home / "sandbox", speed=self._speed, timer_speed=TIMER_SPEED)
        self.url, self.access_key = info.endpoint_url, info.access_key
        self._warm = subprocess.Popen(
            [sys.executable, "-m", "disruptions.warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env=self._environment(),
        )
        self._reply()
        return self

    def __exit__(self, *_exc):
        self._warm.stdin.close()
        self._warm.wait(TIMEOUT_S)
        self._warm.stdout.close()
        control.stop(self.home / "sandbox")

    def _environment(self):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HF_"))}
        return {
            **kept,
            "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}",
            "TGI_DEPLOY_HOME": str(self.home),
            KEY: "made-up-key-of-the-disruptions",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def run(self, *words, hurry=1.0, trace=None):
        out, err = self.home / "out", self.home / "err"
        job = {
            "argv": [*words, "--sandbox", "--json"],
            "env": {},
            "out": str(out),
            "err": str(err),
            "timeout_s": TIMEOUT_S,
            "hurry": hurry,
            "trace": trace and str(trace),
        }
        self._warm.stdin.write(json.dumps(job) + "\n")
        self._warm.stdin.flush()
        status = self._reply()["status"]
        code = None if status is None else os.waitstatus_to_exitcode(status)
        return Ran(code=code, out=out.read_text(errors="replace"), err=err.read_text(errors="replace"))

    def _reply(self):
        line = self._warm.stdout.readline()
        if not line:
            raise RuntimeError("the warm interpreter has ended")
        return json.loads(line)

    def control(self, method, path, document=None):
        return api.control(
            api.Endpoint(url=self.url, access_key=self.access_key), method, f"/_sandbox/{path}", document
        )

    def fault(self, **document):
        self.control("POST", "faults", document)

    def calm(self):
        self.control("DELETE", "faults")

    def calls(self):
        return [call["action"] for call in self.control("GET", "calls")["calls"]]

    def traced(self, *words):
        """Run it, and return the calls that it made, with a WRITE where it has changed a file."""
        trace = self.home / "trace"
        self.forget_calls()
        result = self.run(*words, trace=trace)
        lines, calls = trace.read_text().split(), iter(self.calls())
        if lines.count("call") != len(self.calls()):
            raise RuntimeError(f"{lines.count('call')} requests, and {len(self.calls())} arrived")
        return result, [line if line == WRITE else next(calls) for line in lines]

    def record(self, name):
        return json.loads(
            (self.home / "sandbox" / "records" / "deployments" / name / "deployment.json").read_text(encoding="utf-8")
        )

    def receipts(self):
        """Return every receipt since the account was emptied."""
        folder = self.home / "sandbox" / "records" / "receipts"
        return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]

    def forget_calls(self):
        self.control("DELETE", "calls")

    def empty(self, *, boots=False):
        """Empty the account and delete all records. Unless `boots`, machines run and never boot."""
        self.control("POST", "reset")
        shutil.rmtree(self.home / "sandbox" / "records", ignore_errors=True)
        if not boots:
            self.fault(name="dark", times=1_000_000)
