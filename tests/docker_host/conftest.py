from __future__ import annotations

from builders.docker_engine import docker_engine
from builders.docker_tool import tool

__all__ = ["docker_engine", "tool"]
