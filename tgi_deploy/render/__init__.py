"""Finished values in, artefact text out."""

from __future__ import annotations
