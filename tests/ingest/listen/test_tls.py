"""TLS of the listener: who is let in, renewed certificates, and files that do not serve."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from infra.config.settings import load
from infra.errors import Fatal, Usage
from ingest.listen.listener_status import listener_findings
from ingest.listen.service import LogListener
from tests.event_loop import run_apart
from tests.infra.authority import Authority
from tests.ingest.listen.memory_sink import MemorySink, header
from tests.ingest.listen.running import listening, send, until

TLS = {"protocol": "tls", "port": 0}


def closed(file: Path) -> Path:
    file.chmod(0o600)
    return file


def shown(port: int, authority: Authority) -> bytes | None:
    """The certificate that a port shows, in DER, once it was checked."""
    client = ssl.create_default_context(cafile=str(authority.file))
    client.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        client.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        return connection.getpeercert(binary_form=True)


def der(file: Path) -> bytes:
    pem = file.read_text()
    return ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERT") :])


def test_tls_asks_for_a_certificate_where_the_settings_do(tmp_path: Path) -> None:
    sink = MemorySink()
    authority = Authority.made(tmp_path)
    mine = closed(authority.certificate(tmp_path, "server"))
    theirs = authority.certificate(tmp_path, "b1")
    anonymous = ssl.create_default_context(cafile=str(authority.file))
    named = ssl.create_default_context(cafile=str(authority.file))
    named.load_cert_chain(theirs)

    async def run() -> None:
        options = {"certificate_file": mine, "client_ca_file": authority.file}
        tls = {"protocol": "tls", "port": 0}
        async with listening(tmp_path, sink, syslog=[tls], **options) as listener:
            port = listener.tcp[0].port
            # The server's refusal comes after the client's handshake, or within it.
            with suppress(ssl.SSLError, ConnectionError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=anonymous)
                writer.write(b"<1>nobody\n")
                assert await reader.read() == b""
            await send(port, b"5 <1>ok", named)
            await until(lambda: len(sink.kept) == 1)

    run_apart(run())
    assert [message.value for message in sink.kept] == [b"<1>ok"]
    assert header(sink.kept[0], "certificate") == b"b1"


def test_a_renewed_certificate_is_shown_on_all_ports_without_a_restart(tmp_path: Path) -> None:
    authority = Authority.made(tmp_path)
    file = closed(authority.certificate(tmp_path, "server"))
    first = der(file)
    renewed = authority.certificate(tmp_path, "renewed")

    async def run() -> list[bytes | None]:
        otlp = {"http_port": 0, "grpc_port": 0, "tls": True}
        options = {"certificate_file": file, "syslog": [TLS], "otlp": otlp}
        async with listening(tmp_path, MemorySink(), **options) as listener:
            assert listener.grpc is not None
            ports = (listener.tcp[0].port, listener.http_port, listener.grpc.port)
            before = [await asyncio.to_thread(shown, port, authority) for port in ports]
            assert before == [first] * 3
            shutil.copyfile(renewed, file)
            await asyncio.sleep(1.1)  # files are looked at once a second
            return [await asyncio.to_thread(shown, port, authority) for port in ports]

    assert run_apart(run()) == [der(renewed)] * 3


@pytest.mark.parametrize("setting", ["certificate_file", "client_ca_file"])
def test_a_file_that_does_not_serve_is_named(tmp_path: Path, setting: str) -> None:
    good = closed(Authority.made(tmp_path).certificate(tmp_path, "server"))
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    files = {"certificate_file": good, setting: bad}
    settings = load(home=tmp_path, listen={"syslog": [TLS], **files})

    async def run() -> None:
        LogListener(settings, MemorySink())

    with pytest.raises(Fatal, match=rf"^listen\.{setting} = {bad}: holds no certificate in PEM"):
        run_apart(run())


def test_a_key_has_a_file_of_its_own_if_wanted(tmp_path: Path) -> None:
    file = Authority.made(tmp_path).certificate(tmp_path, "server", ends=30)
    pem = file.read_text()
    cut = pem.index("-----BEGIN CERT")
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    key.write_text(pem[:cut])
    chain.write_text(pem[cut:])
    listen = {"syslog": [TLS], "certificate_file": chain, "key_file": closed(key)}
    findings = {item.what: item for item in listener_findings(load(home=tmp_path, listen=listen))}
    assert findings["listen certificate"].remedy is None
    key.chmod(0o644)
    findings = {item.what: item for item in listener_findings(load(home=tmp_path, listen=listen))}
    assert "run chmod 600" in str(findings["listen certificate"].remedy)
    with pytest.raises(Usage, match="key_file goes with certificate_file"):
        load(home=tmp_path, listen={"key_file": key})
