"""The record of deployments on disk."""

from __future__ import annotations
