"""TLS on a real engine: the proxy answers with the pinned certificate, which updates keep."""

from __future__ import annotations

import ssl
from urllib.request import urlopen

import pytest
from builders.certificates import issued

from tgi_deploy.readiness.http import probe_health

pytestmark = [pytest.mark.docker_engine, pytest.mark.xdist_group("docker_host")]
OTHER = "5a" * 32
QUESTION = "What is a GPU?"


def up(tool, *words, **more):
    code, document = tool.up("--num-shard", "1", *words, hardware="4xL40S", **more)
    assert code == 0, document["errors"]
    return document["data"]


def shown(tool, **more):
    """Return the URL and the only certificate to accept there."""
    code, document = tool.run("open", tool.name, **more)
    assert code == 0, document["errors"]
    return document["data"]["url"], document["data"]["certificate"]


def test_clients_with_the_pinned_certificate_succeed_and_others_fail(tool):
    up(tool, "--tls", "--api-key-from-env", "ENGINE_KEY")
    url, certificate = shown(tool)
    assert url == f"https://127.0.0.1:{tool.port}"
    assert probe_health(f"{url}/health", certificate=certificate).ok
    assert probe_health(f"{url}/health", certificate=OTHER).outcome == "distrusted"
    assert probe_health(f"{url}/health").outcome == "reset"
    assert not probe_health(f"http://127.0.0.1:{tool.port}/health").ok
    code, document = tool.run("ask", tool.name, QUESTION)
    assert code == 0, document["errors"]

    assert (
        up(tool, "--tls", "--api-key-from-env", "ENGINE_KEY", "--quantize", "eetq")["update"]["strategy"] == "rolling"
    )
    assert shown(tool) == (url, certificate)
    assert shown(tool, TGI_DEPLOY_HOME=str(tool.home / "another"), TGI_DEPLOY_TARGET="docker") == (url, certificate)
    assert tool.run("down", tool.name, "--yes")[0] == 0
    assert tool.names() == []


def test_clients_verify_the_users_certificate_by_name(tool):
    own, path = issued(), tool.home / "fullchain.pem"
    path.write_text(own.chain)
    words = ("--certificate", str(path), "--certificate-key-from-env", "TLS_KEY")
    up(tool, *words, TLS_KEY=own.key)
    url, certificate = shown(tool)
    assert probe_health(f"{url}/health", certificate=certificate).ok
    context = ssl.create_default_context(cadata=own.authority)
    with urlopen(f"{url}/health", context=context, timeout=30) as reply:  # noqa: S310 -- loopback
        assert reply.status == 200
    proxy = tool.engine.docker("inspect", f"tgi-deploy-{tool.name}")
    record = "".join(file.read_text() for file in (tool.home / "state").rglob("*.json"))
    assert not any(own.key.splitlines()[1] in text for text in (proxy, record))
