"""Log grammars, created once for all tests."""

from __future__ import annotations

import copy
from typing import Any, Final

from tgi_deploy.catalog.phases import read_phases
from tgi_deploy.diagnosis.grammar import LogGrammar, grammar_from

DATA: Final = read_phases("tgi")
GRAMMAR: Final = grammar_from(DATA)


def grammar_of(engine: str) -> LogGrammar:
    return GRAMMAR if engine == "tgi" else grammar_from(read_phases(engine))


def changed(**parts: Any) -> dict[str, Any]:
    """Return the table with other parts."""
    return copy.deepcopy(dict(DATA)) | parts
