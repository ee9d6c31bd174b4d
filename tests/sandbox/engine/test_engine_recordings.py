"""The stub server compared with the real engine: replays exchanges recorded from TGI 3.3.7.

`tests/cases/engine/exchanges.json` was recorded on 2026-11-22 from the launcher, router and server of tag v3.3.7, built
from source, serving a tiny local model from the CPU. Texts and numbers are the model's; status, headers, members and
the words of refusals are the engine's. Long bodies are cut there; `<1000 words>` stands for that many.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

CASES = Path(__file__).parents[2] / "cases" / "engine"
EXCHANGES = json.loads((CASES / "exchanges.json").read_text(encoding="utf-8"))
LIMITS = (
    "--max-input-tokens", "500", "--max-total-tokens", "600", "--max-concurrent-requests", "8", "--max-best-of", "2",
    "--max-stop-sequences", "4", "--max-client-batch-size", "4",
)  # fmt: skip
FILLED = {"<1000 words>": "word " * 1000, "<2100000 letters>": "a" * 2_100_000}
CUT = {"docs_slash", "openapi", "metrics1"}
EVERY_ANSWER = {"vary", "access-control-allow-origin"}
NOT_COMPARED = {"date", "content-length", "content-type", "connection", "transfer-encoding"}

BATCHED = "the recorded build failed when two requests shared a batch: its transformers did not suit the server"
SYNTAX = "the stub server reports neither the member that encloses a syntax error nor a duplicate member"
OTHERWISE = {
    "compl_list": BATCHED, "overload_stream": BATCHED,
    "bad_json_nan": SYNTAX, "chat_bad_json": SYNTAX, "dup_field": SYNTAX,
}  # fmt: skip
# The recorded build lacks the label of the published image.
BUILT_ELSEWHERE = ('"docker_label":null', '"docker_label":"sha-0000000"')


@pytest.fixture(scope="module")
def answers(start_engine, tiny_model):
    """Every exchange in the recorded order: the first metrics are those of an engine without requests."""
    served = {}
    with start_engine("--model-id", str(tiny_model), *LIMITS) as engine:
        engine.wait_until_ready()
        for name, real in EXCHANGES.items():
            served[name] = send(engine, real)
    with start_engine("--model-id", str(tiny_model), *LIMITS, options=["--fault", "overloaded"]) as full:
        full.wait_until_ready()
        served["overload"] = send(full, EXCHANGES["overload"])
    return served


def send(engine, exchange):
    method, path, body = exchange["request"]
    raw = body if body is None or isinstance(body, str) else json.dumps(body)
    for short, whole in FILLED.items() if raw else ():
        raw = raw.replace(short, whole)
    kind = exchange.get("sent_as", "application/json")
    headers = {"Content-Type": kind} if kind else {}
    return engine.request(method, path, [raw.encode()] if exchange.get("chunked") else raw, headers)


@pytest.mark.parametrize("name", EXCHANGES)
def test_replies_match_the_recordings(answers, name):
    real = EXCHANGES[name]
    status, headers, text = answers[name]
    sent = {header.lower(): value for header, value in headers.items()}
    assert sent.keys() >= EVERY_ANSWER
    found = {
        "status": status,
        "type": sent.get("content-type", ""),
        "headers": sorted(sent.keys() - EVERY_ANSWER - NOT_COMPARED),
        "allow": sent.get("allow"),
        "body": members(text[: len(real["body"])] if name in CUT else text),
    }
    recorded = {**real, "allow": real.get("allow"), "body": members(real["body"].replace(*BUILT_ELSEWHERE))}
    assert (found != {member: recorded[member] for member in found}) == (name in OTHERWISE), (found, recorded)


def test_few_replies_differ():
    assert len(OTHERWISE) <= 0.05 * len(EXCHANGES)


def test_metrics_match_the_recordings(answers):
    """Names, types, labels and buckets; the first three buckets, their number, the last three."""
    real = json.loads((CASES / "metrics.json").read_text(encoding="utf-8"))
    # Requests came one by one here: the counter of requests that joined a batch is in test_engine_admission.py.
    assert families(answers["metrics1"][2]) == {name: real[name] for name in real if name != "tgi_batch_concat"}


def families(text):
    found = {}
    for about, name, kind, lines in re.findall(r"(?:# HELP \w+ (.*)\n)?# TYPE (\w+) (\w+)\n((?:\w.*\n)+)", text):
        series = [(line[len(name) :].partition(" ")[0].partition("{")) for line in lines.splitlines()]
        labels = [re.findall(r'(\w+)="([^"]*)"', inside) for _, _, inside in series]
        steps = list(dict.fromkeys(value for pairs in labels for key, value in pairs if key in ("le", "quantile")))
        found[name] = {
            "help": about or None,
            "type": kind,
            "labels": list(dict.fromkeys(key for pairs in labels for key, _ in pairs)),
            "ends": list(dict.fromkeys(end for end, _, _ in series)),
        }
        if steps:
            found[name]["steps"] = steps if len(steps) < 8 else [*steps[:3], str(len(steps)), *steps[-3:]]
    return found


def members(text):
    """Return what does not depend on the model: names and types of members, error texts without numbers."""
    if text.startswith("data:"):
        events = [event.partition("data:")[2].strip() for event in text.split("\n\n") if event.strip()]
        return [members(event) for event in (events[0], *events[-2:])]
    try:
        return shape(json.loads(text))
    except ValueError:
        return text


def shape(value):
    if isinstance(value, dict):
        if "error" in value:
            return {name: re.sub(r"\d+", "0", str(words)) for name, words in value.items()}
        return {name: shape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
