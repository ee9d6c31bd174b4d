"""Python sources, parsed once for all tests that check them."""

from __future__ import annotations

import ast
from functools import cache


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Return every node of a source, its module first, as `ast.walk` finds them."""
    return tuple(ast.walk(ast.parse(source)))
