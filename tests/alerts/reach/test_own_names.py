"""What a record of a product says, a rule can ask by the product's own name for it."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.matching.event_rows import brute_force
from tests.alerts.reach.fired import compiled, fired
from tests.ingest.cloud_samples import samples
from tests.ingest.logs import SAMPLES, rows

MOST = 25
"""Records of a file: those behind them are alike."""
TIMES = {
    *("time", "timestamp", "eventTime", "published", "created_at", "at_sign_timestamp", "ts"),
    *("requestReceivedTimestamp", "stageTimestamp", "flow.start", "flow.end", "netflow.start"),
    *("netflow.end", "properties.createdDateTime", "properties.activityDateTime", "compile_ts"),
    *("protoPayload.requestMetadata.requestAttributes.time", "till", "rtt"),
    *("certificate.not_valid_after", "certificate.not_valid_before"),
}
"""They are read as times, and rules ask for no text of them."""
OTHERWISE = {
    "duration",  # rounded to milliseconds
    # Kept as `active` or `passive`.
    "data_channel.passive",
}
"""Kept in other words."""
ODD = {
    # A record whose keys a relay wrote in small letters; a rule has the product's spelling.
    *("operationversion", "resourceid", "calleripaddress"),
    # Values that say nothing: `.` for a domain, `unknown`, an address that is none.
    *("securityContext.domain", "target.alternateId", "protoPayload.requestMetadata.callerIp"),
}
OKTA, GITHUB = ({"product": p, "service": s} for p, s in (("okta", "okta"), ("github", "audit")))


def azure(record: dict[str, Any]) -> dict[str, str]:
    """Which of Azure's logs a record is of."""
    category = str(record.get("category", ""))
    service = "signinlogs" if "SignIn" in category else "activitylogs"
    return {"product": "azure", "service": "auditlogs" if category == "AuditLogs" else service}


CLOUD = {
    "azure_audit": azure,
    "gcp_audit": lambda _: {"product": "gcp", "service": "gcp.audit"},
    "k8s_audit": lambda _: {"product": "kubernetes", "service": "audit"},
    "okta": lambda _: OKTA,
    "github_audit": lambda _: GITHUB,
    "aws_cloudtrail": lambda _: {"product": "aws", "service": "cloudtrail"},
}
SURICATA = sorted((SAMPLES / "suricata").glob("*.json"))
ZEEK = sorted((SAMPLES / "zeek" / "wrccdc_json").glob("*.json.gz"))
QUICK = {"okta", "mixed_types.eve.json", "ssh.json.gz"}


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each scalar of a record with its path; of a list, those of all elements."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for element in value:
            yield from leaves(element, path)
    elif value not in (None, ""):
        yield ".".join(path), value


