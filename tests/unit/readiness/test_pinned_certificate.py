"""Requests go only to an engine with the pinned certificate."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from builders import plans
from builders.certificates import NAME, issued
from builders.engines import get, post
from builders.machine import TLS_TOOLS, Machine
from loopback_engine import closed_port, raw_server, serving

from tgi_deploy.errors import NotHealthyError
from tgi_deploy.readiness.http import HttpEngine, probe_health
from tgi_deploy.targets.ec2.launch import tls_image
from tgi_deploy.values.serving import Certificate, reported_certificate
from tgi_deploy.wiring import render_artifact

OTHER = "5a" * 32


class Made(NamedTuple):
    context: ssl.SSLContext
    pem: str
    sha256: str


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    """A certificate as a machine makes it (templates/user-data/run-engine.j2)."""
    pem = tmp_path_factory.mktemp("tls") / "server.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=demo"
    extension = "-addext keyUsage=critical,digitalSignature,keyCertSign"
    command = ["openssl", *words.split(), *extension.split(), "-keyout", str(pem), "-out", str(pem)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    text = pem.read_text()
    certificate = text[text.index("-----BEGIN CERTIFICATE") :]
    return Made(context, certificate, hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest())


def test_the_pinned_certificate_is_accepted_whatever_its_name_and_issuer(made):
    with serving(tls=made.context) as server:
        assert probe_health(f"{server.url}/health", certificate=made.sha256).ok
        reply = HttpEngine(server.url, certificate=made.sha256, api_key=lambda: "key-1").ask(get("/info"))
    assert reply.status == 200
    assert server.requests[-1][3]["Authorization"] == "Bearer key-1"


@pytest.mark.parametrize("certificate", [OTHER, ""])
def test_another_certificate_gets_neither_prompt_nor_key(made, certificate):
    with serving(tls=made.context) as server:
        assert probe_health(f"{server.url}/health", certificate=certificate).outcome == "distrusted"
        engine = HttpEngine(server.url, certificate=certificate, api_key=lambda: "key-1")
        with pytest.raises(NotHealthyError) as caught:
            engine.ask(post("/generate", {"inputs": "secret"}))
    assert (caught.value.code, server.requests) == ("wrong_certificate", [])
    assert "nothing was sent" in str(caught.value)


def test_without_a_pin_a_certificate_that_no_authority_signed_is_refused(made):
    with serving(tls=made.context) as server:
        assert probe_health(f"{server.url}/health").outcome == "reset"
    assert server.requests == []


def test_plain_http_is_never_used_if_a_certificate_is_expected(made):
    with serving() as server:
        assert probe_health(f"{server.url}/health", certificate=made.sha256).outcome in {"reset", "timeout"}
        assert server.requests == []


def test_an_engine_not_listening_behind_its_proxy_is_not_ready(made):
    assert probe_health(f"https://127.0.0.1:{closed_port()}/health", certificate=made.sha256).outcome == "refused"
    with raw_server(b"") as url:
        assert probe_health(url.replace("http:", "https:"), certificate=made.sha256).outcome == "reset"


def test_a_client_that_compares_and_then_trusts_the_certificate_works_as_documented(made):
    """The lines of docs/guarantees.md, as any client that takes an SSL context can use them."""
    with serving(tls=made.context) as server:
        pem = ssl.get_server_certificate(("127.0.0.1", server.server_address[1]))
        assert hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest() == made.sha256
        context = ssl.create_default_context(cadata=pem)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
        with urllib.request.urlopen(f"{server.url}/info", context=context) as answer:  # noqa: S310 -- loopback
            assert json.load(answer)["model_id"]


REPORTED = f"[   41.2] run-engine[812]: [tgi-deploy] certificate sha256={OTHER} public-key={'A' * 43}=\r\n"


@pytest.mark.parametrize(
    ("console", "found"),
    [
        (f"booting\n{REPORTED}loading\n", OTHER),
        (REPORTED * 3, OTHER),
        (REPORTED.rstrip(), None),  # cut off: what follows is unknown
        (REPORTED + REPORTED.replace("5a", "5b"), None),
        (REPORTED.replace("5a", "5A"), None),
        (REPORTED.replace("[tgi-deploy] ", ""), None),
        ("", None),
    ],
)
def test_the_console_reports_one_certificate_or_none(console, found):
    reported = reported_certificate(console)
    assert reported == (Certificate(sha256=found, public_key="A" * 43 + "=") if found else None)


@contextmanager
def haproxy(machine, engine_port):
    """HAProxy itself, with the machine's configuration."""
    folder = machine.at("/var/lib/tgi-deploy/tls")
    text = (folder / "haproxy.cfg").read_text().replace("/tls/server.pem", str(folder / "server.pem"))
    (folder / "here.cfg").write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{engine_port}", text))
    with subprocess.Popen(["haproxy", "-db", "-f", str(folder / "here.cfg")]) as running:  # noqa: S607 -- the host's
        yield running
        running.terminate()


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("haproxy") or Path("/usr/sbin/haproxy").exists()), reason="no haproxy here")
def test_haproxy_answers_with_the_reported_certificate_once_the_engine_listens(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/bin")
    port = closed_port()
    machine = booted(tmp_path, port)
    sha256 = reported_certificate(machine.run("run-engine").stdout).sha256
    url = f"https://127.0.0.1:{port}"
    with haproxy(machine, closed_port()):
        assert first_answer(url, sha256).outcome == "reset"
    with serving() as engine, haproxy(machine, engine.server_address[1]):
        assert first_answer(url, sha256).ok
        assert HttpEngine(url, certificate=sha256).ask(get("/info")).status == 200
        assert probe_health(f"{url}/health", certificate="5a" * 32).outcome == "distrusted"


def booted(tmp_path, port, commands=None, **changes):
    candidate = plans.candidate(engine=plans.engine(port=port))
    text = render_artifact("user-data", plans.deployable(candidate=candidate, tls_image=tls_image(), **changes)).text
    return Machine(folder=tmp_path / "machine", user_data=text, commands=TLS_TOOLS | (commands or {}))


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("haproxy") or Path("/usr/sbin/haproxy").exists()), reason="no haproxy here")
@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_haproxy_answers_with_the_users_certificate_by_name_and_by_pin(tmp_path, monkeypatch, kind):
    """A client that trusts its authority verifies it by name as usual, and gets the whole chain."""
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/bin")
    port, own, key = closed_port(), issued(kind=kind), tmp_path / "key.pem"
    key.write_text(own.key)
    named = {"certificate": own.chain, "certificate_key_parameter": "/tgi-deploy/demo/tls-key"}
    machine = booted(tmp_path, port, {"aws": f"cat {key}\n"}, **named)
    sha256 = reported_certificate(machine.run("run-engine").stdout).sha256
    url = f"https://127.0.0.1:{port}"
    with serving() as engine, haproxy(machine, engine.server_address[1]):
        assert first_answer(url, sha256).ok
        assert HttpEngine(url, certificate=sha256).ask(get("/info")).status == 200
        assert probe_health(f"{url}/health", certificate="5a" * 32).outcome == "distrusted"
        assert probe_health(f"{url}/health").outcome == "reset"  # this computer does not know its authority
        trusting = ssl.create_default_context(cadata=own.authority)
        for host, code in ((NAME, 0), ("other.example.com", 62)):  # 62: X509_V_ERR_HOSTNAME_MISMATCH
            assert verified(port, trusting, host) == code


def verified(port, context, host):
    with socket.create_connection(("127.0.0.1", port)) as raw:
        try:
            context.wrap_socket(raw, server_hostname=host).close()
        except ssl.SSLCertVerificationError as error:
            return error.verify_code
    return 0


def first_answer(url, sha256):
    """Once the proxy has started."""
    for _ in range(200):
        probe = probe_health(f"{url}/health", certificate=sha256)
        if probe.outcome != "refused":
            return probe
        time.sleep(0.02)
    pytest.fail("the proxy did not start")
