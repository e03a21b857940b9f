"""What surrounds the shift of `story` on pictures, so that no page is empty.

A day of arrivals, jobs at work, and older alerts of which most were judged.
"""

from __future__ import annotations

import math
import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from fastapi.testclient import TestClient

import alerts
from alerts.domain.finding import identity
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from alerts.rulepack.shadow_marks import ShadowMark, ShadowMarks
from alerts.tables import FINDING
from api.credentials import Credentials
from enrich.tables import ATTRIBUTION
from enrich.tables_rollup import ARRIVAL, ROLLUP
from infra.config.settings import Settings
from infra.delta.catalog import table
from infra.delta.ops_tables import AUDIT
from infra.runtime.job_registry import wanted_jobs
from infra.runtime.job_status import JobStatus, Memory, write_status
from infra.runtime.outbox_flusher import flush_outbox
from reporting.cli.making import make_report
from reporting.document.archive import keep
from reporting.interval import parse_interval
from tests.alerts.lifecycle.test_alert_fold import NOON, finding, leased
from tests.api.desk import Desk
from tests.api.story import Row, insert
from tests.console.story import FINDINGS as STORY_FINDINGS
from tests.console.story import RAN, event, record

SCANNER, KIOSK, PHONE = "02:00:00:00:01:01", "02:00:00:00:01:02", "02:00:00:00:01:03"
NAMES = {SCANNER: "scanner-1", KIOSK: "kiosk-7", PHONE: "phone-anna"}
ADDRESSES = {SCANNER: "10.0.0.77", KIOSK: "10.0.0.31", PHONE: "10.0.0.40"}


def bundled(name: str) -> tuple[str, str, str]:
    """Id, title and level of a rule that comes with us."""
    told = yaml.safe_load((Path(alerts.__file__).parent / f"rules/{name}.yml").read_text("utf-8"))
    return told["id"], told["title"], told["level"]


TRAVERSAL, GUESSED = bundled("http_path_traversal"), bundled("ssh_password_guessing")
CLEARED, SWEEP = bundled("windows_event_log_cleared"), bundled("port_scan")
OLDER = (
    *((TRAVERSAL, SCANNER, 2.1 + 2.3 * n, "false_positive") for n in range(8)),
    (TRAVERSAL, KIOSK, 9.4, "true_positive"), (TRAVERSAL, KIOSK, 4.2, None),
    (GUESSED, KIOSK, 7.3, "true_positive"), (GUESSED, PHONE, 16.8, "benign"),
    *((SWEEP, SCANNER, 1.2 + 3.7 * n, "benign" if n % 3 else None) for n in range(6)),
    (CLEARED, KIOSK, 8.9, "true_positive"), (SWEEP, PHONE, 12.5, None),
)  # fmt: skip
"""Rule, device, hours before the shift, verdict."""
TRIED = bundled("http_attack_tool")
TRIES = (
    (PHONE, 6.0), *((KIOSK, 20 + n / 3) for n in range(7)), (SCANNER, 27.5), (KIOSK, 45.2),
    *((SCANNER, 50 + n / 6) for n in range(12)), (PHONE, 74.0),
    *((SCANNER, 98 + n) for n in range(4)),
)  # fmt: skip
"""Device and hours before the shift of what a rule in shadow finds."""
SOURCES = {"zeek:conn": 5200, "zeek:dns": 3100, "zeek:http": 900, "sshd": 160, "isc_dhcpd": 70}
"""Records an hour at noon."""


def furnish(desk: Desk) -> None:
    """Put all of it onto a desk that `story.prepare` has made."""
    events = [_event(number, *each) for number, each in enumerate(OLDER)]
    insert(desk.lake, table("bronze.record"), [record(row) for row in events])
    insert(desk.lake, table("silver.event"), events)
    insert(desk.lake, ROLLUP, _arrivals())
    findings = [_finding(number, *each) for number, each in enumerate(OLDER)]
    insert(desk.lake, FINDING, _columns([*STORY_FINDINGS, *findings]))
    made = desk.batch(*findings)
    by_rule_and_time = {(row["rule_id"], row["event_time"]): row["alert_id"] for row in made}
    client = desk.client()
    for (rule, _, _), _, hours, verdict in OLDER:
        alert_id = by_rule_and_time.get((rule, _time(hours)))
        if verdict is None or alert_id is None:
            continue
        closed = client.patch(
            f"/api/v1/alerts/{alert_id}",
            json={"status": "closed", "verdict": verdict},
            headers={"If-Match": desk.etag(alert_id)},
        )
        assert closed.is_success, closed.text
    desk.batch()
    _try_in_shadow(desk)
    _leave_acts(desk, client)
    desk.batch()
    flush_outbox(desk.lake, AUDIT, desk.lake.spool / "audit")
    tell_jobs(desk.lake.settings)


