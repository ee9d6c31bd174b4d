from __future__ import annotations

import stat
from datetime import UTC, datetime

import pytest

from tgi_deploy.state.local import LocalStore
from tgi_deploy.values.deployment import Event

NOW = datetime(2026, 1, 9, tzinfo=UTC)


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path)


def event(code):
    return Event(at=NOW, deployment="demo", code=code, text="t", step="instance", data={"id": "i-1"})


def test_events_read_back_as_they_were_written(store):
    written = (event("created"), event("deleted"))
    for one in written:
        store.append_event(one)
    assert store.events("demo") == written


def test_an_incomplete_or_foreign_line_is_skipped(store, tmp_path):
    store.append_event(event("created"))
    path = tmp_path / "deployments" / "demo" / "events.jsonl"
    with path.open("a") as file:
        file.write('[]\n{"at": 7}\n{"at": "2026-01-09T00:00:00+00:00", "unknown": 1}\n')
        file.write('{"at": "2026-01-09T00:00:00", "deployment": "demo", "code": "x", "text": "no zone"}\n')
        file.write('{"at": "2026-01-09T00:00:00+00:00", "deployment": "demo", "code": "x", "text": "", "data": []}\n')
        file.write('{"at": "2026-01-')
    assert store.events("demo") == (event("created"),)
    store.append_event(event("deleted"))
    assert store.events("demo") == (event("created"), event("deleted")), "a torn line takes the next one along"


def test_a_missing_history_is_empty(store):
    assert store.events("demo") == ()


def test_a_receipt_outlives_its_record(store, tmp_path):
    store.append_event(event("created"))
    path = store.save_receipt("../../demo-1.json", "{}")
    store.remove("demo")
    assert store.events("demo") == ()
    assert path == str(tmp_path / "receipts" / "demo-1.json")
    assert stat.S_IMODE((tmp_path / "receipts" / "demo-1.json").stat().st_mode) == 0o600
