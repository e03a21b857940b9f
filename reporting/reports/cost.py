"""What it costs: disk by table, time of jobs, and what each rule takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.delta.catalog import catalog
from infra.delta.log_reader import newest_version
from infra.storage.paths import is_table
from reporting.document import charts
from reporting.document.content import Chart, Column, Report, Section, Table, Tile
from reporting.document.request import ReportRequest
from reporting.document.text import size

NAME = "cost"
DOC = "Disk by table, time of the jobs, and what each rule costs."
TABLES = ("ops.ledger", "ops.rule_cost")

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
_SHOWN = 20


def compose(request: ReportRequest) -> Report:
    """The report of an interval; disk is as it stands when it is made."""
    jobs, before = request.ask(_JOBS), request.before.ask(_JOBS)
    rules = request.ask(_RULES)
    disk = sorted(sizes(request), key=lambda row: -row["bytes"])
    span = (request.interval.end - request.interval.start).total_seconds()
    busy, earlier = (sum(row["seconds"] or 0 for row in rows) for rows in (jobs, before))
    for row in jobs:
        row["share"] = (row["seconds"] or 0) / span
    return Report(
        NAME,
        "What it costs",
        request.interval,
        request.made_at,
        tiles=[
            Tile("Disk", sum(row["bytes"] for row in disk), kind="bytes"),
            Tile("Jobs at work", busy, earlier, kind="seconds"),
            Tile("At work of the time", busy / span, earlier / span, kind="share"),
            Tile("Rules, seconds", sum(row["seconds"] for row in rules), kind="decimal"),
        ],
        sections=[_disk(disk), _jobs(jobs), _rules(rules)],
        arrival=request.arrived(),
    )


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
    empty = "There is no table here."
    return Section(
        "Disk",
        [
            Chart("disk", svg if disk else None, columns, disk, empty=empty),
            Table("tables", columns, disk),
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
        Column("seconds", "Seconds at work", "bar"),
    ]
    return Section("Jobs", [Table("jobs", columns, jobs, empty="No job ran.")])


def _rules(rules: list[dict[str, Any]]) -> Section:
    columns = [
        Column("rule_id", "Rule", "code"),
        Column("events", "Events", "number"),
        Column("candidates", "Looked at one by one", "number"),
        Column("hits", "Hits", "number"),
        Column("seconds", "Seconds", "bar"),
    ]
    empty = "Nothing was told of what rules cost (headgate rules cost --live)."
    table = Table("rules", columns, rules[:_SHOWN], whole=len(rules), empty=empty)
    return Section("Rules that cost most", [table])
