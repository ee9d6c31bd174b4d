"""Put real output into README.md and docs/tour.md: run each `$ tgi-deploy …` of their code blocks.

What follows the command is replaced; an output that ends in `…` stays truncated.

    python scripts/update_readme.py [--check]

It also draws the pictures of docs/choosing.md and records docs/recording.svg. It uses a temporary sandbox and state
folder. `--check` changes nothing and exits with 1 if the commands that only read (`plan`) print or draw something
else.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

REPOSITORY: Final = Path(__file__).resolve().parent.parent
PAGES: Final = (REPOSITORY / "README.md", REPOSITORY / "docs" / "tour.md")
PICTURES: Final = REPOSITORY / "docs" / "choosing"
RECORDING: Final = REPOSITORY / "docs" / "recording.svg"
RECORDED: Final = (
    "tgi-deploy up llama3-13b --budget 5 --ttl 2h --sandbox --yes",
    "tgi-deploy ask llama3-13b 'What is a GPU?' --sandbox --max-tokens 24",
    "tgi-deploy status llama3-13b --sandbox",
    "tgi-deploy down llama3-13b --sandbox --yes",
)
_BLOCK: Final = re.compile(r"```\n(\$ tgi-deploy .*?)```\n", re.DOTALL)
_READS_ONLY: Final = ("plan",)
_SHOWN_LINES: Final = 9
_TERMINAL: Final = 100


def run(command: str, environ: dict[str, str]) -> str:
    """Return what a terminal shows of the command: both streams, in order."""
    words = [sys.executable, "-m", "tgi_deploy", *shlex.split(command)[1:]]
    done = subprocess.run(  # noqa: S603 -- the README's own commands
        words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300
    )
    return done.stdout.rstrip().replace(environ["TGI_DEPLOY_HOME"], "~/.local/state/tgi-deploy")


def renewed(block: str, environ: dict[str, str], *, all_commands: bool) -> str:
    """Return the block with fresh output below each of its commands."""
    parts = re.split(r"(?m)^\$ (tgi-deploy .*)$", block)[1:]
    lines = []
    for command, old in zip(parts[::2], parts[1::2], strict=True):
        fresh = all_commands or command.split()[1] in _READS_ONLY
        lines.append(f"$ {command}\n{_cut(run(command, environ), old.strip()) if fresh else old.strip()}")
    return "\n".join(lines) + "\n"


def _cut(output: str, before: str) -> str:
    if not before.endswith("…"):
        return output
    return "\n".join([*output.splitlines()[:_SHOWN_LINES], "…"])


def record(environ: dict[str, str]) -> None:
    """Run the commands in the sandbox and write what a terminal shows of it."""
    terminal = Console(record=True, width=_TERMINAL, file=io.StringIO(), highlight=False)
    for command in RECORDED:
        terminal.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        terminal.print(Text(run(command, environ | {"COLUMNS": str(_TERMINAL)})), "")
    RECORDING.write_text(terminal.export_svg(title="tgi-deploy", unique_id="recording"), encoding="utf-8")


def draw(folder: Path, environ: dict[str, str]) -> None:
    """Draw cost and speed of each model that has a picture; the files are named after the models."""
    for picture in PICTURES.glob("*.svg"):
        run(f"tgi-deploy plan {picture.stem} --report {folder / picture.name}", environ)


def outdated_pictures(environ: dict[str, str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), environ)
        return [
            str(picture.relative_to(REPOSITORY)) for picture in sorted(PICTURES.glob("*.svg"))
            if picture.read_bytes() != (Path(folder) / picture.name).read_bytes()
        ]  # fmt: skip


def renewed_page(text: str, environ: dict[str, str], *, all_commands: bool) -> str:
    return _BLOCK.sub(lambda match: f"```\n{renewed(match[1], environ, all_commands=all_commands)}```\n", text)


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        shown = {"NO_COLOR": "1", "COLUMNS": "100", "PYTHONUNBUFFERED": "1", "TGI_DEPLOY_OWNER": "ann@laptop"}
        environ = {**os.environ, "TGI_DEPLOY_HOME": home, **shown}
        if "--check" in sys.argv[1:]:
            outdated = outdated_pictures(environ)
            for page in PAGES:
                text = page.read_text(encoding="utf-8")
                if renewed_page(text, environ, all_commands=False) != text:
                    outdated.append(page.name)
            for name in outdated:
                print(f"{name} is out of date: run python scripts/update_readme.py")
            return 1 if outdated else 0
        try:
            for page in PAGES:
                text = page.read_text(encoding="utf-8")
                page.write_text(renewed_page(text, environ, all_commands=True), encoding="utf-8")
            draw(PICTURES, environ)
            record(environ)
        finally:
            run("tgi-deploy sandbox stop", environ)
    return 0


if __name__ == "__main__":
    sys.exit(main())
