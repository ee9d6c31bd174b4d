"""Formats receipts of removals, and remaining resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.api import target_of
from tgi_deploy.cli.views.text import heading
from tgi_deploy.errors import LeftResource
from tgi_deploy.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.api import Group, KeptResource, Receipt
    from tgi_deploy.errors import ResourceRef

_MB: Final = 10**6
_GB: Final = 10**9


def receipts_text(receipts: Sequence[Receipt]) -> str:
    return "\n".join(
        "\n".join((item.sentence(target_of), f"  receipt {item.path}", *map(_kept_text, item.kept)))
        for item in receipts
    )


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _GB:.1f} GB" if size_bytes >= _GB else f"{size_bytes / _MB:.0f} MB"


def _kept_text(item: KeptResource) -> str:
    """Return a resource that is kept, with its size and the command that removes it."""
    size = f"{_size(item.size_bytes)} of " if item.size_bytes is not None else ""
    command = target_of(item.region).manual_commands.removal_command(item.kind, item.id, item.region)
    return f"  kept {item.kind} {item.id} ({size}{item.what}): the next 'up' uses it, '{command}' removes it"


def left_text(resources: Sequence[ResourceRef]) -> str:
    """Return the resources that still exist, then the commands that remove them, ready to paste."""
    lines = [
        heading("not removed"),
        *(f"  {item.kind} {item.id} in {item.region}" for item in resources),
    ]
    commands = [item.command for item in resources if isinstance(item, LeftResource) and item.command]
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
