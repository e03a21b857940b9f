"""What it costs: cores by job, disk by table, and what each rule takes."""

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
from reporting.document.content import Block, Chart, Column, Report, Section, Table, Tile
from reporting.document.request import ReportRequest
from reporting.document.text import bytes_text, number, share, shown
from reporting.figures.cores import BETWEEN_BATCHES, Cores

NAME = "cost"
QUESTIONS = 5
DOC = "Cores by job, disk by table, and what each rule costs."
TABLES = ("ops.ledger", "ops.rule_cost", "silver.event")

_JOBS = """
SELECT job, count(*) AS batches, sum(epoch(finished_at) - epoch(started_at)) AS seconds,
       sum(rows_read)::BIGINT AS rows_read,
       max(epoch(finished_at) - epoch(started_at)) AS longest,
       sum(cpu_seconds) AS cpu, sum(cpu_shared_seconds) AS shared,
       sum(cpu_between_seconds) AS between_batches, count(cpu_seconds) AS measured
FROM ops.ledger WHERE started_at >= $since AND started_at < $until
GROUP BY job ORDER BY seconds DESC, job
"""
_DAYS = """
SELECT strftime(timezone($zone, started_at), '%Y-%m-%d') AS day,
       sum(rows_read) FILTER (job IN ('ingest', 'files'))::BIGINT AS records,
       sum(cpu_seconds + coalesce(cpu_between_seconds, 0)) / 3600 AS core_hours
FROM ops.ledger WHERE started_at >= $since AND started_at < $until
GROUP BY day ORDER BY day
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
    disk = sorted(table_sizes(request), key=lambda row: -row["bytes"])
    # Of an interval that is not over the jobs had only the part that is.
    ended = min(request.interval.end, max(request.made_at, request.interval.start))
    span = max((ended - request.interval.start).total_seconds(), 1.0)
    stored = sum(row["bytes"] for row in disk)
    cores, earlier = Cores(jobs, span), Cores(before, _whole(request.before))
    compared = cores.comparable(earlier)
    a_day, a_million = _a_day(jobs, span), _a_million(request, stored)
    records = _taken(jobs)
    return Report(
        NAME,
        "What it costs",
        request.interval,
        request.made_at,
        lead=_lead(request, cores, earlier, records, stored),
        tiles=[
            Tile("Cores", cores.average, earlier.average if compared else None, kind="hundredth"),
            Tile("Core-hours", cores.hours, earlier.hours if compared else None, kind="hundredth"),
            Tile(
                "Core-hours a million records",
                _per_million(cores.hours, records),
                _per_million(earlier.hours, _taken(before)) if compared else None,
                kind="decimal",
            ),
            Tile("Rules, of a core", _of_a_core(rules, span), kind="share"),
            Tile("Records taken in a day", a_day, _a_day(before, earlier.span)),
            Tile("Disk a million records", a_million, kind="bytes"),
            Tile("A year's records at this rate", _a_year(a_million, a_day), kind="bytes"),
        ],
        sections=[
            _cores(cores, earlier),
            _days(request),
            _jobs(jobs, span),
            _rules(_titled(request, rules)),
            _disk(disk),
        ],
        arrival=request.arrived(),
    )


def _lead(
    request: ReportRequest, cores: Cores, earlier: Cores, records: int | None, stored: float
) -> list[str]:
    """What a person who pays for it reads first."""
    phrase = request.interval.phrase
    if cores.hours is None or cores.average is None:
        known = "how many cores the platform took is not known: no batch reported its CPU time"
    else:
        known = (
            f"the platform took {_little(cores.average)} cores on average, "
            f"{_little(cores.hours)} core-hours{_change(cores, earlier)}"
        )
        jobs = [row for row in cores.by_job(earlier) if row["job"] != BETWEEN_BATCHES]
        if jobs:
            known += f"; {share(jobs[0]['share'])} of that went to {jobs[0]['job']}"
    sentences = [f"{phrase}, {known}."]
    if records:
        sentences.append(f"It took in {number(records)} records.")
    if stored:
        sentences.append(f"Its tables take {bytes_text(stored)} of disk.")
    return [" ".join(sentences)]


def _little(value: float) -> str:
    """With two digits, and what is more than nothing never as 0."""
    return shown(value, "hundredth")


def _change(cores: Cores, earlier: Cores) -> str:
    if not cores.comparable(earlier) or not earlier.average or cores.average is None:
        return ""
    # Of cores and not of hours: a month has 28 to 31 days, and one that runs fewer.
    part = cores.average / earlier.average - 1
    if abs(part) < 0.01:
        return ", as many cores as in the period before"
    return f", {share(abs(part))} {'more' if part > 0 else 'fewer'} cores than in the period before"


def _whole(request: ReportRequest) -> float:
    return (request.interval.end - request.interval.start).total_seconds()


def _taken(jobs: list[dict[str, Any]]) -> int | None:
    """Records that ingest and files read; None when neither ran."""
    read = [row["rows_read"] or 0 for row in jobs if row["job"] in _TAKING_IN]
    return sum(read) if read else None


def _per_million(hours: float | None, records: int | None) -> float | None:
    """Core-hours for a million records; None of fewer than `_ENOUGH`."""
    if hours is None or records is None or records < _ENOUGH:
        return None
    return hours / records * 1e6


def _a_day(jobs: list[dict[str, Any]], span: float) -> int | None:
    """Records a day; None when no job that takes them in ran."""
    records = _taken(jobs)
    return None if records is None else round(records / span * 86_400)


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


def table_sizes(request: ReportRequest) -> Iterator[dict[str, Any]]:
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
        ends=[bytes_text(row["bytes"]) for row in disk[:8]],
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


def _cores(cores: Cores, earlier: Cores) -> Section:
    columns = [
        Column("job", "Job", "code"),
        Column("cores", "Cores", "hundredth"),
        Column("core_hours", "Core-hours", "hundredth"),
        Column("before", "Period before", "hundredth"),
        Column("shared", "Split evenly", "share"),
        Column("share", "Of all", "share"),
    ]
    rows = cores.by_job(earlier)
    svg = charts.rows_of_bars(
        "Core-hours by job",
        # In seconds: a bar's scale ends at 1 at least.
        [(row["job"], {"core-hours": row["core_hours"] * 3600}) for row in rows],
        {"core-hours": charts.PLAIN},
        ends=[f"{_little(row['core_hours'])} h, {_little(row['cores'])} cores" for row in rows],
    )
    empty = (
        "Not known: no batch reported its CPU time. Batches of earlier releases, and those on a "
        "cluster or a system without /proc, report none."
    )
    sums = None
    if cores.hours is not None:
        compared = cores.comparable(earlier)
        sums = {
            "job": "all",
            "cores": cores.average,
            "core_hours": cores.hours,
            "before": earlier.hours if compared else None,
            "shared": None,
            "share": 1.0,
        }
    if not rows:
        return Section("Cores by job", [Table("cores", columns, [], empty=empty)])
    blocks: list[Block] = [
        Chart("core_hours", svg, columns, rows, empty=empty),
        Table("cores", columns, rows, note=cores.note(), sums=sums),
    ]
    return Section("Cores by job", blocks)


def _days(request: ReportRequest) -> Section:
    """Core-hours and records of each day, one picture below the other."""
    rows = request.ask(_DAYS)
    columns = [
        Column("day", f"Day, {request.interval.zone}", "word"),
        Column("records", "Records taken in", "number"),
        Column("core_hours", "Core-hours", "hundredth"),
    ]
    labels = [row["day"][5:] for row in rows]
    blocks = []
    for key, title in (("core_hours", "Core-hours a day"), ("records", "Records taken in a day")):
        values = [float(row[key] or 0) for row in rows]
        # Of one day the figures at the head say the same.
        svg = charts.stacked_bars(title, labels, {title: values}, {}, half=True)
        drawn = svg if len(rows) > 1 and any(values) else None
        empty = "There is no second day to draw." if len(rows) < 2 else "Not known of any day."
        blocks.append(Chart(f"{key}_a_day", drawn, columns, rows, title=title, empty=empty))
    return Section("Day by day", blocks, beside=True)


def _jobs(jobs: list[dict[str, Any]], span: float) -> Section:
    columns = [
        Column("job", "Job", "code"),
        Column("batches", "Batches", "number"),
        Column("rows_read", "Rows read", "number"),
        Column("longest", "Longest batch", "seconds"),
        Column("seconds", "At work", "seconds"),
        Column("share", "Of the time", "share"),
    ]
    rows = [row | {"share": (row["seconds"] or 0) / span} for row in jobs]
    intro = "By the clock: a batch that waits for cores is at work all the same."
    return Section("Jobs", [Table("jobs", columns, rows, empty="No job ran.")], intro=intro)


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
        Column("seconds", "Time", "seconds"),
        Column("share", "Of all rules", "share"),
    ]
    whole = sum(row["seconds"] for row in rules) or 1.0
    rules = [row | {"share": row["seconds"] / whole} for row in rules]
    empty = "No costs of rules are on record (headgate rules cost --live)."
    table = Table("rules", columns, rules[:_SHOWN], whole=len(rules), empty=empty)
    return Section("Rules that cost most", [table])
