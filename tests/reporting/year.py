"""A year of a mid-size site in memory: enough for trends, incidents and every chart."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from alerts.lifecycle.risk_score import INCIDENT
from tests.reporting import year_records
from tests.reporting.memory_lake import MemoryLake

END = datetime(2026, 11, 1, tzinfo=UTC)
"""The year ends with October 2026."""

RULES = (
    ("ssh-guess", "Many failed SSH logins", "high", "Credential Access", "T1110.001"),
    ("odd-dns", "Name that looks generated", "medium", "Command and Control", "T1568.002"),
    ("beacon", "Regular calls to one address", "medium", "Command and Control", "T1071.001"),
    ("new-admin", "Account added to Domain Admins", "critical", "Persistence", "T1098"),
    ("scan", "One address tries many ports", "low", "Discovery", "T1046"),
    ("ps-enc", "PowerShell with an encoded command", "high", "Execution", "T1059.001"),
)
NAMES = ("till-07", "lab-printer", "ana-laptop", "dc1", "meeting-room-2", "cam-garage", "build3")
SOURCES = (("zeek:conn", 40_000), ("zeek:dns", 22_000), ("windows_xml", 9_000), ("sshd", 1_500))


def a_year() -> MemoryLake:
    """Alerts of twelve months with what people did about them, and arrivals of the last two."""
    lake, dice = MemoryLake("1GB"), Random(7)
    alerts, acts = [], []
    for number in range(560):
        # More towards the end, so that the trend has a direction.
        ago = dice.triangular(0, 365, 60) * 24
        alert, done = _alert(dice, number, END - timedelta(hours=ago))
        alerts.append(alert)
        acts += done
    for number in range(5):
        alerts.append(_incident(number, END - timedelta(days=4 + 5 * number, hours=number)))
    lake.add("gold.alert", alerts).add("gold.alert_action", acts)
    _arrivals(lake)
    _told(lake)
    return lake


def a_whole_year() -> MemoryLake:
    """The same with what auditors and those who pay ask for; takes seconds to make."""
    lake = a_year()
    year_records.add_records(lake, END)
    year_records.add_batches(lake, END)
    year_records.add_rule_costs(lake, END, tuple(rule for rule, *_ in RULES))
    year_records.add_findings(lake, END)
    year_records.add_acts(lake, END)
    year_records.add_gap(lake, END)
    return lake


def _alert(
    dice: Random, number: int, began: datetime
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A row of gold.alert, and what people did about it."""
    rule, title, level, tactic, technique = dice.choices(RULES, (30, 14, 12, 2, 34, 8))[0]
    name = dice.choice(NAMES)
    detected = began + timedelta(seconds=dice.uniform(3, 14))
    verdict = None
    if dice.random() < 0.7:
        wrong = 0.9 if rule == "scan" else 0.3
        verdict = "false_positive" if dice.random() < wrong else "true_positive"
    closed = verdict is not None and dice.random() < 0.9
    body = {
        "detected_at": detected.isoformat(),
        "state": "closed" if closed else "open",
        "verdict": verdict,
        "assignee": "ana" if verdict else None,
        "attribution": {"hostname": name, "mac": f"02:00:00:00:00:{NAMES.index(name):02x}"},
        "attack": [{"technique": {"uid": technique}, "tactics": [{"name": tactic}]}],
        "evidence": [{"event_uid": f"e{number}:0", "time": began.isoformat(), "snippet": title}],
        "fields": {},
    }
    done: list[dict[str, Any]] = []
    if verdict:
        taken = detected + timedelta(minutes=dice.uniform(4, 120))
        acts: list[tuple[str, datetime]] = [("assign", taken), ("verdict", taken)]
        if closed:
            acts.append(("close", taken + timedelta(hours=dice.uniform(0.2, 9))))
        done = [
            {"action_id": f"{number}-{act}", "alert_id": f"alert-{number}", "action": act,
             "value": verdict if act == "verdict" else "ana", "who": "ana", "at": at}
            for act, at in acts
        ]  # fmt: skip
    return _row(f"alert-{number}", began, rule, title, level, name, body), done


