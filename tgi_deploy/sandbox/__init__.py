"""The local cloud: an AWS API on loopback, machines that boot, a stub server."""

from __future__ import annotations
