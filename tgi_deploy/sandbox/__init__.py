"""The local cloud: an AWS API on loopback, machines that boot, a stand-in engine."""

from __future__ import annotations
