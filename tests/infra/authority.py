"""A certificate authority of the tests' own, made anew each time."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Authority:
    """Signs certificates for 127.0.0.1; `file` is its own, in PEM."""

    file: Path
    key: Key
    name: x509.Name

    @classmethod
    def made(cls, folder: Path, called: str = "tests") -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named(called)
        own = _builder(name, name, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        file = folder / f"{called}.pem"
        file.write_bytes(own.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return cls(file, key, name)

    def certificate(self, folder: Path, called: str, begins: float = -1, ends: float = 2) -> Path:
        """Key and certificate in one PEM file, as Kafka and librdkafka read it; it is good from
        `begins` to `ends`, in days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = (
            _builder(_named(called), self.name, key.public_key(), begins, ends)
            .add_extension(names, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        file = folder / f"{called}.pem"
        file.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            + made.public_bytes(pem)
        )
        return file


def _named(called: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begins: float = -1,
    ends: float = 2,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begins))
        .not_valid_after(now + timedelta(days=ends))
    )
