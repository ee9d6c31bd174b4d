from __future__ import annotations

import socket
import threading
import time

import pytest
from builders.engines import get, post, stream
from loopback_engine import closed_port, raw_server, serving

from tgi_deploy.errors import DeployError, InputError, NotHealthyError
from tgi_deploy.readiness.http import HttpEngine, Timeouts, caller_address, payloads, probe_health

SHORT = Timeouts(connect_s=1.0, read_s=0.2, total_s=0.4)
DRIPPED_ON = Timeouts(connect_s=0.1, read_s=0.1, total_s=0.1)  # a response may take both connect_s and total_s


@pytest.mark.parametrize("status", [200, 503, 404])
def test_probe_returns_the_status(status):
    with serving({"/health": (status, None)}) as server:
        probe = probe_health(server.url + "/health")
    assert (probe.outcome, probe.status, probe.ok) == ("status", status, status == 200)


def test_verbose_prints_unanswered_calls(caplog):
    caplog.set_level("INFO", "tgi_deploy.calls")
    at = f"127.0.0.1:{closed_port()}"
    probe_health(f"http://{at}/health")
    assert caplog.messages == [f"http GET {at}/health"]


def test_probe_of_a_closed_port_is_refused():
    assert probe_health(f"http://127.0.0.1:{closed_port()}").outcome == "refused"


@pytest.mark.parametrize("reply", [b"", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"HTTP/1.1 20"])
def test_probe_of_a_broken_or_non_http_reply_is_reset(reply):
    with raw_server(reply) as url:
        assert probe_health(url).outcome == "reset"


def test_probe_of_a_silent_server_is_a_timeout():
    with raw_server(None) as url:
        assert probe_health(url, timeouts=SHORT).outcome == "timeout"


def test_probe_of_a_redirect_is_not_an_answer():
    with serving({"/health": (302, None)}) as server:
        assert probe_health(server.url + "/health").outcome == "reset"


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:80", "ftp://x", "http://", "http://x:99999", "http://[::1", "file:///etc"]
)
def test_a_non_http_url_is_bad_input(url):
    with pytest.raises(InputError) as caught:
        probe_health(url)
    assert caught.value.code == "bad_url"


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_loopback_never_goes_through_a_proxy(monkeypatch, name):
    monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    with serving() as server:
        assert probe_health(server.url + "/health").ok
        assert probe_health(server.url.replace("127.0.0.1", "localhost") + "/health").ok


def test_other_hosts_go_through_the_proxy(monkeypatch):
    with serving({"http://engine.example:8080/health": (200, None)}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert probe_health("http://engine.example:8080/health").ok
        monkeypatch.setenv("no_proxy", "engine.example")
        monkeypatch.setattr(socket, "getaddrinfo", _unknown_name)
        assert probe_health("http://engine.example:8080/health").outcome == "timeout"


def _unknown_name(*args, **kwargs):
    raise socket.gaierror(-2, "Name or service not known")


def test_a_base_url_may_have_a_path():
    with serving({"/tgi/health": (200, None), "/tgi/info": (200, {"a": 1})}) as server:
        assert probe_health(server.url + "/tgi/health").ok
        assert HttpEngine(server.url + "/tgi").ask(get("/info")).body == {"a": 1}


def test_json_and_text_answers():
    with serving({"/a": (200, {"x": [1]}), "/b": (200, b"plain")}) as server:
        engine = HttpEngine(server.url)
        assert engine.ask(get("/a")).body == {"x": [1]}
        assert (engine.ask(get("/b")).body, engine.ask(get("/b")).text) == (None, "plain")
        assert engine.ask(get("/none")).status == 404


def test_an_endless_answer_is_cut_at_the_total_time():
    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b"data: {}\n\n")
                time.sleep(0.02)
        except OSError:
            pass

    with serving({"/generate_stream": (200, drip)}) as server:
        engine = HttpEngine(server.url, timeouts=Timeouts(connect_s=0.1, read_s=5.0, total_s=0.2))
        with pytest.raises(NotHealthyError, match="took too long"):
            engine.ask(stream("/generate_stream", {}))


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\ndata: "]
)
@pytest.mark.parametrize("ask", ["get", "stream", "probe"])
def test_a_slow_answer_is_cut_at_the_total_time(start, ask):
    with raw_server(start, drips=True) as url:
        engine = HttpEngine(url, timeouts=DRIPPED_ON)
        began = time.monotonic()
        if ask == "probe":
            assert probe_health(url, timeouts=DRIPPED_ON).outcome in {"timeout", "status"}
        else:
            with pytest.raises(NotHealthyError, match=r"took too long|timed out"):
                engine.ask(get("/info")) if ask == "get" else engine.ask(stream("/generate_stream", {}))
        assert time.monotonic() - began < 5


