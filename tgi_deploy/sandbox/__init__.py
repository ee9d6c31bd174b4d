"""The local cloud: an AWS API on loopback, machines that boot, a stub engine."""

from __future__ import annotations
