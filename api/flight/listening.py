"""Where Flight SQL listens: beside the API, with its certificate."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pyarrow as pa

from api.flight.service import Desk, FlightService
from api.flight.tls_front import TlsFront
from api.routes.access import Services
from infra.errors import Usage
from infra.process.live_certificate import CertificateFiles, LiveCertificate

_PROTOCOLS = ("h2",)
"""What gRPC's clients want to hear that a server speaks."""


class FlightServer:
    """Flight SQL on a port, until `close`."""

    def __init__(self, door: FlightService, front: TlsFront | None = None) -> None:
        self._door = door
        self._front = front
        self.port: int = door.port if front is None else front.port

    def close(self) -> None:
        """Cancel what runs, and take no more calls."""
        self._door.close()
        if self._front is not None:
            self._front.close()


def serve_flight(services: Services, location: str, files: CertificateFiles | None) -> FlightServer:
    """Flight SQL over the services of the API, from now on, at an address of gRPC.

    Raises `Usage` where the port cannot be had, `Fatal` for a certificate that does not serve.
    """
    desk = Desk(
        services.settings, services.access, services.quotas, services.statements, services.meters
    )
    # gRPC tells its reason on stderr alone.
    try:
        if files is None:
            return FlightServer(FlightService(desk, location))
        return _behind_tls(desk, location, files)
    except (pa.ArrowException, OSError):
        raise Usage(
            f"cannot listen on {location}; stop what listens there or set "
            "api.flight_port to another port"
        ) from None


def _behind_tls(desk: Desk, location: str, files: CertificateFiles) -> FlightServer:
    context = LiveCertificate(files, protocols=_PROTOCOLS).context()
    # A folder of our own: who reaches the socket file in it speaks to gRPC without TLS.
    folder = TemporaryDirectory(prefix="headgate-flight-", ignore_cleanup_errors=True)
    socket_file = Path(folder.name) / "grpc"
    door = FlightService(desk, f"grpc+unix://{socket_file}", folder)
    url = urlsplit(location)
    try:
        return FlightServer(door, TlsFront(url.hostname or "", url.port or 0, context, socket_file))
    except OSError:
        door.close()
        raise
