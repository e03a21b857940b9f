"""Tables of ingest beside its rows: files that landed, quality, drift, recounts."""

from __future__ import annotations

from infra.delta.column_types import ListOf
from infra.delta.schema import TENANT, TS, B, Column, L, S, Table

LANDED = Table(
    name="ops.file",
    doc="A file that was found in a configured folder or by an import, and what was decided of it.",
    columns=(
        Column("found_at", TS, "when it was decided, UTC"),
        Column("job", S, "files or import"),
        Column("folder", S, "name of the folder in the settings, or what was given to import"),
        Column("path", S, "where it lies"),
        Column("size", L, "bytes, as found"),
        Column("modified_at", TS, "when it was last written, as found, UTC"),
        Column("hash", S, "SHA-256 of its content", False),
        Column(
            "state",
            S,
            "taken; renamed (taken before under another name); refused (see reason); unread "
            "(taken, but gone or changed before it was read: taken again where it turns up)",
        ),
        Column("reason", S, "why it was refused, or what it was taken as", False),
        Column("source", S, "which parser reads it"),
        Column("mode", S, "live, replay or import"),
        Column("tz", S, "zone of its times that name none, where the folder says one", False),
        Column("host", S, "who wrote it, where the folder says so", False),
        TENANT,
    ),
    event_time="found_at",
    key=("path", "hash"),
    cluster_by=("path",),
    stats=("found_at", "job", "path", "hash", "state"),
)


QUALITY = Table(
    name="ops.quality",
    doc="One expectation about the data, and how it came out when it was checked.",
    columns=(
        Column("run_at", TS, "when the check ran, UTC"),
        Column("suite", S, "what was checked: events, an OCSF class, sources, freshness, volume"),
        Column("expectation", S, "what is expected, in words"),
        Column("passed", B, "whether it was met"),
        Column("checked", L, "rows (or sources) looked at"),
        Column("unexpected", L, "rows (or sources) of these that are not as expected"),
        Column("examples", S, "a few of them: event ids, values or sources", False),
        Column(
            "since", TS, "arrival of the first row checked, UTC; null: from the beginning", False
        ),
        Column("until", TS, "end of the arrivals checked, UTC; it is not in them", False),
    ),
    event_time="run_at",
    key=("run_at", "suite", "expectation"),
    cluster_by=("run_at",),
    stats=("run_at", "suite", "expectation"),
    expires="ops_days",
)


DRIFT = Table(
    name="ops.drift",
    doc="A field that a source's records have and OCSF has no place for: the key of `unmapped`.",
    columns=(
        Column("source", S, "which source's records have it"),
        Column(
            "field",
            S,
            "path of the field; '(others)' stands for all beyond the most that are named",
        ),
        Column("first_seen", TS, "arrival of the first record that was seen with it, UTC"),
        Column("rows", L, "events that had it in the run that first saw it"),
        Column("event_uid", S, "one of them"),
        Column("baseline", B, "true: found when the source was first looked at, so not new"),
    ),
    event_time="first_seen",
    key=("source", "field"),
    cluster_by=("source", "first_seen"),
    stats=("source", "field", "first_seen"),
)


RECOUNT = Table(
    name="ops.recount",
    doc="An hour of arrivals whose rows in silver.event were changed in place: its counts in "
    "gold.rollup are out of date until ops.rollup_check has it with a later `checked_at`.",
    columns=(
        Column("hour", TS, "the hour, by arrival, UTC"),
        Column("happened", ListOf(TS), "hours in which these events count, before and after"),
        Column("asked_at", TS, "when it was asked for, before the rows were changed, UTC"),
        Column("asked_by", S, "what changed them: reparse or erase"),
    ),
    event_time="hour",
    key=("hour", "asked_at"),
    cluster_by=("hour",),
    stats=("hour", "asked_at"),
)
