"""Who held an address, asked in SQL: one instant, as known then or as known now."""

from __future__ import annotations

from enrich.attribution.confidence import EDGE

LEASE_AT_SQL = """
WITH known AS (
    SELECT * FROM silver.dhcp_segment
    WHERE ip = :ip AND kind <> 'heartbeat'
      AND (:scope IS NULL OR scope = :scope)
      AND (:known_by IS NULL OR (known_at <= :known_by AND learned_at <= :known_by))
),
covering AS (
    SELECT *, row_number() OVER (PARTITION BY scope ORDER BY rev DESC) AS nth
    FROM known WHERE seg_start <= :at AND seg_end > :at
),
leases AS (
    SELECT scope, session_id, max_by(session_start, rev) AS lease_start,
           max_by(session_end, rev) AS lease_end, max_by(evidence, rev) AS evidence
    FROM known WHERE session_id IS NOT NULL GROUP BY scope, session_id
)
SELECT covering.scope, covering.ip,
       CASE WHEN covering.mac IS NULL THEN 'none' ELSE 'leased' END AS status,
       covering.mac, covering.hostname, covering.session_id,
       leases.lease_start, leases.lease_end, leases.evidence,
       covering.known_at, covering.learned_at, covering.rev
FROM covering LEFT JOIN leases
  ON leases.scope = covering.scope AND leases.session_id = covering.session_id
WHERE covering.nth = 1 ORDER BY covering.scope
"""
"""Who held `:ip` at `:at`, in one scope or (`:scope` null) in each, as known by `:known_by` or
(null) now. No row: no segment covers the instant. Spark SQL (beside Delta's parser, Spark 4.2
binds parameters only with `spark.sql.legacy.parameterSubstitution.constantsOnly`); for DuckDB see
LEASE_AT_DUCKDB."""

# The text must have no colon but those of its parameters.
LEASE_AT_DUCKDB = LEASE_AT_SQL.replace(":", "$")
"""The same question with DuckDB's named parameters ($ip, $at, $scope, $known_by)."""

# `arg_max_null`: DuckDB's `max_by` passes over nulls, Spark's does not.
CLAIMS_DUCKDB = f"""
WITH known AS (
    SELECT * FROM silver.dhcp_segment
    WHERE ip = $ip AND kind NOT IN ('heartbeat', 'too_late')
      AND ($known_by IS NULL OR (known_at <= $known_by AND learned_at <= $known_by))
),
near AS (
    SELECT * FROM known WHERE seg_end > seg_start
      AND seg_start < $at + INTERVAL {EDGE.seconds} SECOND
      AND seg_end > $at - INTERVAL {EDGE.seconds} SECOND
),
leases AS (
    SELECT scope, session_id, arg_max_null(session_start, rev) AS lease_start,
           arg_max_null(session_end, rev) AS lease_end, arg_max_null(evidence, rev) AS evidence
    FROM known WHERE session_id IN (SELECT session_id FROM near) GROUP BY scope, session_id
)
SELECT near.* EXCLUDE (session_start, session_end, evidence),
       leases.lease_start, leases.lease_end, leases.evidence
FROM near LEFT JOIN leases ON leases.scope = near.scope AND leases.session_id = near.session_id
ORDER BY near.rev
"""
"""Every statement about `$ip` near `$at` in any scope, with its lease as it ends by what is known
by `$known_by` or (null) now: what the holder and its rivals are found from."""
