"""Shrinks a failing history: removes every step that the failure does not need."""

from __future__ import annotations

from msgspec.structs import replace
from simulation.run import run

MOST_STEPS = 20


def shrink(history, broken):
    """Return a minimal history that breaks the same invariant."""
    while True:
        smaller = next((item for item in _smaller(history) if broken in run(item).names), None)
        if smaller is None:
            return history
        history = smaller


def _smaller(history):
    """Yield every history with one part removed, the largest parts first."""
    for number in range(len(history.commands) - 1, -1, -1):
        if len(history.commands) > 1:
            yield _without_command(history, number)
    for name in ("faults", "events"):
        items = getattr(history, name)
        for number in range(len(items)):
            yield replace(history, **{name: items[:number] + items[number + 1 :]})
    for kind in history.late_s:
        yield replace(history, late_s={name: late for name, late in history.late_s.items() if name != kind})
    for number, command in enumerate(history.commands):
        for simpler in ({"waits": False}, {"ahead_s": 0.0}, {"plan": 0}):
            changed = replace(command, **simpler)
            if changed != command:
                commands = (*history.commands[:number], changed, *history.commands[number + 1 :])
                yield replace(history, commands=commands)


def _without_command(history, number):
    """Faults, and some events, belong to commands by their number."""
    left = {
        name: tuple(
            replace(item, command=item.command - (item.command > number)) if item.command is not None else item
            for item in getattr(history, name)
            if item.command != number
        )
        for name in ("faults", "events")
    }
    return replace(history, commands=history.commands[:number] + history.commands[number + 1 :], **left)
