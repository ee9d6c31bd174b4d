from __future__ import annotations

from builders.control_plane import namespace, plane

__all__ = ["namespace", "plane"]
