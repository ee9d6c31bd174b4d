"""What a plan can be written down as."""

from __future__ import annotations

from typing import Final, Literal, get_args

Kind = Literal["docker", "compose", "user-data", "launch-template"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
