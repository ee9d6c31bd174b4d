from __future__ import annotations

import hashlib
import json

import pytest

from tgi_deploy.errors import InputError
from tgi_deploy.targets.docker.endpoint import LOCAL_URL, current_endpoint, endpoint_of


@pytest.fixture
def config(tmp_path):
    return tmp_path / ".docker"


def context(config, name, host, *, tls=False, **more):
    key = hashlib.sha256(name.encode()).hexdigest()
    meta = config / "contexts" / "meta" / key
    meta.mkdir(parents=True)
    document = {"Name": name, "Endpoints": {"docker": {"Host": host, **more}}}
    (meta / "meta.json").write_text(json.dumps(document), encoding="utf-8")
    if tls:
        (config / "contexts" / "tls" / key / "docker").mkdir(parents=True)


def environ(tmp_path, **more):
    return {"HOME": str(tmp_path), **more}


def test_without_any_setting_it_is_the_local_socket(tmp_path):
    found = current_endpoint(environ(tmp_path))
    assert (found.url, found.place, found.local, found.host) == (LOCAL_URL, "docker", True, "127.0.0.1")


def test_docker_host_overrides_contexts(tmp_path, config):
    context(config, "box", "tcp://box:2376")
    found = current_endpoint(environ(tmp_path, DOCKER_HOST="unix:///run/user/1000/docker.sock", DOCKER_CONTEXT="box"))
    assert found.place == "docker:unix:///run/user/1000/docker.sock"
    assert found.local


def test_docker_context_overrides_the_current_one(tmp_path, config):
    context(config, "box", "tcp://box:2376", tls=True)
    context(config, "other", "tcp://other:2376")
    (config / "config.json").write_text('{"currentContext": "other"}', encoding="utf-8")
    assert current_endpoint(environ(tmp_path)).url == "tcp://other:2376"
    found = current_endpoint(environ(tmp_path, DOCKER_CONTEXT="box"))
    assert (found.url, found.local, found.host) == ("tcp://box:2376", False, "box")
    assert found.certificates is not None
    assert found.certificates.is_dir()


def test_the_default_context_is_the_local_socket(tmp_path):
    assert current_endpoint(environ(tmp_path, DOCKER_CONTEXT="default")).url == LOCAL_URL


def test_a_location_restores_host_and_certificates(tmp_path, config):
    context(config, "box", "tcp://box:2376", tls=True, SkipTLSVerify=True)
    found = endpoint_of("docker:tcp://box:2376", environ(tmp_path))
    assert found.certificates is not None
    assert not found.verify
    assert endpoint_of("docker", environ(tmp_path, DOCKER_HOST="tcp://else:1")).url == LOCAL_URL


def test_tls_comes_from_the_environment_too(tmp_path):
    found = current_endpoint(
        environ(tmp_path, DOCKER_HOST="tcp://box:2376", DOCKER_TLS_VERIFY="1", DOCKER_CERT_PATH="/certificates")
    )
    assert str(found.certificates) == "/certificates"
    assert found.verify


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"DOCKER_CONTEXT": "nowhere"}, "unknown_docker_context"),
        ({"DOCKER_HOST": "ssh://me@box"}, "docker_host_not_supported"),
        ({"DOCKER_HOST": "gopher://box"}, "docker_host_not_supported"),
        ({"DOCKER_HOST": "tcp://[::1"}, "docker_host_not_supported"),
        ({"DOCKER_HOST": "tcp://box:99999"}, "docker_host_not_supported"),
        ({"DOCKER_HOST": "box:docker"}, "docker_host_not_supported"),
        ({"DOCKER_HOST": "::::"}, "docker_host_not_supported"),
        ({"DOCKER_HOST": "unix://"}, "docker_host_not_supported"),
    ],
)
def test_an_invalid_host_has_a_hint(tmp_path, more, code):
    with pytest.raises(InputError) as caught:
        current_endpoint(environ(tmp_path, **more))
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize(
    ("host", "url"),
    [("tcp://box", "tcp://box:2375"), ("box", "tcp://box:2375"), ("tcp://", "tcp://localhost:2375"),
     ("tcp://[::1]", "tcp://[::1]:2375"), ("tcp://box:1/prefix", "tcp://box:1/prefix")],
)  # fmt: skip
def test_a_host_without_a_port_uses_dockers_default(tmp_path, host, url):
    assert current_endpoint(environ(tmp_path, DOCKER_HOST=host)).url == url


def test_dockers_default_port_differs_with_tls(tmp_path, config):
    found = current_endpoint(environ(tmp_path, DOCKER_HOST="tcp://box", DOCKER_TLS_VERIFY="1"))
    assert found.url == "tcp://box:2376"
    assert endpoint_of(found.place, environ(tmp_path, DOCKER_HOST="tcp://box", DOCKER_TLS_VERIFY="1")) == found


@pytest.mark.parametrize("endpoints", [None, {}, {"docker": None}, {"docker": {"Host": None}}, "odd"])
def test_a_context_without_a_docker_host_is_the_local_one(tmp_path, config, endpoints):
    context(config, "box", "")
    (meta,) = config.glob("contexts/meta/*/meta.json")
    meta.write_text(json.dumps({"Name": "box", "Endpoints": endpoints}), encoding="utf-8")
    assert current_endpoint(environ(tmp_path, DOCKER_CONTEXT="box")).url == LOCAL_URL


def test_ssh_is_rejected_with_a_tunnel_command(tmp_path):
    with pytest.raises(InputError) as caught:
        current_endpoint(environ(tmp_path, DOCKER_HOST="ssh://me@box"))
    assert "docker.sock me@box" in caught.value.hint


def test_broken_settings_are_named(tmp_path, config):
    config.mkdir()
    (config / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        current_endpoint(environ(tmp_path))
    assert caught.value.code == "bad_docker_config"
    assert "config.json" in caught.value.message
