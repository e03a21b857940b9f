"""A small history for tests of backtest, verify, explain and cost: logins, leases, two rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from alerts.domain.entity import micros
from alerts.lifecycle.alert_json import with_text
from alerts.lifecycle.bucket_state import BucketState
from alerts.matching.event_rows import event_batch
from alerts.matching.matcher import Matcher
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, RulePack
from infra.config.settings import Settings, load

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
IP = "10.0.0.1"
LOGIN = "11111111-0000-4000-8000-000000000001"
MANY = "11111111-0000-4000-8000-000000000002"
Row = dict[str, Any]

RULES = f"""
title: Login failed
name: login_failed
id: {LOGIN}
logsource: {{product: linux, service: sshd}}
detection:
  refused:
    activity_id: 1
    status_id: 2
  root:
    user.name: root
  condition: refused and root
level: medium
---
title: Guessing
name: guessing
id: {MANY}
correlation:
  type: event_count
  rules: [login_failed]
  group-by: [device]
  timespan: 2m
  condition: {{gte: 3}}
  generate: true
level: high
"""


def rules_in(folder: Path) -> Path:
    """A folder with the two rules."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "logins.yml").write_text(RULES, "utf-8")
    return folder


def with_rules(settings: Settings, **alerts: Any) -> Settings:
    """The same settings with the two rules and no others."""
    folder = rules_in(settings.home / "rules")
    return load(home=settings.home, alerts={"bundled": False, "rules": (folder,), **alerts})


def at(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def login(uid: str, seconds: float, user: str = "root", ip: str = IP, **more: Any) -> Row:
    """A refused login, which came two seconds after it happened."""
    return {
        "event_uid": uid,
        "record_ids": [uid],
        "source": "sshd",
        "mode": "live",
        "time": at(seconds),
        "received_at": at(seconds + 2),
        "scope": "default",
        "category_uid": 3,
        "class_uid": 3002,
        "class_name": "Authentication",
        "activity_id": 1,
        "type_uid": 300201,
        "severity_id": 1,
        "status_id": 2,
        "message": f"Failed password for {user}",
        "user_name": user,
        "user": {"name": user},
        "src_ip": ip,
        "src_endpoint": {"ip": ip},
        "service": {"name": "sshd"},
        "host_name": "gate",
        **more,
    }


def leased(rev: int, start: float, end: float, mac: str | None, **more: Any) -> Row:
    """A statement about the address, known when the span begins."""
    return {
        "scope": "default",
        "ip": IP,
        "seg_start": at(start),
        "seg_end": at(end),
        "mac": mac,
        "hostname": mac and f"laptop-{mac[-1]}",
        "session_id": mac and f"session-{mac[-1]}",
        "session_start": mac and at(start),
        "session_end": mac and at(end),
        "known_at": at(start),
        "learned_at": at(start),
        "rev": rev,
        "kind": "lease" if mac else "free",
        "evidence": {"event_uids": [f"dhcp-{rev}"], "ended": None},
        **more,
    }


def beats(seconds: Sequence[float], pack: str) -> list[Row]:
    """Detection's heartbeats: it has finished its input up to then, with this pack."""
    return [
        {
            "finding_id": f"heartbeat:{second}",
            "rule_id": "_heartbeat",
            "rule_version": "",
            "rule_title": "",
            "level": "",
            "kind": "event",
            "pack": pack,
            "alerting": False,
            "event_uid": f"heartbeat:{second}",
            "event_time": at(second),
            "received_at": at(second),
            "source": "_heartbeat",
            "mode": "live",
            "role": "",
        }
        for second in seconds
    ]


def streamed(
    settings: Settings, pack: RulePack, events: Sequence[Row]
) -> tuple[list[Any], list[Any], list[Any]]:
    """What the jobs would have written of these events: findings, attributions and alerts."""
    seen = [row | {"duplicate_of": None} for row in events]
    rows = Matcher(pack).match(event_batch(seen)).to_pylist()
    store, state = PackStore(store_folder(settings)), BucketState()
    findings: list[Any] = []
    alerts: list[Any] = []
    for row in sorted(rows, key=lambda row: row["event_time"]):
        holder = {"ip": IP, "scope": "default", "mac": A, "status": "leased", "known_at": at(-600)}
        both = [
            row | {"row_kind": "finding", "target": t, "holder": holder, "attr_rev": 1}
            for t in (LOGIN, MANY)
        ]
        for out in _step(state, both, store, settings):
            (alerts if out["out"] == "alert" else findings).append(out["row"])
            if out["out"] == "finding":
                own = out["row"] | {"row_kind": "finding", "target": MANY, "attr_rev": -1}
                alerts += [o["row"] for o in _step(state, [own], store, settings)]
    state_end = {"row_kind": "tick", "target": None, "event_time": at(20_000)}
    alerts += [out["row"] for out in _step(state, [state_end], store, settings)]
    attributions = [attribution(row, 1, A) for row in rows]
    attributions += [attribution(row, 2, B, "correction") for row in rows if _is(row, "b0")]
    return [*rows, *findings], attributions, [with_text(row) for row in alerts]


def attribution(finding: Row, rev: int, mac: str, via: str = "join") -> Row:
    """Whose the address of a finding was."""
    return {
        "finding_id": finding["finding_id"],
        "role": "src_endpoint",
        "rev": rev,
        "event_time": finding["event_time"],
        "holder": {"ip": IP, "scope": "default", "mac": mac, "status": "leased"},
        "via": via,
        "attributed_at": at(5000),
    }


def _is(row: Row, uid: str) -> bool:
    return bool(row["event_uid"] == uid)


def _step(
    state: BucketState, rows: list[Any], store: PackStore, settings: Settings
) -> list[dict[str, Any]]:
    clock = max(micros(row.get("received_at") or row["event_time"]) for row in rows)
    return state.step(rows, store.get, settings.alerts, clock)


def fit(row: Mapping[str, Any], columns: list[str]) -> Row:
    """A row with the columns of a table, its maps as Spark takes them."""
    fields = row.get("fields")
    return {n: row.get(n) for n in columns} | ({"fields": dict(fields)} if fields else {})
