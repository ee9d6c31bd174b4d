"""Puts real output into the README's tour: runs each `$ tgi-deploy …` of its code blocks and replaces what follows.

    python scripts/update_readme.py [--check]

Draws the pictures of docs/choosing.md, too. Runs in a sandbox and a state folder of its own. `--check` changes nothing
and exits 1 when the commands that only read (`plan`) print or draw something else than is shown.
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
PICTURES: Final = README.parent / "docs" / "choosing"
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


def draw(folder: Path, environ: dict[str, str]) -> None:
    """Draw what each model of the pictures costs and yields; the files are named after the models."""
    for picture in PICTURES.glob("*.svg"):
        run(f"tgi-deploy plan {picture.stem} --plot {folder / picture.name}", environ)


def outdated_pictures(environ: dict[str, str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), environ)
        return [
            str(picture.relative_to(README.parent)) for picture in sorted(PICTURES.glob("*.svg"))
            if picture.read_bytes() != (Path(folder) / picture.name).read_bytes()
        ]  # fmt: skip


def renewed_readme(text: str, environ: dict[str, str], *, all_commands: bool) -> str:
    return _BLOCK.sub(lambda match: f"```\n{renewed(match[1], environ, all_commands=all_commands)}```\n", text)


def main() -> int:
    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as home:
        shown = {"NO_COLOR": "1", "COLUMNS": "100", "PYTHONUNBUFFERED": "1", "TGI_DEPLOY_OWNER": "ann@laptop"}
        environ = {**os.environ, "TGI_DEPLOY_HOME": home, **shown}
        if "--check" in sys.argv[1:]:
            outdated = outdated_pictures(environ)
            if renewed_readme(text, environ, all_commands=False) != text:
                outdated.append(README.name)
            for name in outdated:
                print(f"{name} is out of date: run python scripts/update_readme.py")
            return 1 if outdated else 0
        try:
            README.write_text(renewed_readme(text, environ, all_commands=True), encoding="utf-8")
            draw(PICTURES, environ)
        finally:
            run("tgi-deploy sandbox stop", environ)
    return 0


if __name__ == "__main__":
    sys.exit(main())
