"""TLS of the listener's ports: 1.2 or newer, with our certificate, and theirs if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.config.settings import ListenSettings
from infra.process.live_certificate import CertificateFiles, LiveCertificate

if TYPE_CHECKING:
    import grpc  # `status` looks at the files alone


def certificate_files(listen: ListenSettings) -> CertificateFiles | None:
    """The files of the listener's certificate; None: nothing here speaks TLS."""
    if listen.certificate_file is None:
        return None
    return CertificateFiles(
        listen.certificate_file, listen.key_file, "listen", listen.client_ca_file
    )


def grpc_credentials(files: CertificateFiles) -> grpc.ServerCredentials:
    """For gRPC, which asks for the newest certificate with each handshake.

    Raises `Fatal` that names the file that does not serve.
    """
    import grpc

    certificate = LiveCertificate(files)
    version = certificate.version

    def newest() -> grpc.ServerCertificateConfiguration | None:
        nonlocal version
        certificate.renew()
        if certificate.version == version:
            return None  # gRPC goes on with what it has
        configuration = _configuration(files)
        version = certificate.version
        return configuration

    return grpc.dynamic_ssl_server_credentials(
        _configuration(files),
        newest,  # type: ignore[arg-type]  # its types lack the None that gRPC documents
        require_client_authentication=files.client_authorities is not None,
    )


def _configuration(files: CertificateFiles) -> grpc.ServerCertificateConfiguration:
    import grpc

    key, chain, authorities = files.pem()
    return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=authorities)
