"""Text for people: each view turns a result into lines. Nothing here decides or computes."""

from __future__ import annotations
