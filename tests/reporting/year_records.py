"""What an auditor and whoever pays asks of the year: records, batches, acts, erasures, a gap."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import alerts.rules
from tests.api import story
from tests.reporting.memory_lake import MemoryLake

RECORDS = (("zeek:conn", 12), ("zeek:dns", 20), ("windows_xml", 60), ("sshd", 120))
"""Minutes between two records of a source: enough to count, and little to hold."""

JOBS = (
    ("ingest", 1.0, 40_000, 520, 160),
    ("alert", 0.3, 900, 95, 60),
    ("sessions", 0.2, 1_200, 60, 40),
    ("rollup", 0.25, 36_000, 80, 45),
    ("repair", 0.1, 120, 22, 15),
)
"""By job: of half an hour how much of it is at work, rows read, CPU seconds, of these split."""

FOUND = (
    "ssh_password_guessing",
    "host_scan",
    "dns_random_label",
    "windows_powershell_encoded",
    "windows_domain_admin_added",
)
"""Rules that found something, by their file: the first most often."""

ACTS = (
    ("ana", "alert.assign", 61, 0, 0),
    ("ana", "alert.verdict", 58, 0, 0),
    ("ana", "alert.close", 52, 0, 1),
    ("ben", "statement", 143, 2, 6),
    ("ben", "search.job", 17, 0, 0),
    ("ben", "rule.disable", 3, 0, 0),
    ("ben", "rule.enable", 2, 0, 0),
    ("key:grafana", "statement", 720, 0, 0),
    ("key:ticketing", "alert.close", 12, 4, 0),
    ("admin", "key.make", 2, 0, 0),
    ("admin", "erase", 2, 0, 0),
    ("admin", "gap.accept", 1, 0, 0),
)
"""Who did what in the last month: how often, refused and failed among it."""

ERASURES = (
    ("3f1c", 21, "user", "request of the person, ticket 4711", {"silver.event": (0, 812)}),
    ("9a07", 6, "mac", "contract ended, ticket 4802", {"silver.event": (240, 0),
                                                       "bronze.record": (240, 0)}),
)  # fmt: skip
"""Id, days before the end, kind, reason, and by table the rows removed and replaced."""


def add_records(lake: MemoryLake, end: datetime) -> None:
    """Records of the last two months, and the event or dead letter that each became."""
    first, last = end - timedelta(days=61), end - timedelta(minutes=1)
    for source, minutes in RECORDS:
        lake.connection.execute(
            "INSERT INTO bronze.record (record_id, source, mode, received_at) "
            "SELECT $1 || '/' || epoch(t)::BIGINT, $1, 'live', t FROM generate_series($2::"
            f"TIMESTAMPTZ, $3::TIMESTAMPTZ, INTERVAL {minutes} MINUTE) AS s(t)",
            [source, first.isoformat(), last.isoformat()],
        )
    # All at once: each insert takes blocks of all columns. One of some hundred was not readable.
    lake.connection.execute(
        "INSERT INTO silver.event (event_uid, source, mode, time, received_at, record_ids, "
        "dead_letter_reason) SELECT record_id || ':0', source, mode, received_at, received_at, "
        "[record_id], CASE WHEN hash(record_id) % 211 = 0 THEN 'no field msg' END "
        "FROM bronze.record"
    )


def add_batches(lake: MemoryLake, end: datetime) -> None:
    """A batch a job and half an hour for two months, by day more than by night, and rules' cost."""
    first, last = (end - timedelta(days=61)).isoformat(), (end - timedelta(minutes=30)).isoformat()
    for job, busy, rows, cpu, shared in JOBS:
        lake.connection.execute(
            "INSERT INTO ops.ledger (job, query_id, batch_id, started_at, finished_at, rows_read, "
            "rows_written, replayed, cpu_seconds, cpu_shared_seconds, cpu_between_seconds) "
            "SELECT $1, 'q', epoch(t)::BIGINT // 1800, t, t + to_seconds($2 * 1700 * f), "
            "($3 * f)::BIGINT, MAP {}, false, $4 * f, $5 * f, CASE WHEN $1 = 'ingest' THEN 45 END "
            # More by day than by night, half of it on Saturday and Sunday, more with each week.
            "FROM (SELECT t, (0.7 + 0.3 * sin(epoch(t) / 13751)) * (0.9 + (epoch(t) - epoch($6::"
            "TIMESTAMPTZ)) / 5e7) * CASE WHEN isodow(t) > 5 THEN 0.5 ELSE 1 END AS f "
            "FROM generate_series($6::TIMESTAMPTZ, $7::TIMESTAMPTZ, "
            "INTERVAL 30 MINUTE) AS s(t))",
            [job, busy, rows, cpu, shared, first, last],
        )


