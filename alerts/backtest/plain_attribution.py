"""Findings of history with who held their address, as was known then, by one question to DuckDB.

The same answers as `alerts.backtest.history_match.attributed_history` gives over Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from alerts.tables import FINDING
from enrich.attribution.scopes import by_hand, in_scope
from enrich.tables import DHCP_SEGMENT, HOLDER
from infra.config.settings import ScopeSettings, Settings
from infra.delta.duckdb_views import open_engine, reach
from infra.delta.parquet_writer import DataFile, Target, arrow_schema, writing
from infra.delta.plain_files import duck_type
from infra.storage.paths import Location

_READ_ROWS = 10_000

_SEGMENT = {
    "ip": "f.ip",
    "scope": "f.scope",
    "mac": "s.mac",
    "hostname": "CASE WHEN s.mac IS NOT NULL THEN s.hostname END",
    "session_id": "CASE WHEN s.mac IS NOT NULL THEN s.session_id END",
    "lease_start": "CASE WHEN s.mac IS NOT NULL THEN s.session_start END",
    "lease_end": "CASE WHEN s.mac IS NOT NULL THEN s.session_end END",
    "known_at": "s.known_at",
    "status": "CASE WHEN s.mac IS NOT NULL THEN 'leased' ELSE 'none' END",
    "complete_up_to": "s.known_at",
    "evidence": "s.evidence.event_uids",
    "ended": "CASE WHEN s.mac IS NOT NULL THEN s.evidence.ended END",
}
"""As `enrich.attribution.stream_join.segment_holder`."""

_APART = {
    "ip": "f.ip",
    "scope": "f.scope",
    "status": "CASE WHEN f.ip IS NULL THEN 'unknown' WHEN f.static THEN 'static' "
    "ELSE 'outside' END",
}


def _holder(known: dict[str, str]) -> str:
    """A struct with every field of a holder, in order."""
    fields = [
        f"{field.name} := {known.get(field.name, 'NULL')}::{duck_type(field.type)}"
        for field in HOLDER.fields
    ]
    return f"struct_pack({', '.join(fields)})"


_KEPT = ", ".join(
    f'"{name}"' for name in FINDING.schema.fieldNames() if name not in ("holder", "received_at")
)

_FINDINGS = """
CREATE TEMP TABLE findings AS
SELECT *, row_number() OVER () AS nth,
       -- An imported event arrived long after it happened; "known in time" means nothing for it.
       mode = 'import' AS imported,
       CASE WHEN mode = 'import' THEN event_time ELSE received_at END AS arrived
FROM read_parquet($files)
"""

_SEGMENTS = "delta_scan($folder, version => $version)"

_ATTRIBUTED = f"""
WITH placed AS (
    SELECT f.*, p.static, p.inside AND NOT p.static AND f.holder IS NULL AS joins
    FROM findings f JOIN places p
      ON p.scope IS NOT DISTINCT FROM f.scope AND p.ip IS NOT DISTINCT FROM f.ip
),
covering AS (
    SELECT f.nth, s.*
    FROM placed f JOIN {_SEGMENTS} s
      ON s.scope = f.scope AND s.ip = f.ip
     AND f.event_time >= s.seg_start AND f.event_time < s.seg_end
    WHERE f.joins AND s.kind <> 'heartbeat'
      AND (f.imported OR coalesce(s.known_at <= f.received_at + to_seconds($wait), true))
    QUALIFY row_number() OVER (PARTITION BY f.nth ORDER BY s.rev DESC) = 1
),
told AS (
    SELECT f.* EXCLUDE (holder),
           CASE WHEN f.joins THEN {_holder(_SEGMENT)}
                ELSE coalesce(f.holder, {_holder(_APART)}) END AS holder,
           CASE WHEN f.joins THEN coalesce(s.rev, -1) ELSE -1 END AS attr_rev,
           CASE WHEN f.joins THEN 'join' ELSE 'outside' END AS via
    FROM placed f LEFT JOIN covering s ON s.nth = f.nth
)
SELECT {_KEPT}, holder, arrived AS received_at, attr_rev, via,
       CASE WHEN imported OR via <> 'join' THEN arrived
            -- That nobody held it the live join can only say when its wait is over.
            WHEN holder.status = 'none' AND holder.known_at IS NULL
            THEN arrived + to_seconds($wait)
            ELSE greatest(arrived, coalesce(holder.known_at, arrived)) END AS available_at
FROM told
"""


def attribute_files(
    files: Sequence[Path], segments: Location, version: int, settings: Settings, target: Target
) -> list[DataFile]:
    """Findings in files, attributed by a version of silver.dhcp_segment, as a file of `target`.

    `version` -1: there is no such table yet.
    """
    engine = open_engine(memory=settings.api.statement_memory, threads=2)
    with closing(engine), writing({target.table: target}) as writers:
        engine.execute(_FINDINGS, {"files": [str(file) for file in files]})
        rows = engine.execute("SELECT DISTINCT scope, ip FROM findings").fetchall()
        engine.register("places", _places(rows, settings.scopes))
        params: dict[str, Any] = {"wait": settings.jobs.wait_seconds}
        sql = _ATTRIBUTED
        if version < 0:
            engine.register("no_segments", arrow_schema(DHCP_SEGMENT).empty_table())
            sql = sql.replace(_SEGMENTS, "no_segments")
        else:
            reach(engine, segments)
            params |= {"folder": str(segments), "version": version}
        writer = writers[target.table]
        for batch in engine.execute(sql, params).fetch_record_batch(_READ_ROWS):
            writer.write(batch)
        written = writer.close()
    return [written] if written else []


def _places(
    rows: Sequence[tuple[str | None, str | None]], scopes: Sequence[ScopeSettings]
) -> pa.Table:
    """Of each scope and address whether DHCP gives it away there, and whether it is set by hand."""
    return pa.table(
        {
            "scope": pa.array([scope for scope, _ in rows], pa.string()),
            "ip": pa.array([ip for _, ip in rows], pa.string()),
            "inside": pa.array([in_scope(scope, ip, scopes) for scope, ip in rows], pa.bool_()),
            "static": pa.array([by_hand(scope, ip, scopes) for scope, ip in rows], pa.bool_()),
        }
    )
