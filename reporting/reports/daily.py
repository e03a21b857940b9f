"""The daily report: what happened and whether everything was seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from alerts.domain.levels import LEVELS, WORST_FIRST
from reporting.document import charts
from reporting.document.content import Block, Chart, Column, Report, Section, Table, Tile, Words
from reporting.document.request import ReportRequest
from reporting.figures.alerts import by_level
from reporting.figures.daily import Figures, figures
from reporting.ledger.completeness import COLUMNS

NAME = "daily"
QUESTIONS = 15
DOC = "Alerts, devices, sources, attribution, delays and completeness of an interval."
TABLES = (
    "bronze.record", "silver.event", "gold.finding", "gold.findings", "gold.attribution",
    "gold.attribution_current", "gold.alert", "gold.alert_current", "ops.quality",
    "ops.drift", "ops.gap", "ops.ledger",
)  # fmt: skip
"""What it reads."""
OF_TENANT = (
    "Checks of data quality, gaps in what was received and rules without input are known of the "
    "whole platform alone, and are not in here."
)

_STATUSES = {
    "leased": "a lease proves which device it was",
    "static": "the address is configured as set by hand",
    "none": "no lease covered the address, as far as the DHCP log is known",
    "outside": "the address is in no DHCP scope",
    "unknown": "the event has no address",
    "pending": "not attributed yet",
}
_LEDGER = (
    "received", "parsed", "dead", "expired", "unfinished", "unaccounted", "duplicated", "matched",
    "findings", "attributed", "pending", "late",
)  # fmt: skip


def compose(request: ReportRequest) -> Report:
    """The report of an interval, mostly a day."""
    result = figures(request)
    before = by_level(request.before)
    return Report(
        NAME,
        # A day on which clocks go back has 25 hours.
        "Daily report" if result.interval.days <= 1.1 else "Report",
        request.interval,
        request.made_at,
        tiles=_tiles(result, before),
        sections=[
            _alerts(result),
            _devices(result),
            _rules(result),
            attribution(result.coverage),
            delays(result.delays),
            _sources(result),
            _completeness(result),
            *([] if request.tenant else [Section("Data quality", list(_quality(result)))]),
        ],
        arrival=request.arrived(),
    )


def _tiles(f: Figures, before: dict[str, int]) -> list[Tile]:
    bad = f.ledger_total.unaccounted
    return [
        Tile("Alerts", f.alerts, sum(before.values())),
        Tile(
            "High or critical",
            f.by_level.get("high", 0) + f.by_level.get("critical", 0),
            before.get("high", 0) + before.get("critical", 0),
        ),
        Tile("Devices named", f.device_count),
        Tile("Records received", f.ledger_total.received),
        Tile("Dead letters", f.ledger_total.dead),
        Tile("Unaccounted", bad, tone="bad" if bad else "good"),
    ]


def _alerts(f: Figures) -> Section:
    unit, form = ("hour", "%H:%M") if f.step < timedelta(days=1) else ("day", "%d %b")
    series = {level: [b.counts.get(level, 0) for b in f.buckets] for level in LEVELS}
    svg = charts.stacked_bars(
        "Alerts over time, by level",
        [bucket.start.strftime(form) for bucket in f.buckets],
        series,
        charts.LEVEL_LOOKS,
    )
    blocks: list[Block] = [
        Chart(
            "alerts_over_time",
            svg if f.alerts else None,
            [Column("start", unit), *(Column(level, level, "number") for level in WORST_FIRST)],
            [
                {
                    "start": bucket.start,
                    **{level: bucket.counts.get(level, 0) for level in WORST_FIRST},
                }
                for bucket in f.buckets
            ],
            caption="Alerts by the time of their first event, as their newest revision has them "
            f"({f.revisions:,} {'revision' if f.revisions == 1 else 'revisions'} in all).",
            empty="No alert in this interval.",
        ),
        Table(
            "alerts_by_level",
            [Column("level", "Level", "level"), Column("alerts", "Alerts", "bar")],
            [
                {"level": level, "alerts": f.by_level[level]}
                for level in WORST_FIRST
                if f.by_level.get(level)
            ],
        ),
    ]
    return Section(f"Alerts by {unit} and level", blocks)


def _devices(f: Figures) -> Section:
    columns = [
        Column("hostname", "Name"),
        Column("entity_value", "Entity", "code"),
        Column("entity_type", "Kind"),
        *of_whom(f.devices),
        Column("rules", "Rules"),
        Column("alerts", "Alerts", "number"),
        Column("findings", "Findings", "number"),
        Column("risk", "Highest risk", "number"),
        Column("newest", f"Newest event, {f.interval.zone}", "clock"),
    ]
    table = Table(
        "entities", columns, [_few_rules(row) for row in f.devices],
        empty="No device was named by an alert.",
    )  # fmt: skip
    return Section("Devices and other entities with most alerts", [table])


def of_whom(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The column `tenant`, where a row has one: one address is another device at each tenant."""
    return [Column("tenant", "Tenant")] if any(row["tenant"] for row in rows) else []


def _few_rules(row: dict[str, Any]) -> dict[str, Any]:
    """Three rules are enough to know what an entity is about."""
    rules = list(row["rules"] or [])
    more = [f"and {len(rules) - 3} more"] if len(rules) > 3 else []
    return row | {"rules": [*rules[:3], *more]}


