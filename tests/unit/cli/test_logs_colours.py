from __future__ import annotations

import click
import pytest

from tgi_deploy.cli.logs import _coloured


@pytest.mark.parametrize(
    ("line", "colour"),
    [
        ("[tgi-deploy] phase=booting", "cyan"),
        ("2026-01-09T10:00:00Z ERROR text_generation_launcher: Shard 0 failed", "red"),
        ("torch.OutOfMemoryError: CUDA out of memory", "red"),
        ("thread 'main' panicked at src/main.rs", "red"),
        ("2026-01-09T10:00:00Z  WARN text_generation_router: no tokenizer", "yellow"),
        ("2026-01-09T10:00:00Z  INFO text_generation_router: Connected", None),
    ],
)
def test_lines_have_the_colour_of_what_they_tell(line, colour):
    assert _coloured(line) == (click.style(line, fg=colour) if colour else line)
