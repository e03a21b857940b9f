"""Whose address an event came from: as a stream beside the findings, over history, in SQL."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from alerts.jobs import alert
from alerts.tables import FINDING
from enrich.tables import ATTRIBUTED_EVENT, DHCP_SEGMENT
from infra.kafka import Broker, ensure_topics
from infra.lake import Lake
from infra.settings import load
from ingest.tables import EVENT
from tests.enrich.rows import (
    IP,
    SCOPE,
    A,
    B,
    at,
    detected,
    finding,
    finished,
    known,
    put,
    segment,
)

PACE = {"watermark_seconds": 2, "wait_seconds": 10, "alert_buckets": 2}
SITES = [{"name": SCOPE, "networks": ["10.0.0.0/24"], "static": ["10.0.0.200/32"]}]


def event(second: float, ip: str | None = IP, **other: Any) -> dict[str, Any]:
    """A login as a row of silver.event; its id is its second."""
    return {
        "event_uid": f"e{second:g}",
        "source": "sshd",
        "mode": "live",
        "time": at(second),
        "received_at": at(second),
        "scope": SCOPE,
        "class_uid": 3002,
        "src_ip": ip,
        "user_name": "ann",
    } | other


@pytest.fixture
def live(lake: Lake, broker: Broker) -> Lake:
    """The lake of a test, its alerts going to a broker."""
    settings = load(
        home=lake.settings.home, kafka={"bootstrap": broker.address}, jobs=PACE, scopes=SITES
    )
    ensure_topics(settings)
    return Lake(lake.spark, settings)


def beats(lake: Lake, second: float) -> None:
    """All jobs before have finished their input up to here."""
    put(lake, EVENT, [finished(second)])
    put(lake, FINDING, [detected(second) | {"mode": "live"}])
    put(lake, DHCP_SEGMENT, [known(second)])


def said(lake: Lake) -> list[tuple[Any, ...]]:
    found = lake.read(ATTRIBUTED_EVENT).orderBy("event_uid", "rev").collect()
    return [(r.event_uid, r.holder.status, r.holder.mac, r.rev, r.via) for r in found]


def test_events_of_the_chosen_classes_are_attributed_once_by_the_findings_join(live: Lake) -> None:
    # leases   AAAAAAAAAA..........BBBBBBBBBB      A until 10, B from 20 to 30
    # events       5         15        25          and others that are not to be told of
    put(live, DHCP_SEGMENT, [segment(0, 10, A, 0, 1), segment(20, 30, B, 20, 2)])
    put(live, FINDING, [finding(5, kind="event", mode="live", pack="0" * 32)])
    put(
        live,
        EVENT,
        [
            event(5),
            event(15),
            event(25, src_ip=None, device={"ip": IP}),
            event(6, ip="203.0.113.9"),
            event(7, ip="10.0.0.200"),
            event(8, ip=None),
            event(9, class_uid=4003),
            event(9.1, dead_letter_reason="not JSON"),
            event(9.2, duplicate_of="e9"),
            event(9.3, mode="import"),
        ],
    )
    alert(live, once=True).wait()
    assert said(live) == [("e25", "leased", B, 2, "join"), ("e5", "leased", A, 1, "join")]

    beats(live, 60)
    alert(live, once=True).wait()
    beats(live, 90)
    alert(live, once=True).wait()
    everything = [
        ("e15", "none", None, -1, "join"),
        ("e25", "leased", B, 2, "join"),
        ("e5", "leased", A, 1, "join"),
        ("e6", "outside", None, -1, "outside"),
        ("e7", "static", None, -1, "join"),
    ]
    assert said(live) == everything
    alert(live, once=True).wait()
    assert said(live) == everything
    one = live.read(ATTRIBUTED_EVENT).where("event_uid = 'e25'").first()
    assert one is not None
    assert (one.role, one.user_name, one.ip, one.class_uid) == ("device", "ann", IP, 3002)
    assert one.holder.evidence == ["line 2"]
    assert one.event_time.replace(tzinfo=UTC) == at(25)
    findings = live.spark.read.format("delta").load(str(live.settings.lake_root / "gold/finding"))
    assert findings.where("rule_id = '_event'").count() == 0
