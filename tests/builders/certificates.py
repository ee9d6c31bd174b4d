"""Certificates like those of a public authority, signed by a test authority."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

NAME = "llm.example.com"
_BEGIN = datetime(2025, 11, 1, tzinfo=UTC)
_END = datetime(2036, 11, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Issued:
    """A server's certificate: `chain` and `key` in PEM, and its authority."""

    chain: str
    key: str
    authority: str


def issued(
    *,
    names: Sequence[str] = (NAME, "127.0.0.1"),
    begins: datetime = _BEGIN,
    ends: datetime = _END,
    kind: str = "ec",
    passphrase: bytes = b"",
) -> Issued:
    authority_key, key = _new_key(kind), _new_key(kind)
    issuer, subject = _name("Test Authority"), _name(NAME)
    signed_by_itself = _unsigned(issuer, authority_key, issuer, _BEGIN, _END)
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    authority = signed_by_itself.add_extension(constraints, critical=True).sign(authority_key, hashes.SHA256())
    builder = _unsigned(subject, key, issuer, begins, ends)
    if names:
        kinds = [x509.DNSName(name) if name[-1].isalpha() else x509.IPAddress(ip_address(name)) for name in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(kinds), critical=False)
    hidden = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return Issued(
        chain=_pem(builder.sign(authority_key, hashes.SHA256())) + _pem(authority),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden).decode(),
        authority=_pem(authority),
    )


def _new_key(kind: str) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    return ec.generate_private_key(ec.SECP256R1()) if kind == "ec" else rsa.generate_private_key(65537, 2048)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _unsigned(
    subject: x509.Name, key: CertificateIssuerPrivateKeyTypes, issuer: x509.Name, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
