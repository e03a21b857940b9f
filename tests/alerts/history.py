"""A small history for tests of backtest, verify, explain and cost: logins, leases, two rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from infra.settings import Settings, load

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
