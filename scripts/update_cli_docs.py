"""Write docs/cli.md from the commands' own `--help`, and the schema of deployment files from the options.

With `--check`: exit 1 when one of them is out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy import wiring
from tgi_deploy.cli.frame import PROGRAM
from tgi_deploy.cli.main import ROOT
from tgi_deploy.operations.planning.deployment_file import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

_DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
TARGET: Final = _DOCS / "cli.md"
SCHEMA: Final = _DOCS / "deployment.schema.json"
_WIDTH: Final = 100
_INTRODUCTION: Final = """\
# The command line

Written by `scripts/update_cli_docs.py` from `--help`; a test fails when it is out of date.

## Rules that hold for every command

- stdout carries the result only. Progress, warnings, prompts and errors go to stderr, an error as one line
  `error[code]: message` followed by `hint: what to do now`.
- `--json` prints one object on success and on failure:
  `{"schema": 1, "command": "plan", "status": "ok"|"error", "exit_code": 0, "data": {…},
  "warnings": [{"code", "message"}], "errors": [{"code", "message", "hint"}]}`.
- Settings come from flag > environment > profile > default. The environment variable of `--max-spend` is
  `TGI_DEPLOY_MAX_SPEND`, and so on for every option with a value (regions with commas) but `--set` and `--env`, and for
  `--target`.
- Where money would be spent or things destroyed, the command asks; without a terminal and without `--yes` it refuses.
- `NO_COLOR` and a pipe switch colours off. `TGI_DEPLOY_HOME` moves records, sandbox and crash reports
  (default `~/.local/state/tgi-deploy`).

| exit code | meaning |
|---|---|
| 0 | done, or nothing to do |
| 1 | the cloud or the engine failed |
| 2 | bad usage or input |
| 3 | no feasible plan, or a cost gate that failed |
| 4 | conflict: lock, name taken, stale plan |
| 5 | not healthy before its deadline |
| 6 | something is left behind; its ids are printed |
| 130 | interrupted |
"""


def document() -> str:
    parts = [_INTRODUCTION]
    for path, text in help_texts(ROOT, click.Context(ROOT, info_name=PROGRAM, **ROOT.context_settings)):
        parts.append(f"{'#' * min(3, 1 + len(path))} `{' '.join(path)}`\n\n```text\n{text.rstrip()}\n```\n")
    return "\n".join(parts)


def help_texts(item: click.Command, ctx: click.Context) -> Iterator[tuple[list[str], str]]:
    """Each command's words and its help, groups before what is in them."""
    ctx.terminal_width = _WIDTH
    yield ctx.command_path.split(), item.get_help(ctx)
    if not isinstance(item, click.Group):
        return
    for name in item.list_commands(ctx):
        member = item.get_command(ctx, name)
        if member is not None:
            yield from help_texts(member, click.Context(member, parent=ctx, info_name=name, **member.context_settings))


def schema_text() -> str:
    return json.dumps(schema(wiring.target_options("up"), wiring.target_names()), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    files = {TARGET: document(), SCHEMA: schema_text()}
    if parser.parse_args().check:
        return int(any(not path.is_file() or path.read_text(encoding="utf-8") != text for path, text in files.items()))
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
