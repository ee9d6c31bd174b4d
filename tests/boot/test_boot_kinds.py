"""Every kind of plan, booted by the real cloud-init and systemd: no unit fails, the engine answers, no secret leaks."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import replace

import pytest
from builders.boot import boot
from builders.boot_kinds import API_KEY, HUB_TOKEN, KINDS, OWN, PARAMETERS
from builders.logs import GRAMMAR

from tgi_deploy.diagnosis.reader import read
from tgi_deploy.values.serving import reported_certificate

pytestmark = [pytest.mark.boot, pytest.mark.docker_engine, pytest.mark.slow]


@pytest.mark.parametrize("name", KINDS)
def test_it_boots_and_answers(docker_engine, name):
    kind = KINDS[name]
    deployable = kind.deployable()
    with boot(docker_engine, kind.user_data(), gpus=kind.gpus, nvme=kind.mounts_nvme, fakes=PARAMETERS) as booted:
        machine = replace(booted, scheme="https") if deployable.tls_image else booted
        machine.check_boot()
        machine.until("the engine to answer", machine.healthy)
        check_phases(machine)
        check_engine(machine, deployable)
        if deployable.api_key_parameter:
            check_api_key(machine)
        if deployable.tls_image:
            check_tls(machine)
        check_secrets(machine)
        assert machine.units("failed") == []


def check_phases(machine):
    """Check the markers, and the phases that a wait reads from the console."""
    phases = [marker.split()[0] for marker in machine.markers() if marker.startswith("phase=")]
    assert phases == ["phase=booting", "phase=pulling", "phase=starting-engine"]
    assert read(machine.console(), GRAMMAR).startup_phase == "ready"


def check_engine(machine, deployable):
    info = machine.answer("/info")
    assert info["model_id"] == deployable.model.model.hub_id
    seen = machine.run("docker", "exec", "tgi", "nvidia-smi", "-L").splitlines()
    assert len(seen) == deployable.candidate.num_shard


def check_api_key(machine):
    """Check that the engine requires it; the hub token was needed too, because the model is gated."""
    address = f"http://127.0.0.1:{machine.port}/generate"
    ask = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "content-type: application/json", address]
    ask += ["-d", '{"inputs": "Hello", "parameters": {"max_new_tokens": 2}}']
    assert machine.run(*ask) == "401"
    assert machine.run(*ask, "-H", f"authorization: Bearer {API_KEY}") == "200"


def check_tls(machine):
    """Check that the proxy has the certificate on the console, and that the engine is not reachable from outside."""
    reported = reported_certificate(machine.console())
    for pin, code in ((reported.public_key, 0), ("A" * 43 + "=", 90)):  # 90: curl's own for another key
        words = ("curl", "-sfk", "--pinnedpubkey", f"sha256//{pin}", machine.url("/info"))
        assert machine.engine.attempt("exec", machine.name, *words).returncode == code
    shown = machine.run("bash", "-c", f"openssl s_client -connect 127.0.0.1:{machine.port} </dev/null | openssl x509")
    assert hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown)).hexdigest() == reported.sha256
    listening = machine.run("ss", "-ltnH").split()
    assert [address for address in listening if address.endswith(":8081")] == ["127.0.0.1:8081"]
    assert machine.run("stat", "-c", "%a", "/var/lib/tgi-deploy/tls").strip() == "700"


def check_secrets(machine):
    written = machine.console() + machine.journal()
    for path in ("/var/log/cloud-init.log", "/var/log/cloud-init-output.log", "/proc/cmdline"):
        written += machine.run("cat", path)
    written += machine.run("ps", "axww", "-o", "args", check=False)
    assert HUB_TOKEN not in written
    assert API_KEY not in written
    assert OWN.key.splitlines()[1] not in written
