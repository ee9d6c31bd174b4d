"""Which cluster, and whose credentials: kubeconfig files as `kubectl` reads them, and programs that print tokens."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tgi_deploy.errors import InputError
from tgi_deploy.targets.kubernetes.kubeconfig import chosen_place, cluster_of
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ARN = "arn:aws:eks:us-east-1:123456789012:cluster/dev"


def written(folder: Path, *, user: dict[str, Any] | None = None, **cluster: Any) -> Mapping[str, str]:
    document = {
        "current-context": ARN,
        "contexts": [{"name": ARN, "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://203.0.113.9", **cluster}}],
        "users": [{"name": "u", "user": {"token": "sekret"} if user is None else user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return {"KUBECONFIG": str(path)}


def test_the_current_context_and_its_namespace_are_the_place(tmp_path: Path):
    place = chosen_place(written(tmp_path))
    assert str(place) == f"kubernetes:team-a@{ARN}"
    assert Place.of(str(place)) == place


def test_another_context_and_namespace_can_be_chosen(tmp_path: Path):
    environ = written(tmp_path)
    assert str(chosen_place(environ, ARN, "team-b")) == f"kubernetes:team-b@{ARN}"
    with pytest.raises(InputError) as caught:
        chosen_place(environ, "elsewhere")
    assert caught.value.code == "unknown_kube_context"


def test_a_token_and_an_authority_are_read(tmp_path: Path):
    (tmp_path / "ca.pem").write_text("PEM", encoding="utf-8")
    environ = written(tmp_path, **{"certificate-authority": "ca.pem"})
    cluster = cluster_of(chosen_place(environ), environ)
    assert (cluster.server, cluster.ca) == ("https://203.0.113.9", "PEM")
    assert Transport(cluster, environ).headers() == {"Authorization": "Bearer sekret"}
    assert "sekret" not in repr(cluster)


def test_inline_certificates_are_decoded(tmp_path: Path):
    data = base64.b64encode(b"CERT").decode()
    environ = written(tmp_path, user={"client-certificate-data": data, "client-key-data": data})
    cluster = cluster_of(chosen_place(environ), environ)
    assert cluster.certificate == "CERT"
    assert cluster.key is not None


def test_a_program_prints_the_token(tmp_path: Path):
    said = json.dumps({"kind": "ExecCredential", "status": {"token": "from-program"}})
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": sys.executable,
        "args": ["-c", f"print({said!r})"],
    }
    environ = written(tmp_path, user={"exec": plugin})
    transport = Transport(cluster_of(chosen_place(environ), environ), environ)
    assert transport.headers() == {"Authorization": "Bearer from-program"}


def test_a_program_that_asks_for_the_cluster_gets_its_description(tmp_path: Path):
    """As `kubectl` does: https://kubernetes.io/docs/reference/config-api/client-authentication.v1/."""
    echo = "import os; print(os.environ['KUBERNETES_EXEC_INFO'])"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": ["-c", echo]}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "tls-server-name": "kube.example",
        "extensions": [{"name": "other", "extension": {}}, extension],
    }
    environ = written(tmp_path, user={"exec": {**plugin, "provideClusterInfo": True}}, **cluster)
    found = cluster_of(chosen_place(environ), environ).plugin
    assert found is not None
    assert found.cluster == {
        "server": "https://203.0.113.9",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "tls-server-name": "kube.example",
        "config": {"audience": "a"},
    }
    assert found.info["spec"] == {"interactive": False, "cluster": found.cluster}
    environ = written(tmp_path, user={"exec": plugin}, **cluster)
    found = cluster_of(chosen_place(environ), environ).plugin
    assert found is not None
    assert found.info["spec"] == {"interactive": False}


@pytest.mark.parametrize("words", [["-c", "import sys; sys.exit('no session')"], ["-c", "print('text')"]])
def test_a_program_that_fails_is_a_login_that_failed(tmp_path: Path, words: list[str]):
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": words}
    environ = written(tmp_path, user={"exec": plugin})
    with pytest.raises(InputError) as caught:
        Transport(cluster_of(chosen_place(environ), environ), environ).headers()
    assert caught.value.code == "cluster_login"


@pytest.mark.parametrize("user", [{"auth-provider": {"name": "gcp"}}, {"username": "ann", "password": "x"}])
def test_a_login_that_is_not_supported_is_refused(tmp_path: Path, user: dict[str, Any]):
    environ = written(tmp_path, user=user)
    with pytest.raises(InputError) as caught:
        cluster_of(chosen_place(environ), environ)
    assert caught.value.code == "kube_auth_unsupported"


@pytest.mark.parametrize("text", ["[]", "a: [", "\0", "- x: 1\n  y"])
def test_a_broken_file_is_named(tmp_path: Path, text: str):
    path = tmp_path / "config"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        chosen_place({"KUBECONFIG": str(path)})
    assert (caught.value.code, str(path) in caught.value.message) == ("bad_kubeconfig", True)


def test_without_a_kubeconfig_there_is_no_cluster(tmp_path: Path):
    with pytest.raises(InputError) as caught:
        chosen_place({"HOME": str(tmp_path)})
    assert caught.value.code == "no_kubeconfig"


def test_a_server_that_does_not_answer_is_named(tmp_path: Path):
    environ = written(tmp_path, server="http://127.0.0.1:9")
    transport = Transport(cluster_of(chosen_place(environ), environ), environ)
    with pytest.raises(Exception, match=r"no Kubernetes API server answers at http://127\.0\.0\.1:9"):
        transport.send("GET", "/version", doing="asking for the version")
