"""For auditors: is retention kept, who asked what, what was erased, was everything seen."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from infra.config.settings import Settings
from infra.delta.catalog import catalog
from infra.delta.retention import limits
from reporting.document.content import Column, Report, Section, Table, Tile, Words
from reporting.document.request import ReportRequest
from reporting.erasure.certificate import certificates
from reporting.figures.source_names import source_name
from reporting.ledger.completeness import completeness, total
from reporting.ledger.gaps import missed

NAME = "compliance"
DOC = "For auditors: retention kept, who asked what, erasures, completeness by source."
TABLES = (
    "bronze.record", "silver.event", "gold.finding", "gold.attribution", "ops.gap", "ops.ledger",
    "ops.audit",
)  # fmt: skip

_ACTS = """
SELECT who, act, count(*) AS n, count(*) FILTER (outcome = 'refused') AS refused,
       count(*) FILTER (outcome = 'failed') AS failed, max("at") AS newest
FROM ops.audit WHERE "at" >= $since AND "at" < $until
GROUP BY who, act ORDER BY n DESC, who, act LIMIT 100
"""
# The table above has a hundred rows at most; this tells how many there are.
_KINDS = """
SELECT count(*) FROM (SELECT DISTINCT who, act FROM ops.audit
                      WHERE "at" >= $since AND "at" < $until)
"""
_OLDEST = """
SELECT source, min(received_at) AS oldest FROM {table} WHERE source <> '_heartbeat'
GROUP BY source ORDER BY source
"""
_COMPLETE = {
    "received": "Received",
    "parsed": "Read",
    "dead": "Unreadable",
    "expired": "Expired",
    "unfinished": "In work",
    "unaccounted": "Unaccounted",
}
_SLACK = timedelta(days=2)
"""Maintenance takes rows out in whole files and now and then, so it lags a little."""


def compose(request: ReportRequest) -> Report:
    """The report of an interval; retention is as it stands when it is made."""
    interval = request.interval
    rows = completeness(request.connection, interval.start, interval.end)
    kept = retention(request)
    late = [row for row in kept if row["state"] != "kept"]
    acts = request.ask(_ACTS)
    erased = erasures(request.settings, interval.start, interval.end)
    unaccounted = total(rows).unaccounted
    before = interval.before
    # Without any there was no such period yet, and nothing to compare with.
    earlier = total(completeness(request.connection, before.start, before.end))
    return Report(
        NAME,
        "Compliance report",
        interval,
        request.made_at,
        tiles=[
            Tile("Sources beyond retention", len(late), tone="bad" if late else "good"),
            Tile("Records received", total(rows).received, earlier.received or None),
            Tile("Unaccounted", unaccounted, tone="bad" if unaccounted else "good"),
            Tile("Acts on record", sum(row["n"] for row in acts)),
            Tile("Erasures", len(erased)),
        ],
        sections=[
            _retention(kept),
            _access(acts, request.value(_KINDS), interval.zone),
            _erased(erased, interval.zone),
            _complete(request, [asdict(row) for row in rows]),
        ],
        arrival=request.arrived(),
    )


def retention(request: ReportRequest) -> list[dict[str, Any]]:
    """By layer and source: what the settings promise, the oldest row, and whether it is kept."""
    result = []
    for table in ("bronze.record", "silver.event"):
        wanted = limits(request.settings.retention, catalog()[table], request.made_at)
        for row in request.ask(_OLDEST.format(table=table)):
            limit = wanted.of(row["source"])
            beyond = limit is not None and row["oldest"] < limit - _SLACK
            days = None if limit is None else round((request.made_at - limit).days, 0)
            result.append(
                row
                | {
                    "table": table,
                    "days": days,
                    "state": "older rows are still there" if beyond else "kept",
                }
            )
    return result


def erasures(settings: Settings, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Certificates of erasures of [since, until), without naming the person."""
    rows = []
    for certificate in certificates(settings):
        issued_at = datetime.fromisoformat(certificate["at"])
        if since <= issued_at < until:
            tables = certificate["tables"].values()
            rows.append(
                {
                    "at": issued_at,
                    "id": certificate["id"],
                    "kind": certificate["subject"]["kind"],
                    "reason": certificate["reason"],
                    "rows": sum(t["rows_removed"] + t["rows_replaced"] for t in tables),
                }
            )
    return sorted(rows, key=lambda row: row["at"])


def _retention(kept: list[dict[str, Any]]) -> Section:
    columns = [
        Column("name", "Records of"),
        Column("source", "Source", "code"),
        Column("table", "Kept as", "word"),
        Column("kept_for", "For", "word"),
        Column("oldest", "Oldest row", "clock"),
        Column("state", "State"),
    ]
    layers = {"bronze.record": "raw record", "silver.event": "event"}
    rows = [
        row
        | {
            "name": source_name(row["source"]),
            "table": layers[row["table"]],
            "kept_for": "ever" if row["days"] is None else f"{row['days']:.0f} days",
        }
        for row in sorted(kept, key=lambda row: (row["source"], row["table"]))
    ]
    note = "Rows go in whole files, up to two days later than promised."
    return Section("Retention", [Table("retention", columns, rows, note=note, empty="No row.")])


def _access(acts: list[dict[str, Any]], whole: int, zone: str) -> Section:
    columns = [
        Column("who", "Who"),
        Column("act", "Act"),
        Column("n", "Times", "number"),
        Column("refused", "Refused", "number", bad=True),
        Column("failed", "Failed", "number"),
        Column("newest", f"Newest, {zone}", "clock"),
    ]
    note = "headgate audit verify tells whether anybody changed this record."
    empty = "No act in this interval."
    table = Table("acts", columns, acts, note=note, empty=empty, whole=whole)
    return Section("Who asked and did what", [table])


def _erased(rows: list[dict[str, Any]], zone: str) -> Section:
    columns = [
        Column("at", f"When, {zone}", "clock"),
        Column("id", "Certificate", "code"),
        Column("kind", "Kind"),
        Column("rows", "Rows", "number"),
        Column("reason", "Reason"),
    ]
    return Section("Erasures", [Table("erasures", columns, rows, empty="Nothing was erased.")])


def _complete(request: ReportRequest, rows: list[dict[str, Any]]) -> Section:
    columns = [Column("name", "Records of"), Column("source", "Source", "code")] + [
        Column(name, title, "number", bad=name == "unaccounted")
        for name, title in _COMPLETE.items()
    ]
    rows = [row | {"name": source_name(row["source"])} for row in rows]
    gaps = missed(request.connection, request.interval.start, request.interval.end)
    sentences = [gap.sentence() for gap in gaps] or ["No gap is known."]
    table = Table("completeness", columns, rows, empty="Nothing was received.")
    return Section("Completeness by source", [table, Words(sentences, listed=bool(gaps))])
