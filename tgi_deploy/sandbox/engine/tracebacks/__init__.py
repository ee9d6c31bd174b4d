"""Tracebacks of the real engine, recorded from TGI 3.3.7 on a CPU on 2026-11-22, and the reasons that fill them.

The plain form is logged when the model fails to load; the form boxed by rich, with local variables and wrapped at 80
columns, goes to the process's standard error. Quoted source lines were replaced by an ellipsis.
"""

from __future__ import annotations

import json
import re
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Final, Literal

Kind = Literal["plain_early", "plain_loading", "boxed_early", "boxed_loading", "download", "no_weights"]
_FOLDER: Final = Path(__file__).parent
_COLUMNS: Final = 80
_MODULE: Final = re.compile(r"^(?:\w+\.)+(?=[A-Z]\w*)")


_REASONS: Final[dict[str, str]] = json.loads((_FOLDER / "reasons.json").read_text(encoding="utf-8"))


def reason(name: str, **values: object) -> str:
    """Return the final message of a failure, from `reasons.json`."""
    return Template(_REASONS[name]).substitute(values)


def traceback(kind: Kind, model: str, reason: str, *, on_cpu: bool = True) -> str:
    """Return the output of a process for `model` that fails with `reason`."""
    system = "cpu" if on_cpu else "cuda"
    text = (_FOLDER / f"{kind}.txt").read_text(encoding="utf-8")
    shown = reason if kind.startswith("plain") else _wrapped(_MODULE.sub("", reason))
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return Template(text).substitute(model=model, reason=shown, stamp=stamp, system=system).rstrip("\n")


def _wrapped(reason: str) -> str:
    """Wrap lines like rich. Those of C++ libraries, which don't pass through it, stay as they are."""
    lines = (
        [line] if line.startswith("[rank") else textwrap.wrap(line, _COLUMNS, break_on_hyphens=False) or [""]
        for line in reason.splitlines()
    )
    return "\n".join(line for wrapped in lines for line in wrapped)
