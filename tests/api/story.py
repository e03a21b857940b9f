"""One day in a small network, as rows of the tables: the data the API and report tests ask about.

10.0.0.1 belongs to device A from 12:00, is released at 12:30, and to device B
from 12:40. Both guess passwords from it; A asks for a strange domain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.delta.catalog import table
from infra.delta.ops_tables import LEDGER
from infra.delta.schema import Table
from infra.streaming.lake import Lake

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
IP = "10.0.0.1"
DAY = datetime(2026, 11, 20, tzinfo=UTC)
Row = dict[str, Any]


def at(clock: str) -> datetime:
    """`clock` (hh:mm or hh:mm:ss) on the day."""
    hours, minutes, *seconds = (int(part) for part in clock.split(":"))
    return DAY + timedelta(hours=hours, minutes=minutes, seconds=seconds[0] if seconds else 0)


def insert(lake: Lake, into: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows as Delta."""
    frame = lake.spark.createDataFrame([dict(row) for row in rows], into.schema)
    frame.coalesce(1).write.format("delta").mode("append").save(lake.path(into))


def event(uid: str, clock: str, **more: Any) -> Row:
    """A login event; `more` overrides."""
    return {
        "event_uid": f"{uid}:0",
        "record_ids": [uid],
        "source": "sshd",
        "mode": "live",
        "time": at(clock),
        "received_at": at(clock) + timedelta(seconds=2),
        "scope": "default",
        "activity_id": 1,
        "category_uid": 3,
        "class_uid": 3002,
        "class_name": "Authentication",
        "type_uid": 300201,
        "severity_id": 1,
        **more,
    }


def record(uid: str, clock: str, source: str = "sshd", raw: bytes = b"raw") -> Row:
    """The record an event was read from."""
    return {
        "record_id": uid,
        "source": source,
        "mode": "live",
        "received_at": at(clock) + timedelta(seconds=2),
        "raw": raw,
    }


def segment(rev: int, start: str, end: str, mac: str | None, **more: Any) -> Row:
    """A statement about 10.0.0.1."""
    held: Row = {}
    if mac:
        held = {
            "hostname": f"laptop-{mac[-1]}",
            "session_id": f"session-{mac[-1]}",
            "session_start": at(start),
            "session_end": at(end),
        }
    return {
        "scope": "default",
        "ip": IP,
        "seg_start": at(start),
        "seg_end": at(end),
        "mac": mac,
        "known_at": at(start),
        "learned_at": at(start),
        "rev": rev,
        "kind": "lease" if mac else "free",
        "evidence": {"event_uids": [f"dhcp-{rev}:0"], "ended": "expired" if mac else None},
        **held,
        **more,
    }


HEARTBEATS = ({"known_at": at("14:00"), "learned_at": at("14:00"), "rev": 99, "kind": "heartbeat"},)

SEGMENTS = (
    segment(1, "12:00", "13:00", A),
    segment(2, "12:30", "13:00", None, session_id="session-a", session_start=at("12:00"),
            session_end=at("12:30")),
    segment(3, "12:40", "13:40", B),
    *HEARTBEATS,
)  # fmt: skip

FAILED = {"src_ip": IP, "user_name": "root", "host_name": "gate", "status_id": 2}
DNS = {
    "source": "zeek:dns", "class_uid": 4003, "class_name": "DNS Activity", "category_uid": 4,
    "type_uid": 400301, "src_ip": IP, "query": {"hostname": "x7.evil.example", "type": "A"},
    "message": "A x7.evil.example",
}  # fmt: skip
DEAD = {"class_uid": 0, "class_name": "Base Event", "category_uid": 0, "type_uid": 0}

EVENTS = (
    event("e1", "12:05", message="Failed password for root", duration=7, **FAILED),
    event("e2", "12:06", **DNS),
    event("e3", "12:45", message="Failed password for root", duration=-7, **FAILED),
    event("e4", "12:50", src_ip="192.0.2.9", user_name="ann", status_id=1, host_name="gate",
          is_remote=True, unmapped='{"a": {"b": ["x", 3]}, "n": 1.50, "t": true}'),
    event("dhcp-1", "12:00", source="dhcpd", class_uid=4004, class_name="DHCP Activity", mac=A,
          src_ip=IP, message="DHCPACK on 10.0.0.1"),
    event("bad1", "13:00", source="zeek:conn", dead_letter_reason="not JSON at byte 3", **DEAD),
    event("bad2", "13:01", source="zeek:conn", dead_letter_reason="not JSON at byte 3", **DEAD),
    event("beat", "13:02", source="_heartbeat", **DEAD),
)  # fmt: skip

RECORDS = tuple(
    record(row["record_ids"][0], row["time"].strftime("%H:%M"), row["source"])
    for row in EVENTS
    if row["source"] != "_heartbeat"
)


