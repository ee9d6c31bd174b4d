"""Choose, bring up, check and remove a Text Generation Inference deployment."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
