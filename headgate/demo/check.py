"""Counting what went in and what came out, from the tables and from the topic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

from alerts.delivery.topic_listener import TopicMessage
from infra.checkpoint.offset_log import numbers as batches
from infra.checkpoint.offset_log import read_up_to
from infra.config.settings import Settings
from infra.delta.duckdb_views import connect
from infra.delta.log_reader import newest_first, table_id
from infra.storage.paths import Location

_COUNTS = """
WITH named AS (
  SELECT DISTINCT unnest(record_ids) AS record_id FROM silver.event
),
attributed AS (SELECT DISTINCT finding_id FROM gold.attribution)
SELECT
  (SELECT count(*) FROM bronze.record) AS records,
  (SELECT count(*) FROM silver.events) AS events,
  (SELECT count(*) FROM silver.dead_letter) AS dead_letters,
  (SELECT count(*) FROM bronze.record r WHERE r.record_id NOT IN (SELECT record_id FROM named))
    AS nameless,
  (SELECT count(*) FROM silver.dhcp_session) AS dhcp_sessions,
  (SELECT count(*) FROM gold.findings) AS findings,
  (SELECT count(*) FROM gold.findings f WHERE f.kind = 'event'
     AND f.finding_id NOT IN (SELECT finding_id FROM attributed)) AS pending,
  (SELECT count(*) FROM gold.alert_current WHERE reason <> 'superseded') AS alerts,
  (SELECT count(*) FROM gold.alert_current WHERE reason = 'superseded') AS alerts_superseded,
  (SELECT count(*) FROM gold.alert) AS alert_revisions,
  (SELECT count(*) FROM gold.alert_current
     WHERE status = 'leased' AND reason <> 'superseded') AS alerts_attributed,
  (SELECT epoch(max(event_time)) FROM gold.finding WHERE rule_id = '_heartbeat') AS finished
"""


@dataclass(frozen=True)
class DemoCounts:
    """The numbers of a run, and what does not agree."""

    numbers: dict[str, Any]
    complaints: tuple[str, ...]
    through: bool

    @property
    def moving(self) -> dict[str, Any]:
        # Seconds differ at each look, whether anything is left to do or not.
        """The numbers that change while work is left."""
        return {key: value for key, value in self.numbers.items() if not key.endswith("_seconds")}


def demo_counts(
    settings: Settings,
    sent: int,
    revisions: Sequence[TopicMessage],
    first_alert: float | None,
    sent_at: float,
) -> DemoCounts:
    """Count all layers.

    `sent`: messages the broker acknowledged; `revisions`: revisions the consumer saw;
    `sent_at`: epoch second at which the last message had been sent. `through`
    means that the jobs have finished all of it and waited out what has to wait.
    """
    connection = connect(settings.lake_root)
    try:
        row = connection.execute(_COUNTS).fetchone()
        names = [column[0] for column in connection.description or ()]
        table = {
            (str(alert), int(revision))
            for alert, revision in connection.execute(
                "SELECT alert_id, revision FROM gold.alert"
            ).fetchall()
        }
    finally:
        connection.close()
    merged: dict[str, Any] = dict(zip(names, row or (), strict=True))
    seen = Counter(revision_row.identity for revision_row in revisions)
    nameless, pending, finished = (merged.pop(name) for name in ("nameless", "pending", "finished"))
    numbers = {
        "messages_sent": sent,
        **{key: merged[key] for key in ("records", "events", "dead_letters")},
        "unaccounted": nameless + max(0, sent - merged["records"]),
        **{key: merged[key] for key in ("dhcp_sessions", "findings")},
        # Who was behind an address may come out late: then an alert's findings go to another one.
        **{key: merged[key] for key in ("alerts", "alerts_superseded", "alert_revisions")},
        "revisions_on_topic": len(revisions),
        "alerts_attributed": merged["alerts_attributed"],
        **_delays(revisions, first_alert),
    }
    jobs = settings.jobs
    # What waits the longest: a lease that is late, the watermark, and a repair's next look.
    settled = sent_at + jobs.wait_seconds + jobs.watermark_seconds + jobs.repair_trigger_seconds
    return DemoCounts(
        numbers=numbers,
        complaints=tuple(_complaints(numbers, table, seen, pending)),
        through=finished is not None
        and finished > settled
        and waited_out(settings) > sent_at + jobs.wait_seconds
        # Else an alert could stand there that a late lease corrects: a slow machine is not through
        # with its first look when the time for one has passed.
        and watermark_behind(settings, "repair") > sent_at
        and not loops(settings),
    )


def waited_out(settings: Settings) -> float:
    """The watermark of the newest batch that job `alert` has ended, epoch seconds, 0 for none.

    What arrived `jobs.wait_seconds` before that has its holder, or the word that there is none.
    """
    file = _newest_offsets(settings)
    if file is None:
        return 0.0
    return float(json.loads(file.read_text("utf-8").splitlines()[1])["batchWatermarkMs"]) / 1000


def watermark_behind(settings: Settings, job: str) -> float:
    """Up to when a job has read what arrived, by its newest batch that ended, 0 for none.

    Source of the form: Spark's `CommitLog` (version, metadata).
    """
    file = _of_newest_batch(settings, job, "commits")
    if file is None:
        return 0.0
    return float(json.loads(file.read_text("utf-8").splitlines()[1])["nextBatchWatermarkMs"]) / 1000


def _newest_offsets(settings: Settings) -> Path | None:
    """The offsets of the newest batch that job `alert` has ended; None before the first.

    Source of the form: Spark's `OffsetSeqLog` (version, metadata, an offset for each source).
    """
    return _of_newest_batch(settings, "alert", "offsets")


def _of_newest_batch(settings: Settings, job: str, folder: str) -> Path | None:
    """What a checkpoint's folder has of the newest batch that ended; None before the first."""
    checkpoint = settings.checkpoint_root / job / "spark"
    done = batches(checkpoint / "commits")
    return checkpoint / folder / str(max(done)) if done else None


