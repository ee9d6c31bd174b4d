from __future__ import annotations

import click
import pytest

from tgi_deploy.cli.logs import _colored


@pytest.mark.parametrize(
    ("line", "color"),
    [
        ("[tgi-deploy] phase=booting", "cyan"),
        ("2026-01-09T10:00:00Z ERROR text_generation_launcher: Shard 0 failed", "red"),
        ("torch.OutOfMemoryError: CUDA out of memory", "red"),
        ("thread 'main' panicked at src/main.rs", "red"),
        ("2026-01-09T10:00:00Z  WARN text_generation_router: no tokenizer", "yellow"),
        ("2026-01-09T10:00:00Z  INFO text_generation_router: Connected", None),
    ],
)
def test_log_lines_are_colored_by_severity(line, color):
    assert _colored(line) == (click.style(line, fg=color) if color else line)
