"""The certificate a server shows: checked in words, and read anew once it was renewed."""

from __future__ import annotations

import logging
import os
import ssl
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from infra.config.secrets import require_closed
from infra.errors import Fatal

log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
"""The files are looked at with a handshake, at most so often."""
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class CertificateFiles:
    """Where a server's certificate and its key lie; `section`: the settings that name them.

    `client_authorities`: who vouches for a client; a client then has to show a certificate.
    """

    certificate: Path
    key: Path | None
    section: str
    client_authorities: Path | None = None

    @property
    def key_setting(self) -> tuple[str, Path]:
        """The setting that names the key's file, and that file."""
        if self.key is None:
            return f"{self.section}.certificate_file", self.certificate
        return f"{self.section}.key_file", self.key

    def pem(self) -> tuple[bytes, bytes, bytes | None]:
        """Key, certificates and clients' authorities as they lie there, unchecked."""
        authorities = self.client_authorities
        return (
            self.key_setting[1].read_bytes(),
            self.certificate.read_bytes(),
            None if authorities is None else authorities.read_bytes(),
        )

    def certificates(self) -> list[x509.Certificate]:
        """The server's own and those that lead to an authority; raises `Fatal` without any."""
        setting = f"{self.section}.certificate_file"
        content = _content(self.certificate, setting, closed=False)
        try:
            return x509.load_pem_x509_certificates(content)
        except ValueError:
            raise Fatal(
                f"{setting} = {self.certificate}: holds no certificate in PEM (BEGIN CERTIFICATE)"
            ) from None


def server_context(files: CertificateFiles, now: datetime) -> ssl.SSLContext:
    """TLS 1.2 or newer with this certificate.

    Raises `Fatal` with the remedy for a file that is missing, open to others or no PEM, a key
    that belongs to another certificate, and a certificate that is not good `now`.
    """
    own = files.certificates()[0]
    setting, file = files.key_setting
    what = f"{setting} = {file}"
    try:
        key = load_pem_private_key(_content(file, setting, closed=True), None)
    except TypeError:
        remedy = f"openssl pkey -in {file} -out FILE takes it off"
        raise Fatal(
            f"{what}: the key has a pass phrase, and nobody is there to type it; {remedy}"
        ) from None
    except ValueError:
        name = files.section + (".key_file" if files.key is None else ".certificate_file")
        hint = f"; name the key's file with {name}" if files.key is None else ""
        raise Fatal(f"{what}: holds no private key in PEM{hint}") from None
    if _public(key.public_key()) != _public(own.public_key()):
        raise Fatal(
            f"{what}: the key is not that of the certificate in {files.certificate}, whose owner "
            f"is {own.subject.rfc4514_string() or 'not named'}; put the two of one order together"
        )
    ends, begins = own.not_valid_after_utc, own.not_valid_before_utc
    if now >= ends:
        raise Fatal(
            f"{files.section}.certificate_file = {files.certificate}: the certificate ended "
            f"{ends:%Y-%m-%d %H:%M} UTC; renew it"
        )
    if now < begins:
        raise Fatal(
            f"{files.section}.certificate_file = {files.certificate}: the certificate is good "
            f"from {begins:%Y-%m-%d %H:%M} UTC on; wait, or set this machine's clock"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ssl.SSLError) as error:
        raise Fatal(f"{what}: OpenSSL takes it not ({error})") from None
    if files.client_authorities is not None:
        _ask_clients(context, files.client_authorities, f"{files.section}.client_ca_file")
    return context


def _ask_clients(context: ssl.SSLContext, authorities: Path, setting: str) -> None:
    content = _content(authorities, setting, closed=False)
    try:
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (ValueError, ssl.SSLError):
        raise Fatal(
            f"{setting} = {authorities}: holds no certificate in PEM (BEGIN CERTIFICATE)"
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED


class LiveCertificate:
    """A context whose connections get the newest certificate that is fit; the one before goes on
    serving when a new one is not."""

    def __init__(
        self,
        files: CertificateFiles,
        clock: Callable[[], float] = time.monotonic,
        protocols: Sequence[str] = (),
    ) -> None:
        """`protocols`: what clients may ask for by ALPN, such as `h2`."""
        self._files = files
        self._clock = clock
        self._protocols = protocols
        self._seen = self._signature()
        self._newest = self._fresh()
        self._looked = clock()
        self.version = 1
        """Counts up with each certificate that came into use."""

    def context(self) -> ssl.SSLContext:
        """For the server, which keeps it for good."""
        context = self._fresh()
        # With each handshake, and not loaded into the one context: OpenSSL keeps a certificate
        # for each kind of key, and would go on showing an old one of another kind.
        context.sni_callback = self._choose
        return context

    def _fresh(self) -> ssl.SSLContext:
        context = server_context(self._files, datetime.now(UTC))
        if self._protocols:
            context.set_alpn_protocols(list(self._protocols))
        return context

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        self.renew()
        connection.context = self._newest

    def renew(self) -> None:
        """Take the files as they are now, if they changed."""
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        signature = self._signature()
        if signature == self._seen:
            return
        # Remembered also when it is refused: it is then said once, and tried again when the
        # files change once more, such as the key shortly after its certificate.
        self._seen = signature
        try:
            self._newest = self._fresh()
        except Fatal as error:
            log.warning("%s; the certificate before stays in use", error)
        else:
            self.version += 1
            log.warning("%s was read anew", self._files.certificate)

    def _signature(self) -> tuple[tuple[int, int, int], ...]:
        files = (self._files.certificate, self._files.key, self._files.client_authorities)
        return tuple(_about(file) for file in files if file is not None)


def _about(file: Path) -> tuple[int, int, int]:
    try:
        about = file.stat()
    except OSError:
        return (0, 0, 0)
    return (about.st_mtime_ns, about.st_ino, about.st_size)


def _content(file: Path, setting: str, *, closed: bool) -> bytes:
    """A file's bytes; `closed`: refused where others may read it."""
    try:
        with file.open("rb") as opened:
            about = os.fstat(opened.fileno())
            content = opened.read(_MOST_BYTES)
    except OSError as error:
        raise Fatal(f"{setting} = {file}: cannot be read ({error.strerror})") from None
    if closed and stat.S_ISREG(about.st_mode):
        require_closed(file, setting, about)
    return content


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
