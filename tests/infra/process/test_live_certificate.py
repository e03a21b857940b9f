"""A certificate that does not serve is refused in words; a renewed one needs no restart."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from infra.errors import Fatal
from infra.process.live_certificate import CertificateFiles, LiveCertificate, server_context
from tests.infra.authority import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.made(tmp_path, "authority")


def certificate(folder: Path, authority: Authority, begins: float = -1, ends: float = 2) -> Path:
    file = authority.certificate(folder, "server", begins, ends)
    file.chmod(0o600)
    return file


def with_pass_phrase(file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    kept = serialization.BestAvailableEncryption(b"word")
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(pem, form, kept) + certificate_part(file))


def certificate_part(file: Path) -> bytes:
    content = file.read_bytes()
    return content[content.index(b"-----BEGIN CERT") :]


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda file: file.unlink(), r"cannot be read \(No such file"),
        (lambda file: file.write_text("nothing"), "holds no certificate in PEM"),
        (lambda file: file.chmod(0o644), "others may read it; run chmod 600"),
        (lambda file: file.write_bytes(certificate_part(file)), "name the key's file with api.key"),
        (with_pass_phrase, "openssl pkey -in .* takes it off"),
    ],
    ids=["missing", "no PEM", "open", "no key", "pass phrase"],
)
def test_a_file_that_does_not_serve_is_named_with_the_remedy(
    tmp_path: Path, authority: Authority, spoil: Callable[[Path], object], named: str
) -> None:
    file = certificate(tmp_path, authority)
    spoil(file)
    with pytest.raises(Fatal, match=rf"^api\.certificate_file = {file}: .*{named}"):
        server_context(CertificateFiles(file, None, "api"), datetime.now(UTC))


@pytest.mark.parametrize(
    ("begins", "ends", "named"),
    [(-2, -1, "the certificate ended .*; renew it"), (1, 2, "is good from .* set this machine's")],
)
def test_a_certificate_out_of_its_time_is_named(
    tmp_path: Path, authority: Authority, begins: float, ends: float, named: str
) -> None:
    file = certificate(tmp_path, authority, begins, ends)
    with pytest.raises(Fatal, match=named):
        server_context(CertificateFiles(file, None, "api"), datetime.now(UTC))


def test_a_key_of_another_certificate_is_named(tmp_path: Path, authority: Authority) -> None:
    file = certificate(tmp_path, authority)
    other = authority.certificate(tmp_path, "other")
    other.chmod(0o600)
    with pytest.raises(Fatal, match=rf"^api\.key_file = {other}: the key is not that of .*CN=serv"):
        server_context(CertificateFiles(file, other, "api"), datetime.now(UTC))
    server_context(CertificateFiles(other, other, "api"), datetime.now(UTC))


def shown(context: ssl.SSLContext, authority: Authority) -> bytes | None:
    """The certificate that a client gets, in DER."""
    client = ssl.create_default_context(cafile=authority.file)
    near, far = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(far, near, server_side=True)
    asking = client.wrap_bio(near, far, server_hostname="127.0.0.1")
    for _ in range(3):
        for end in (asking, server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return asking.getpeercert(binary_form=True)


def test_a_renewed_certificate_is_shown_and_a_spoilt_one_is_not(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    file, now = certificate(tmp_path, authority), [0.0]
    live = LiveCertificate(CertificateFiles(file, None, "api"), lambda: now[0])
    context = live.context()
    first = shown(context, authority)
    assert first is not None
    renewed = authority.certificate(tmp_path, "renewed")
    file.write_text("half of a certi")
    now[0] += 2
    assert shown(context, authority) == first
    assert "the certificate before stays in use" in caplog.text
    shutil.copy(renewed, file)
    file.chmod(0o600)
    now[0] += 2
    second = shown(context, authority)
    assert second == ssl.PEM_cert_to_DER_cert(certificate_part(renewed).decode())
    assert second != first
