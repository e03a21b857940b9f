"""Tables the platform keeps about itself."""

from __future__ import annotations

from pyspark.sql import types as T

from infra.tables import TS, B, Column, L, N, S, Table

LEDGER = Table(
    name="ops.ledger",
    doc="One micro-batch of one job: what it read, what it wrote, and what it left over.",
    columns=(
        Column("job", S, "name of the job, which is also the name of its checkpoint"),
        Column("query_id", S, "identity of the checkpoint"),
        Column("batch_id", L, "number of the micro-batch in that checkpoint"),
        Column("started_at", TS, "when the batch began, UTC"),
        Column("finished_at", TS, "when its last table was committed, UTC"),
        Column("offsets", S, "the checkpoint's offsets of the batch, as JSON", False),
        Column("rows_read", L, "rows that entered the batch", False),
        Column("rows_written", T.MapType(S, L), "rows written, by table", False),
        Column("rows_dead", L, "rows written as dead letters", False),
        Column("rows_late", L, "rows that came later than the watermark", False),
        Column("versions", T.MapType(S, L), "Delta version committed, by table", False),
        Column("pack", S, "hash of the rule pack the batch used", False),
        Column("decisions", S, "what the batch fixed before it ran, as JSON", False),
        Column("replayed", B, "true when a table already held this batch and was passed over"),
    ),
    event_time="finished_at",
    key=("job", "query_id", "batch_id"),
    cluster_by=("job", "finished_at"),
    stats=("job", "started_at", "finished_at"),
    expires="ledger_days",
)

AUDIT = Table(
    name="ops.audit",
    doc="One act of a person or a key: a statement run, an alert changed, a rule switched.",
    columns=(
        Column("at", TS, "when, UTC"),
        Column("who", S, "name of the key or user"),
        Column("act", S, "what was done: statement, rule.disable, rule.enable, alert.close, ..."),
        Column("target", S, "what it was done to", False),
        Column("detail", S, "the request as JSON, without secrets", False),
        Column("outcome", S, "ok, refused or failed", False),
    ),
    event_time="at",
    cluster_by=("at",),
    expires="ops_days",
)

GAP = Table(
    name="ops.gap",
    doc="Messages a job never got, and who said that it may go on without them.",
    columns=(
        Column("gap_id", S, "identity of what was stated; rows with the same one say the same"),
        Column("job", S, "the job that missed them"),
        Column(
            "kind",
            S,
            "expired (retention), reset (the log lost its end), recreated or removed; hole: read "
            "by the job's own account, and not in bronze",
        ),
        Column("topic", S, "their topic"),
        Column("partition", N, "its partition"),
        Column("from_offset", L, "the first message missed"),
        Column("to_offset", L, "the first one after them; null: nobody can tell", False),
        Column("messages", L, "how many were missed; null: nobody can tell", False),
        Column("goes_on_at", L, "the offset the job went on from; null: the topic is gone", False),
        Column("accepted_at", TS, "when a person accepted it, UTC"),
        Column("accepted_by", S, "who"),
        Column("reason", S, "why, in that person's words"),
        Column("source", S, "whose messages they were", False),
        Column(
            "lost_after",
            TS,
            "arrival of the newest record that bronze has of the partition, UTC: what is missing "
            "came after it; null: bronze had none",
            False,
        ),
        Column(
            "lost_before",
            TS,
            "the broker's time of the message the job went on with, UTC: what is missing came "
            "before it; null: there was none yet",
            False,
        ),
    ),
    event_time="accepted_at",
    key=("gap_id",),
    cluster_by=("accepted_at",),
)

TABLES = (LEDGER, AUDIT, GAP)
