"""The sandbox's control interface requires its key, rejects web pages, and names malformed input."""

from __future__ import annotations

import contextlib
import http.client
import json

import pytest

from tgi_deploy.sandbox import api

HEALTH = ("GET", "/_sandbox/health")
KEYED = [
    (method, f"/_sandbox/{what}")
    for method, what in (
        ("GET", "calls"),
        ("DELETE", "calls"),
        ("GET", "faults"),
        ("POST", "faults"),
        ("DELETE", "faults"),
        ("GET", "machines"),
        ("POST", "reset"),
        ("POST", "shutdown"),
        ("GET", "no-such-route"),
    )
]
MALFORMED = {
    "a list": b"[]",
    "no JSON": b"nul",
    "null": b"null",
    "half": b'{"name":',
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "a deep object": b'{"name": ' + b"[" * 500 + b"]" * 500 + b"}",
    "no UTF-8": b'{"name": "\xff"}',
    "half a surrogate pair": b'{"name": "\\ud800"}',
    "no number of JSON's": b'{"delay_s": NaN}',
    "a number without end": b'{"times": ' + b"9" * 5000 + b"}",
}


def ask(cloud, method, path, *, body=b"", **headers):
    """Send one request with these headers, host and length; return status and text."""
    place = cloud.url.removeprefix("http://")
    sent = {"Host": place, "Content-Length": str(len(body)), **headers}
    with contextlib.closing(http.client.HTTPConnection(place, timeout=30)) as connection:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders()
        connection.send(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def bearer(cloud):
    return {"Authorization": f"Bearer {cloud.access_key}"}


@pytest.mark.parametrize("given", [None, "Bearer ", "Bearer guess", "Basic Zm9vOmJhcg=="])
def test_every_route_except_health_requires_the_key(cloud, given):
    cloud.fault(name="capacity")
    for method, path in KEYED:
        status, text = ask(cloud, method, path, body=b"{}", Authorization=given)
        assert status == 401, path
        assert "sandbox start" in text
    assert len(cloud.control("GET", "faults")["faults"]) == 1, "it goes on, as it was"


def test_health_is_public_and_reveals_nothing(cloud):
    status, text = ask(cloud, *HEALTH)
    assert (status, json.loads(text)) == (200, {"status": "ok"})


def test_health_proves_possession_of_the_key(cloud):
    status, text = ask(cloud, "GET", "/_sandbox/health?challenge=chosen+by+who+asks")
    assert status == 200
    assert cloud.access_key not in text
    assert json.loads(text)["proof"] == api.proof(cloud.access_key, "chosen by who asks")
    assert json.loads(text)["proof"] != api.proof("another key", "chosen by who asks")


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_body_is_a_bad_request(cloud, body):
    for method, path in (*KEYED, HEALTH):
        status, text = ask(cloud, method, path, body=body, **bearer(cloud))
        assert status == 400, path
        assert "JSON" in json.loads(text)["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Length": "-1"}, 400),
        ({"Content-Length": "many"}, 400),
        ({"Content-Length": "1000000000000"}, 413),
        ({"Content-Length": "9" * 5000}, 413),
        ({"Content-Length": None, "Transfer-Encoding": "chunked"}, 411),
    ],
)
def test_a_body_without_a_valid_length_is_not_read(cloud, headers, status):
    assert ask(cloud, "POST", "/_sandbox/reset", **bearer(cloud), **headers)[0] == status


@pytest.mark.parametrize(
    "document",
    [
        {"name": []},
        {"name": {}},
        {"name": "slow-reply", "delay_s": -1},
        {"name": "slow-reply", "delay_s": 1e400},
        {"name": "capacity", "times": 1e400},
        {"name": "storm", "throttle": "nan"},
    ],
)
def test_a_fault_with_invalid_values_is_a_bad_request(cloud, document):
    body = json.dumps(document).replace("Infinity", "1e400").encode()
    assert ask(cloud, "POST", "/_sandbox/faults", body=body, **bearer(cloud))[0] == 400


def test_a_deep_body_without_the_key_is_rejected(cloud):
    target = {"X-Amz-Target": "AmazonSSM.GetParameter"}
    assert ask(cloud, "POST", "/", body=MALFORMED["deep"], **target)[0] == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "127.0.0.1@evil", "", None]
)
def test_dns_rebinding_to_loopback_is_rejected(cloud, host):
    for method, path in (*KEYED, HEALTH, ("POST", "/"), ("GET", "/moto-api/data.json")):
        assert ask(cloud, method, path, Host=host, **bearer(cloud))[0] == 421, path


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:5000", "127.0.0.1", "127.0.0.1:5000"])
def test_loopback_names_are_accepted_with_any_port(cloud, host):
    """A forwarded port has another number."""
    assert ask(cloud, "GET", "/_sandbox/faults", Host=host, **bearer(cloud))[0] == 200
