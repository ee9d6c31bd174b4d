"""Mutations of files that the program wrote, and of users' files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from builders.records import deployment
from fakes.computer import plan
from hypothesis import strategies as st
from mutations.changes import changed_bytes, changed_document, changed_text, dump
from mutations.models import SHAPES

from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.state import codec
from tgi_deploy.values.deployment import ResourceRecord
from tgi_deploy.values.ends import Ends

NOW = datetime(2026, 1, 9, 12, tzinfo=UTC)
LOGS = tuple(sorted((Path(__file__).parents[1] / "cases" / "diagnosis").glob("*/log.*")))
NOISE = (
    "\n" * 1000,
    "\u2028",
    "\x1b[2J",
    "{" * 500,
    "}" * 500,
    "[" * 500,
    '{"log":"' * 50,
    "\0",
    "a=" * 500,
    "Args { ",
    "\ufeff",
)


def record():
    """A record of a deployment, as it is written."""
    resource = ResourceRecord(
        key="instance", kind="instance", place="us-east-1", state="created", spec="s", request_number=2,
        attributes={"id": "i-1"}, notes={"pool": "p"}, is_machine=True,
    )  # fmt: skip
    made = deployment(
        plan=plan_document(plan()), resources=(resource,), endpoint="http://127.0.0.1:8080",
        usd_per_hour=Decimal("1.8768"), ends=Ends(ttl_s=3600, expires_at=NOW), request_number=2,
    )  # fmt: skip
    return json.loads(codec.encode(made))


def changed_record():
    return changed_text(record())


def changed_json(document):
    """Of a lock, a plan printed with --json, or what was kept of a model."""
    return changed_text(document)


@st.composite
def changed_profile(draw):
    """TOML with a shape of its own: JSON writes a text, a number or a list as TOML does."""
    shape = {key: value for key, value in SHAPES["meta-llama/Llama-3.1-8B"].items() if value is not None}
    head = {"hub_id": "acme/mine", "summary": "mine", "chat": True, "defaults": {"context": 4096, "budget": "2"}}
    tables = draw(changed_document({"head": head, "shape": shape}))
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        return dump(tables)
    lines = [b"%s = %s" % (name.encode(), dump(value)) for name, value in tables.get("head", {}).items()]
    lines += [
        b"[shape]",
        *(b"%s = %s" % (name.encode(), dump(value)) for name, value in tables.get("shape", {}).items()),
    ]
    content = b"\n".join(lines)
    return draw(changed_bytes(content)) if draw(st.integers(0, 4)) == 0 else content


@st.composite
def changed_log(draw):
    content = draw(st.sampled_from(LOGS)).read_bytes()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.sampled_from(NOISE)).encode() + content[at:]
    return draw(changed_bytes(content)) if draw(st.booleans()) else content
