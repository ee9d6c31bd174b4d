from __future__ import annotations

from builders.docker_engine import docker_engine

__all__ = ["docker_engine"]
