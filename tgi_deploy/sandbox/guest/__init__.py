"""What runs inside a simulated machine: its init, and stubs of a GPU image's commands."""

from __future__ import annotations