def add_rule_costs(lake: MemoryLake, end: datetime, rules: tuple[str, ...]) -> None:
    """A row a day of what rules took, the first the costliest."""
    lake.add(
        "ops.rule_cost",
        [
            {
                "at": end - timedelta(days=day, hours=-1),
                "pack": "p1",
                "worker": "w1",
                "seconds": 86_400.0,
                "events": 1_700_000,
                "match_us": 900_000_000,
                "rules": {
                    rule: {
                        "us": 640_000_000 // (place + 1) ** 2,
                        "events": 1_700_000 // (place + 1),
                        "candidates": 41_000 // (place + 1),
                        "hits": 40 // (place + 1),
                    }
                    for place, rule in enumerate(rules)
                },
            }
            for day in range(1, 62)
        ],
    )


def add_findings(lake: MemoryLake, end: datetime) -> None:
    """Findings of rules that come along, and whose address it was as far as that is known."""
    findings, said = [], []
    for place, name in enumerate(FOUND):
        text = (Path(alerts.rules.__path__[0]) / f"{name}.yml").read_text("utf-8")
        rule = dict(re.findall(r"^(id|title|level): (.+)$", text, re.M))
        for number in range(48 // (place + 1)):
            when = end - timedelta(hours=11 + 29 * number, minutes=17 * place)
            row = story.finding(f"{name}-{number}", "12:00", rule=rule["id"])
            row |= {"rule_title": rule["title"], "level": rule["level"], "event_time": when,
                    "received_at": when + timedelta(seconds=2)}  # fmt: skip
            findings.append(row)
            # Of every fifth nobody knew the address.
            if number % 5 != 4:
                held = story.attribution(f"{name}-{number}", "12:00", "leased", story.A)
                said.append(held | {"event_time": when, "attributed_at": when})
    lake.add("gold.finding", findings).add("gold.attribution", said)


def add_acts(lake: MemoryLake, end: datetime) -> None:
    """The acts of the last month, an hour and some apart; some refused, some failed."""
    rows: list[dict[str, Any]] = []
    for who, act, times, refused, failed in ACTS:
        outcomes = ["refused"] * refused + ["failed"] * failed
        outcomes += ["ok"] * (times - len(outcomes))
        first = 7 + 31 * len(act) + len(who)
        rows += [
            {"at": end - timedelta(minutes=first + 50 * number), "who": who, "act": act,
             "outcome": outcome}
            for number, outcome in enumerate(outcomes)
        ]  # fmt: skip
    lake.add("ops.audit", rows)


def add_gap(lake: MemoryLake, end: datetime) -> None:
    """Messages that the broker's retention took before they were read, and who accepted it."""
    lost = end - timedelta(days=12)
    lake.add("ops.gap", [
        {"gap_id": "g1", "job": "ingest", "kind": "expired", "topic": "logs.zeek", "partition": 2,
         "from_offset": 881_200, "to_offset": 882_440, "messages": 1_240, "goes_on_at": 882_440,
         "accepted_at": lost + timedelta(hours=9), "accepted_by": "admin", "source": "zeek:conn",
         "reason": "disk of the broker was full over night, ticket 4790",
         "lost_after": lost, "lost_before": lost + timedelta(hours=2)},
    ])  # fmt: skip


def write_erasures(home: Path, end: datetime) -> None:
    """The certificates of two erasures, as far as reports read them."""
    folder = home / "erasures"
    folder.mkdir(parents=True, exist_ok=True)
    for name, days, kind, reason, tables in ERASURES:
        certificate = {
            "form": 1,
            "id": name,
            "at": (end - timedelta(days=days)).isoformat(),
            "subject": {"kind": kind, "salt": "0", "digest": "0"},
            "reason": reason,
            "tables": {
                table: {"rows_removed": removed, "rows_replaced": replaced}
                for table, (removed, replaced) in tables.items()
            },
        }
        (folder / f"{name}.json").write_text(json.dumps(certificate), "utf-8")
