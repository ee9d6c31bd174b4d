"""Decides. Pure: no clock, no randomness, no environment, no I/O; the same input gives the byte-same plan."""

from __future__ import annotations