def asked(value: Any) -> Any:
    """The value as a rule writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return re.sub(r"([\\*?])", r"\\\1", value) if isinstance(value, str) else value


def unseen(source: str, logsource: dict[str, str], record: dict[str, Any]) -> set[str]:
    """Names in a record by which no rule can ask for what they hold there."""
    events = rows(source, json.dumps(record).encode())
    assert all(row.get("dead_letter_reason") is None for row in events), events
    told = sorted({(path, asked(value)) for path, value in leaves(record)}, key=str)
    result = compiled(logsource, *({path: value} for path, value in told))
    hits = {rule for rule, _ in brute_force(result.pack, events)}
    return {
        told[int(rule.title.split()[1])][0] for rule in result.pack.rules if rule.id not in hits
    }


def cases() -> Iterator[Any]:
    """Each file of recorded records."""
    for name in CLOUD:
        yield pytest.param(name, None, id=name, marks=[] if name in QUICK else pytest.mark.full)
    for path in (*SURICATA, *ZEEK):
        marks = [] if path.name in QUICK else pytest.mark.full
        kind = "suricata" if path in SURICATA else f"zeek:{path.name.partition('.')[0]}"
        yield pytest.param(kind, path, id=path.name, marks=marks)


def records(source: str, path: Path | None) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """The records of a file, each with the log source that rules name for it."""
    if path is None:
        for raw in samples(source):
            whole = json.loads(raw)
            for record in (whole.get("Records") or whole.get("records") or [whole])[:MOST]:
                yield CLOUD[source](record), record
        return
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    product, _, service = source.partition(":")
    for line in data.splitlines()[:MOST]:
        yield {"product": product} | ({"service": service} if service else {}), json.loads(line)


@pytest.mark.parametrize(("source", "path"), cases())
def test_each_field_of_a_record_is_asked_by_its_own_name(source: str, path: Path | None) -> None:
    missed: set[str] = set()
    read = 0
    for logsource, record in records(source, path):
        missed |= unseen(source, logsource, record)
        read += 1
    assert read
    assert missed - TIMES - OTHERWISE - ODD == set()


ENDS = {"ts": 1741176000.1, "uid": "C1", "id.orig_h": "10.0.0.5", "id.resp_h": "203.0.113.9"}
HTTP = ENDS | {"method": "POST", "host": "203.0.113.9", "uri": "/wsman?a=1", "status_code": 200}
PIPE = ENDS | {"action": "SMB::FILE_OPEN", "path": "\\\\SRV\\IPC$", "name": "spoolss"}
LONG = ENDS | {"proto": "tcp", "duration": 4000.5, "conn_state": "SF"}


@pytest.mark.parametrize(
    ("service", "record", "detection", "fires"),
    [
        # The host is no part of what Zeek calls the URI.
        ("http", HTTP, {"uri": "/wsman\\?a=1"}, True),
        ("http", HTTP, {"uri|startswith": "/wsman"}, True),
        ("http", HTTP, {"uri|startswith": "http://"}, False),
        ("http", HTTP, {"c-uri|startswith": "http://203.0.113.9/wsman"}, True),
        # Nor is the share one of what SMB calls the name.
        ("smb_files", PIPE, {"path|endswith": "IPC$", "name": "spoolss"}, True),
        ("smb_files", PIPE | {"path": "IPC$"}, {"name": "spoolss"}, True),
        ("smb_files", PIPE, {"name|startswith": "\\\\SRV"}, False),
        # Zeek's seconds, of which the column has milliseconds.
        ("conn", LONG, {"duration|gt": 3600}, True),
        ("conn", LONG, {"duration|gt": 4001}, False),
        ("conn", LONG | {"duration": 4.0}, {"duration": 4}, True),
    ],
)
def test_a_field_means_what_zeek_writes(
    service: str, record: dict[str, Any], detection: dict[str, Any], fires: bool
) -> None:
    raw = json.dumps(record).encode()
    assert (
        fired({"product": "zeek", "service": service}, detection, f"zeek:{service}", raw) is fires
    )


CLEARED = {  # the log that was cleared is among the data of the event that tells of it
    "EventID": 104,
    "SourceName": "Microsoft-Windows-Eventlog",
    "Channel": "System",
    "Hostname": "ws1",
    "EventTime": "2026-03-02 09:00:00",
}
LOGON = CLEARED | {
    "EventID": 4624,
    "Channel": "Security",
    "SourceName": "Microsoft-Windows-Security-Auditing",
}


@pytest.mark.parametrize(
    ("service", "record", "detection", "fires"),
    [
        ("security", LOGON, {"EventID": 4624, "Channel": "Security"}, True),
        ("security", LOGON, {"Channel": "Security"}, True),
        ("security", LOGON, {"Channel": "System"}, False),
        ("security", LOGON, {"SourceName": "Microsoft-Windows-Security-Auditing"}, True),
        ("system", CLEARED, {"Channel": "System"}, True),
    ],
)
def test_the_channel_of_an_event_is_its_own(
    service: str, record: dict[str, Any], detection: dict[str, Any], fires: bool
) -> None:
    raw = json.dumps(record).encode()
    assert (
        fired({"product": "windows", "service": service}, detection, "windows_nxlog", raw) is fires
    )
