from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from docker import errors as docker_errors
from fakes.docker_host import FakeDocker, api_error
from requests import exceptions as http

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.reconcile.errors import BadRequestError, InUseError, LostReplyError, ResourceNotFoundError
from tgi_deploy.targets.docker import api as api_module
from tgi_deploy.targets.docker.api import Api
from tgi_deploy.targets.docker.endpoint import Endpoint
from tgi_deploy.targets.docker.errors import ErrorTable, translate

TABLE = ErrorTable.of(json.loads(Path(profiles_dir(), "docker/errors.json").read_text(encoding="utf-8")))

# What engines and registries really say.
SAID = (
    ("toolkit_missing", 'could not select device driver "" with capabilities: [[gpu]]'),
    ("toolkit_missing", "Unknown runtime specified nvidia: unknown or invalid runtime name: nvidia"),
    ("driver_too_old", "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update"),
    ("gpu_not_visible", "nvidia-container-cli: device error: 7: unknown device: unknown"),
    (
        "port_in_use",
        "Bind for 127.0.0.1:80: port is already allocated",
    ),
    ("port_in_use", "Error starting userland proxy: listen tcp4 127.0.0.1:80: bind: address already in use"),
    ("bad_option_value", "listen tcp4 192.0.2.1:80: bind: cannot assign requested address"),
    ("disk_full", "failed to register layer: write /usr/lib/x: no space left on device"),
    ("image_not_found", "manifest for ghcr.io/x/y:9 not found: manifest unknown: manifest unknown"),
    ("image_not_found", "manifest unknown"),
    ("image_access_denied", "pull access denied for x/y, repository does not exist or may require 'docker login'"),
    ("image_access_denied", "Head https://ghcr.io/v2/x/y/manifests/9: unauthorized"),
    ("image_access_denied", "Get http://127.0.0.1:5000/v2/x/manifests/9: no basic auth credentials"),
    ("image_rate_limited", "toomanyrequests: You have reached your pull rate limit."),
    ("registry_unreachable", "Get https://ghcr.io/v2/: dial tcp: lookup ghcr.io on 127.0.0.11:53: no such host"),
    ("registry_unreachable", "Get https://ghcr.io/v2/: net/http: TLS handshake timeout"),
    ("image_arch_mismatch", "no matching manifest for linux/arm64/v8 in the manifest list entries"),
    ("model_folder_missing", 'invalid mount config for type "bind": bind source path does not exist: /models/x'),
)


def translated(error, **changes):
    return translate(error, TABLE, **{"doing": "starting the container", "url": "unix:///x", **changes})


@pytest.mark.parametrize(("code", "words"), SAID)
def test_host_and_registry_errors_have_code_and_remedy(code, words):
    error = translated(api_error(500, words))
    assert (error.code, isinstance(error, BadRequestError)) == (code, True)
    assert error.hint
    assert words.split(":")[0] in error.message


def test_codes_of_the_table_are_all_tested():
    assert {row.code for row in TABLE.refusals} == {code for code, _ in SAID}


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (409, "volume is in use", InUseError),
        (404, "No such volume", ResourceNotFoundError),
        (500, "strange", BadRequestError),
    ],
)
def test_unknown_errors_are_classified_by_status(status, words, kind):
    assert type(translated(api_error(status, words))) is kind


def test_a_socket_that_is_not_there():
    error = docker_errors.DockerException("Error while fetching server API version")
    error.__cause__ = http.ConnectionError("Connection aborted.", FileNotFoundError(2, "No such file or directory"))
    reported = translated(error)
    assert reported.code == "docker_unreachable"
    assert "No such file" in reported.message
    assert "unix:///x" in reported.message


def test_a_socket_that_may_not_be_used():
    reported = translated(http.ConnectionError(PermissionError(13, "Permission denied")))
    assert isinstance(reported, InputError)
    assert "usermod" in reported.hint


@pytest.mark.parametrize("creating", [True, False])
def test_a_missing_reply_is_lost_only_for_creations(creating):
    reported = translated(http.ReadTimeout("slow"), creating=creating)
    assert isinstance(reported, LostReplyError) is creating


def test_the_host_is_contacted_only_when_needed():
    def refuse(_endpoint):
        raise docker_errors.DockerException("no")

    api = Api(endpoint=Endpoint(url="unix:///x"), table=TABLE, environ={}, connect=refuse)
    with pytest.raises(Exception, match="no Docker daemon answers") as caught:
        api.ask("looking", lambda client: client.containers(), list)
    assert caught.value.code == "docker_unreachable"


def test_a_missing_resource_is_none_if_allowed():
    api = Api(endpoint=Endpoint(url="unix:///x"), table=TABLE, environ={}, connect=lambda _at: FakeDocker())
    assert api.look("looking", lambda client: client.inspect_volume("v"), dict) is None


def test_a_silent_host_is_given_up_once(tmp_path, monkeypatch):
    """A frozen engine: the kernel still takes connections for it."""
    monkeypatch.setattr(api_module, "_FIRST_ANSWER_S", 0.2)
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(path))
        frozen.listen(8)
        api = Api(endpoint=Endpoint(url=f"unix://{path}"), table=TABLE, environ={})
        with pytest.raises(DeployError) as caught:
            api.ask("listing", lambda client: client.containers(), list)
        assert caught.value.code == "docker_unreachable"
        monkeypatch.setattr(api_module, "_connect", lambda _endpoint: pytest.fail("asked again"))
        with pytest.raises(DeployError):
            api.look("listing", lambda client: client.containers(), list)
