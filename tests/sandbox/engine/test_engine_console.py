"""Ten thousand requests, and a console that keeps the last 64 KiB: what is still visible of the start and the end."""

from __future__ import annotations

from io import StringIO

import pytest
from builders import engines, plans
from builders.logs import GRAMMAR
from builders.machine import Machine

from tgi_deploy.diagnosis.reader import read
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.sandbox.engine.bodies import parameters
from tgi_deploy.sandbox.engine.generator import Query
from tgi_deploy.sandbox.engine.launcher import image_environment, run
from tgi_deploy.sandbox.engine.logs import Log
from tgi_deploy.sandbox.engine.situation import Container, Fault, Host, Pace
from tgi_deploy.wiring import render_artifact

REQUESTS = 10_000
KEPT = 64 * 1024
EXITED = "[tgi-deploy] phase=engine-exited code=1\n"


@pytest.fixture(scope="module")
def crashed(catalog):
    """`crashed(**how)` returns the log up to the first request, and the log of a dying shard."""

    def lived(*, json_output, colored):
        release, card = catalog.release("3.3.7"), catalog.accelerator("L40S")
        out = StringIO()
        container = Container(
            release=release,
            host=Host(accelerator=card, gpus=1, memory_bytes=card.memory_bytes),
            environ=image_environment(release) | ({} if colored else {"NO_COLOR": "1"}),
            faults=frozenset(map(Fault, ["crash-after-ready"])),
            models=catalog,
            listen=("127.0.0.1", 0),
            pace=Pace(speed=1e7),
            out=out,
            err=out,
        )
        args = ["--model-id", "HuggingFaceTB/SmolLM2-135M-Instruct", "--num-shard", "1"]
        assert run(container, [*args, *(["--json-output"] if json_output else [])]) == 1
        lines = out.getvalue().splitlines(keepends=True)
        border = next(place for place, line in enumerate(lines) if "Connected" in line) + 1
        return "".join(lines[:border]), "".join(lines[border:])

    return lived


def query(route, max_new_tokens):
    return Query(route=route, inputs="", parameters=parameters(max_new_tokens=max_new_tokens))


def request_lines(route, *, json_output, colored):
    out = StringIO()
    log = Log(out=out, json_output=json_output, router_color=colored)
    log.answered(query(route, 200), (1.2, 0.0004, 0.00005, 1.19, 0.006), 7)
    log.refused(query(route, 5), "`inputs` cannot be empty")
    return out.getvalue() * (REQUESTS // 2)


@pytest.mark.parametrize("json_output", [False, True])
@pytest.mark.parametrize("colored", [False, True])
@pytest.mark.parametrize("route", ["generate", "generate_stream", "chat_completions"])
def test_a_log_full_of_requests_still_shows_phase_and_cause(crashed, route, colored, json_output):
    start, end = crashed(json_output=json_output, colored=colored)
    asked = request_lines(route, json_output=json_output, colored=colored)
    serving, ended = ((start + asked)[-KEPT:], (start + asked + end + EXITED)[-KEPT:])
    assert "KV-cache" not in serving
    assert (read(serving, GRAMMAR).startup_phase, read(serving, GRAMMAR).findings) == ("ready", ())
    assert read(ended, GRAMMAR).cause_of_end.code == "cuda_illegal_access"


def test_the_start_stays_in_the_console_of_a_machine(crashed, tmp_path):
    start, end = crashed(json_output=False, colored=True)
    asked = request_lines("generate", json_output=False, colored=True)
    hidden = Tgi().container(engines.fit_of(engines.releases(Tgi())[-1])).redactions
    deployable = plans.deployable(candidate=plans.candidate(engine=plans.engine(redactions=hidden)))
    data = render_artifact("user-data", deployable).text
    machine = Machine(folder=tmp_path, user_data=data, engine_log=start + asked + end, engine_code=1)
    console = machine.run("run-engine").stdout[-KEPT:]
    assert "KV-cache blocks" in console
    assert "GenerateParameters" not in console
    view = read(console, GRAMMAR)
    assert (view.startup_phase, view.cause_of_end.code) == ("ready", "cuda_illegal_access")
