"""Clients of the Python API in threads of one process: each has its own plans, progress and stop."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tgi_deploy import Client, DeployError, Stops
from tgi_deploy.values.progress import PhaseEvent, StepEvent

MODELS = {"one": "tinyllama-1.1b", "two": "smollm2-135m"}


def live(name, together):
    """Return what one client sees from plan to removal; both clients start each step together."""
    events = []
    client = Client(sandbox=True, progress=events.append, command=f"job {name}")
    seen = {}

    def step(key, call):
        together.wait(60)
        seen[key] = call()

    step("plan", lambda: client.plan(MODELS[name], budget=2).data.plan)
    step("up", lambda: client.up(MODELS[name], name=name, budget=2, ttl="1h", ready="fast").data)
    step("status", lambda: client.status(name).data)
    step("names", lambda: {row.name for row in client.list().data.deployments})
    step("costs", lambda: {row.name for row in client.costs().data.deployments})
    step("answer", lambda: client.ask(name, "What is a GPU?", max_tokens=8).data)
    step("extend", lambda: client.extend(name, ttl="2h").data)
    step("again", lambda: client.up(MODELS[name], name=name, budget=2).data.changed)
    step("down", lambda: client.down(name).data)
    return seen, events


def cancelled(name):
    """Return the error of a client that is stopped from another thread while it waits for its engine."""
    stops = Stops()

    def watch(event):
        if isinstance(event, PhaseEvent):
            stops.request()

    with pytest.raises(DeployError) as caught:
        Client(sandbox=True, progress=watch).up("tinyllama-1.1b", name=name, budget=2, stops=stops)
    return caught.value


def test_clients_in_threads_are_independent(program):
    handlers, environment = signal.getsignal(signal.SIGINT), dict(os.environ)
    together = Barrier(len(MODELS))
    with ThreadPoolExecutor() as pool:
        running = {name: pool.submit(live, name, together) for name in MODELS}
        stopped = pool.submit(cancelled, "three").result(120)
        found = {name: future.result(120) for name, future in running.items()}

    assert (stopped.code, stopped.data["outcome"]) == ("interrupted", "removed")
    for name, (seen, events) in found.items():
        assert seen["plan"].model.profile == MODELS[name]
        assert (seen["up"].deployment.name, seen["up"].deployment.phase) == (name, "ready")
        assert seen["status"].url == seen["up"].endpoint
        assert seen["names"] >= set(MODELS)
        assert seen["costs"] >= set(MODELS)
        assert (seen["answer"].name, seen["extend"].name) == (name, name)
        assert seen["again"] is False
        assert seen["down"].removed == (name,)
        done = [event.step.kind for event in events if isinstance(event, StepEvent) and not event.begun]
        assert done[:3] == ["security-group", "launch-template", "instance"]
    assert program.instances() == []
    assert (signal.getsignal(signal.SIGINT), dict(os.environ)) == (handlers, environment)