def _try_in_shadow(desk: Desk) -> None:
    """A rule that has been in shadow for most of a week."""
    tries = [(TRIED, mac, hours, None) for mac, hours in TRIES]
    numbered = list(enumerate(tries, len(OLDER)))
    agent = {"message": "GET /login", "http_request": {"user_agent": "sqlmap/1.7.2#stable"}}
    events = [_event(number, *each) | agent for number, each in numbered]
    insert(desk.lake, table("bronze.record"), [record(row) for row in events])
    insert(desk.lake, table("silver.event"), events)
    silent = {"alerting": False, "snippet": "GET /login by sqlmap/1.7.2#stable"}
    insert(desk.lake, FINDING, _columns([_finding(n, *each) | silent for n, each in numbered]))
    insert(desk.lake, ATTRIBUTION, [_attributed(_finding(n, *each)) for n, each in numbered])
    since = NOON - timedelta(days=5)
    mark = ShadowMark("boris", "how often does our own scanner set it off?", since,
                      since + timedelta(days=7))  # fmt: skip
    ShadowMarks(store_folder(desk.lake.settings)).put({TRIED[0]: mark})


def _attributed(row: dict[str, Any]) -> Row:
    """Whose the address of a finding was."""
    return {
        "finding_id": row["finding_id"], "role": row["role"], "rev": 1, "via": "join",
        "event_time": row["event_time"], "holder": row["holder"],
        "attributed_at": row["received_at"],
    }  # fmt: skip


