"""The user's own certificate: its public part, checked before anything is created. Its key is never read here."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final

from tgi_deploy.bounded_files import read_text
from tgi_deploy.errors import InputError
from tgi_deploy.extras import extra_missing
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.serving import Certificate

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from cryptography import x509

_MAX_BYTES: Final = 65536
_KEY: Final = "PRIVATE KEY-----"  # of every PEM form of a private key


class OwnCertificate(Frozen, frozen=True, kw_only=True):
    """`pem` has only certificates, the server's first; `shown` identifies that one to clients."""

    pem: str
    shown: Certificate


def read_certificate(path: Path, now: datetime) -> OwnCertificate:
    """Raises InputError `bad_certificate` or `extra_missing`."""
    try:
        text = read_text(path, most=_MAX_BYTES)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in PEM"
        raise _refused(path, why or "", hint="name a readable file in PEM") from None
    if _KEY in text:
        hint = "give a file with the certificates only; the key belongs into --certificate-key-parameter"
        raise _refused(path, "it contains a private key, which must not get into a plan", hint)
    chain = _parsed(path, text)
    _check(path, chain[0], now)
    return _own(chain)


def _refused(path: Path, why: str, hint: str) -> InputError:
    return InputError("bad_certificate", f"reading the certificate {path}: {why}", hint=hint)


def _parsed(path: Path, text: str) -> list[x509.Certificate]:
    try:
        from cryptography import x509  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise extra_missing("certificate", "--certificate", error) from error
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        raise _refused(
            path, "it is not a certificate in PEM",
            hint="'openssl x509 -in FILE -noout -text' shows what it contains",
        ) from None  # fmt: skip


def _check(path: Path, leaf: x509.Certificate, now: datetime) -> None:
    begins, ends = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if not begins <= now <= ends:
        why = f"it is valid from {begins:%Y-%m-%d} to {ends:%Y-%m-%d}, and today is {now:%Y-%m-%d}"
        raise _refused(path, why, hint="renew it")
    if not _names(leaf):
        why = "its first certificate has no host name or address"
        raise _refused(path, why, hint="put the server's certificate first, then its issuers'")


def _names(leaf: x509.Certificate) -> list[x509.GeneralName]:
    from cryptography import x509  # noqa: PLC0415 -- an extra

    try:
        return list(leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return []


def _own(chain: list[x509.Certificate]) -> OwnCertificate:
    """Return it without comments and whatever else the file has."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415 -- an extra

    leaf = chain[0]
    key = leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return OwnCertificate(
        pem="".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in chain),
        shown=Certificate(
            sha256=hashlib.sha256(leaf.public_bytes(Encoding.DER)).hexdigest(),
            public_key=base64.b64encode(hashlib.sha256(key).digest()).decode(),
        ),
    )
