"""A home folder in memory, and a program's access to it. Its guarantees are tested in tests/unit/state."""

from __future__ import annotations

import json
from contextlib import contextmanager

from tgi_deploy.errors import ConflictError
from tgi_deploy.values.base import replaced

_WRITES = frozenset({"save", "append_event", "remove", "save_receipt", "remember", "save_artifact"})


class Home:
    """One user's disk. Records are stored as values instead of text."""

    def __init__(self):
        self.records = {}
        self._events, self._receipts, self._remembered = {}, {}, {}
        self._locked = set()

    def load(self, name):
        return self.records.get(name)

    def save(self, deployment, *, expected_serial):
        known = self.records.get(deployment.name)
        serial = known.serial if known else 0
        if serial != expected_serial:
            raise ConflictError("stale_record", f"serial {serial}, not {expected_serial}", hint="run the command again")
        saved = replaced(deployment, serial=serial + 1)
        self.records[deployment.name] = saved
        return saved

    def names(self):
        return tuple(sorted(self.records))

    def remove(self, name):
        self.records.pop(name, None)
        self._events.pop(name, None)

    @contextmanager
    def lock(self, name, *, command):
        if name in self._locked:
            raise ConflictError("locked", f"'{name}' is being changed", hint=f"run {command} again once that has ended")
        self._locked.add(name)
        try:
            yield
        finally:
            self._locked.remove(name)

    def append_event(self, event):
        self._events.setdefault(event.deployment, []).append(event)

    def events(self, name):
        return tuple(self._events.get(name, ()))

    def save_receipt(self, file_name, text):
        self._receipts[file_name] = json.loads(text)
        return file_name

    def receipts(self, name=None):
        documents = (document for _, document in sorted(self._receipts.items()))
        return tuple(document for document in documents if name in {None, document["deployment"]})

    def recall(self, topic):
        return self._remembered.get(topic, {})

    def remember(self, topic, document):
        self._remembered[topic] = document

    def save_artifact(self, name, file_name, text):
        """Nobody reads it."""

    def take_over(self, other):
        """Copy everything from another home."""
        self.records |= other.records
        self._events |= {name: list(events) for name, events in other._events.items()}
        self._receipts |= other._receipts
        self._remembered |= other._remembered


class Disk:
    """A home as seen by a program, which may die before or after each write."""

    def __init__(self, program, home):
        self._program, self._home = program, home

    def __getattr__(self, name):
        method = getattr(self._home, name)
        if name not in _WRITES:
            return method
        return lambda *words, **named: self._program.write(lambda: self._write(name, method, words, named))

    def _write(self, name, method, words, named):
        result = method(*words, **named)
        if name == "save":
            self._program.invariants.after_save(self._program, result)
        if name == "save_receipt":
            self._program.invariants.after_receipt(self._program, *words)
        self._program.invariants.after_step()
        return result
