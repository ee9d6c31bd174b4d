"""The command line: click commands, one file each. The only layer that prints, prompts or exits."""

from __future__ import annotations
