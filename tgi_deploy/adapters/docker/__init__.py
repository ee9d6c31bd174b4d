"""Everything that asks a Docker host: the only importers of docker."""

from __future__ import annotations
