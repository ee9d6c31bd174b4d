"""The published schemas of `data` are those of the code. What every test prints with --json is held to them, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = json.loads((ROOT / "docs" / "schemas.json").read_text(encoding="utf-8"))


def test_what_is_published_is_up_to_date():
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "update_schemas.py"), "--check"], check=False)
    assert done.returncode == 0, "run scripts/update_schemas.py"


def test_each_is_a_schema_and_takes_no_unknown_key():
    jsonschema.Draft202012Validator.check_schema({"$defs": SCHEMAS["$defs"] | SCHEMAS["commands"]})
    for command, schema in SCHEMAS["commands"].items():
        of_command = jsonschema.Draft202012Validator({"$defs": SCHEMAS["$defs"], **schema})
        assert not of_command.is_valid({"nobody_knows_this_key": 1}), command
