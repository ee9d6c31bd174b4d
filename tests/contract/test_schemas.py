"""The published schemas of `data` match the code. All `--json` output of tests is validated against them, too."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest

from tgi_deploy.errors import (
    Diagnosis,
    Failure,
    Healed,
    InputError,
    LeftResource,
    RecordedResource,
    ResourceRef,
    StillRunning,
)
from tgi_deploy.values.base import plain

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = json.loads((ROOT / "docs" / "schemas.json").read_text(encoding="utf-8"))


def test_the_published_schemas_are_current():
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "update_schemas.py"), "--check"], check=False)
    assert done.returncode == 0, "run scripts/update_schemas.py"


def test_each_schema_is_valid_and_rejects_unknown_keys():
    jsonschema.Draft202012Validator.check_schema({"$defs": SCHEMAS["$defs"] | SCHEMAS["commands"]})
    for command, schema in SCHEMAS["commands"].items():
        of_command = jsonschema.Draft202012Validator({"$defs": SCHEMAS["$defs"], **schema})
        assert not of_command.is_valid({"nobody_knows_this_key": 1}), command


def untyped(schema, place=""):
    """Yield the schema parts that accept any value or any object."""
    if isinstance(schema, list):
        for number, item in enumerate(schema):
            yield from untyped(item, f"{place}[{number}]")
        return
    if not isinstance(schema, dict):
        return
    if not schema.keys() - {"title", "description", "default"}:
        yield place
    if schema.get("type") == "object" and "properties" not in schema and "additionalProperties" not in schema:
        yield place
    for name, item in schema.get("properties", {}).items():
        yield from untyped(item, f"{place}.{name}")
    for key in schema.keys() & {"anyOf", "items", "prefixItems", "additionalProperties"}:
        yield from untyped(schema[key], f"{place}.{key}")


def test_every_published_value_has_a_type():
    assert [place for name, kind in SCHEMAS["$defs"].items() for place in untyped(kind, name)] == []


def test_a_value_without_a_type_is_detected():
    schema = {"type": "object", "properties": {"a": {}, "b": {"anyOf": [{"type": "object"}, {"type": "null"}]}}}
    assert list(untyped(schema)) == [".a", ".b.anyOf[0]"]


def check_error(data):
    jsonschema.Draft202012Validator({**SCHEMAS, **SCHEMAS["error"]}).validate(plain(data))


def test_failure_data_matches_the_schema():
    machine = ResourceRef(kind="instance", id="i-1", region="us-east-1")
    running = StillRunning(
        machine="i-1", region="us-east-1", usd_per_hour=Decimal("1.2"), ends_at=NOON, ends_with="tgi-deploy down demo"
    )
    failure = Failure(
        phase="loading",
        step="info",
        diagnosis=Diagnosis(finding="oom_weights", cause="too big", evidence="OutOfMemoryError", line=7, remedy="more"),
        deployment="demo",
        outcome="kept",
        still_running=running,
        before=(machine,),
        exists=(RecordedResource(kind="volume", id="", region="us-east-1", phase="intended"),),
        not_removed=(LeftResource(kind="volume", id="vol-1", region="us-east-1", command="aws ec2 delete-volume"),),
        receipt_files=(None, "receipt.json"),
        healed=(Healed(code="oom_weights", edit="larger", what="a larger machine"),),
    )
    assert failure.document().keys() <= SCHEMAS["$defs"]["ErrorData"]["properties"].keys()
    check_error(InputError("engine_failed", "it ended", failure=failure).data)
    check_error(InputError("engine_failed", "it ended", failure=Failure(outcome="removed", deployment="demo")).data)


def test_an_unknown_outcome_is_detected():
    with pytest.raises(jsonschema.ValidationError):
        check_error({"outcome": "asleep"})