def test_a_stream_larger_than_the_limit_is_cut(monkeypatch):
    monkeypatch.setattr("tgi_deploy.readiness.http._ANSWER_LIMIT_BYTES", 10_000)
    with (
        raw_server(b"HTTP/1.1 200 OK\r\n\r\n" + b"data: {}\n\n" * 5_000) as url,
        pytest.raises(NotHealthyError, match="too long"),
    ):
        HttpEngine(url, timeouts=SHORT).ask(stream("/generate_stream", {}))


def test_a_stream_is_read_to_its_end():
    with serving() as server:
        streamed = HttpEngine(server.url).ask(stream("/generate_stream", {"inputs": "x"}))
    assert (streamed.status, len(streamed.events)) == (200, 2)
    assert streamed.arrivals_ms[0] > 0


def test_a_rejected_stream_is_an_answer():
    with serving({"/generate_stream": (422, {"error": "x"})}) as server:
        streamed = HttpEngine(server.url).ask(stream("/generate_stream", {}))
    assert (streamed.status, streamed.events, streamed.text) == (422, (), '{"error": "x"}')


@pytest.mark.parametrize("request_", [get("/x"), post("/x", {}), stream("/x", {})], ids=lambda probe: probe.step)
def test_a_missing_engine_is_unreachable(request_):
    engine = HttpEngine(f"http://127.0.0.1:{closed_port()}")
    with pytest.raises(NotHealthyError) as caught:
        engine.ask(request_)
    assert caught.value.code == "engine_unreachable"
    assert "refused" in caught.value.message


def test_a_cut_answer_is_unreachable():
    with raw_server(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"half"') as url, pytest.raises(NotHealthyError):
        HttpEngine(url).ask(get("/info"))


def test_a_redirect_is_not_followed_with_the_key():
    with serving({"/info": (307, None)}) as server, pytest.raises(NotHealthyError, match="redirects"):
        HttpEngine(server.url, api_key=lambda: "k").ask(get("/info"))


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel", "tab\t"])
def test_an_invalid_key_is_not_quoted_in_the_error(key):
    with serving() as server, pytest.raises(InputError) as caught:
        HttpEngine(server.url, api_key=lambda: key).ask(get("/info"))
    assert caught.value.code == "secret_unusable"
    assert key not in caught.value.message


@pytest.mark.parametrize("address", [b"203.0.113.7\n", b"2001:db8::7"])
def test_caller_address_is_an_ip_address(address):
    with serving({"/": (200, address)}) as server:
        assert caller_address(server.url) == address.decode().strip()


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, b""), (200, b"1.2.3.4/0"), (500, b"203.0.113.7"), (302, b"")]
)
def test_an_invalid_caller_address_is_rejected(status, body):
    with serving({"/": (status, body)}) as server, pytest.raises(DeployError) as caught:
        caller_address(server.url)
    assert caught.value.code == "caller_address_unknown"
    assert caught.value.hint


def test_without_a_network_there_is_no_caller_address():
    with pytest.raises(DeployError) as caught:
        caller_address(f"http://127.0.0.1:{closed_port()}")
    assert caught.value.code == "caller_address_unknown"


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"", []),
        (b"data:a\n\n", ["a"]),
        (b"data: a\n\ndata:  b\n\n", ["a", " b"]),
        (b": keep-alive\n\ndata: a\n\n:\n\n", ["a"]),
        (b"event: x\nid: 1\ndata: a\nretry: 5\n\n", ["a"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\n\ndata: [DONE]\n\ndata: late\n\n", ["a"]),
        (b"data: a\n\ndata: [DONE]", ["a"]),
        (b"data: a", ["a"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"data\n\nno colon\n\n", []),
    ],
)
def test_payloads_of_an_event_stream(stream, events):
    assert list(payloads(stream.splitlines(keepends=True))) == events


def test_stream_events_arrive_immediately():
    events, first = [], threading.Event()

    def slowly(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(b"data: one\n\n")
        handler.wfile.flush()
        assert first.wait(10)
        handler.wfile.write(b"data: two\n\n")
        handler.close_connection = True

    def on_event(event):
        events.append(event)
        first.set()

    with serving({"/stream": (200, slowly)}) as server:
        reply = HttpEngine(server.url).ask(stream("/stream", {}), on_event)
    assert events == ["one", "two"] == list(reply.events)
