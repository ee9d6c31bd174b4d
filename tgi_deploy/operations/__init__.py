"""The use cases. Each takes its ports in a `Context` and returns an outcome; none imports click or boto3."""

from __future__ import annotations
