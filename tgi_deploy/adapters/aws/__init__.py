"""EC2 and its neighbours through boto3."""

from __future__ import annotations
