"""Tables the platform keeps about itself."""

from __future__ import annotations

from infra.delta.column_types import MapOf
from infra.delta.schema import TS, B, Column, D, L, N, S, Table

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
        Column("rows_written", MapOf(S, L), "rows written, by table", False),
        Column("rows_dead", L, "rows written as dead letters", False),
        Column("rows_late", L, "rows that came later than the watermark", False),
        Column("versions", MapOf(S, L), "Delta version committed, by table", False),
        Column("pack", S, "hash of the rule pack the batch used", False),
        Column("decisions", S, "what the batch fixed before it ran, as JSON", False),
        Column("replayed", B, "true when a table already held this batch and was passed over"),
        Column(
            "cpu_seconds",
            D,
            "CPU time that the driver's processes (Python, JVM, Python workers) used while it ran; "
            "null: unknown, as on a cluster, without Linux's /proc, and of earlier releases",
            False,
        ),
        Column(
            "cpu_shared_seconds",
            D,
            "of it, what batches of several jobs at once used, each given the same part",
            False,
        ),
        Column(
            "cpu_between_seconds",
            D,
            "CPU time of these processes without a batch, since the driver's row before or its "
            "start",
            False,
        ),
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
        Column("chain", S, "the chain that the row is a link of: one a home", False),
        Column("seq", L, "its number in the chain, without a gap", False),
        Column("digest", S, "SHA-256 over the row, its number and the digest before", False),
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
        Column("to_offset", L, "the first one after them; null: unknown", False),
        Column("messages", L, "how many were missed; null: unknown", False),
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

LEDGER_CHECK = Table(
    name="ops.ledger_check",
    doc="What a check of the ledger found of a partition's offsets, or of a source's records.",
    columns=(
        Column("run_at", TS, "when the check ran, UTC"),
        Column("passed", B, "whether nothing is missing, doubled or about to be lost"),
        Column("topic", S, "of a partition: its Kafka topic; null: of a source", False),
        Column("partition", N, "its partition", False),
        Column("source", S, "whose messages or records they are", False),
        Column("from_offset", L, "the first offset looked at", False),
        Column("to_offset", L, "the first one that job ingest has not read; not looked at", False),
        Column("records", L, "different records found in bronze"),
        Column("gaps", L, "offsets without a record, that an accepted gap names", False),
        Column("expired", L, "offsets without a record, as old as retention", False),
        Column("erased", L, "offsets without a record, as many as erasures may have taken", False),
        Column(
            "empty", L, "offsets at which the broker has no message: marks of transactions", False
        ),
        Column(
            "unasked", L, "single offsets taken for such; there were too many to ask of all", False
        ),
        Column("missing", L, "offsets without a record otherwise; of a source: unaccounted"),
        Column("repeated", L, "rows of bronze that stand there again; of a source: event ids"),
        Column("broker_first", L, "the first offset the broker still has", False),
        Column("broker_end", L, "the offset its next message gets", False),
        Column("unread", L, "messages that job ingest has not read", False),
        Column(
            "expiring",
            L,
            "of these, messages older than three quarters of what the topic keeps; null: the "
            "broker does not say how long that is",
            False,
        ),
        Column(
            "examples", S, "offsets that are missing, a few, as JSON: from, to (not in it)", False
        ),
        Column("since", TS, "of a source: first arrival looked at, UTC", False),
        Column("until", TS, "of a source: end of the arrivals looked at, UTC", False),
    ),
    event_time="run_at",
    key=("run_at", "topic", "partition", "source"),
    cluster_by=("run_at",),
    expires="ops_days",
)

TABLES = (LEDGER, AUDIT, GAP, LEDGER_CHECK)