def _incident(number: int, began: datetime) -> dict[str, Any]:
    tactics = (
        "credential-access, lateral-movement",
        "command-and-control",
        "discovery",
        "initial-access, execution, command-and-control",
        "exfiltration",
    )[number]
    body = {
        "detected_at": (began + timedelta(seconds=9)).isoformat(),
        "state": "closed" if number % 2 else "open",
        "verdict": ("true_positive", "false_positive", None, "true_positive", None)[number],
        "assignee": "ana" if number == 2 else None,
        "attribution": {"hostname": NAMES[number]},
        "fields": {"tactics": tactics, "rules": "3", "risk": "140"},
    }
    return _row(f"incident-{number}", began, INCIDENT, "Incident", "critical", NAMES[number], body)


def _row(
    alert_id: str, began: datetime, rule: str, title: str, level: str, name: str, body: Any
) -> dict[str, Any]:
    return {
        "alert_id": alert_id,
        "revision": 1,
        "activity": "create",
        "mode": "live",
        "rule_id": rule,
        "rule_name": title,
        "level": level,
        "risk_score": {"low": 25, "medium": 50, "high": 75, "critical": 90}[level],
        "entity_type": "device",
        "entity_value": f"02:00:00:00:00:{NAMES.index(name):02x}",
        "event_time": began,
        "received_at": began + timedelta(seconds=2),
        "status": "leased",
        "count": 3,
        "title": f"{title}: {name}",
        "body": json.dumps(body),
    }


def _arrivals(lake: MemoryLake) -> None:
    """A row an hour for each source, the counts of which job rollup compared with the events."""
    first = END - timedelta(days=62)
    for source, many in SOURCES:
        lake.connection.execute(
            "INSERT INTO gold.rollup (grain, window_start, window_end, source, mode, events, dead,"
            " repeated, first_at, last_at) SELECT 'arrival_minute', t, t + INTERVAL 1 MINUTE, ?,"
            " 'live', (? * (1 + 0.4 * sin(epoch(t) / 13751)))::BIGINT,"
            " (epoch(t)::BIGINT // 3600 % 97 = 0)::BIGINT, 0, t, t"
            " FROM generate_series(?::TIMESTAMPTZ, ?::TIMESTAMPTZ, INTERVAL 1 HOUR) AS s(t)",
            [source, many, first.isoformat(), (END - timedelta(hours=1)).isoformat()],
        )
    lake.connection.execute(
        "INSERT INTO ops.rollup_check (hour, checked_at, events, missing) "
        "SELECT t, t + INTERVAL 2 HOUR, 1, 0 FROM generate_series(?::TIMESTAMPTZ, ?::TIMESTAMPTZ,"
        " INTERVAL 1 HOUR) AS s(t)",
        [first.isoformat(), END.isoformat()],
    )


def _told(lake: MemoryLake) -> None:
    """A silence that ended, one event that came late, and the newest arrival."""
    quiet = END - timedelta(days=9)
    title = "Source sshd is silent"
    for code, words in (
        ("source_silent", "sshd: silent for 5 hours; never above 40 minutes before"),
        ("rule_blind", "sshd is silent: Many failed SSH logins is blind"),
    ):
        lake.add("silver.event", [
            {"event_uid": f"{code}:0", "source": "headgate", "mode": "live", "time": quiet,
             "received_at": quiet, "activity_name": "Create", "message": words,
             "metadata": {"event_code": code}, "finding_info": {"uid": code, "title": title}},
        ])  # fmt: skip
    late = END - timedelta(hours=3)
    lake.add("silver.event", [
        {"event_uid": "late:0", "source": "windows_xml", "mode": "live", "time": late,
         "received_at": END + timedelta(hours=2)},
    ])  # fmt: skip
