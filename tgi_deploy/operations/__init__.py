"""Use cases: ports in, outcomes out. No click, no boto3."""

from __future__ import annotations
