"""Where a plan can run: each module turns a plan into resources."""

from __future__ import annotations
