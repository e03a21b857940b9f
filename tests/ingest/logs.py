"""The bundled logs as records, and how the tests read them."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record

SAMPLES = Path(__file__).parents[2] / "samples"
NOW = datetime(2026, 11, 21, 4, 0, tzinfo=UTC)
SETTINGS = ParseSettings(scopes=(("default", ()),))
ZONES = {"kea": "Europe/Berlin", "dnsmasq": "America/New_York", "dhcpd": "UTC"}

FILES: tuple[tuple[str, str, str], ...] = (
    ("zeek:conn", "zeek/json_corelight/NASHUA_conn.log", "UTC"),
    ("zeek:conn", "zeek/json_corelight/SCRANTON_conn.log", "UTC"),
    ("zeek:dns", "zeek/json_corelight/NASHUA_dns.log", "UTC"),
    ("zeek:dns", "zeek/json_corelight/SCRANTON_dns.log", "UTC"),
    ("zeek:dns", "zeek/wrccdc_json/dns.json.gz", "UTC"),
    ("zeek:http", "zeek/json_corelight/SCRANTON_http.log", "UTC"),
    ("aws_cloudtrail", "cloudtrail/otrf_ec2_proxy_s3_exfiltration.jsonl", "UTC"),
    *(
        (source, f"syslog/syslog_rfc{framing}.log", "Europe/Berlin")
        for source in ("sshd", "sudo", "kea_dhcp4", "dnsmasq", "syslog")
        for framing in ("3164", "5424")
    ),
    ("isc_dhcpd", "lab/dhcpd/syslog_rfc3164.log", "UTC"),
    ("isc_dhcpd", "lab/dhcpd/syslog_rfc5424.log", "UTC"),
    ("dnsmasq", "lab/dnsmasq/syslog_rfc3164.log", "America/New_York"),
    ("dnsmasq", "lab/dnsmasq/syslog_rfc5424.log", "America/New_York"),
    ("kea_dhcp4", "lab/kea/kea-dhcp4.log", "Europe/Berlin"),
    ("windows_dhcp", "lab/windows/DhcpSrvLog-Fri.log", "America/Los_Angeles"),
)
"""Each bundled file of lines: which source reads it, where it lies, zone of its naive times."""


def lines(path: str) -> list[bytes]:
    """The lines of a bundled file, without their newline."""
    data = (SAMPLES / path).read_bytes()
    if path.endswith(".gz"):
        data = gzip.decompress(data)
    return data.removesuffix(b"\n").split(b"\n")


def trails() -> list[bytes]:
    """The bundled CloudTrail files, each one record, packed as AWS delivers them."""
    return [path.read_bytes() for path in sorted((SAMPLES / "cloudtrail").glob("*.gz"))]


def rows(
    source: str,
    *raws: bytes,
    tz: str = "UTC",
    now: datetime = NOW,
    settings: ParseSettings | None = None,
    headers: dict[str, bytes] | None = None,
) -> list[dict[str, Any]]:
    """The rows of `raws`, all of one source and arrived at `now`."""
    known = settings or ParseSettings(zones={source: tz}, scopes=SETTINGS.scopes)
    records = [
        Record(f"r{at}", source, "live", now, raw, headers or {}) for at, raw in enumerate(raws)
    ]
    return event_rows(records, known)


def row(source: str, raw: bytes | str, **more: Any) -> dict[str, Any]:
    """The one row of one record."""
    found = rows(source, raw.encode() if isinstance(raw, str) else raw, **more)
    assert len(found) == 1, found
    return found[0]


def good(source: str, raw: bytes | str, **more: Any) -> dict[str, Any]:
    """The one row of a record that can be read."""
    found = row(source, raw, **more)
    assert found.get("dead_letter_reason") is None, found["dead_letter_reason"]
    return found


def reason(source: str, raw: bytes | str, **more: Any) -> str:
    """Why a record cannot be read."""
    found = row(source, raw, **more).get("dead_letter_reason")
    assert isinstance(found, str), "it could be read"
    return found
