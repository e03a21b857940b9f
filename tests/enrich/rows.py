"""Rows of silver.event, silver.dhcp_segment and gold.finding for these tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from alerts.tables import FINDING
from enrich.dhcp.lease_rules import ACK
from enrich.tables import DHCP_SEGMENT
from infra.delta.schema import Table
from infra.streaming.lake import Lake
from ingest.tables import EVENT, HEARTBEAT

START = datetime(2026, 11, 21, 2, 40, tzinfo=UTC)
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
IP = "10.0.0.1"
SCOPE = "default"


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def rows(spark: SparkSession, table: Table, found: list[dict[str, Any]]) -> DataFrame:
    names = table.schema.fieldNames()
    return spark.createDataFrame(
        [Row(**{name: row.get(name) for name in names}) for row in found], table.schema
    )


def put(lake: Lake, table: Table, found: list[dict[str, Any]]) -> None:
    rows(lake.spark, table, found).write.format("delta").mode("append").save(lake.path(table))


def dhcp(
    second: float,
    mac: str | None,
    activity: int = ACK,
    lease: int = 30,
    ip: str = IP,
    late: float = 0,
    **other: Any,
) -> dict[str, Any]:
    """A DHCP line as a row of silver.event."""
    return {
        "event_uid": f"{ip}/{second}/{mac}/{activity}",
        "source": "isc_dhcpd",
        "mode": "live",
        "time": at(second),
        "received_at": at(second + late),
        "scope": SCOPE,
        "src_ip": ip,
        "mac": mac,
        "class_uid": 4004,
        "activity_id": activity,
        "status_id": 1,
        "lease_dur": lease if activity == ACK else None,
    } | other


def finished(second: float) -> dict[str, Any]:
    """Ingest's heartbeat: all up to here is in."""
    when = {"time": at(second), "received_at": at(second)}
    return {"event_uid": f"beat/{second}", "source": HEARTBEAT, "mode": "live", **when}


def finding(second: float, ip: str | None = IP, late: float = 0, **other: Any) -> dict[str, Any]:
    """A finding as a row of gold.finding; its id is its second."""
    return {
        "finding_id": f"f{second:g}",
        "rule_id": "rule",
        "event_time": at(second),
        "received_at": at(second + late),
        "role": "src_endpoint",
        "scope": SCOPE,
        "ip": ip,
        "level": "high",
    } | other


def detected(second: float) -> dict[str, Any]:
    """Detection's heartbeat."""
    return finding(second, ip=None, rule_id=HEARTBEAT, scope=None)


def segment(
    start: float,
    end: float,
    mac: str | None,
    known: float,
    rev: int,
    ip: str | None = IP,
    **other: Any,
) -> dict[str, Any]:
    """A row of silver.dhcp_segment; its session is named after its holder."""
    return {
        "scope": SCOPE,
        "ip": ip,
        "seg_start": at(start),
        "seg_end": at(end),
        "mac": mac,
        "session_id": mac and f"lease of {mac}",
        "session_start": at(start),
        "session_end": at(end),
        "known_at": at(known),
        "learned_at": at(known),
        "rev": rev,
        "kind": "lease" if mac else "free",
        "evidence": {"event_uids": [f"line {rev}"], "ended": "expired"},
    } | other


def known(second: float) -> dict[str, Any]:
    """The tracker's heartbeat."""
    when = {"known_at": at(second), "learned_at": at(second)}
    return {"kind": "heartbeat", "rev": int(at(second).timestamp() * 1e6), **when}


TABLES = (EVENT, FINDING, DHCP_SEGMENT)
