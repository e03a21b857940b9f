"""JSON of no known product that names its fields as CEF, OpenTelemetry or ECS do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good

TIME = "2026-03-02T09:00:00Z"
HTTP = {"http.request.method": "GET", "url.path": "/a", "http.response.status_code": 404}


def event(**fields: Any) -> dict[str, Any]:
    row = good("json", msgspec.json.encode({"timestamp": TIME} | fields))
    assert (faults(row), misfits(row)) == ([], [])
    return row


@pytest.mark.parametrize(
    ("fields", "ends", "about"),
    [
        (
            HTTP | {"client.address": "10.0.0.5", "client.port": 5, "enduser.id": "ann"}
            | {"server.address": "h.example", "server.port": 443},
            (("10.0.0.5", 5, None), (None, 443, "h.example")),
            (4002, 3, 2, "ann"),
        ),
        (
            HTTP | {"network.peer.address": "10.0.0.5", "network.peer.port": 5}
            | {"network.local.address": "10.0.0.9", "network.local.port": 443},
            (("10.0.0.5", 5, None), ("10.0.0.9", 443, None)),
            (4002, 3, 2, None),
        ),
        # The port is of the peer, so is the address beside it; the client behind it stays unmapped.
        (
            {"net.peer.ip": "10.0.0.5", "net.peer.port": 5, "net.host.ip": "10.0.0.9"}
            | {"net.host.port": 443, "net.host.name": "h.example", "http.client_ip": "10.0.0.7"}
            | {"http.method": "GET", "http.target": "/a", "http.status_code": "200"},
            (("10.0.0.5", 5, None), ("10.0.0.9", 443, "h.example")),
            (4002, 3, 1, None),
        ),
        (
            {"sourceAddress": "10.0.0.5", "sourcePort": 5, "destinationAddress": "10.0.0.9"}
            | {"destinationPort": 443, "sourceUserName": "ann", "categoryOutcome": "/Failure"}
            | {"destinationUserName": "root", "deviceAction": "blocked"},
            (("10.0.0.5", 5, None), ("10.0.0.9", 443, None)),
            (4001, 6, 2, "ann"),
        ),
        (
            {"src": "10.0.0.5", "dst": "10.0.0.9", "duser": "ann", "outcome": "failure"}
            | {"name": "login", "signatureId": "login"},
            (("10.0.0.5", None, None), ("10.0.0.9", None, None)),
            (3002, 1, 2, "ann"),
        ),
    ],
    ids=["otel", "otel peer", "otel before 1.21", "cef in full", "cef in short"],
)  # fmt: skip
def test_names_of_cef_and_opentelemetry_are_read(
    fields: dict[str, Any], ends: tuple[Any, Any], about: tuple[Any, ...]
) -> None:
    row = event(**fields)
    read = [row.get(end) or {} for end in ("src_endpoint", "dst_endpoint")]
    assert tuple(tuple(end.get(k) for k in ("ip", "port", "hostname")) for end in read) == ends
    got = (row["class_uid"], row["activity_id"], row.get("status_id"), row.get("user_name"))
    assert got == about


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "GET", "status": "200", "message": "x"},
        {"user": "ann", "status": "failed", "message": "login"},
        {"server.address": "h.example", "server.port": 443, "message": "connected"},
        {"sourceAddress": "somewhere", "destinationPort": 22},
    ],
)
def test_one_sign_alone_makes_no_class(fields: dict[str, Any]) -> None:
    assert event(**fields)["class_uid"] == 0


def test_an_address_in_the_place_of_a_name_is_none() -> None:
    row = event(**{"source.ip": "10.0.0.5", "source.address": "10.0.0.6"})
    assert row["src_endpoint"] == {"ip": "10.0.0.5"}
