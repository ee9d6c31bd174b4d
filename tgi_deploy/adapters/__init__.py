"""The only importers of boto3, docker and tenacity."""

from __future__ import annotations
