"""Log lines made for measuring: each carries the instant at which it is made."""

from __future__ import annotations

import json
from datetime import UTC, datetime

Sent = tuple[str, bytes]
"""Source and raw bytes."""


def grant(address: str, mac: str, host: str, at: float) -> Sent:
    """ISC dhcpd grants or renews a lease (RFC 5424)."""
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
    said = f"DHCPACK on {address} to {mac} ({host}) via br0"
    return "isc_dhcpd", f"<30>1 {stamp} gate dhcpd 7 - - {said}".encode()


def lookup(address: str, number: int, at: float) -> Sent:
    """A DNS question with its answer."""
    return "zeek:dns", _zeek(
        address, number, at, "10.9.1.1", 53, proto="udp", query=f"www{number % 50}.example.com",
        qtype=1, qtype_name="A", qclass=1, qclass_name="C_INTERNET", rcode=0, rcode_name="NOERROR",
        answers=["192.0.2.80"], TTLs=[300.0], trans_id=number % 65536,
    )  # fmt: skip


def connection(address: str, number: int, at: float) -> Sent:
    """A connection that was opened and closed in order."""
    return "zeek:conn", _zeek(
        address, number, at, "192.0.2.80", 443, proto="tcp", service="ssl", duration=0.5,
        orig_bytes=1200, resp_bytes=5400, conn_state="SF", history="ShADadfF", orig_pkts=12,
        resp_pkts=14, orig_ip_bytes=1800, resp_ip_bytes=6100,
    )  # fmt: skip


def traversal(address: str, number: int, at: float, method: str = "GET") -> Sent:
    """An HTTP request that climbs out of the site's folder: the rule `http_path_traversal`."""
    return "zeek:http", _zeek(
        address, number, at, "10.9.1.2", 80, method=method, host="intranet.example.com",
        uri="/show?page=../../../etc/passwd", version="1.1", user_agent="Mozilla/5.0",
        request_body_len=0, response_body_len=312, status_code=404, status_msg="Not Found",
    )  # fmt: skip


def _zeek(address: str, number: int, at: float, target: str, port: int, **fields: object) -> bytes:
    record = {
        "ts": at,
        "uid": f"C{number:x}bench",
        "id.orig_h": address,
        "id.orig_p": 40000 + number % 20000,
        "id.resp_h": target,
        "id.resp_p": port,
        **fields,
    }
    return json.dumps(record).encode()
