"""How far a value travels through this program: an option that many functions only hand on is hard to follow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "value_path.py"


def test_at_most_ten_functions_only_pass_the_budget_on():
    done = subprocess.run([sys.executable, SCRIPT, "--limit", "10"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resolve" in done.stdout
    assert "Search.configuration" in done.stdout