def finding(uid: str, clock: str, rule: str = "ssh-guess", **more: Any) -> Row:
    """A rule matched event `uid`."""
    return {
        "finding_id": f"f-{uid}",
        "rule_id": rule,
        "rule_version": "v1",
        "rule_title": "SSH password guessing",
        "level": "high",
        "kind": "event",
        "pack": "p1",
        "feeds": [],
        "alerting": True,
        "event_uid": f"{uid}:0",
        "event_time": at(clock),
        "received_at": at(clock) + timedelta(seconds=2),
        "source": "sshd",
        "mode": "live",
        "role": "src_endpoint",
        "scope": "default",
        "ip": IP,
        "user_name": "root",
        "host_name": "gate",
        "snippet": "Failed password for root",
        **more,
    }


FINDINGS = (
    finding("e1", "12:05"),
    finding("e2", "12:06", rule="odd-dns", user_name=None, host_name=None, level="medium",
            source="zeek:dns"),
    finding("e3", "12:45"),
    finding("e4", "12:50", ip="192.0.2.9", user_name="ann"),
    finding("beat", "13:02", rule="_heartbeat"),
)  # fmt: skip


def attribution(uid: str, clock: str, status: str, mac: str | None = None, rev: int = 1) -> Row:
    """Whom the address of a finding belonged to."""
    return {
        "finding_id": f"f-{uid}",
        "role": "src_endpoint",
        "rev": rev,
        "event_time": at(clock),
        "holder": {"ip": IP, "scope": "default", "mac": mac, "status": status},
        "via": "join",
        "attributed_at": at(clock) + timedelta(seconds=3),
    }


ATTRIBUTIONS = (
    attribution("e1", "12:05", "leased", A),
    attribution("e2", "12:06", "leased", A),
    attribution("e3", "12:45", "leased", A),
    attribution("e3", "12:45", "leased", B, rev=3),
    attribution("e4", "12:50", "outside"),
)


def alert(alert_id: str, clock: str, revision: int = 1, **more: Any) -> Row:
    """A revision of an alert about device A unless told otherwise."""
    row: Row = {
        "alert_id": alert_id,
        "revision": revision,
        "activity": "create" if revision == 1 else "update",
        "reason": "first" if revision == 1 else "attribution",
        "tenant": "default",
        "mode": "live",
        "rule_id": "ssh-guess",
        "rule_name": "SSH password guessing",
        "level": "high",
        "severity_id": 4,
        "risk_score": 70,
        "entity_type": "device",
        "entity_value": A,
        "src_ip": IP,
        "event_time": at(clock),
        "window_start": at(clock),
        "window_end": at(clock),
        "received_at": at(clock) + timedelta(seconds=2),
        "status": "leased",
        "count": 1,
        "dedup_key": "ssh-guess|device",
        "title": "SSH password guessing: laptop-a",
        "pack": "p1",
        **more,
    }
    body = {
        "alert_id": alert_id,
        "revision": revision,
        "detected_at": (at(clock) + timedelta(seconds=5)).isoformat().replace("+00:00", "Z"),
        "entities": [{"type": row["entity_type"], "value": row["entity_value"]}],
        "evidence": [{"event_uid": row.pop("event_uid", "e1:0"), "time": "", "snippet": ""}],
        "attribution": {"status": row["status"], "mac": row["entity_value"]},
    }
    return {"body": json.dumps(body), **row}


ALERTS = (
    alert("alert-1", "12:05", sequence=4),
    alert("alert-2", "12:06", sequence=4, rule_id="odd-dns", level="medium", event_uid="e2:0",
          title="Odd domain: laptop-a"),
    alert("alert-3", "12:45", sequence=6, event_uid="e3:0"),
    alert("alert-3", "12:46", revision=2, entity_value=B, previous_entity=A, event_uid="e3:0",
          title="SSH password guessing: laptop-b", sequence=7),
    alert("alert-4", "12:50", entity_type="ip", entity_value="192.0.2.9", src_ip="192.0.2.9",
          status="outside", event_uid="e4:0", sequence=7),
)  # fmt: skip


def batch(job: str, number: int, clock: str, **more: Any) -> Row:
    """A row of the ledger."""
    return {
        "job": job,
        "query_id": "q",
        "batch_id": number,
        "started_at": at(clock),
        "finished_at": at(clock) + timedelta(seconds=1),
        "rows_read": 5,
        "rows_written": {"bronze.record": 7, "silver.event": 8},
        "rows_dead": 2,
        "rows_late": 0,
        "replayed": False,
        **more,
    }


def tell(lake: Lake) -> Lake:
    """Put the whole day into a fresh lake."""
    for name, rows in (
        ("bronze.record", RECORDS),
        ("silver.event", EVENTS),
        ("silver.dhcp_segment", SEGMENTS),
        ("gold.finding", FINDINGS),
        ("gold.attribution", ATTRIBUTIONS),
        ("gold.alert", ALERTS),
    ):
        insert(lake, table(name), rows)
    insert(lake, LEDGER, [batch("ingest", 0, "13:05"), batch("sessions", 0, "13:06", rows_dead=0)])
    return lake
