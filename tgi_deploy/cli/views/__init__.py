"""Turns results into text for people. Views decide and compute nothing."""

from __future__ import annotations
