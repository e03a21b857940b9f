"""The weekly report for the team that works on alerts: what to tune, and what nobody saw."""

from __future__ import annotations

from typing import Any

from alerts.domain.alert_body import in_body
from alerts.domain.levels import LEVELS, WORST_FIRST
from reporting.document import charts
from reporting.document.content import Block, Chart, Column, Report, Section, Table, Tile
from reporting.document.request import ReportRequest
from reporting.figures.alerts import ALERTS, by_level, daily_buckets
from reporting.figures.daily import attribution_coverage
from reporting.figures.model_drift import model_drift
from reporting.figures.sources import arrived, blindness, silences
from reporting.figures.triage import triage_by_rule, triage_totals
from reporting.reports.daily import attribution, blind_table, of_whom

NAME = "weekly"
QUESTIONS = 14
DOC = "For the SOC: alerts by rule with what to tune, times to detect and close, blind spots."
TABLES = (
    "silver.event", "gold.finding", "gold.findings", "gold.attribution",
    "gold.attribution_current", "gold.alert", "gold.alert_current", "gold.alert_action",
    "gold.device_hour",
)  # fmt: skip
OF_TENANT = (
    "Sources that fell silent, rules without input and anomaly models are known of the whole "
    "platform alone, and are not in here."
)

_NOISY = (
    ALERTS
    + f"""
SELECT arg_max({in_body("attribution.hostname")}, event_time) AS hostname,
       entity_value, entity_type, tenant_uid AS tenant, count(*) AS alerts,
       count(DISTINCT rule_id) AS rules, max(risk_score) AS risk
FROM alert WHERE entity_type <> 'rule' GROUP BY entity_type, entity_value, tenant_uid
ORDER BY alerts DESC, risk DESC, entity_value, tenant LIMIT 10
"""
)
_SHOWN = 15


def compose(request: ReportRequest) -> Report:
    """The report of an interval, mostly a week."""
    now, before = triage_totals(request), triage_totals(request.before)
    rules = triage_by_rule(request)
    return Report(
        NAME,
        "Weekly report for the SOC",
        request.interval,
        request.made_at,
        tiles=_tiles(now, before),
        sections=[
            _days(request),
            _rules(rules),
            _devices(request),
            attribution(attribution_coverage(request)),
            *([] if request.tenant else [_unseen(request), *_models(request)]),
            _sources(request),
        ],
        arrival=request.arrived(),
    )


def _tiles(now: dict[str, Any], before: dict[str, Any]) -> list[Tile]:
    def tile(label: str, key: str, kind: Any = "number") -> Tile:
        return Tile(label, now[key], before[key], kind)

    serious = now["open_serious"]
    return [
        tile("Alerts", "alerts"),
        tile("Closed", "closed"),
        Tile("Open, high or critical", serious, tone="bad" if serious else "good"),
        tile("Judged true", "rate", "share"),
        tile("Time to detect", "detect", "seconds"),
        tile("Time to acknowledge", "acknowledge", "seconds"),
        tile("Time to close", "close", "seconds"),
    ]


def _days(request: ReportRequest) -> Section:
    days = daily_buckets(request)
    series = {level: [day.counts.get(level, 0) for day in days] for level in LEVELS}
    svg = charts.stacked_bars(
        "Alerts a day, by level",
        [f"{day.start:%a %d %b}" for day in days],
        series,
        charts.LEVEL_LOOKS,
    )
    rows = [{"day": f"{day.start:%Y-%m-%d}", **_all_levels(day.counts)} for day in days]
    columns = [Column("day", "Day"), *(Column(level, level, "number") for level in WORST_FIRST)]
    whole = sum(by_level(request).values())
    chart = Chart(
        "alerts_by_day", svg if whole else None, columns, rows,
        caption="Alerts by the day of their first event. Times above are medians.",
        empty="No alert in this interval.",
    )  # fmt: skip
    return Section("Alerts a day", [chart])


def _all_levels(counts: dict[str, int]) -> dict[str, int]:
    return {level: counts.get(level, 0) for level in WORST_FIRST}


