"""TLS of the listener's ports: 1.2 or newer, with our certificate, and theirs if wanted."""

from __future__ import annotations

import ssl

import grpc

from infra.config.settings import ListenSettings
from infra.errors import Fatal


def server_context(listen: ListenSettings) -> ssl.SSLContext:
    """For syslog and HTTP. Raises `Fatal` that names the file that does not serve."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    file = listen.certificate_file
    assert file is not None  # the settings see to it
    try:
        context.load_cert_chain(file)
    except (OSError, ssl.SSLError) as error:
        raise Fatal(f"listen.certificate_file = {file}: {_reason(error)}") from None
    if listen.client_ca_file is not None:
        try:
            context.load_verify_locations(listen.client_ca_file)
        except (OSError, ssl.SSLError) as error:
            where = listen.client_ca_file
            raise Fatal(f"listen.client_ca_file = {where}: {_reason(error)}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def grpc_credentials(listen: ListenSettings) -> grpc.ServerCredentials:
    """The same for gRPC, which takes the bytes."""
    server_context(listen)  # says in words what is wrong with the files
    assert listen.certificate_file is not None
    pem = listen.certificate_file.read_bytes()
    authorities = None if listen.client_ca_file is None else listen.client_ca_file.read_bytes()
    return grpc.ssl_server_credentials(
        [(pem, pem)],
        root_certificates=authorities,
        require_client_auth=authorities is not None,
    )


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return f"cannot be read ({error.strerror})"
    return "holds no key and certificate in PEM that fit each other"
