"""Confidence and its reason on Spark: `enrich.attribution.confidence` over rows that name a
holder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from enrich.attribution.competing_leases import Said, rivals_of
from enrich.attribution.confidence import EDGE, SUPERSEDED, Claim, assessed
from enrich.attribution.server_liveness import Heard
from infra.config.settings import ScopeSettings

_SAID = (
    "scope",
    "mac",
    "session_id",
    "seg_start",
    "seg_end",
    "session_start AS lease_start",
    "session_end AS lease_end",
    "known_at",
    "rev",
)


def with_claims(found: DataFrame, segments: DataFrame) -> DataFrame:
    """Rows with all that was said about their address near their `event_time`, as `claims`.

    `found` has finding_id, role, ip and event_time; `segments` are rows of silver.dhcp_segment
    with a span. Batch only.
    """
    near = segments.select("ip", "seg_start", "seg_end", F.struct(*map(F.expr, _SAID)).alias("s"))
    at, edge = F.col("event_time"), F.expr(f"INTERVAL {int(EDGE.total_seconds())} SECONDS")
    about = (F.col("seg_start") < at + edge) & (F.col("seg_end") > at - edge)
    asked = found.select("finding_id", "role", "ip", "event_time")
    claims = (
        asked.join(near, "ip")
        .where(about)
        .groupBy("finding_id", "role")
        .agg(F.collect_list("s").alias("claims"))
    )
    return found.join(claims, ["finding_id", "role"], "left")


def judged(
    rows: DataFrame,
    scopes: Sequence[ScopeSettings] = (),
    heard: Heard | None = None,
    known: datetime | None = None,
) -> DataFrame:
    """Rows whose `holder` has its confidence, by their `event_time`; stream or batch.

    Columns `claims` (see `with_claims`) and `received_at` are used if they are there, and left
    out of the answer. `known`: how far the DHCP log is complete.
    """
    extra = [name for name in ("claims", "received_at") if name in rows.columns]
    kept = [name for name in rows.columns if name not in extra]
    servers = heard or Heard()

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = {name: batch.column(name) for name in kept}
            asked = {name: batch.column(name).to_pylist() for name in ("holder", "event_time")}
            asked |= {name: batch.column(name).to_pylist() for name in extra}
            said = [
                _judged(dict(zip(asked, values, strict=True)), scopes, servers, known)
                for values in zip(*asked.values(), strict=True)
            ]
            columns["holder"] = pa.array(said, type=batch.schema.field("holder").type)
            yield pa.RecordBatch.from_arrays(
                list(columns.values()), schema=pa.schema([batch.schema.field(n) for n in kept])
            )

    return rows.mapInArrow(each, rows.select(*kept).schema)


def _judged(
    row: Mapping[str, Any], scopes: Sequence[ScopeSettings], heard: Heard, known: datetime | None
) -> dict[str, Any] | None:
    holder, at = row["holder"], row["event_time"]
    if holder is None or at is None:
        return None if holder is None else dict(holder)
    said = [Said(**one) for one in row.get("claims") or ()]
    return assessed(
        holder,
        at,
        row.get("received_at"),
        known=known,
        servers=heard.before(holder.get("scope"), at),
        rivals=rivals_of(said, holder.get("scope"), holder.get("mac"), at),
        scopes=scopes,
    )


def superseded(rows: Iterable[Mapping[str, Any]], newest: Mapping[str, Any]) -> list[Claim]:
    """Of rows of one finding, those that gave its address to others before the newest did."""
    told = newest.get("holder") or {}
    found = {}
    for row in sorted(rows, key=lambda row: row.get("attr_rev") or -1):
        holder = row.get("holder") or {}
        mac = holder.get("mac")
        if mac and mac != told.get("mac") and row["attr_rev"] < newest["attr_rev"]:
            found[mac] = Claim(
                SUPERSEDED,
                scope=holder.get("scope"),
                mac=mac,
                session_id=holder.get("session_id"),
                lease_start=holder.get("lease_start"),
                lease_end=holder.get("lease_end"),
                known_at=holder.get("known_at"),
                rev=row["attr_rev"],
            )
    return [found[mac] for mac in sorted(found)]
