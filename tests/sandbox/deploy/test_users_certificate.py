"""`up --certificate`: the machine answers with the user's certificate, whose key only the parameter store has."""

from __future__ import annotations

import hashlib
import ssl

import pytest
from builders.certificates import issued

PARAMETER = "/tgi-deploy/team/tls-key"


@pytest.fixture
def up(program, tmp_path, monkeypatch):
    """Bring it up with this certificate and the key in the parameter."""
    monkeypatch.setenv("KEY", "sekret-key-1")

    def run(own, key):
        path = tmp_path / "fullchain.pem"
        path.write_text(own.chain)
        program.client("ssm").put_parameter(Name=PARAMETER, Value=key, Type="SecureString", Overwrite=True)
        words = ("up", "tinyllama-1.1b", "--name", "own", "--budget", "3", "--yes", "--api-key-from-env", "KEY")
        named = ("--certificate", str(path), "--certificate-key-parameter", PARAMETER)
        return program.here(*words, *named, "--ready", "fast")

    return run


def leaf_sha256(own):
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(own.chain[: own.chain.index("-----BEGIN", 9)])).hexdigest()


def test_the_machine_answers_with_the_users_certificate(program, up):
    own = issued()
    result = up(own, own.key)
    assert result.code == 0, result.out
    opened = program.here("open", "own").json["data"]
    assert (opened["certificate"], opened["url"][:8]) == (leaf_sha256(own), "https://")
    answer = program.here("ask", "own", "What is a GPU?", "--max-tokens", "5")
    assert answer.code == 0, answer.out
    secret = own.key.splitlines()[1]
    assert secret not in result.out
    assert not [path for path in program.home.rglob("*.json*") if secret in path.read_text(errors="replace")]
    assert not up(own, own.key).json["data"]["changed"]


def test_a_key_of_another_certificate_is_diagnosed(program, up):
    result = up(issued(), issued().key)
    assert result.code == 5, result.out
    assert "(tls_key_mismatch)" in result.json["errors"][0]["message"]
    assert program.here("down", "own", "--yes").code == 0
