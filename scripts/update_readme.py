"""Puts real output into the README's tour: runs each `$ tgi-deploy …` of its code blocks and replaces what follows.

    python scripts/update_readme.py [--check]

Runs in a sandbox and a state folder of its own. `--check` changes nothing and exits 1 when the commands that only read
(`plan`) print something else than the README shows.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

README: Final = Path(__file__).resolve().parent.parent / "README.md"
_BLOCK: Final = re.compile(r"```\n(\$ tgi-deploy .*?)```\n", re.DOTALL)
_READS_ONLY: Final = ("plan",)


def run(command: str, environ: dict[str, str]) -> str:
    """What a person sees of the command: both streams, in the order a terminal would show them."""
    words = [sys.executable, "-m", "tgi_deploy", *command.split()[1:]]
    done = subprocess.run(  # noqa: S603 -- the README's own commands
        words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300
    )
    return done.stdout.rstrip().replace(environ["TGI_DEPLOY_HOME"], "~/.local/state/tgi-deploy")


def renewed(block: str, environ: dict[str, str], *, all_commands: bool) -> str:
    """The block with fresh output below each of its commands."""
    parts = re.split(r"(?m)^\$ (tgi-deploy .*)$", block)[1:]
    lines = []
    for command, old in zip(parts[::2], parts[1::2], strict=True):
        fresh = all_commands or command.split()[1] in _READS_ONLY
        lines.append(f"$ {command}\n{run(command, environ) if fresh else old.strip()}")
    return "\n".join(lines) + "\n"


def renewed_readme(text: str, *, all_commands: bool) -> str:
    with tempfile.TemporaryDirectory() as home:
        shown = {"NO_COLOR": "1", "COLUMNS": "100", "PYTHONUNBUFFERED": "1", "TGI_DEPLOY_OWNER": "ann@laptop"}
        environ = {**os.environ, "TGI_DEPLOY_HOME": home, **shown}
        try:
            return _BLOCK.sub(lambda match: f"```\n{renewed(match[1], environ, all_commands=all_commands)}```\n", text)
        finally:
            if all_commands:
                run("tgi-deploy sandbox stop", environ)


def main() -> int:
    check = "--check" in sys.argv[1:]
    text = README.read_text(encoding="utf-8")
    fresh = renewed_readme(text, all_commands=not check)
    if check:
        if fresh == text:
            return 0
        print("README.md is out of date: run python scripts/update_readme.py")
        return 1
    README.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
