"""Makes plans. Pure: no clock, randomness, environment or I/O; the same input gives the same plan, byte for byte."""

from __future__ import annotations
