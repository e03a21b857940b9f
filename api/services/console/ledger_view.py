"""What the jobs did and left over: the ledger by hour, dead letters with their bytes, new fields,
gaps."""

from __future__ import annotations

from datetime import datetime, timedelta

from api.services.reader import Reader, ReaderRow

MOST_REASONS = 20
MOST_NEWEST = 50
"""Gaps and new fields that are shown; one more is read, which tells that there are more."""

_BY_HOUR = """
SELECT time_bucket(INTERVAL 1 HOUR, finished_at) AS hour, job, count(*) AS batches,
       sum(rows_read)::BIGINT AS rows_read, sum(rows_dead)::BIGINT AS rows_dead,
       sum(rows_late)::BIGINT AS rows_late,
       quantile_cont(epoch(finished_at) - epoch(started_at), 0.95) AS seconds
FROM ops.ledger WHERE finished_at >= $since AND NOT replayed
GROUP BY ALL ORDER BY hour DESC, job
"""
_DEAD = """
SELECT event_uid, source, received_at, time, dead_letter_reason, record_ids FROM silver.event
WHERE dead_letter_reason IS NOT NULL AND received_at >= $since
  AND ($source IS NULL OR source = $source)
ORDER BY received_at DESC LIMIT $most
"""
_DEAD_COUNT = """
SELECT count(*) AS n FROM silver.event
WHERE dead_letter_reason IS NOT NULL AND received_at >= $since
  AND ($source IS NULL OR source = $source)
"""
_REASONS = f"""
SELECT source, dead_letter_reason AS reason, count(*) AS n, max(received_at) AS newest
FROM silver.event WHERE dead_letter_reason IS NOT NULL AND received_at >= $since
GROUP BY ALL ORDER BY n DESC, source, reason LIMIT {MOST_REASONS + 1}
"""
_RAW = """
SELECT record_id, raw FROM bronze.record
WHERE list_contains($ids, record_id) AND received_at >= $low AND received_at <= $high
"""
_GAPS = f"""
SELECT job, kind, topic, partition, from_offset, to_offset, messages, accepted_at, accepted_by,
       reason, source
FROM ops.gap ORDER BY accepted_at DESC LIMIT {MOST_NEWEST + 1}
"""
_DRIFT = f"""
SELECT source, field, first_seen, "rows" AS n, event_uid FROM ops.drift
WHERE NOT baseline AND first_seen >= $since
ORDER BY first_seen DESC, source, field LIMIT {MOST_NEWEST + 1}
"""


def ledger_by_hour(reader: Reader, since: datetime) -> list[ReaderRow]:
    """Batches, rows and times by hour and job, newest first."""
    return reader.rows(_BY_HOUR, {"since": since}, needs=("ops.ledger",))


def dead_letter_reasons(reader: Reader, since: datetime) -> list[ReaderRow]:
    """Why records could not be read, by source, the most frequent first."""
    return reader.rows(_REASONS, {"since": since}, needs=("silver.event",))


def dead_letters(reader: Reader, since: datetime, source: str | None, most: int) -> list[ReaderRow]:
    """Records that could not be read, newest first, each with its bytes where bronze has them."""
    params = {"since": since, "source": source, "most": most}
    rows = reader.rows(_DEAD, params, needs=("silver.event",))
    if not rows:
        return []
    reach = timedelta(hours=1)
    raw = reader.rows(
        _RAW,
        {
            "ids": [row["record_ids"][0] for row in rows if row["record_ids"]],
            "low": rows[-1]["received_at"] - reach,
            "high": rows[0]["received_at"] + reach,
        },
        needs=("bronze.record",),
    )
    by_id = {row["record_id"]: bytes(row["raw"] or b"") for row in raw}
    return [row | {"raw": by_id.get((row["record_ids"] or [""])[0])} for row in rows]


def dead_letter_count(reader: Reader, since: datetime, source: str | None) -> int:
    """How many records could not be read."""
    rows = reader.rows(_DEAD_COUNT, {"since": since, "source": source}, needs=("silver.event",))
    return int(rows[0]["n"])


def accepted_gaps(reader: Reader) -> list[ReaderRow]:
    """Messages that the broker lost, and who said that a job may go on without them."""
    return reader.rows(_GAPS, {}, needs=("ops.gap",))


def new_fields(reader: Reader, since: datetime) -> list[ReaderRow]:
    """Fields that OCSF has no place for and that a source did not have before, newest first."""
    return reader.rows(_DRIFT, {"since": since}, needs=("ops.drift",))
