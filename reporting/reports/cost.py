"""What it costs: disk by table, time of jobs, and what each rule takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from infra.delta.catalog import catalog
from infra.delta.log_reader import newest_version
from infra.errors import Fatal
from infra.storage.paths import is_table
from reporting.document import charts
from reporting.document.content import Chart, Column, Report, Section, Table, Tile
from reporting.document.request import ReportRequest
from reporting.document.text import size

NAME = "cost"
DOC = "Disk by table, time of the jobs, and what each rule costs."
TABLES = ("ops.ledger", "ops.rule_cost", "silver.event")

_JOBS = """
SELECT job, count(*) AS batches, sum(epoch(finished_at) - epoch(started_at)) AS seconds,
       sum(rows_read)::BIGINT AS rows_read,
       max(epoch(finished_at) - epoch(started_at)) AS longest
FROM ops.ledger WHERE started_at >= $since AND started_at < $until
GROUP BY job ORDER BY seconds DESC, job
"""
_RULES = """
WITH each AS (
  SELECT unnest(map_entries(rules)) AS e FROM ops.rule_cost WHERE "at" >= $since AND "at" < $until
)
SELECT e.key AS rule_id, sum(e.value.us) / 1e6 AS seconds, sum(e.value.events)::BIGINT AS events,
       sum(e.value.candidates)::BIGINT AS candidates, sum(e.value.hits)::BIGINT AS hits
FROM each GROUP BY rule_id ORDER BY seconds DESC, rule_id
"""
_EVENTS = "SELECT count(*) FROM silver.event WHERE source <> '_heartbeat'"
_ENOUGH = 100_000
"""Events from which their share of the disk says something: of few most is what any file costs."""
_TAKING_IN = ("ingest", "files")
_SHOWN = 20


def compose(request: ReportRequest) -> Report:
    """The report of an interval; disk is as it stands when it is made."""
    jobs, before = request.ask(_JOBS), request.before.ask(_JOBS)
    rules = request.ask(_RULES)
    disk = sorted(sizes(request), key=lambda row: -row["bytes"])
    # Of an interval that is not over the jobs had only the part that is.
    ended = min(request.interval.end, max(request.made_at, request.interval.start))
    span = max((ended - request.interval.start).total_seconds(), 1.0)
    stored = sum(row["bytes"] for row in disk)
    busy, earlier = (sum(row["seconds"] or 0 for row in rows) for rows in (jobs, before))
    for row in jobs:
        row["share"] = (row["seconds"] or 0) / span
    a_day, a_million = _a_day(jobs, span), _a_million(request, stored)
    return Report(
        NAME,
        "What it costs",
        request.interval,
        request.made_at,
        tiles=[
            Tile("Disk", stored, kind="bytes"),
            Tile("Records taken in a day", a_day, _a_day(before, span)),
            Tile("Disk a million records", a_million, kind="bytes"),
            Tile("A year's records at this rate", _a_year(a_million, a_day), kind="bytes"),
            Tile("Jobs at work", busy, earlier if before else None, kind="seconds"),
            Tile(
                "At work of the time", busy / span, earlier / span if before else None, kind="share"
            ),
            Tile("Rules, of a core", _of_a_core(rules, span), kind="share"),
        ],
        sections=[_disk(disk), _jobs(jobs), _rules(_titled(request, rules))],
        arrival=request.arrived(),
    )


def _a_day(jobs: list[dict[str, Any]], span: float) -> int | None:
    """Records that ingest and files read a day; None when neither ran."""
    read = [row["rows_read"] or 0 for row in jobs if row["job"] in _TAKING_IN]
    return round(sum(read) / span * 86_400) if read else None


def _a_million(request: ReportRequest, stored: int) -> float | None:
    """Bytes of all tables for a million events that are kept; None of fewer than `_ENOUGH`."""
    events = request.value(_EVENTS)
    return stored / events * 1e6 if events >= _ENOUGH else None


def _a_year(a_million: float | None, a_day: int | None) -> float | None:
    """Bytes on disk of what a year would bring, before retention takes any; None: not known."""
    if a_million is None or a_day is None:
        return None
    return a_million * a_day * 365 / 1e6


def _of_a_core(rules: list[dict[str, Any]], span: float) -> float | None:
    """Which part of one core rules took, 1 for a whole one; None where nobody measured it."""
    return sum(row["seconds"] for row in rules) / span if rules else None


def sizes(request: ReportRequest) -> Iterator[dict[str, Any]]:
    """Files and bytes of each table's folder, former versions that are still kept too."""
    root = request.settings.lake_root
    for name, table in catalog().items():
        folder = root / table.path
        if not is_table(folder):
            continue
        # By the folder and not by the log: the newest version does not name the former ones' files.
        files = [file.stat().st_size for file in folder.rglob("*.parquet")]
        yield {
            "table": name,
            "files": len(files),
            "bytes": sum(files),
            "version": newest_version(folder),
        }


def _disk(disk: list[dict[str, Any]]) -> Section:
    columns = [
        Column("table", "Table", "code"),
        Column("files", "Files", "number"),
        Column("bytes", "Size", "bytes"),
        Column("version", "Version", "number"),
    ]
    parts = [(row["table"], {"bytes": row["bytes"]}) for row in disk[:8]]
    svg = charts.rows_of_bars(
        "Disk by table",
        parts,
        {"bytes": charts.PLAIN},
        ends=[size(row["bytes"]) for row in disk[:8]],
    )
    filled = [row for row in disk if row["files"]]
    note = f"{len(disk) - len(filled)} further tables hold no row." if filled != disk else ""
    empty = "There is no table here."
    return Section(
        "Disk",
        [
            Chart("disk", svg if disk else None, columns, disk, empty=empty),
            Table("tables", columns, filled, note=note, empty="No table holds a row."),
        ],
        intro="Former versions that are still kept count too.",
    )


def _jobs(jobs: list[dict[str, Any]]) -> Section:
    columns = [
        Column("job", "Job", "code"),
        Column("batches", "Batches", "number"),
        Column("rows_read", "Rows read", "number"),
        Column("longest", "Longest batch", "seconds"),
        Column("share", "Of the time", "share"),
        Column("seconds", "At work", "seconds"),
    ]
    return Section("Jobs", [Table("jobs", columns, jobs, empty="No job ran.")])


def _titled(request: ReportRequest, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with each rule's title in the pack in force; its id where that has none."""
    store = PackStore(store_folder(request.settings))
    try:
        pack = store.get(store.current())
    except Fatal:
        # A report of what rules cost is not to fail for want of their titles.
        return [row | {"title": row["rule_id"]} for row in rules]
    every = (*pack.rules, *pack.correlations, *pack.queries, *pack.models)
    titles = {rule.id: rule.title for rule in every}
    return [row | {"title": titles.get(row["rule_id"], row["rule_id"])} for row in rules]


def _rules(rules: list[dict[str, Any]]) -> Section:
    columns = [
        Column("title", "Rule"),
        Column("events", "Events", "number"),
        Column("candidates", "Looked at one by one", "number"),
        Column("hits", "Hits", "number"),
        Column("seconds", "Seconds", "decimal"),
    ]
    empty = "Nothing was told of what rules cost (headgate rules cost --live)."
    table = Table("rules", columns, rules[:_SHOWN], whole=len(rules), empty=empty)
    return Section("Rules that cost most", [table])