def _rules(rules: list[dict[str, Any]]) -> Section:
    shown = rules[:_SHOWN]
    parts = [
        (
            row["title"],
            {
                "true": row["true_positive"],
                "false": row["false_positive"],
                "not judged": row["unjudged"],
            },
        )
        for row in shown
    ]
    svg = charts.rows_of_bars("Alerts by rule and verdict", parts, charts.VERDICT_LOOKS)
    columns = [
        Column("title", "Rule"),
        Column("level", "Level", "level"),
        Column("alerts", "Alerts", "number"),
        Column("before", "Before", "number"),
        Column("open", "Open", "number"),
        Column("judged", "Judged", "number"),
        Column("rate", "True", "share"),
        Column("advice", "To do"),
    ]
    empty = "No rule alerted in this interval."
    verdicts = [
        Column("title", "Rule"),
        Column("true_positive", "true", "number"),
        Column("false_positive", "false", "number"),
        Column("unjudged", "not judged", "number"),
    ]
    return Section(
        "Rules, and what to tune",
        [
            Chart("verdicts_by_rule", svg if shown else None, verdicts, shown, empty=empty),
            Table("rules", columns, shown, whole=len(rules)),
        ],
        intro="True: judged true positive or suspicious, of those that somebody judged.",
    )


def _devices(request: ReportRequest) -> Section:
    rows = request.ask(_NOISY)
    columns = [
        Column("hostname", "Name"),
        Column("entity_value", "Entity", "code"),
        Column("entity_type", "Kind"),
        *of_whom(rows),
        Column("rules", "Rules", "number"),
        Column("risk", "Highest risk", "number"),
        Column("alerts", "Alerts", "bar"),
    ]
    table = Table("noisiest", columns, rows, empty="No alert named anybody.")
    return Section("Who alerted most", [table])


def _unseen(request: ReportRequest) -> Section:
    zone = request.interval.zone
    silent = Table(
        "silent_sources",
        [
            Column("title", "What"),
            Column("message", "How long, and what is usual"),
            Column("began", f"Noticed, {zone}", "clock"),
            Column("ended", f"Over, {zone}", "clock"),
        ],
        silences(request),
        title="Sources that fell silent",
        empty="No source fell silent for longer than it ever did, as far as this was checked.",
    )
    blind = blindness(request)
    blocks: list[Block] = [silent]
    if blind:
        blocks.append(blind_table(blind, zone))
    else:
        sentence = "No rule was without its input, as far as this was checked."
        blocks.append(Table("blind_rules", (), (), title="Rules that saw nothing", empty=sentence))
    return Section("What nobody could see", blocks)


def _models(request: ReportRequest) -> list[Section]:
    """How far what models judged is from what they learned; nothing where none judged."""
    rows = model_drift(request)
    if not rows:
        return []
    columns = [
        Column("title", "Model of rule"),
        Column("state", "State", "word"),
        Column("hours", "Hours judged", "number"),
        Column("rare", "Rare ones", "number"),
        Column("sentence", "What was measured"),
    ]
    note = "Rare: as one hour in a hundred of the training. Train again: headgate models train."
    return [Section("Anomaly models, and whether they still fit",
                    [Table("models", columns, rows, note=note)])]  # fmt: skip


def _sources(request: ReportRequest) -> Section:
    now = {row["source"]: row for row in arrived(request)}
    before = {row["source"]: row for row in arrived(request.before)}
    rows = [
        {
            "source": name,
            "events": now.get(name, {}).get("events", 0),
            "before": before.get(name, {}).get("events", 0),
            "dead": now.get(name, {}).get("dead", 0),
            "newest": now.get(name, before.get(name, {})).get("newest"),
        }
        # Of both periods: a source that fell silent is to be seen, too.
        for name in sorted({*now, *before})
    ]
    rows.sort(key=lambda row: (-int(row["events"]), str(row["source"])))
    columns = [
        Column("source", "Source", "code"),
        Column("events", "Events", "number"),
        Column("before", "Before", "number"),
        Column("dead", "Dead letters", "number", bad=True),
        Column("newest", f"Newest arrival, {request.interval.zone}", "clock"),
    ]
    return Section(
        "Sources", [Table("sources", columns, rows, empty="Nothing was received.")],
        intro="By arrival, beside the period before.",
    )  # fmt: skip
