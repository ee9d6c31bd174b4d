"""Reads profiles (TOML and JSON) into the planner's types."""

from __future__ import annotations
