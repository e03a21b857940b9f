"""A small lake for pages: a shift of laptops on two addresses, an attack, and a correction.

10.0.0.5 belongs to laptop-a until 12:10 and to laptop-b from then on; what was first told of
laptop-a turns out to be laptop-b's. Alerts are made by the code that makes them in earnest.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from alerts.cases.case_store import leave_act
from alerts.rulepack.locations import store_folder
from alerts.rulepack.predicate import All, Test
from alerts.rulepack.rule_pack import PackStore, RulePack
from infra.delta.catalog import table
from infra.delta.ops_tables import LEDGER
from infra.streaming.lake import Lake
from tests.alerts.lifecycle.test_alert_fold import NONE, NOON, RULE, finding, leased, load
from tests.api.desk import Desk
from tests.api.story import Row, insert

A, B, C = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"
IP = "10.0.0.5"
SECRET = "laptop-b"
CASE = "case-0a51c7e2d4"
MINUTE = timedelta(minutes=1)
LEASED = {A: (-60 * MINUTE, 60 * MINUTE), B: (timedelta(seconds=30), 90 * MINUTE)}
"""From when and to when each had the address, after `NOON`."""


def holder(mac: str, name: str, **more: Any) -> dict[str, Any]:
    """Who held the address, as an attribution says it, for as long as `SEGMENTS` say."""
    start, end = LEASED.get(mac, LEASED[A])
    return leased(mac, hostname=name, session_id=f"session-{mac}", certainty="certain",
                  confidence=98, reason=f"the DHCP log gives {IP} to {mac}",
                  lease_start=NOON + start, lease_end=NOON + end, **more)  # fmt: skip


FINDINGS = (
    finding(0, holder(A, "laptop-a"), uid="login-1:0", snippet="Failed password for root",
            rule_title="SSH password guessing"),
    finding(60, holder(A, "laptop-a"), uid="login-2:0", level="critical", rule_id="succeeded",
            target="succeeded", feeds=[], rule_title="SSH login succeeded after guessing",
            snippet="Accepted password for root"),
    finding(900, holder(B, "laptop-b"), uid="dns-1:0", level="medium", rule_id="odd-dns",
            target="odd-dns", feeds=[], rule_title="DNS tunnel", snippet="A x7.evil.example",
            user_name=None, source="zeek:dns"),
    finding(1200, NONE, uid="web-1:0", level="low", rule_id="scan", target="scan", feeds=[],
            rule_title="Web scan", snippet="GET /.env", user_name=None),
)  # fmt: skip
CORRECTION = finding(60, holder(B, "laptop-b", known_at=NOON + 40 * MINUTE), rev=2,
                     uid="login-2:0", level="critical", rule_id="succeeded", target="succeeded",
                     feeds=[], rule_title="SSH login succeeded after guessing",
                     snippet="Accepted password for root")  # fmt: skip


def _rule(rule_id: str, title: str, level: str, tactic: str, technique: str, *tests: Test) -> Any:
    return msgspec.structs.replace(
        RULE, id=rule_id, title=title, level=level, version="v", tactics=(tactic,), feeds=(),
        techniques=(technique,), tags=(f"attack.{technique.lower()}",), predicate=All(tests),
    )  # fmt: skip


RAN = RulePack(
    rules=(
        _rule("r", "SSH password guessing", "high", "credential-access", "T1110",
              Test("class_uid", "eq", 3002), Test("status_id", "eq", 2)),
        _rule("succeeded", "SSH login succeeded after guessing", "critical", "initial-access",
              "T1078", Test("class_uid", "eq", 3002), Test("status_id", "eq", 1),
              Test("user_name", "eq", "root")),
        _rule("odd-dns", "DNS tunnel", "medium", "command-and-control", "T1071.004",
              Test("query.hostname", "endswith", ".evil.example")),
        _rule("scan", "Web scan", "low", "reconnaissance", "T1595",
              Test("message", "contains", "/.env")),
    )
)  # fmt: skip
"""The pack that found the shift, for who shows it: why an alert is here is told from it."""


def event(uid: str, after: timedelta, **more: Any) -> Row:
    """An event of the shift."""
    return {
        "event_uid": uid if ":" in uid else f"{uid}:0",
        "record_ids": [uid.removesuffix(":0")],
        "source": "sshd",
        "mode": "live",
        "time": NOON + after,
        "received_at": NOON + after + timedelta(seconds=2),
        "scope": "default",
        "activity_id": 1,
        "category_uid": 3,
        "class_uid": 3002,
        "class_name": "Authentication",
        "type_uid": 300201,
        "severity_id": 1,
        **more,
    }


def dns(uid: str, after: timedelta, name: str, **more: Any) -> Row:
    """A question for a name."""
    return event(uid, after, source="zeek:dns", class_uid=4003, class_name="DNS Activity",
                 category_uid=4, type_uid=400301, src_ip=IP, message=f"A {name}",
                 query={"hostname": name, "type": "A"}, **more)  # fmt: skip


DEAD = {"class_uid": 0, "class_name": "Base Event", "category_uid": 0, "type_uid": 0}
EVENTS = (
    event("login-1", 0 * MINUTE, message="Failed password for root", src_ip=IP, user_name="root",
          host_name="gate", status_id=2, status="Failure"),
    event("login-2", 1 * MINUTE, message="Accepted password for root", src_ip=IP,
          user_name="root", host_name="gate", status_id=1, status="Success"),
    dns("dns-1", 15 * MINUTE, "x7.evil.example"),
    *(dns(f"q{n}", n * MINUTE, f"host-{n}.example") for n in range(2, 40, 3)),
    event("web-1", 20 * MINUTE, message="GET /.env", src_ip="10.0.0.9", class_uid=4002,
          class_name="HTTP Activity", category_uid=4, type_uid=400201, source="zeek:http"),
    event("bad-1", 25 * MINUTE, source="zeek:conn", dead_letter_reason="not JSON at byte 3",
          **DEAD),
)  # fmt: skip


def record(row: Row, raw: bytes | None = None) -> Row:
    """The record that an event was read from."""
    text = str(row.get("message") or row.get("dead_letter_reason"))
    if row["source"] == "zeek:conn" and raw is None:
        raw = b"{ts=1774526700.214, uid=C8xk3f4GqJ, id.orig_h=10.0.0.5}"
    return {
        "record_id": row["record_ids"][0],
        "source": row["source"],
        "mode": "live",
        "received_at": row["received_at"],
        "raw": raw if raw is not None else f"<38>gate sshd[7]: {text}".encode(),
    }


def segment(rev: int, start: timedelta, end: timedelta, mac: str | None, name: str | None,
            learned: timedelta | None = None, **more: Any) -> Row:  # fmt: skip
    """A statement about 10.0.0.5; `learned` later than its start where the line was late."""
    known = NOON + (start if learned is None else learned)
    return {
        "scope": "default",
        "ip": IP,
        "seg_start": NOON + start,
        "seg_end": NOON + end,
        "mac": mac,
        "hostname": name,
        "session_id": f"session-{mac}",
        "session_start": NOON + start,
        "session_end": NOON + end,
        "known_at": known,
        "learned_at": known,
        "rev": rev,
        "kind": "lease" if mac else "free",
        "evidence": {"event_uids": [f"dhcp-{rev}:0"], "ended": None},
        **more,
    }


SEGMENTS = (
    segment(1, *LEASED[A], A, "laptop-a"),
    segment(2, *LEASED[B], B, "laptop-b", learned=40 * MINUTE),
    {
        "known_at": NOON + 120 * MINUTE,
        "learned_at": NOON + 120 * MINUTE,
        "rev": 99,
        "kind": "heartbeat",
    },
)


def ledger(job: str, number: int) -> Row:
    """A batch of a job."""
    finished: datetime = NOON + number * MINUTE
    return {
        "job": job,
        "query_id": "q",
        "batch_id": number,
        "started_at": finished - timedelta(seconds=2),
        "finished_at": finished,
        "rows_read": 40 + number,
        "rows_written": {"silver.event": 40},
        "rows_dead": 1 if job == "ingest" else 0,
        "rows_late": 0,
        "replayed": False,
    }


def prepare(lake: Lake, events: Sequence[Row] = EVENTS, *, prompt: bool = False) -> Desk:
    """Put the shift into a fresh lake, and its alerts on the desk.

    `prompt`: each alert some seconds after its event, as a driver makes them, and by rules that
    are kept; slower, and nothing but what is told of delays and reasons depends on it.
    """
    for name, rows in (
        ("bronze.record", [record(row) for row in events]),
        ("silver.event", events),
        ("silver.dhcp_segment", SEGMENTS),
    ):
        insert(lake, table(name), rows)
    insert(lake, LEDGER, [ledger(job, n) for job in ("ingest", "alert") for n in range(4)])
    desk = Desk(lake)
    pack = {"pack": RAN.hash} if prompt else {}
    if prompt:
        store = PackStore(store_folder(lake.settings))
        store.set_current(store.put(RAN))
        desk.load = lambda name: RAN if name == RAN.hash else load(name)
    for findings in [[each | pack] for each in FINDINGS] if prompt else [FINDINGS]:
        last: datetime = findings[-1]["event_time"]
        desk.batch(*findings, at=last + timedelta(seconds=5) if prompt else None)
    desk.batch(CORRECTION | pack)
    leave_case(desk)
    return desk


def leave_case(desk: Desk) -> None:
    """A case of the guessed password, with a note."""
    titles = ("SSH password guessing", "SSH login succeeded after guessing")
    listed = desk.client().get("/api/v1/alerts", params={"limit": 500}).json()["items"]
    alerts = [row["alert_id"] for row in listed if row["rule_name"] in titles]
    leave_act(
        desk.lake.settings,
        CASE,
        "open",
        who="ann",
        at=NOON + 42 * MINUTE,
        value="Guessed password on gate",
        comment="The lease log says laptop-b, not laptop-a. Asked its owner.",
        alert_ids=alerts,
    )
