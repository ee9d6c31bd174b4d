"""The stub server as a process: sockets, signals, exit codes, files on disk."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection

import pytest


def test_nothing_listens_until_it_is_ready(start_engine):
    with start_engine(speed=150) as engine:
        engine.wait_for("Starting check and download process")
        assert engine.refuses()
        engine.wait_for("Warming up model")
        assert engine.refuses()
        engine.wait_until_ready()
        assert engine.request("GET", "/health")[0] == 200
        phases = [
            "Args {", "Using attention", "Starting check and download", "Successfully downloaded", "Starting shard",
            "Shard ready in", "Starting Webserver", "Warming up model", "KV-cache blocks", "Using backend V3",
            "Serving revision", "Connected",
        ]  # fmt: skip
        places = [engine.log.index(phase) for phase in phases]
        assert places == sorted(places)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_makes_it_exit_0(start_engine, number):
    with start_engine() as engine:
        engine.wait_until_ready()
        engine.process.send_signal(number)
        assert engine.end() == 0
        result = [
            "Terminating webserver", "Waiting for webserver to gracefully shutdown",
            "signal received, starting graceful shutdown", "webserver terminated", "Shutting down shards",
            "Terminating shard", "Waiting for shard to gracefully shutdown", "shard terminated",
        ]  # fmt: skip
        engine.wait_for(result[-1])
        places = [engine.log.index(words) for words in result]
        assert places == sorted(places)
        assert engine.refuses()


@pytest.mark.parametrize(
    "phase", ["Starting check and download", "Download file", "Starting shard", "Warming up model"]
)
def test_it_can_be_stopped_in_every_phase(start_engine, phase):
    with start_engine(speed=20) as engine:
        engine.wait_for(phase)
        assert engine.stop() == 0
        assert "Connected" not in engine.log


def test_a_hanging_shard_waits_until_it_is_stopped(start_engine):
    with start_engine(options=["--fault", "hang-shard"]) as engine:
        engine.wait_for("Waiting for shard to be ready...")
        assert engine.refuses()
        assert engine.stop() == 0


def test_requests_in_flight_are_finished(start_engine):
    with start_engine("--graceful-termination-timeout", "20000") as engine:
        engine.wait_until_ready()
        body = json.dumps({"inputs": "drain", "parameters": {"max_new_tokens": 4}}).encode()
        head = f"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", engine.port), timeout=60) as slow:
            slow.sendall(head.encode() + body[:5])
            engine.request("GET", "/health")
            engine.process.send_signal(signal.SIGTERM)
            engine.wait_for("signal received, starting graceful shutdown")
            slow.sendall(body[5:])
            reply = slow.makefile("rb").readline()
        assert reply == b"HTTP/1.1 200 OK\r\n"
        assert engine.end() == 0
        engine.wait_for("webserver terminated")


def test_open_streams_complete_and_idle_connections_close(start_engine):
    kind = {"Content-Type": "application/json"}
    body = json.dumps({"inputs": "drain", "parameters": {"max_new_tokens": 200, "details": True}})
    with start_engine("--graceful-termination-timeout", "20000", speed=20) as engine, ExitStack() as open_ones:
        engine.wait_until_ready()
        idle, *busy = (
            open_ones.enter_context(closing(HTTPConnection("127.0.0.1", engine.port, timeout=60))) for _ in range(51)
        )
        idle.request("GET", "/health")
        idle.getresponse().read()
        for connection in busy:
            connection.request("POST", "/generate_stream", body, kind)
        streams = [connection.getresponse() for connection in busy]
        engine.process.send_signal(signal.SIGTERM)
        engine.wait_for("signal received, starting graceful shutdown")
        assert idle.sock.recv(1) == b""
        assert engine.refuses()
        assert sum(b'"finish_reason"' in stream.read() for stream in streams) == 50
        assert engine.end() == 0
        engine.wait_for("webserver terminated")


def test_the_grace_period_is_bounded(start_engine):
    with start_engine("--graceful-termination-timeout", "200") as engine:
        engine.wait_until_ready()
        with socket.create_connection(("127.0.0.1", engine.port)) as unfinished:
            unfinished.sendall(
                b"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
            )
            engine.request("GET", "/health")
            assert engine.stop() == 0
        engine.wait_for("Killing webserver")


def test_a_crash_after_ready_takes_the_container_down(start_engine):
    with start_engine(options=["--fault", "crash-after-ready"], speed=300) as engine:
        engine.wait_until_ready()
        assert engine.request("GET", "/health")[0] == 200
        assert engine.end() == 1
        engine.wait_for("Error: ShardFailed")
        assert "Shard 0 crashed" in engine.log


def test_a_taken_port_is_a_webserver_failure(start_engine):
    with start_engine() as first:
        first.wait_until_ready()
        address = ["--listen", f"127.0.0.1:{first.port}"]
        with start_engine(options=address) as second:
            assert second.end() == 1
            second.wait_for("Error: WebserverFailed")
            assert "Failed to bind to" in second.log


def test_weights_are_kept_in_the_data_folder(start_engine, tmp_path):
    kept = ["--data", str(tmp_path)]
    with start_engine(options=kept) as engine:
        engine.wait_until_ready()
        assert "Download file" in engine.log
        engine.stop()
    with start_engine(options=kept) as engine:
        engine.wait_until_ready()
        assert "Files are already present on the host. Skipping download." in engine.log
        engine.stop()
    # An older image looks for its cache elsewhere, so the same volume downloads everything again.
    with start_engine(options=[*kept, "--version", "2.2.0"]) as engine:
        engine.wait_until_ready()
        assert "Download file" in engine.log


def test_a_machine_without_a_gpu_serves_from_the_cpu(start_engine):
    with start_engine(options=["--accelerator", "none"]) as engine:
        engine.wait_until_ready()
        assert "Found no NVIDIA driver" in engine.log
        engine.stop()


def test_it_exits_when_its_log_is_closed():
    command = [
        sys.executable, "-m", "tgi_deploy.sandbox.engine", "--version", "3.3.7", "--listen", "127.0.0.1:0",
        "--accelerator", "L40S", "--speed", "300", "--", "--model-id", "openai-community/gpt2",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 1
        assert process.stderr.read() == ""


def test_colors_are_on_unless_turned_off(start_engine):
    with start_engine(environ={"NO_COLOR": "", "LOG_COLORIZE": "1"}) as engine:
        engine.wait_for("Using backend V3")
        launcher, router = (
            next(line for line in engine.lines if fragment in line)
            for fragment in ("Starting Webserver", "Using backend V3")
        )
    assert launcher.startswith("\x1b[2m")
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z  INFO text_generation_router_v3: ", router)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--fault", "oom-lod"], "invalid choice: 'oom-lod'"),
        (["--version", "9.9.9"], "9.9.9"),
        (["--accelerator", "L99"], "L99"),
        (["--speed", "0"], "is not above 0"),
        (["--listen", "somewhere"], "is not HOST:PORT"),
    ],
)
def test_the_stubs_own_options_are_checked(options, complaint):
    command = [
        sys.executable, "-m", "tgi_deploy.sandbox.engine", "--version", "3.3.7", "--listen", "127.0.0.1:0",
        "--accelerator", "L40S", *options, "--",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_long_prompt_takes_the_engine_down(start_engine):
    kind = {"Content-Type": "application/json"}
    with start_engine(options=["--fault", "oom-serving"]) as engine:
        engine.wait_until_ready()
        assert engine.request("POST", "/generate", json.dumps({"inputs": "short"}), kind)[0] == 200
        long = {"inputs": "word " * 400, "parameters": {"max_new_tokens": 4}}
        assert engine.request("POST", "/generate", json.dumps(long), kind)[0] == 424
        assert engine.end() == 1
        engine.wait_for("CUDA out of memory")


def test_another_program_at_the_default_metrics_port_is_harmless(start_engine):
    """A container has its own network: what listens at 9000 on this computer is not in its way."""
    with ExitStack() as held:
        with suppress(OSError):  # a program may listen there already
            held.enter_context(socket.create_server(("127.0.0.1", 9000)))
        held.enter_context(start_engine()).wait_until_ready()
