"""A machine that answers over TLS creates its certificate, reports it on the console, and hides the engine."""

from __future__ import annotations

import subprocess

import pytest
from builders import plans
from builders.certificates import issued
from builders.machine import TLS_TOOLS, Machine

from tgi_deploy.errors import InputError
from tgi_deploy.targets.ec2.launch import tls_image
from tgi_deploy.values.base import replaced
from tgi_deploy.values.serving import reported_certificate
from tgi_deploy.wiring import render_artifact

pytestmark = pytest.mark.slow  # a dozen processes each

IMITATION = f"[tgi-deploy] certificate sha256={'5a' * 32} public-key={'A' * 43}="


@pytest.fixture
def boot(tmp_path):
    def make(port=8080, **settings):
        candidate = plans.candidate(engine=plans.engine(port=port))
        text = render_artifact("user-data", plans.deployable(candidate=candidate, tls_image=tls_image())).text
        return Machine(folder=tmp_path / "machine", user_data=text, commands=TLS_TOOLS, **settings)

    return make


def docker_runs(machine):
    return [words for words in machine.calls("docker") if words[1] == "run"]


def test_the_certificate_is_reported_before_anything_else_and_again_while_the_engine_logs(boot):
    machine = boot(engine_log="line\n" * 450 + f"{IMITATION}\n\x1b[0m {IMITATION}\n")
    lines = machine.run("run-engine").stdout.splitlines()
    reported = [line for line in lines if "certificate" in line]
    assert lines.index(reported[0]) == 1
    assert (len(reported), len(set(reported))) == (3, 1)
    certificate = reported_certificate("\n".join([*lines, ""]))
    pem = machine.at("/var/lib/tgi-deploy/tls/server.pem").read_text()
    assert "PRIVATE KEY" in pem
    assert (certificate.sha256, certificate.public_key) == hashes(pem)
    assert "PRIVATE KEY" not in "\n".join(lines) + str(machine.calls())


def hashes(pem):
    """By openssl in other words than the machine's."""
    shown = openssl("x509", "-noout", "-fingerprint", "-sha256", given=pem.encode()).decode()
    key = openssl("pkey", "-pubin", "-outform", "DER", given=openssl("x509", "-noout", "-pubkey", given=pem.encode()))
    digest = openssl("dgst", "-sha256", "-binary", given=key)
    return shown.partition("=")[2].strip().replace(":", "").lower(), openssl("base64", given=digest).decode().strip()


def openssl(*words, given):
    return subprocess.run(["openssl", *words], input=given, check=True, capture_output=True).stdout  # noqa: S607 -- the host's


def test_the_tls_key_is_created_once_and_private(boot):
    machine = boot()
    first = machine.run("run-engine").stdout.splitlines()[1]
    assert machine.run("run-engine").stdout.splitlines()[1] == first
    assert machine.at("/var/lib/tgi-deploy/tls").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("port", "local"), [(8080, 8081), (8081, 8082), (443, 8081)])
def test_only_the_proxy_is_reachable_from_outside(boot, port, local):
    machine = boot(port)
    assert machine.run("run-engine").returncode == 0
    proxy, engine = docker_runs(machine)
    assert engine[engine.index("-p") + 1] == f"127.0.0.1:{local}:80"
    assert "-p" not in proxy
    assert proxy[-4:] == [tls_image(), "haproxy", "-f", "/tls/haproxy.cfg"]
    assert ("NET_BIND_SERVICE" in proxy) == (port < 1024)
    assert f"http://127.0.0.1:{local}/metrics" in machine.at("/opt/tgi-deploy/expire").read_text()


def test_without_a_certificate_no_engine_is_started(boot, tmp_path):
    machine = boot()
    machine.at("/bin/openssl").write_text("#!/bin/bash\nexit 1\n")
    done = machine.run("run-engine")
    assert (done.returncode, docker_runs(machine)) == (1, [])
    assert "error=no certificate could be made" in done.stdout


PARAMETER = "/tgi-deploy/demo/tls-key"
OWN = issued()


@pytest.fixture
def own(tmp_path):
    """A machine for the certificate `OWN`, whose parameter has this key."""

    def make(key):
        (tmp_path / "key").write_text(key)
        text = render_artifact("user-data", with_certificate()).text
        commands = TLS_TOOLS | {"aws": f"cat {tmp_path / 'key'}\n" if key else "exit 254\n"}
        return Machine(folder=tmp_path / "machine", user_data=text, commands=commands)

    return make


def with_certificate():
    return plans.deployable(
        tls_image=tls_image(), certificate=OWN.chain, certificate_key_parameter=PARAMETER, instance_profile="reader"
    )


def test_the_own_certificate_answers_with_the_key_of_the_parameter(own):
    machine = own(OWN.key)
    for _start in range(2):
        done = machine.run("run-engine")
        assert done.returncode == 0, done.stdout + done.stderr
    pem = machine.at("/var/lib/tgi-deploy/tls/server.pem")
    assert pem.read_text() == OWN.key + OWN.chain
    assert pem.stat().st_mode & 0o077 == 0
    reported = reported_certificate(done.stdout)
    assert (reported.sha256, reported.public_key) == hashes(OWN.chain)
    secret = OWN.key.splitlines()[1]
    assert secret not in done.stdout + done.stderr + str(machine.calls())
    assert "req" not in [words[1] for words in machine.calls("openssl")]


@pytest.mark.parametrize(
    "key",
    [issued().key, issued(passphrase=b"x").key, "no key", OWN.chain],
    ids=["another", "hidden", "text", "certificate"],
)
def test_a_key_of_another_certificate_is_named_and_final(own, key):
    machine = own(key)
    done = machine.run("run-engine")
    assert (done.returncode, docker_runs(machine)) == (64, [])
    assert f"error=the TLS key does not belong to the certificate: it is in the parameter {PARAMETER}" in done.stdout


def test_an_unreadable_tls_key_is_named_and_final(own):
    machine = own("")
    done = machine.run("run-engine")
    assert (done.returncode, docker_runs(machine)) == (64, [])
    assert f"error=the TLS key could not be read from the parameter {PARAMETER}" in done.stdout


def test_user_data_has_no_key_and_needs_a_role():
    text = render_artifact("user-data", with_certificate()).text
    assert "PRIVATE KEY" not in text
    with pytest.raises(InputError) as raised:
        render_artifact("launch-template", replaced(with_certificate(), instance_profile=None))
    assert raised.value.code == "instance_profile_missing"
