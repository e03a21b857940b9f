"""Where Flight SQL listens: beside the API, with its certificate."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from api.flight.door import Desk, FlightDoor
from api.routes.access import Services
from infra.errors import Usage
from infra.process.live_certificate import CertificateFiles, server_context


def serve_flight(services: Services, location: str, files: CertificateFiles | None) -> FlightDoor:
    """Flight SQL over the services of the API, from now on, at an address of gRPC.

    Raises `Usage` where the port cannot be had, `Fatal` for a certificate that does not serve.
    """
    desk = Desk(services.settings, services.access, services.quotas, services.statements)
    try:
        return FlightDoor(desk, location, None if files is None else _pair(files))
    # gRPC tells its reason on stderr alone.
    except pa.ArrowException:
        raise Usage(
            f"cannot listen on {location}; stop what listens there or set "
            "api.flight_port to another port"
        ) from None


def _pair(files: CertificateFiles) -> tuple[bytes, bytes]:
    # Checked first: gRPC refuses one that is not fit without a reason.
    server_context(files, datetime.now(UTC))
    return files.certificate.read_bytes(), files.key_setting[1].read_bytes()
