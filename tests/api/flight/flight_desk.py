"""A lake with alerts, and Flight SQL over it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
from fastapi import FastAPI
from pyarrow import flight

from api.flight.listening import FlightServer, serve_flight
from api.flight.messages import packed_message
from api.serving import certificate_files, flight_url
from tests.api.plain_desk import PlainDesk


class FlightDesk(PlainDesk):
    """The API's services, with Flight SQL on a port of its own."""

    def __init__(self, home: Path, **api: Any) -> None:
        super().__init__(home, flight_port=0, **api)
        self.access = self.app.state.services.access
        self.door: FlightServer = flight_over(self.app)
        self.port = self.door.port

    def close(self) -> None:
        self.door.close()
        self.app.state.services.close()

    def key(self, name: str, role: str = "viewer", **limits: Any) -> str:
        """A new key's token."""
        return str(self.access.credentials.add_key(name, role, None, **limits)[1])

    @contextmanager
    def adbc(self, token: str | None = None, **options: str) -> Iterator[Any]:
        """A connection of ADBC with a token, the API's own without."""
        if not options:
            options = {"adbc.flight.sql.authorization_header": f"Bearer {token or 't' * 32}"}
        with adbc.connect(f"grpc://127.0.0.1:{self.port}", db_kwargs=options) as connection:
            yield connection

    def rows(self, sql: str, token: str | None = None) -> list[dict[str, Any]]:
        """What a statement gives over ADBC."""
        with self.adbc(token) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            rows: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
            return rows

    def bare(self, name: str, token: str | None = None, **fields: Any) -> pa.Table:
        """The answer to a command of the protocol, asked without a driver."""
        options = _options(token)
        descriptor = flight.FlightDescriptor.for_command(packed_message(name, **fields))
        with flight.FlightClient(("127.0.0.1", self.port)) as client:
            info = client.get_flight_info(descriptor, options)
            table = client.do_get(info.endpoints[0].ticket, options).read_all()
            assert client.get_schema(descriptor, options).schema == info.schema
        assert table.schema.equals(info.schema)
        return table

    def action(self, name: str, body: bytes, token: str | None = None) -> list[bytes]:
        """The results of an action of the protocol."""
        with flight.FlightClient(("127.0.0.1", self.port)) as client:
            results = client.do_action(flight.Action(name, body), _options(token))
            return [result.body.to_pybytes() for result in results]

    def audited(self) -> list[dict[str, Any]]:
        """Statements that were noted, oldest first, with their details read."""
        files = sorted((self.settings.home / "spool" / "audit").glob("*.json"))
        acts = [json.loads(file.read_text()) for file in files]
        return [
            act | {"detail": json.loads(act["detail"])} for act in acts if act["act"] == "statement"
        ]


def flight_over(app: FastAPI) -> FlightServer:
    """Flight SQL as `headgate api` serves it beside this app."""
    services = app.state.services
    files = certificate_files(services.settings)
    return serve_flight(services, flight_url(services.settings), files)


def _options(token: str | None) -> Any:
    bearer = f"Bearer {token or 't' * 32}".encode()
    return flight.FlightCallOptions(headers=[(b"authorization", bearer)])
