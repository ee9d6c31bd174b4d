"""The stand-in beside the real engine: exchanges recorded from TGI 3.3.7, sent once more.

`tests/cases/engine/exchanges.json` was recorded on 2026-11-22 from the launcher, router and server of tag v3.3.7, built
from source, serving a tiny local model from the CPU. Texts and numbers are the model's; status, type, members and the
words of refusals are the engine's.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

EXCHANGES = json.loads((Path(__file__).parents[2] / "cases" / "engine" / "exchanges.json").read_text(encoding="utf-8"))
LIMITS = (
    "--max-input-tokens", "500", "--max-total-tokens", "600", "--max-concurrent-requests", "8", "--max-best-of", "2",
    "--max-stop-sequences", "4", "--max-client-batch-size", "4",
)  # fmt: skip
SENT_AS = {"no_ct": None, "text_ct": "text/plain", "form_ct": "application/x-www-form-urlencoded"}


# What the stand-in is known to do otherwise: it takes, or words, what no client of this program sends.
# One that has come to agree is to be taken off this list.
OTHERWISE = frozenset(
    {
        "info_head", "health_head", "gen_params_null", "mnt_neg", "bad_json_trailing", "dup_field", "grammar_bad_type",
        "grammar_noprops", "grammar_bad_regex", "tokenize_empty", "tools_required_notools", "chat_rf_schema",
        "chat_rf_and_tools", "compl_stream", "compl_stream_usage",
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def engine(start_engine):
    with start_engine(*LIMITS) as engine:
        engine.wait_until_ready()
        yield engine


@pytest.mark.parametrize("name", EXCHANGES)
def test_it_answers_as_the_real_engine_did(engine, name):
    real = EXCHANGES[name]
    method, path, body = real["request"]
    sent_as = SENT_AS.get(name, "application/json")
    raw = body if body is None or isinstance(body, str) else json.dumps(body)
    status, headers, text = engine.request(method, path, raw, {"Content-Type": sent_as} if sent_as else {})
    kind = headers.get("Content-Type", "").partition(";")[0]
    found = status, kind, members(text)
    recorded = real["status"], real["type"].partition(";")[0], members(real["body"])
    assert found != recorded if name in OTHERWISE else found == recorded


def members(text):
    """What of an answer does not depend on the model: names and types of members, words of errors without numbers."""
    if text.startswith("data:"):
        events = [event.partition("data:")[2].strip() for event in text.split("\n\n") if event.strip()]
        return [members(event) for event in (events[0], *events[-2:])]
    try:
        return shape(json.loads(text))
    except ValueError:
        return text.partition(": ")[0]  # what follows are the parser's own words


def shape(value):
    if isinstance(value, dict):
        if "error" in value:
            return {name: re.sub(r"\d+", "0", str(said)) for name, said in value.items()}
        return {name: shape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
