"""The stub server compared with the real engine: replays complete runs recorded from TGI 3.3.7.

Each file of `tests/cases/engine/runs` is one run of the launcher, router and server of tag v3.3.7, recorded without a
GPU on 2026-11-22: what was started, how it was ended, and each record of the log without what differs from run to run.
Of a traceback there are its size and its last words.
"""

from __future__ import annotations

import json
import re
import signal
import socket
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

CASES = Path(__file__).parents[2] / "cases" / "engine"
RUNS = sorted((CASES / "runs").glob("*.json"))
LIMITS = ("--max-input-tokens", "500", "--max-total-tokens", "600", "--max-concurrent-requests", "8")
KIND = {"Content-Type": "application/json"}

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d+Z?")
BEGINS = re.compile(rf"{STAMP.pattern} +(?:INFO|WARN|ERROR) |Error: |error: |\{{|thread '")
NOT_COMPARED = "Waiting for shard to be ready..."  # timing decides how often it is written
SIZES = {4: "up to 4 KB", 16: "up to 16 KB", 64: "up to 64 KB"}


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_logs_and_exit_codes_match_the_recordings(path, tiny_model, start_engine):
    real = json.loads(path.read_text(encoding="utf-8"))
    with TemporaryDirectory() as scratch:  # a path that is short enough for a line of a traceback
        model = folder_of(real["folder"], tiny_model, Path(scratch))
        code, log = played(real, model, start_engine)
    assert (code, story(log, str(model))) == (real["exit_code"], real["story"])


def folder_of(kind, tiny_model, scratch):
    """The model folder of a run; all but one lack something, or something in it is cut off."""
    if kind == "tiny":
        return tiny_model
    folder = scratch / kind
    for file in tiny_model.iterdir() if kind != "nothere" else ():
        folder.mkdir(exist_ok=True)
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
        elif kind == "corrupt":
            (folder / file.name).write_bytes(file.read_bytes()[:3000])
    return folder


def played(real, model, start_engine):
    args = ["--model-id", str(model), *LIMITS, *real["args"]]
    with ExitStack() as held:
        if real.get("port_taken"):
            taken = held.enter_context(socket.create_server(("127.0.0.1", 0)))
            args += [real["port_taken"], str(taken.getsockname()[1])]
        options = ["--accelerator", "none"]
        engine = held.enter_context(start_engine(*args, options=options, speed=real.get("speed", 500), shards=None))
        if real.get("end"):
            engine.wait_for(real["when"])
            streams = [asked(engine, held, *request) for request in real.get("requests", ())]
            engine.process.send_signal(getattr(signal, real["end"]))
            for stream in streams:
                stream.read()
        code = engine.end()
        engine.reader.join(60)
        return code, engine.log


def asked(engine, held, path, body, key):
    connection = HTTPConnection("127.0.0.1", engine.port, timeout=60)
    held.callback(connection.close)
    engine.wait_until_answering()
    connection.request("POST", path, json.dumps(body), KIND | ({"Authorization": f"Bearer {key}"} if key else {}))
    return connection.getresponse()


def story(log, model):
    """Return each log record without parts that differ between runs. stderr is unordered, so it comes last."""
    text = COLOUR.sub("", log).replace(model, "MODEL").replace("\n\nthread", "\nthread")
    records = re.split(rf"\n(?={BEGINS.pattern})", text.rstrip("\n"))
    shown = [line for record in records for line in summary(as_text(record))]
    errors = sorted(line for line in shown if line.startswith("Error: "))
    return [line for line in shown if line not in errors] + errors


def as_text(record):
    """Return a JSON record in the text form."""
    if not record.startswith("{"):
        return record
    result = json.loads(record)
    span, rank = result.get("span", {}).get("name"), result.get("span", {}).get("rank")
    place = f"{result['filename']}:{result['line_number']}: " if "filename" in result else ""
    message = result.get("message") or result["fields"]["message"]
    head = f"{result['timestamp']} {result['level']} {f'{span}: ' if span else ''}{result['target']}: {place}{message}"
    return head if rank is None else f"{head} rank={rank}"


def summary(record):
    first, *rest = record.strip("\n").splitlines()
    first = STAMP.sub("", first).strip()
    first = re.sub(r'"[\d.]+(?:ns|µs|ms|s)"', '"0s"', first)
    first = re.sub(r"ready in [\d.]+s", "ready in 0s", first)
    first = re.sub(r"unix:///\S+-(\d)", r"unix://SOCKET-\1", first)
    if NOT_COMPARED in first:
        return []
    if first.startswith("thread"):
        return [re.sub(r" \(\d+\)", "", first), rest[0]]
    if not rest:
        return [first]
    if first.endswith("Args {"):
        return ["INFO text_generation_launcher: Args { … }"]
    if first.startswith("error:"):
        return [first, *rest]
    size = next(name for most, name in SIZES.items() if len(record.encode()) <= most * 1000)
    last = max((place for place, line in enumerate(rest) if line.startswith(("╰", "    "))), default=-1)
    return [f"{first} [{size}] {' '.join(' '.join(rest[last + 1 :]).split())}"]


def test_the_arguments_are_logged_in_the_order_of_the_source(start_engine, tiny_model):
    recorded = (CASES / "arguments.txt").read_text(encoding="utf-8")
    args = ("--hostname", "127.0.0.1", "--usage-stats", "off", "--api-key", "k1")
    with start_engine("--model-id", str(tiny_model), *LIMITS, *args, shards=None) as engine:
        engine.wait_for("\n}\n")
        engine.stop()
    shown = engine.log[engine.log.index("Args {") : engine.log.index("\n}\n") + 3]
    assert varied(shown) == varied(recorded)


def varied(arguments):
    """Without values that each run has for itself."""
    return re.sub(r"(model_id|port|shard_uds_path|master_port): .*", r"\1: …", arguments)