def _columns(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Findings as their table has them; whose an address was lies beside it."""
    names = {column.name for column in FINDING.columns} - {"holder"}
    return [{name: value for name, value in row.items() if name in names} for row in findings]


def _leave_acts(desk: Desk, client: TestClient) -> None:
    """What people and an assistant did beside the verdicts."""
    settings = desk.lake.settings
    credentials = Credentials(settings)
    for name, role in (("ann", "analyst"), ("boris", "engineer"), ("chandra", "admin")):
        credentials.put_user(name, role, f"the password of {name}")
    credentials.add_key("ticket-system", "analyst")
    credentials.add_key("wall-board", "viewer")
    (unjudged, *_) = client.get(
        "/api/v1/alerts", params={"rule_id": TRAVERSAL[0], "status": "open"}
    ).json()["items"]
    for path, body in (
        ("suppressions", {"rule": "port_scan", "entity": SCANNER, "until": "+30d", "owner": "ann",
                          "reason": "scanner-1 sweeps on purpose, every night"}),
        ("proposals", {"kind": "verdict", "alert_id": unjudged["alert_id"], "close": True,
                       "verdict": "false_positive",
                       "why": "kiosk-7 shows the handbook, whose links climb like this."}),
    ):  # fmt: skip
        answered = client.post(f"/api/v1/{path}", json=body)
        assert answered.is_success, answered.text
    saved = client.put(
        "/api/v1/queries/refused-logins",
        json={"sql": "SELECT user_name, src_ip, count(*) AS n\nFROM silver.events\n"
              "WHERE class_uid = 3002 AND status_id = 2 AND time >= :since\n"
              "GROUP BY user_name, src_ip ORDER BY n DESC",
              "doc": "who failed to log in, and from where", "every_minutes": 1440},
    )  # fmt: skip
    assert saved.is_success, saved.text
    yesterday = parse_interval("yesterday")
    keep(settings, make_report(settings, "daily", yesterday), ("html", "json"))
    # Narrower than what verdicts propose, which is offered beside it.
    asked = (("user.name", "svc-scan"), ("src_endpoint.ip", ADDRESSES[SCANNER]))
    conditions = [{"field": field, "op": "eq", "value": value} for field, value in asked]
    kept = client.post(
        f"/api/v1/rules/{TRAVERSAL[0]}/filters",
        json={"conditions": conditions, "owner": "ann",
              "reason": "scanner-1 climbs on purpose, every night",
              "expires": f"{NOON + timedelta(days=90):%Y-%m-%d}"},
    )  # fmt: skip
    assert kept.is_success, kept.text
    # The shift's own rules are in force again, as its alerts have them.
    PackStore(store_folder(settings)).set_current(RAN.hash)


def tell_jobs(settings: Settings) -> None:
    """Every job at work, as its driver would tell; to be told again every few seconds."""
    now = time.time()
    for number, job in enumerate(wanted_jobs(settings)):
        write_status(
            settings,
            JobStatus(
                job, "running", at=now, pid=os.getpid(), started_at=now - 90_000,
                batch=8_200 + number, batch_at=now - 2, progressed_at=now - 1, rows=140,
                seconds=1.2, unread_messages=0, unread_commits=0, asked_at=now, complete_to=now,
                event_at=now - 4, regime="steady" if job == "ingest" else None,
                memory=Memory(driver=210 << 20, jvm=1_400 << 20, workers=160 << 20),
            ),
        )  # fmt: skip


def _time(hours: float) -> datetime:
    return NOON - timedelta(hours=hours)


def _event(number: int, rule: tuple[str, str, str], mac: str, hours: float, _: Any) -> Row:
    scanned = mac == SCANNER
    return event(
        f"older-{number}", -timedelta(hours=hours), source="zeek:http", class_uid=4002,
        class_name="HTTP Activity", category_uid=4, type_uid=400201, src_ip=ADDRESSES[mac],
        user_name="svc-scan" if scanned else "kiosk", message="GET /show?page=../../etc/passwd",
        user={"name": "svc-scan" if scanned else "kiosk"},
        src_endpoint={"ip": ADDRESSES[mac]},
        host_name="intranet",
    )  # fmt: skip


def _finding(
    number: int, rule: tuple[str, str, str], mac: str, hours: float, _: Any
) -> dict[str, Any]:
    name, title, level = rule
    at = _time(hours)
    holder = leased(
        mac, ADDRESSES[mac], hostname=NAMES[mac], session_id=f"session-{mac}", certainty="certain",
        confidence=97, reason=f"the DHCP log gives {ADDRESSES[mac]} to {mac}",
        lease_start=at - timedelta(hours=1), lease_end=at + timedelta(hours=3), known_at=at,
    )  # fmt: skip
    uid = f"older-{number}:0"
    return finding(
        -hours * 3600, holder, uid=uid, target=name, feeds=[], rule_id=name, rule_title=title,
        level=level, finding_id=identity(name, uid), event_time=at, ip=ADDRESSES[mac],
        source="zeek:http", snippet="GET /show?page=../../etc/passwd", host_name="intranet",
        received_at=NOON + timedelta(seconds=96 + number % 4),
        user_name="svc-scan" if mac == SCANNER else "kiosk",
    )  # fmt: skip


def _arrivals() -> list[Row]:
    """A day of it: many by day, few by night."""
    rows: list[Row] = []
    newest = NOON + timedelta(minutes=63)
    for hours in range(25):
        start = (NOON - timedelta(hours=23 - hours)).replace(minute=0)
        share = 0.35 + 0.65 * max(0.0, math.sin((start.hour - 5) / 14 * math.pi))
        for source, most in SOURCES.items():
            # No chance in it, so that pictures made again differ only by their times.
            records = int(most * share * (1 + 0.12 * math.sin(hours * 1.7 + len(source))))
            rows.append(
                {
                    "grain": ARRIVAL, "window_start": start,
                    "window_end": start + timedelta(minutes=1), "source": source, "mode": "live",
                    "events": records, "dead": records // 900, "repeated": 0,
                    "first_at": start, "last_at": min(start + timedelta(minutes=59), newest),
                }
            )  # fmt: skip
    return rows
