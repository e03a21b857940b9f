"""What stands at a network's edge: Suricata's events as JSON, nginx's access log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from bench.records import NO_JSON, Family, Spoil, client, logged_at, swap
from infra.spark.session import project_root
from ingest.parsing.timestamps import MONTHS

SAMPLES = project_root() / "samples"
EVENTS = ("alert", "flow", "dns", "http", "flow", "alert", "dns", "flow")
"""Of which type each event is, over and over."""
ACCESS = re.compile(rb"(?P<client>\S+)(?P<names> - \S+ )\[[^]]+\](?P<rest> .*)")
NOT_EVE: Mapping[str, Spoil] = {
    **NO_JSON,
    "a key twice": lambda line: line[:-1] + b',"src_ip":"10.99.99.99"}',
}
NOT_ACCESS: Mapping[str, Spoil] = {
    "cut short": lambda line: line[:30],
    "a NUL": swap(rb'"GET ', b'"GET \x00'),
    "bad UTF-8": swap(rb'"GET ', b'"GET \xff'),
    "nothing": lambda line: b"",
}


def suricata() -> Family:
    """Alerts, flows, questions and HTTP requests."""
    lines: dict[str, list[dict[str, Any]]] = {kind: [] for kind in EVENTS}
    for file in sorted((SAMPLES / "suricata").glob("*.eve.json")):
        for line in file.read_bytes().splitlines():
            fields = msgspec.json.decode(line)
            if fields["event_type"] in lines:
                lines[fields["event_type"]].append(fields)
    encode = msgspec.json.Encoder().encode

    def make(number: int) -> tuple[str, bytes]:
        of = lines[EVENTS[number % len(EVENTS)]]
        fields = of[number // len(EVENTS) % len(of)]
        changed = fields | {
            "timestamp": f"{logged_at(number):%Y-%m-%dT%H:%M:%S.%f}+0000",
            "flow_id": 1031464864740687 + number,
            "src_ip": client(number)[0],
        }
        return "suricata", encode(changed)

    return Family("suricata", make, NOT_EVE)


def nginx() -> Family:
    """Lines of the format `combined`."""
    lines: list[tuple[bytes, bytes]] = []
    for file in sorted((SAMPLES / "lab").glob("*/nginx_access.log")):
        for line in file.read_bytes().splitlines():
            match = ACCESS.fullmatch(line)
            if match:
                lines.append((match["names"], match["rest"]))

    def make(number: int) -> tuple[str, bytes]:
        names, rest = lines[number % len(lines)]
        when = logged_at(number)
        time = f"[{when:%d}/{MONTHS[when.month - 1]}/{when:%Y:%H:%M:%S} +0000]"
        return "nginx", client(number)[0].encode() + names + time.encode() + rest

    return Family("nginx", make, NOT_ACCESS)