def loops(settings: Settings) -> list[str]:
    """Tables whose newest rows job `alert` still has to read: its own correlations, and repairs."""
    file = _newest_offsets(settings)
    if file is None:
        return ["everything"]
    read: dict[str, int] = {}
    for name, version in read_up_to(file):
        # Several sources may read one table: the one that is least far counts.
        read[name] = min(version, read.get(name, version))
    return [
        path
        for path, job in (("gold/finding", "alert"), ("gold/attribution", "repair"))
        if _newest(settings.lake_root / path, job)
        >= read.get(table_id(settings.lake_root / path), 0)
    ]


def _newest(table: Location, job: str) -> int:
    """Newest version of a table that a job wrote, -1 for none."""
    return next((c.version for c in newest_first(table) if (c.marker or {}).get("job") == job), -1)


def _complaints(
    numbers: dict[str, Any], table: set[tuple[str, int]], seen: Counter[tuple[str, int]], open_: int
) -> list[str]:
    complaints = []
    if numbers["records"] != numbers["messages_sent"]:
        complaints.append(
            f"{numbers['messages_sent']} messages sent, {numbers['records']} in bronze"
        )
    if numbers["unaccounted"]:
        complaints.append(f"{numbers['unaccounted']} records are unaccounted for")
    if open_:
        complaints.append(f"{open_} findings have no attribution row")
    if not numbers["alerts"]:
        complaints.append("there is no alert")
    missing, doubled = table - set(seen), [key for key, count in seen.items() if count > 1]
    if missing:
        complaints.append(f"{len(missing)} revisions of gold.alert are not on the topic")
    if doubled or set(seen) - table:
        complaints.append(
            f"{len(doubled)} revisions twice, {len(set(seen) - table)} unknown on the topic"
        )
    return complaints


def _delays(
    revisions: Sequence[TopicMessage], first_alert: float | None
) -> dict[str, float | None]:
    """Seconds from the newest event to its alert on the topic, over first revisions."""
    waits = sorted(
        revision.appended_at - datetime.fromisoformat(revision.body["event_time"]).timestamp()
        for revision in revisions
        if revision.body["activity"] == "create"
    )
    cuts = quantiles(waits, n=20, method="inclusive") if len(waits) > 1 else None
    return {
        "first_alert_seconds": None if first_alert is None else round(first_alert, 1),
        # Nineteen cuts part the waits into twentieths: the tenth is the median.
        "event_to_alert_p50_seconds": round(cuts[9], 1) if cuts else None,
        "event_to_alert_p95_seconds": round(cuts[18], 1) if cuts else None,
    }
