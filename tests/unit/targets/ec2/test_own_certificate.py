"""The file of --certificate is checked before anything is created, and gets to the machine with its chain."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import ssl
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from builders.boot_kinds import KINDS
from builders.certificates import issued

from tgi_deploy.errors import InputError
from tgi_deploy.targets.certificate import check_key, read_certificate
from tgi_deploy.targets.ec2.launch import tls_image
from tgi_deploy.targets.ec2.launch_template import LaunchTemplates
from tgi_deploy.targets.ec2.options import Ec2Options
from tgi_deploy.targets.machine.user_data import MAX_BYTES
from tgi_deploy.values.base import replaced
from tgi_deploy.wiring import render_artifact

NOW = datetime(2026, 11, 23, tzinfo=UTC)
DAY = timedelta(days=1)
KEY = {"certificate_key_parameter": "/tgi-deploy/demo/tls-key"}


@pytest.fixture
def read(tmp_path):
    def run(text):
        path = tmp_path / "fullchain.pem"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_certificate(path, NOW, key_option="--certificate-key-parameter")

    return run


def test_the_chain_is_kept_without_anything_else_in_the_file(read):
    made = issued()
    own = read(f"Subject: a comment $(id)\n{made.chain}\n# the end\n")
    assert own.pem == made.chain
    leaf = ssl.PEM_cert_to_DER_cert(made.chain[: made.chain.index("-----END")] + "-----END CERTIFICATE-----")
    assert own.shown.sha256 == hashlib.sha256(leaf).hexdigest()
    assert re.fullmatch("[A-Za-z0-9+/]{43}=", own.shown.public_key)


FILES = {
    "empty": (lambda: "", "not a certificate in PEM"),
    "binary": (lambda: b"\x30\x82\x01\xff", "not text in PEM"),
    "cut": (lambda: issued().chain[:300], "not a certificate in PEM"),
    "large": (lambda: "x" * 70000, "larger than"),
    "expired": (
        lambda: issued(begins=NOW - DAY * 90, ends=NOW - DAY).chain,
        "to 2026-11-22",
    ),
    "early": (lambda: issued(begins=NOW + DAY).chain, "and today is"),
    "nameless": (lambda: issued(names=()).chain, "no host name"),
    "issuer first": (lambda: issued().authority, "no host name"),
    "with key": (lambda: issued().chain + issued().key, "private key"),
    "with hidden key": (lambda: issued().chain + issued(passphrase=b"x").key, "private key"),
}


@pytest.mark.parametrize(("text", "words"), FILES.values(), ids=FILES)
def test_an_unusable_file_is_refused(read, text, words):
    with pytest.raises(InputError, match=words) as raised:
        read(text())
    assert raised.value.code == "bad_certificate"
    assert raised.value.hint


def test_a_key_on_an_unknown_curve_is_refused(read, tmp_path):
    """A curve that OpenSSL has and the package that reads certificates does not."""
    key, pem = tmp_path / "odd.key", tmp_path / "odd.pem"
    subject = ("-subj", "/CN=x", "-addext", "subjectAltName=DNS:llm.example.com")
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime239v1", "-nodes", *subject)
    subprocess.run([*made, "-keyout", str(key), "-out", str(pem)], check=True, capture_output=True)
    with pytest.raises(InputError) as raised:
        read_certificate(pem, datetime.now(UTC), key_option="")
    assert raised.value.code == "bad_certificate"
    with pytest.raises(InputError, match="not a supported private key"):
        check_key(read(issued().chain), key.read_text(), "TLS_KEY")


def test_a_key_in_the_file_is_not_quoted(read):
    made = issued()
    with pytest.raises(InputError) as raised:
        read(made.chain + made.key)
    assert made.key.splitlines()[1] not in f"{raised.value} {raised.value.hint}"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.pem: No such file") as raised:
        read_certificate(tmp_path / "none.pem", NOW, key_option="--certificate-key-parameter")
    assert raised.value.code == "bad_certificate"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"certificate": "a.pem"}, "missing_argument"),
        (KEY, "missing_argument"),
        ({"certificate": "a.pem", **KEY, "plaintext": True}, "conflicting_options"),
        ({"certificate": "a.pem", **KEY, "tunnel": True}, "conflicting_options"),
    ],
)
def test_the_options_need_each_other_and_an_encrypted_port(options, code):
    with pytest.raises(InputError) as raised:
        Ec2Options(**options)
    assert raised.value.code == code


class Calls:
    """An API that records what a launch template is created from."""

    region = "us-east-1"

    def change(self, _call, _doing, _read, **parameters):
        self.data = base64.b64decode(parameters["LaunchTemplateData"]["UserData"])


@pytest.mark.parametrize("kind", ["bare", "everything"])
def test_the_largest_user_data_with_a_long_chain_fits_compressed(kind):
    """Two certificates with RSA keys, as common authorities have them. Texts without one stay readable."""
    chain = issued(kind="rsa").chain + issued(kind="rsa").authority
    deployable = replaced(KINDS[kind].deployable(), tls_image=tls_image(), certificate=chain, region="us-east-1", **KEY)
    text = render_artifact("user-data", deployable).text
    calls = Calls()
    properties = {"name": "demo", "data": {"UserData": base64.b64encode(text.encode()).decode()}}
    LaunchTemplates(calls).create(properties, tags={}, token="t")
    assert len(calls.data) <= MAX_BYTES
    plain = gzip.decompress(calls.data).decode() if len(text.encode()) > MAX_BYTES else calls.data.decode()
    assert plain == text
    assert chain in [file["content"] for file in yaml.safe_load(text)["write_files"]]
