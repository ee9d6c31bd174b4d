"""The examples of docs/api.md run against the sandbox without the `cli` package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.DOTALL)
NO_COMMAND_LINE = "import sys\nsys.modules['tgi_deploy.cli'] = sys.modules['click'] = sys.modules['rich'] = None\n"


def run(home, source):
    environment = {**os.environ, "TGI_DEPLOY_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=environment,
        cwd=home.parent,
    )


def test_every_example_runs_without_the_command_line(program):
    done = run(program.home, NO_COMMAND_LINE + "\n".join(EXAMPLES))
    assert done.returncode == 0, done.stderr[-2000:]
    for line in ("ready http://", "no_feasible_plan 3", "interrupted ", "('demo',)"):
        assert line in done.stdout
    assert program.instances() == []


def test_the_cli_package_is_removed(program):
    assert "ModuleNotFoundError" in run(program.home, NO_COMMAND_LINE + "import tgi_deploy.cli.main").stderr
