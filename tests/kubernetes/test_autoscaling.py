"""The number of replicas follows the load, by the control plane's own autoscaler and a metrics API of the pods."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
from builders.control_plane import eventually
from builders.metrics_api import CUSTOM, EXTERNAL, engine_path, metrics_api

pytestmark = pytest.mark.control_plane
NAME = "llama3-13b"
OWN = f"tgi-deploy-{NAME}"
UP = ("up", NAME, "--target", "kubernetes", "--concurrency", "2", "--yes")
HPA = "/apis/autoscaling/v2"


def autoscalers(namespace):
    return namespace.plane.call("GET", namespace.path("horizontalpodautoscalers", group=HPA))["items"]


def replicas(namespace, name=OWN):
    return namespace.plane.call("GET", namespace.deployments(name))["spec"]["replicas"]


def hasten(namespace, name=OWN):
    """Shorten the periods of an autoscaler: a simulated engine starts within seconds."""
    policy = {"type": "Pods", "value": 4, "periodSeconds": 1}
    rules = {"selectPolicy": "Max", "policies": [policy]}
    windows = {"scaleUp": 0, "scaleDown": 15}
    body = {"spec": {"behavior": {way: {**rules, "stabilizationWindowSeconds": s} for way, s in windows.items()}}}
    path = namespace.path("horizontalpodautoscalers", name, HPA)
    namespace.plane.call("PATCH", path, body, "application/merge-patch+json")


@contextmanager
def load(namespace, clients):
    """Keep so many requests open at the pods that are ready."""
    ending, body = threading.Event(), {"inputs": "Hello", "parameters": {"max_new_tokens": 900}}

    def send(number):
        while not ending.is_set():
            pods = namespace.ready()
            path = engine_path(namespace, pods[number % len(pods)], "/generate")
            namespace.plane.ask("POST", path, body)

    threads = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def test_replicas_follow_the_load_from_one_to_four_and_back(namespace, run):
    namespace.plane.engines(speed=30)
    with metrics_api(namespace, CUSTOM):
        code, up = run(*UP, "--replicas", "1..4")
        assert code == 0, up["errors"]
        hasten(namespace)
        code, shown = run("status", NAME)
        found = shown["data"]["deployments"][0]["autoscaler"]
        assert (code, found["least"], found["most"]) == (0, 1, 4)
        with load(namespace, 8):
            eventually(lambda: replicas(namespace) == 4 and len(namespace.ready()) == 4)
            code, again = run(*UP)
            assert (code, replicas(namespace)) == (0, 4), again["errors"]
            code, again = run(*UP, "--replicas", "1..4")
            assert code == 0, again["errors"]
            assert (replicas(namespace), again["data"]["changed"]) == (4, False)
            code, shown = run("status", NAME)
            assert shown["data"]["deployments"][0]["autoscaler"]["problem"] == ""
        eventually(lambda: replicas(namespace) == 1)
        code, down = run("down", NAME, "--yes")
        assert code == 0, down["errors"]
        assert autoscalers(namespace) == []


def test_a_range_moves_an_update_keeps_it_and_a_number_ends_it(namespace, run):
    with metrics_api(namespace, EXTERNAL):
        code, up = run(*UP, "--replicas", "2..3")
        assert code == 0, up["errors"]
        eventually(lambda: replicas(namespace) == 2)
        code, scaled = run("scale", NAME, "1..2")
        assert (code, scaled["data"]["replicas"], scaled["data"]["most"]) == (0, 1, 2), scaled["errors"]
        (found,) = autoscalers(namespace)
        assert (found["spec"]["minReplicas"], found["spec"]["maxReplicas"], replicas(namespace)) == (1, 2, 2)
        code, updated = run(*UP, "--engine-version", "3.3.6")
        assert code == 0, updated["errors"]
        (found,) = autoscalers(namespace)
        assert (found["spec"]["scaleTargetRef"]["name"], found["spec"]["minReplicas"]) == (f"{OWN}-r2", 1)
        assert replicas(namespace, f"{OWN}-r2") == 2
        code, back = run("rollback", NAME, "--yes")
        assert code == 0, back["errors"]
        (found,) = autoscalers(namespace)
        assert (found["spec"]["scaleTargetRef"]["name"], found["spec"]["maxReplicas"]) == (f"{OWN}-r3", 2)
        code, fixed = run("scale", NAME, "1")
        assert (code, fixed["data"]["before_most"]) == (0, 2), fixed["errors"]
        assert (autoscalers(namespace), replicas(namespace, f"{OWN}-r3")) == ([], 1)
        code, ranged = run(*UP, "--replicas", "1..2")
        assert code == 0, ranged["errors"]
        (found,) = autoscalers(namespace)
        path = namespace.path("horizontalpodautoscalers", found["metadata"]["name"], HPA)
        by_hand = f"{path}?fieldManager=kubectl-edit"
        namespace.plane.call("PATCH", by_hand, {"spec": {"maxReplicas": 4}}, "application/merge-patch+json")
        code, refused = run("scale", NAME, "1..3")
        assert (code, refused["errors"][0]["code"]) == (4, "fields_conflict")
        assert autoscalers(namespace)[0]["spec"]["maxReplicas"] == 4
        assert run("down", NAME, "--yes")[0] == 0
        assert autoscalers(namespace) == []


def test_without_a_metrics_api_a_range_is_refused_before_anything_is_created(namespace, run):
    code, refused = run(*UP, "--replicas", "1..2")
    assert (code, refused["errors"][0]["code"]) == (1, "autoscaling_unavailable")
    assert namespace.plane.call("GET", namespace.deployments())["items"] == []
    assert run(*UP)[0] == 0
    code, refused = run("scale", NAME, "1..2")
    assert (code, refused["errors"][0]["code"]) == (1, "autoscaling_unavailable")
    code, shown = run("status", NAME)
    assert (code, shown["data"]["deployments"][0]["autoscaler"]) == (0, None)
    assert run("down", NAME, "--yes")[0] == 0
