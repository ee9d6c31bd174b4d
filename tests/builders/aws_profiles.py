"""The packaged facts about AWS for tests of the adapters."""

from __future__ import annotations

import json
from typing import Any

from tgi_deploy.data_files import profiles_dir


def profile_data(name: str) -> Any:
    return json.loads((profiles_dir() / "aws" / name).read_text(encoding="utf-8"))


def allowed_actions(document: dict[str, Any]) -> tuple[str, ...]:
    """Return every action that a policy of ours allows, without duplicates, in order."""
    return tuple(sorted({action for statement in document["Statement"] for action in statement["Action"]}))
