"""Certificates of proxies: the user's own, checked before anything is created, or a new one."""

from __future__ import annotations

import base64
import hashlib
import shlex
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from tgi_deploy.bounded_files import read_text
from tgi_deploy.errors import InputError
from tgi_deploy.extras import extra_missing
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.serving import Certificate

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

_MAX_BYTES: Final = 65536
_KEY: Final = "PRIVATE KEY-----"  # of every PEM form of a private key
_VALID: Final = timedelta(days=3650)
_CLOCKS_DIFFER: Final = timedelta(days=1)


class OwnCertificate(Frozen, frozen=True, kw_only=True):
    """`pem` has only certificates, the server's first; `shown` identifies that one to clients."""

    pem: str
    shown: Certificate


class KeyPair(NamedTuple):
    """A certificate with its private key in PEM, which only the proxy may get."""

    certificate: OwnCertificate
    key: str


def new_pair(name: str, now: datetime) -> KeyPair:
    """Return a self-signed certificate, for clients that pin it by its SHA-256.

    Raises InputError `extra_missing`.
    """
    check_extra("--tls")
    from cryptography import x509  # noqa: PLC0415 -- an extra
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 -- an extra
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 -- an extra
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat  # noqa: PLC0415 -- an extra

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(
        issuer_name=subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _CLOCKS_DIFFER,
        not_valid_after=now + _VALID,
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return KeyPair(_own([builder.sign(key, hashes.SHA256())]), text)


def check_extra(option: str) -> None:
    """Raise InputError `extra_missing` if the package that reads and creates certificates is missing."""
    try:
        import cryptography  # noqa: F401, PLC0415 -- an extra
    except ImportError as error:
        raise extra_missing("certificate", option, error) from error


def check_key(own: OwnCertificate, key: str, variable: str) -> None:
    """Raise InputError `bad_certificate` unless the variable has the private key of the certificate."""
    from cryptography import x509  # noqa: PLC0415 -- an extra
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 -- an extra
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 -- an extra

    try:
        public = load_pem_private_key(key.encode(), password=None).public_key()
    except (TypeError, UnsupportedAlgorithm, ValueError):  # TypeError: it needs a passphrase
        why = "it is not a supported private key in PEM without a passphrase"
        hint = f'export {variable}="$(cat privkey.pem)"'
        raise InputError("bad_certificate", f"reading the key in {variable}: {why}", hint=hint) from None
    if _spki(public) != _spki(x509.load_pem_x509_certificate(own.pem.encode()).public_key()):
        raise InputError(
            "bad_certificate",
            f"the private key in {variable} does not belong to the certificate",
            hint="use the key that the certificate was issued for",
        )


def read_certificate(path: Path, now: datetime, *, key_option: str) -> OwnCertificate:
    """Read the user's certificate. Its private key must not be in the file; `key_option` names the option for it.

    Raises InputError `bad_certificate` or `extra_missing`.
    """
    try:
        text = read_text(path, most=_MAX_BYTES)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in PEM"
        raise _bad_certificate(path, why or "", hint="name a readable file in PEM") from None
    if _KEY in text:
        hint = f"name a file with the certificates only, and pass the key with {key_option}"
        raise _bad_certificate(path, "it contains a private key, which must not be stored in a plan", hint)
    chain = _parsed(path, text)
    _check(path, chain[0], now)
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 -- an extra

    try:
        return _own(chain)
    except (UnsupportedAlgorithm, ValueError):
        why = "its type of public key is not supported"
        raise _bad_certificate(path, why, hint="use a certificate with a P-256 or RSA key") from None


def read_chain(pem: str) -> OwnCertificate:
    """Return the certificates in `pem`, which `read_certificate` has checked."""
    from cryptography import x509  # noqa: PLC0415 -- an extra

    return _own(x509.load_pem_x509_certificates(pem.encode()))


def _bad_certificate(path: Path, why: str, hint: str) -> InputError:
    return InputError("bad_certificate", f"reading the certificate {path}: {why}", hint=hint)


def _parsed(path: Path, text: str) -> list[x509.Certificate]:
    check_extra("--certificate")
    from cryptography import x509  # noqa: PLC0415 -- an extra

    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        raise _bad_certificate(
            path, "it is not a certificate in PEM",
            hint=f"'openssl x509 -in {shlex.quote(str(path))} -noout -text' shows what it contains",
        ) from None  # fmt: skip


def _check(path: Path, leaf: x509.Certificate, now: datetime) -> None:
    begins, ends = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if not begins <= now <= ends:
        why = f"it is valid from {begins:%Y-%m-%d} to {ends:%Y-%m-%d}, and today is {now:%Y-%m-%d}"
        raise _bad_certificate(path, why, hint="renew it")
    if not _names(leaf):
        why = "its first certificate has no host name or address"
        raise _bad_certificate(path, why, hint="put the server's certificate first, then its issuers'")


def _names(leaf: x509.Certificate) -> list[x509.GeneralName]:
    from cryptography import x509  # noqa: PLC0415 -- an extra

    try:
        return list(leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return []


def _own(chain: list[x509.Certificate]) -> OwnCertificate:
    """Return the certificates without comments and anything else in their file."""
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 -- an extra

    leaf = chain[0]
    key = _spki(leaf.public_key())
    return OwnCertificate(
        pem="".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in chain),
        shown=Certificate(
            sha256=hashlib.sha256(leaf.public_bytes(Encoding.DER)).hexdigest(),
            public_key=base64.b64encode(hashlib.sha256(key).digest()).decode(),
        ),
    )


def _spki(key: PublicKeyTypes) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415 -- an extra

    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
