"""For auditors: is retention kept, who asked what, what was erased, was everything seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from infra.config.settings import Settings
from infra.delta.catalog import catalog
from infra.delta.retention import retention_limits
from reporting.document.content import Column, Report, Section, Table, Tile
from reporting.document.request import ReportRequest
from reporting.document.text import number
from reporting.erasure.certificate import certificates
from reporting.figures.source_names import source_name
from reporting.interval import Interval
from reporting.ledger.completeness import Completeness, completeness, total
from reporting.ledger.gaps import Missed, missed

NAME = "compliance"
QUESTIONS = 4
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
# The table above has a hundred rows at most; this tells of all there are.
_ALL_ACTS = """
SELECT count(DISTINCT (who, act)) AS kinds, count(*) AS n,
       count(*) FILTER (outcome = 'refused') AS refused, count(DISTINCT who) AS people
FROM ops.audit WHERE "at" >= $since AND "at" < $until
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
    acts, (all_acts,) = request.ask(_ACTS), request.ask(_ALL_ACTS)
    gaps = missed(request.connection, interval.start, interval.end)
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
        lead=[
            _sources_words(interval.phrase, total(rows), gaps),
            _acts_words(late, all_acts, len(erased)),
        ],
        tiles=[
            Tile("Sources beyond retention", len(late), tone="bad" if late else "good"),
            Tile("Records received", total(rows).received, earlier.received or None),
            Tile("Unaccounted", unaccounted, tone="bad" if unaccounted else "good"),
            Tile("Acts on record", all_acts["n"]),
            Tile("Of these refused", all_acts["refused"]),
            Tile("Erasures", len(erased)),
        ],
        sections=[
            _complete(rows, gaps, interval),
            _retention(kept, interval.zone),
            _access(acts, all_acts["kinds"], interval.zone),
            _erased(erased, interval.zone),
        ],
        arrival=request.arrived(),
    )


def _sources_words(phrase: str, all_records: Completeness, gaps: Sequence[Missed]) -> str:
    """Whether all that was received is accounted for, for somebody who reads no table."""
    received = f"{phrase}, {_many(all_records.received, 'record')} were received"
    if all_records.received == 1:
        received = f"{phrase}, 1 record was received"
    lost = "no gap is known"
    if gaps:
        # Of some gaps nobody knows how many messages they held.
        known = sum(gap.messages or 0 for gap in gaps)
        lost = (
            f"{_many(len(gaps), 'gap')} with {_many(known, 'known message')} "
            f"{'was' if len(gaps) == 1 else 'were'} accepted"
        )
    if not all_records.received:
        return f"{received}; {lost}."
    what = "none is unaccounted for"
    if many := all_records.unaccounted:
        what = f"{number(many)} {'is' if many == 1 else 'are'} unaccounted for"
    return f"{received}; {what}, and {lost}."


def _acts_words(late: list[dict[str, Any]], acts: dict[str, Any], erased: int) -> str:
    """Retention, access and erasures in a sentence each."""
    kept = "Retention is kept for every source."
    if late:
        kept = f"Retention is not kept for {_many(len(late), 'source')}: older rows are there."
    done = "No act is on record."
    if acts["n"]:
        who = _many(acts["people"], "user or key", "users and keys")
        done = (
            f"{_many(acts['n'], 'act')} of {who} "
            f"{'is' if acts['n'] == 1 else 'are'} on record, {number(acts['refused'])} refused."
        )
    gone = "Nothing was erased."
    if erased:
        gone = f"{_many(erased, 'erasure')} {'was' if erased == 1 else 'were'} carried out."
    return f"{kept} {done} {gone}"


def _many(count: int, thing: str, things: str = "") -> str:
    return f"{number(count)} {thing if count == 1 else things or thing + 's'}"


def retention(request: ReportRequest) -> list[dict[str, Any]]:
    """By layer and source: what the settings promise, the oldest row, and whether it is kept."""
    result = []
    for table in ("bronze.record", "silver.event"):
        wanted = retention_limits(request.settings.retention, catalog()[table], request.made_at)
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


def _retention(kept: list[dict[str, Any]], zone: str) -> Section:
    columns = [
        Column("name", "Records of"),
        Column("source", "Source", "code"),
        Column("table", "Kept as", "word"),
        Column("kept_for", "For", "word"),
        Column("oldest", f"Oldest row, {zone}", "clock"),
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


def _complete(rows: Sequence[Completeness], gaps: Sequence[Missed], interval: Interval) -> Section:
    columns = [Column("name", "Records of"), Column("source", "Source", "code")] + [
        Column(name, title, "number", bad=name == "unaccounted")
        for name, title in _COMPLETE.items()
    ]
    named = [asdict(row) | {"name": source_name(row.source)} for row in rows]
    sums = asdict(total(rows)) | {"name": "all", "source": None}
    table = Table("completeness", columns, named, empty="Nothing was received.", sums=sums)
    return Section("Completeness by source", [table, _gaps(gaps, interval)])


def _gaps(gaps: Sequence[Missed], interval: Interval) -> Table:
    """What never arrived, and who said that it may be gone on without."""
    columns = [
        Column("before", f"Until, {interval.zone}", "clock"),
        Column("topic", "Topic", "code"),
        Column("partition", "Partition", "number"),
        Column("messages", "Messages", "number"),
        Column("kind", "Kind", "word"),
        Column("accepted_by", "Accepted by"),
        Column("accepted_at", f"When, {interval.zone}", "clock"),
        Column("reason", "Reason"),
    ]
    rows = [asdict(gap) for gap in gaps]
    note = "headgate ledger has their offsets."
    if any(gap.messages is None for gap in gaps):
        note += " Messages -: nobody can tell how many."
    empty = "No gap is known."
    return Table("gaps", columns, rows, title="Gaps", note=note, empty=empty)
