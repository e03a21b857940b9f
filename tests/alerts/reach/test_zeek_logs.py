"""Rules over Zeek's logs on lines that lack what others have, and on what two fields say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.alerts.reach.fired import fired

LINE = {
    "ts": 1741176000.1, "uid": "C1", "id.orig_h": "10.0.0.5", "id.orig_p": 50000,
    "id.resp_h": "203.0.113.9", "id.resp_p": 443,
}  # fmt: skip
LEASE = {
    "mac": "02:00:00:00:00:01", "client_fqdn": "pc.example", "assigned_addr": "10.0.0.7",
    "server_addr": "10.0.0.1", "msg_types": ["REQUEST", "ACK"], "lease_time": 600.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("service", "fields", "detection", "fires"),
    [
        ("dns", {"qtype_name": "NULL"}, {"qtype_name": "NULL"}, True),
        ("dns", {"query": "a.example", "qtype_name": "A"}, {"qtype_name": "NULL"}, False),
        ("dns", {"qclass_name": "C_CHAOS"}, {"qclass_name": "C_CHAOS"}, True),
        ("conn", {"local_orig": True, "local_resp": False}, {"local_orig": True}, True),
        ("conn", {"local_orig": True, "local_resp": False}, {"local_resp": True}, False),
        ("conn", {"local_orig": True, "local_resp": True}, {"local_resp": "true"}, True),
        ("conn", {"local_orig": True}, {"local_orig": True}, True),
        ("conn", {"local_orig": True}, {"local_orig": False}, False),
        ("conn", {"local_orig": True}, {"local_resp": False}, False),
        ("conn", {"local_resp": False}, {"local_resp": "false"}, True),
        ("http", {"username": "anna"}, {"username": "anna"}, True),
        ("http", {"username": "CORP\\anna"}, {"username|contains": "CORP"}, True),
        ("http", {"resp_mime_types": ["a/x-exe"]}, {"resp_mime_types|contains": "exe"}, True),
        ("http", {"response_body_len": 6}, {"response_body_len|gt": 5}, True),
        ("ssh", {"hassh": "0a" * 16}, {"hassh": "0a" * 16}, True),
        ("ssh", {"hasshServer": "0a" * 16}, {"hassh": "0a" * 16}, False),
        ("ntlm", {"domainname": "CORP"}, {"domainname": "CORP"}, True),
        ("smtp", {"subject": "an invoice"}, {"subject|contains": "invoice"}, True),
        ("files", {"tx_hosts": ["192.0.2.1"]}, {"tx_hosts": "192.0.2.1"}, True),
        ("x509", {"san.dns": ["a.example"]}, {"san.dns|endswith": ".example"}, True),
        ("dhcp", LEASE, {"client_fqdn": "pc.example", "assigned_addr": "10.0.0.7"}, True),
        ("dhcp", LEASE, {"mac": "02:00:00:00:00:01", "lease_time": 600}, True),
        ("dhcp", LEASE, {"server_addr": "10.0.0.7"}, False),
    ],
)
def test_a_field_is_asked_wherever_the_line_keeps_it(
    service: str, fields: dict[str, Any], detection: dict[str, Any], fires: bool
) -> None:
    logsource = {"product": "zeek", "service": service}
    raw = json.dumps(LINE | fields).encode()
    assert fired(logsource, detection, f"zeek:{service}", raw) is fires