def _rules(f: Figures) -> Section:
    columns = [
        Column("title", "Rule"),
        Column("rule_id", "Id", "code"),
        Column("level", "Level", "level"),
        Column("alerts", "Alerts", "number"),
        Column("findings", "Findings", "bar"),
    ]
    table = Table("rules", columns, f.rules, empty="No rule matched in this interval.")
    return Section("Rules that found most", [table])


def attribution(coverage: dict[str, int]) -> Section:
    """How findings were attributed, as a bar and a table."""
    whole = sum(coverage.values())
    rows = [
        {"status": status, "meaning": meaning, "findings": many, "share": many / whole}
        for status, meaning in _STATUSES.items()
        if (many := coverage.get(status, 0))
    ]
    columns = [
        Column("status", "Status"),
        Column("meaning", "Meaning"),
        Column("findings", "Findings", "number"),
        Column("share", "Share", "share"),
    ]
    svg = charts.shares("Attribution of findings", coverage, charts.STATUS_LOOKS) if whole else None
    return Section(
        "Attribution",
        [
            Chart("attribution", svg, columns, rows, empty="No finding in this interval."),
            Table("attribution_table", columns, rows),
        ],
        intro="Whether a lease proves which device a finding is about, by findings.",
    )


def delays(rows: list[dict[str, Any]]) -> Section:
    """From the event to its detection, as bars and a table."""
    measured = [row for row in rows if row["n"]]
    spans = [(str(row["span"]), row["p50"], row["p95"]) for row in measured]
    columns = [
        Column("span", "Span"),
        Column("n", "Alerts", "number"),
        Column("p50", "p50", "seconds"),
        Column("p95", "p95", "seconds"),
        Column("worst", "Longest", "seconds"),
    ]
    svg = charts.ranges("Delay from event to detection", spans) if spans else None
    empty = "No alert of a live event in this interval."
    return Section(
        "Delay",
        [
            Chart("delay", svg, columns, measured, empty=empty),
            Table("delay_table", columns, measured),
        ],
        intro="From the event until job alert detected it, for alerts of live events; to write and "
        "publish the alert comes on top. p50: half were quicker; p95: one in twenty was slower.",
    )


def _sources(f: Figures) -> Section:
    columns = [
        Column("source", "Source", "code"),
        Column("events", "Events", "number"),
        Column("dead", "Dead letters", "number", bad=True),
        Column("repeated", "Delivered again", "number"),
        Column("newest", f"Newest arrival, {f.interval.zone}", "clock"),
    ]
    reasons = [
        Column("source", "Source", "code"),
        Column("reason", "Reason"),
        Column("n", "Records", "number"),
        Column("example", "Example", "code"),
    ]
    empty = "Nothing was received in this interval."
    blocks: list[Block] = [Table("sources", columns, f.sources, empty=empty)]
    if f.reasons:
        blocks.append(
            Table("dead_letters", reasons, f.reasons, title="Why records became dead letters")
        )
    return Section("Sources", blocks)


def _completeness(f: Figures) -> Section:
    columns = [Column("source", "Source", "code")] + [
        Column(name, name, "number", bad=name in ("unaccounted", "duplicated")) for name in _LEDGER
    ]
    rows = [asdict(row) for row in f.ledger]
    sums = asdict(f.ledger_total)
    note = "; ".join(f"{name}: {COLUMNS[name]}" for name in _LEDGER) + "."
    if f.ledger_total.packs:
        note += f" Rule packs in force: {', '.join(pack[:12] for pack in f.ledger_total.packs)}."
    blocks: list[Block] = [
        Table(
            "completeness", columns, rows, note=note, sums=sums,
            empty="Nothing was received in this interval.",
        )
    ]  # fmt: skip
    if f.gaps:
        lost = "Messages of this interval that never arrived, and that a person went on without:"
        blocks += [Words([lost]), Words([gap.sentence() for gap in f.gaps], listed=True)]
    return Section(
        "Completeness",
        blocks,
        intro="Every record received is named by a row, good or dead, until retention takes the "
        "row out. What is unaccounted would be lost; it must be 0.",
    )


def _quality(f: Figures) -> Iterator[Block]:
    if not f.quality_runs:
        yield Table("quality", (), (), empty="No check ran in this interval.")
    else:
        columns = [
            Column("suite", "Checked"),
            Column("expectation", "Expected"),
            Column("runs", "Runs", "number"),
            Column("failed", "Not met", "number", bad=True),
            Column("last", "Last time"),
            Column("examples", "Examples"),
        ]
        rows = [row | {"last": f"{row['unexpected']} of {row['checked']}"} for row in f.quality]
        yield Words([f"{f.quality_runs:,} runs of checks; what was not met:"])
        yield Table("quality", columns, rows, empty="All expectations were met.")
    if f.blind:
        yield blind_table(f.blind, f.interval.zone)
    if f.drift:
        columns = [
            Column("source", "Source", "code"),
            Column("n", "Fields", "number"),
            Column("fields", "Names"),
            Column("first", f"First seen, {f.interval.zone}", "clock"),
        ]
        rows = [row | {"fields": _few_fields(row)} for row in f.drift]
        yield Table("drift", columns, rows, title="Fields not seen before")


def blind_table(rows: list[dict[str, Any]], zone: str) -> Table:
    """Rules that saw nothing, why, and since when."""
    columns = [
        Column("title", "What"),
        Column("message", "Why, and which rules"),
        Column("began", f"Noticed, {zone}", "clock"),
        Column("ended", f"Over, {zone}", "clock"),
    ]
    return Table("blind_rules", columns, rows, title="Rules that saw nothing")


def _few_fields(row: dict[str, Any]) -> str:
    names = list(row["fields"])
    more = int(row["n"]) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
