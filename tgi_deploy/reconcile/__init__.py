"""Changes what exists into what is wanted, independently of any cloud and of the planner."""

from __future__ import annotations
