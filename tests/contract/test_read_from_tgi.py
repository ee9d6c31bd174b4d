"""What the program reads from TGI is what TGI writes: texts, routes and metrics are recorded, or name their source.

Recorded from 3.3.7: tests/cases/engine (exchanges, runs, metrics) and the logs of tests/cases/diagnosis/real-*.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from builders import engines

from tgi_deploy.engines.tgi import Tgi

TGI = Tgi()
REPOSITORY = Path(__file__).parents[2]
CASES = REPOSITORY / "tests" / "cases"
PHASES = engines.documents(TGI)["phases.json"]
EXCHANGES = json.loads((CASES / "engine" / "exchanges.json").read_text(encoding="utf-8"))
METRICS = json.loads((CASES / "engine" / "metrics.json").read_text(encoding="utf-8"))
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def recorded_lines():
    for path in (CASES / "diagnosis").glob("real-*/log*"):
        yield from COLOR.sub("", path.read_text(encoding="utf-8")).splitlines()
    for path in (CASES / "engine" / "runs").glob("*.json"):
        yield from json.loads(path.read_text(encoding="utf-8"))["story"]


def patterns_read():
    for phase in PHASES["phases"]:
        yield from (*phase["begins"], *phase["restarts"])
    for entry in (*PHASES["progress"], *PHASES["error_lines"]):
        yield entry["match"]
    for kind in ("stops", "survived", "failures", "consequences"):
        yield from PHASES[kind]


def test_every_log_text_is_recorded_or_cited():
    lines = list(recorded_lines())
    unseen = {pattern for pattern in patterns_read() if not any(re.search(pattern, line) for line in lines)}
    assert unseen == PHASES["unrecorded"].keys(), "cite the source of what no recording has, and only of that"
    assert all(re.search(r"\.(?:rs|py)\b", source) for source in PHASES["unrecorded"].values())


def routes_read():
    engine = TGI
    release = engines.releases(engine)[-1]
    access = engine.access(release)
    yield from (probe.path for probe in engine.probes(engines.PROMISE))
    yield from (path for path, _ in engine.pages)
    yield from (*access.guarded_routes, *access.open_inference_routes)
    yield engine.metrics(release).path


def test_every_route_is_recorded_and_exists():
    answered = {exchange["request"][1] for exchange in EXCHANGES.values() if exchange["status"] != 404}
    assert set(routes_read()) - answered == set()


def test_every_metric_is_recorded():
    found = TGI.metrics(engines.releases(TGI)[-1])
    read = " ".join(filter(None, [found.queued, found.running, found.kv_used, *found.request_counters]))
    tables = (REPOSITORY / "profiles" / "engines" / "tgi").glob("*.json")
    names = re.findall(r"\btgi_(?:batch|queue|request)_\w+", read + "".join(map(Path.read_text, tables)))
    assert len(names) > 5
    assert {re.sub(r"_(?:bucket|sum)$", "", name) for name in names} <= METRICS.keys()


@pytest.mark.parametrize("member", ["model_id", "max_input_tokens", "max_total_tokens", "version"])
def test_the_recorded_answer_has_the_compared_fields(member):
    assert member in json.loads(EXCHANGES["info"]["body"])
