"""Values pass through few functions: code that only forwards values is hard to follow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "value_path.py"


def test_few_functions_pass_the_budget_through():
    words = [sys.executable, SCRIPT, "--limit", "10", "--module-limit", "5"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resolve" in done.stdout
    assert "Search.configuration" in done.stdout
