"""Acts: from what exists to what is wanted. Knows no cloud and no planner."""

from __future__ import annotations
