"""Brings what exists to what is wanted. Independent of any cloud and of the planner."""

from __future__ import annotations
