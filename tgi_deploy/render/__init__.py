"""Finished values in, artefact text out. Templates loop and choose; they compute nothing."""

from __future__ import annotations
