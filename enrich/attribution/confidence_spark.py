"""Confidence and its reason on Spark: `enrich.attribution.confidence` over rows that name a
holder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from enrich.attribution.competing_leases import LeaseStatement, rivals_of
from enrich.attribution.confidence import EDGE, SUPERSEDED, Claim, assessed
from enrich.attribution.server_liveness import ServerLiveness
from infra.config.settings import ScopeSettings

_CLAIM = (
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


def with_claims(findings: DataFrame, segments: DataFrame) -> DataFrame:
    """Rows with all that was said about their address near their `event_time`, as `claims`.

    `findings` has finding_id, role, ip and event_time; `segments` are rows of silver.dhcp_segment
    with a span. Batch only. Joined by address alone: who held it at another site is a doubt, too.
    What another tenant's logs say `rivals_of` leaves out.
    """
    near = segments.select("ip", "seg_start", "seg_end", F.struct(*map(F.expr, _CLAIM)).alias("s"))
    instant, edge = F.col("event_time"), F.expr(f"INTERVAL {int(EDGE.total_seconds())} SECONDS")
    about = (F.col("seg_start") < instant + edge) & (F.col("seg_end") > instant - edge)
    addresses = findings.select("finding_id", "role", "ip", "event_time")
    claims = (
        addresses.join(near, "ip")
        .where(about)
        .groupBy("finding_id", "role")
        .agg(F.collect_list("s").alias("claims"))
    )
    # Left: a finding whose address nobody else claims has no row in `claims`, and stays.
    return findings.join(claims, ["finding_id", "role"], "left")


def with_confidence(
    rows: DataFrame,
    scopes: Sequence[ScopeSettings] = (),
    liveness: ServerLiveness | None = None,
    complete_up_to: datetime | None = None,
) -> DataFrame:
    """Rows whose `holder` has its confidence, by their `event_time`; stream or batch.

    Columns `claims` (see `with_claims`) and `received_at` are used if they are there, and left
    out of the answer. `complete_up_to`: how far the DHCP log is complete.
    """
    extra = [name for name in ("claims", "received_at") if name in rows.columns]
    kept = [name for name in rows.columns if name not in extra]
    servers = liveness or ServerLiveness()

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = {name: batch.column(name) for name in kept}
            columns_of = {name: batch.column(name).to_pylist() for name in ("holder", "event_time")}
            columns_of |= {name: batch.column(name).to_pylist() for name in extra}
            record_batches = [
                _judged(dict(zip(columns_of, values, strict=True)), scopes, servers, complete_up_to)
                for values in zip(*columns_of.values(), strict=True)
            ]
            # With the type that came: guessed from values, a batch without rivals has another one.
            columns["holder"] = pa.array(record_batches, type=batch.schema.field("holder").type)
            yield pa.RecordBatch.from_arrays(
                list(columns.values()), schema=pa.schema([batch.schema.field(n) for n in kept])
            )

    return rows.mapInArrow(each, rows.select(*kept).schema)


def _judged(
    row: Mapping[str, Any],
    scopes: Sequence[ScopeSettings],
    liveness: ServerLiveness,
    complete_up_to: datetime | None,
) -> dict[str, Any] | None:
    holder, instant = row["holder"], row["event_time"]
    if holder is None or instant is None:
        return None if holder is None else dict(holder)
    claims = [LeaseStatement(**claim) for claim in row.get("claims") or ()]
    return assessed(
        holder,
        instant,
        row.get("received_at"),
        complete_up_to=complete_up_to,
        servers=liveness.before(holder.get("scope"), instant),
        rivals=rivals_of(claims, holder.get("scope"), holder.get("mac"), instant),
        scopes=scopes,
    )


def superseded(rows: Iterable[Mapping[str, Any]], newest: Mapping[str, Any]) -> list[Claim]:
    """Of rows of one finding, those that gave its address to others before the newest did."""
    current = newest.get("holder") or {}
    claims = {}
    # In order, so that of several rows for one device the last that was said stays.
    for row in sorted(rows, key=lambda row: row.get("attr_rev") or -1):
        holder = row.get("holder") or {}
        mac = holder.get("mac")
        if mac and mac != current.get("mac") and row["attr_rev"] < newest["attr_rev"]:
            claims[mac] = Claim(
                SUPERSEDED,
                scope=holder.get("scope"),
                mac=mac,
                session_id=holder.get("session_id"),
                lease_start=holder.get("lease_start"),
                lease_end=holder.get("lease_end"),
                known_at=holder.get("known_at"),
                rev=row["attr_rev"],
            )
    return [claims[mac] for mac in sorted(claims)]
