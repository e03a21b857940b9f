"""Where and how the API is served: its address, its certificate, and who could listen in."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING

from infra.config.settings import Settings

if TYPE_CHECKING:
    import uvicorn

    # Most commands look at no certificate.
    from infra.process.live_certificate import CertificateFiles
    from infra.runtime.machine_checks import Finding

HSTS = ("Strict-Transport-Security", "max-age=31536000")
"""A browser that was here once asks by https for a year (RFC 6797)."""
LAST_ANSWERS = 2
"""Seconds that requests under way have when the API is told to end."""


def base_url(settings: Settings, host: str | None = None, port: int | None = None) -> str:
    """The address of the API, such as `https://127.0.0.1:8765`."""
    host, port = host or settings.api.host, settings.api.port if port is None else port
    scheme = "http" if settings.api.certificate_file is None else "https"
    # An IPv6 address stands in brackets in a URL (RFC 3986).
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def certificate_files(settings: Settings) -> CertificateFiles | None:
    """The files of the API's certificate; None: it speaks http."""
    from infra.process.live_certificate import CertificateFiles

    api = settings.api
    if api.certificate_file is None:
        return None
    return CertificateFiles(api.certificate_file, api.key_file, "api")


def make_server(settings: Settings, host: str | None = None) -> uvicorn.Server:
    """The API, ready to run on a socket. Raises `Fatal` for a certificate that does not serve.

    Where `api.flight_port` is set, Flight SQL is served from now on, at `host` too.
    """
    import uvicorn

    from api.app import create_app
    from infra.process.bounded_http import MAX_CONNECTIONS, BoundedHttp
    from infra.process.live_certificate import LiveCertificate

    files = certificate_files(settings)
    certificate = None if files is None else LiveCertificate(files)
    app = create_app(settings)
    if settings.api.flight_port is not None:
        from api.flight.listening import serve_flight

        app.state.flight = serve_flight(app.state.services, flight_url(settings, host), files)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=LAST_ANSWERS,
        http=BoundedHttp,
        limit_concurrency=MAX_CONNECTIONS,
        ssl_context_factory=None if certificate is None else lambda *_: certificate.context(),
        headers=[] if certificate is None else [HSTS],
    )
    return uvicorn.Server(config)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def in_clear(settings: Settings, host: str) -> str | None:
    """What is told of an address that others reach without TLS; None when nothing is."""
    if settings.api.certificate_file is not None or is_loopback(host):
        return None
    return (
        f"{host} without TLS: keys and passwords cross the network in the clear; set "
        "api.certificate_file, or listen on 127.0.0.1 behind a proxy that speaks TLS"
    )


def flight_url(settings: Settings, host: str | None = None, port: int | None = None) -> str:
    """The address of Flight SQL, such as `grpc+tcp://127.0.0.1:8766`."""
    web = base_url(settings, host, settings.api.flight_port if port is None else port)
    return web.replace("https://", "grpc+tls://").replace("http://", "grpc+tcp://")


def tls_findings(settings: Settings) -> Iterator[Finding]:
    """What `doctor` and `status` say of the API's address and certificate."""
    from infra.runtime.machine_checks import Finding, check_certificate

    if settings.api.flight_port is not None:
        yield Finding("flight sql", flight_url(settings), None)
    files = certificate_files(settings)
    if files is None:
        clear = in_clear(settings, settings.api.host)
        if clear is not None:
            yield Finding("api address", f"{settings.api.host}, no TLS", clear)
        return
    yield check_certificate(files)
