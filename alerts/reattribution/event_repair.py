"""Attributed events against what is said of their addresses now: the corrections.

The join of job `alert` gives an event the statements that become known within its wait. What is
said later, by a line that came late or by a repair, reaches gold.attributed_event from here, as
rows with the revision of that statement. Computed from the tables and only appended, like all of
`alerts.reattribution.history_repair`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from alerts.domain.entity import event_instant
from alerts.reattribution.dirty_addresses import ScopedAddress
from enrich.attribution.asof_join import SEGMENT, newest_cover, statements
from enrich.attribution.attributed_events import device
from enrich.tables import ATTRIBUTED_EVENT, DHCP_SEGMENT
from infra.checkpoint.offset_log import numbers
from infra.config.settings import Settings
from infra.streaming.lake import Lake

_REPAIRED = "repair"
"""`via` of the rows said here."""

SLACK_US = 2_000_000
"""More than the join may keep a row beyond its wait: its watermarks count whole milliseconds."""

_EVENT = ("event_uid", "role", "scope", "ip", "event_time")


def said_until(settings: Settings) -> int:
    """Up to which arrival every event has left the join of job `alert`, microseconds since 1970.

    By the watermark of its newest batch that is done (Spark keeps it with the batch's offsets); 0
    when there is none.
    """
    folder = settings.checkpoint_root / "alert" / "spark"
    # A batch with offsets but no commit did not finish; its watermark promises nothing.
    done = set(numbers(folder / "commits")) & set(numbers(folder / "offsets"))
    if not done:
        return 0
    text = (folder / "offsets" / str(max(done))).read_text("utf-8")
    watermark_us = int(json.loads(text.splitlines()[1])["batchWatermarkMs"]) * 1000
    return max(0, watermark_us - settings.jobs.wait_seconds * 1_000_000 - SLACK_US)


def in_doubt(lake: Lake, known_us: int) -> dict[ScopedAddress, int]:
    """Addresses of which a statement known since an instant is newer than what was said of an
    event, each with the first such event, microseconds since 1970."""
    later = statements(lake.read(DHCP_SEGMENT)).where(F.unix_micros("known_at") >= known_us)
    later = later.select("scope", "ip", "seg_start", "seg_end", F.col("rev").alias("later"))
    first_us = later.agg(F.min(F.unix_micros("seg_start"))).collect()[0][0]
    if first_us is None:
        return {}
    events = lake.read(ATTRIBUTED_EVENT).where(
        F.col("event_time") >= F.lit(event_instant(first_us))
    )
    newest = events.groupBy(*_EVENT).agg(F.max("rev").alias("rev"))
    column = F.col("event_time")
    about = (
        (F.col("seg_start") <= column)
        & (F.col("seg_end") > column)
        & (F.col("later") > F.col("rev"))
    )
    groupBy = newest.join(later, ["scope", "ip"]).where(about).groupBy("scope", "ip")
    rows = groupBy.agg(F.min(F.unix_micros("event_time"))).collect()
    return {(scope, ip): first for scope, ip, first in rows}


def retold(
    lake: Lake, addresses: Mapping[ScopedAddress, int], segments: DataFrame
) -> list[dict[str, Any]]:
    """Rows of gold.attributed_event for the events of these addresses, from these instants on,
    whose device is another one by `segments` than was said last."""
    starts = lake.spark.createDataFrame(
        [(scope, ip, event_instant(us)) for (scope, ip), us in addresses.items()],
        "scope string, ip string, first timestamp",
    )
    oldest = F.lit(event_instant(min(addresses.values())))
    where = lake.read(ATTRIBUTED_EVENT).where(F.col("event_time") >= oldest)
    # Few addresses against a large table: broadcast, and the large side is not shuffled.
    mine = where.join(F.broadcast(starts), ["scope", "ip"]).where("event_time >= first")
    others = [name for name in ATTRIBUTED_EVENT.schema.fieldNames() if name not in _EVENT]
    # Append-only: an event has a row for each revision, and the newest one counts.
    was = F.max_by(F.struct(*others), "rev").alias("was")
    known = statements(segments, whole=True)
    newest_rows = newest_cover(mine.groupBy(*_EVENT).agg(was), known, carried=SEGMENT)
    now = newest_rows.withColumn("holder", device(lake.settings.scopes))
    same = [_same(name) for name in ("status", "mac", "session_id")]
    # Only a newer statement, or a repair would undo what the stream has learned since.
    changed = now.where((F.col("s_rev") > F.col("was.rev")) & ~(same[0] & same[1] & same[2]))
    lines = {"holder": F.col("holder"), "rev": F.col("s_rev"), "via": F.lit(_REPAIRED)}
    columns = [
        F.col(name) if name in _EVENT else lines.get(name, F.col(f"was.{name}")).alias(name)
        for name in ATTRIBUTED_EVENT.schema.fieldNames()
    ]
    rows: list[dict[str, Any]] = changed.select(*columns).toArrow().to_pylist()
    return rows


def _same(name: str) -> Column:
    # Null-safe: from nobody to somebody is a change, and `null = x` would be null.
    return F.col(f"holder.{name}").eqNullSafe(F.col(f"was.holder.{name}"))
