"""What the ledger says of findings: how many, of which rule packs, and how many are attributed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from datetime import datetime

import duckdb

_FINDINGS = """
WITH finding AS (
  SELECT finding_id, event_uid, source, pack, received_at,
         ip IS NOT NULL
           AND received_at >= coalesce(getvariable('attributed')::TIMESTAMPTZ, '-infinity') AS waits
  FROM gold.finding
  WHERE rule_id <> '_heartbeat' AND kind = 'event'
    AND received_at >= $since AND received_at < $until AND ($source IS NULL OR source = $source)
),
attributed AS (
  SELECT finding_id, bool_or(via = 'late') AS late FROM gold.attribution
  WHERE via <> 'heartbeat' AND finding_id IN (SELECT finding_id FROM finding)
  GROUP BY finding_id
)
SELECT date_trunc('hour', f.received_at) AS hour, f.source, count(*) AS findings,
       count(DISTINCT f.event_uid) AS matched,
       count(*) FILTER (WHERE f.waits AND a.finding_id IS NULL) AS pending,
       count(a.finding_id) AS attributed, count(*) FILTER (WHERE a.late) AS late,
       list(DISTINCT f.pack) AS packs
FROM finding f LEFT JOIN attributed a USING (finding_id)
GROUP BY ALL
"""


def findings(
    connection: duckdb.DuckDBPyConnection, since: datetime, until: datetime, source: str | None
) -> Iterator[tuple[datetime, str, dict[str, int], set[str]]]:
    """By hour of arrival and source: the numbers, and the packs that the findings name."""
    asked = {"since": since, "until": until, "source": source}
    result = connection.execute(_FINDINGS, asked)
    names = [column[0] for column in result.description or ()][2:-1]
    for hour, name, *numbers, packs in result.fetchall():
        yield hour, name, dict(zip(names, numbers, strict=True)), {pack for pack in packs if pack}


# A batch of Kafka messages says up to when all that arrived is in; what it read arrived since the
# one before it said so. One of files says when its records arrived.
_PACKS = """
WITH batch AS (
  SELECT job, query_id, batch_id, pack, started_at,
         TRY_CAST(json_extract_string(decisions, '$.received_at') AS TIMESTAMPTZ) AS arrived,
         TRY_CAST(json_extract_string(decisions, '$.finished') AS TIMESTAMPTZ) AS finished
  FROM ops.ledger
  WHERE job IN ('ingest', 'files', 'import')
    AND finished_at >= $since - INTERVAL 1 HOUR AND finished_at < $until + INTERVAL 7 DAY
),
reach AS (
  SELECT pack, coalesce(arrived, max(finished) OVER (
           PARTITION BY job, query_id ORDER BY batch_id
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
         ), $since) AS begin,
         coalesce(arrived, finished, started_at) AS "end"
  FROM batch
)
SELECT DISTINCT pack, date_trunc('hour', greatest(begin, $since)) AS first,
       date_trunc('hour', least("end", $until)) AS last
FROM reach WHERE pack IS NOT NULL AND "end" >= $since AND begin < $until
"""


def packs_by_hour(
    connection: duckdb.DuckDBPyConnection,
    since: datetime,
    until: datetime,
    hours: Collection[datetime],
) -> dict[datetime, set[str]]:
    """By hour of arrival, the rule packs of the batches that read what arrived in it, as far as
    ops.ledger has them; of these hours alone."""
    wanted = sorted(hours)
    sets: dict[datetime, set[str]] = {}
    bounds = {"since": since, "until": until}
    for pack, first, last in connection.execute(_PACKS, bounds).fetchall():
        # Not hour by hour: whoever asks since the year 1 asks of millions, and few have anything.
        for hour in wanted[bisect_left(wanted, first) : bisect_right(wanted, last)]:
            sets.setdefault(hour, set()).add(pack)
    return sets
