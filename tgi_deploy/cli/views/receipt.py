"""Receipts of removals and remaining resources, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.api import target_of
from tgi_deploy.cli.views.text import heading
from tgi_deploy.errors import LeftThing
from tgi_deploy.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.api import Group, KeptThing, Receipt
    from tgi_deploy.errors import Thing

_MB: Final = 10**6
_GB: Final = 10**9


def receipts_text(receipts: Sequence[Receipt]) -> str:
    return "\n".join(
        "\n".join((item.sentence(target_of), f"  receipt {item.path}", *map(_kept_text, item.kept)))
        for item in receipts
    )


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _GB:.1f} GB" if size_bytes >= _GB else f"{size_bytes / _MB:.0f} MB"


def _kept_text(item: KeptThing) -> str:
    """Return what stays, its size, and how to remove it."""
    size = f"{_size(item.size_bytes)} of " if item.size_bytes is not None else ""
    command = target_of(item.region).by_hand.removal_command(item.kind, item.id, item.region)
    return f"  kept {item.kind} {item.id} ({size}{item.what}): the next 'up' uses it, '{command}' removes it"


def left_text(things: Sequence[Thing]) -> str:
    """Return what still exists, each with the command that removes it, ready to paste."""
    lines = [
        heading("still there"),
        *(f"  {item.kind} {item.id} in {item.region}" for item in things),
    ]
    commands = [item.command for item in things if isinstance(item, LeftThing) and item.command]
    return "\n".join([*lines, *(f"  {command}" for command in commands)])


def groups_text(title: str, groups: Sequence[Group]) -> str:
    if not groups:
        return ""
    lines = [heading(title)]
    for group in groups:
        lines.append(f"  {group.name or '(no name)'} ({group.id}): {group.reason}")
        lines.extend(f"    - {item.kind} {item.id} in {item.place}" for item in group.found if group.orphaned)
        if not group.orphaned:
            lines.append(f"      {plural(len(group.found), 'resource')}")
    return "\n".join(lines)
