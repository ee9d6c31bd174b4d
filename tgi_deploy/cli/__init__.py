"""The command line: one file per click command. The only layer that prints, prompts or exits."""

from __future__ import annotations
