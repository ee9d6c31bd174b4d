"""Where engines run: each target turns a plan into resources."""

from __future__ import annotations
