"""What runs inside a simulated machine: its init, and stand-ins for the commands a GPU image ships."""

from __future__ import annotations

from typing import Final

NVME_MOUNT: Final = "/opt/dlami/nvme"
