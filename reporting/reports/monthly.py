"""The monthly report for people outside the team: a page of words and four charts."""

from __future__ import annotations

from typing import Any

from alerts.domain.levels import WORST_FIRST
from reporting.document import charts
from reporting.document.content import Chart, Column, Report, Section, Words
from reporting.document.request import ReportRequest
from reporting.document.text import number, seconds_text
from reporting.figures.alerts import Bucket, by_level, by_month
from reporting.figures.incidents import by_tactic, incidents
from reporting.figures.source_names import source_name
from reporting.figures.sources import arrived, silences
from reporting.figures.triage import triage_totals
from reporting.ledger.gaps import missed

NAME = "monthly"
QUESTIONS = 9
DOC = (
    "For managers: a page of words, four charts, the trend of a year, incidents in a sentence each."
)
TABLES = (
    "silver.event", "gold.alert", "gold.alert_current", "gold.alert_action", "ops.gap",
    "ops.ledger_check",
)  # fmt: skip

OF_TENANT = (
    "Gaps in what was received and kinds of logs that fell silent are known of the whole platform "
    "alone, and are not in here."
)
_MONTHS = 12
_INCIDENTS_NAMED = 12
_SERIOUS = ("critical", "high")
_CHECKS = """
SELECT coalesce(sum(missing), 0)::BIGINT FROM ops.ledger_check
WHERE "since" < $until AND "until" > $since AND topic IS NULL AND NOT passed
"""


def compose(request: ReportRequest) -> Report:
    """The report of an interval, mostly a month."""
    incident_rows = incidents(request)
    months = by_month(request, _MONTHS)
    totals, earlier = triage_totals(request), triage_totals(request.before)
    sources = arrived(request)
    return Report(
        NAME,
        "Security monitoring: monthly report",
        request.interval,
        request.made_at,
        lead=_lead(request, totals, earlier, sources, len(incident_rows)),
        sections=[
            _incidents(incident_rows),
            Section(
                "The month in four charts",
                [
                    _year(months, over=request.made_at >= request.interval.end),
                    _tactics(request),
                    _handling(totals, earlier),
                    _records(sources),
                ],
                beside=True,
            ),
            Section("What this rests on", [Words(_basis(request, sources))]),
        ],
        arrival=request.arrived(),
    )


def _lead(
    request: ReportRequest,
    totals: dict[str, Any],
    earlier: dict[str, Any],
    sources: list[dict[str, Any]],
    incident_count: int,
) -> list[str]:
    events = sum(row["events"] for row in sources)
    levels = by_level(request)
    serious = sum(levels.get(level, 0) for level in _SERIOUS)
    span, compared = request.interval.phrase, _compared(request, totals, earlier)
    sentences = [
        f"{span}, {_many(events, 'log record')} from {_many(len(sources), 'kind')} of logs were "
        f"watched. They led to {_many(totals['alerts'], 'alert')}{compared}, "
        f"{number(serious)} of them serious, and {_many(incident_count, 'incident')}.",
        _work(totals),
    ]
    return [sentence for sentence in sentences if sentence]


def _compared(request: ReportRequest, totals: dict[str, Any], earlier: dict[str, Any]) -> str:
    now, before = totals["alerts"], earlier["alerts"]
    # Where there was none, "more than 0" would make the first month look like a rise.
    if not before:
        return ""
    span = "month" if request.interval.whole_month else "period"
    if now == before:
        return f", as many as in the {span} before"
    return f", {'more' if now > before else 'fewer'} than the {number(before)} of the {span} before"


def _work(totals: dict[str, Any]) -> str:
    if not totals["alerts"]:
        return "There was nothing for the team to look at."
    judged = totals["judged"]
    if not judged:
        verdict = "None has been judged yet"
    else:
        verdict = (
            f"The team judged {_many(judged, 'alert')}: {number(totals['true_positive'])} were "
            f"real and {number(judged - totals['true_positive'])} were not"
        )
    left = totals["open"]
    still = (
        f"{number(left)} {'is' if left == 1 else 'are'} still open" if left else "all are closed"
    )
    pace = ""
    if totals["acknowledge"] is not None:
        pace = f" Half of them were taken up within {seconds_text(totals['acknowledge'])}."
    return f"{verdict}; {still}.{pace}"


def _many(count: int, thing: str) -> str:
    return f"{number(count)} {thing}{'' if count == 1 else 's'}"


def _incidents(incidents: list[dict[str, Any]]) -> Section:
    if not incidents:
        return Section("Incidents", [Words(["There was no incident."])])
    sentences = [row["sentence"] for row in incidents[:_INCIDENTS_NAMED]]
    if len(incidents) > _INCIDENTS_NAMED:
        sentences.append(
            f"And {len(incidents) - _INCIDENTS_NAMED} more, which the weekly reports list."
        )
    return Section("Incidents", [Words(sentences, listed=True)])


def _year(months: list[Bucket], *, over: bool) -> Chart:
    shown = {
        "serious": [sum(month.counts.get(level, 0) for level in _SERIOUS) for month in months],
        "other": [
            sum(many for level, many in month.counts.items() if level not in _SERIOUS)
            for month in months
        ],
    }
    looks = {"serious": charts.LEVEL_LOOKS["high"], "other": charts.LEVEL_LOOKS["low"]}
    labels = [
        # The year at the first bar and where it begins; the bars between have no room for it.
        f"{month.start:%b ’%y}" if number == 0 or month.start.month == 1 else f"{month.start:%b}"
        for number, month in enumerate(months)
    ]
    rows = [
        {
            "month": f"{month.start:%Y-%m}",
            **{level: month.counts.get(level, 0) for level in WORST_FIRST},
        }
        for month in months
    ]
    return Chart(
        "alerts_by_month",
        charts.stacked_bars("Alerts a month, over a year", labels, shown, looks, half=True),
        [Column("month", "Month"), *(Column(level, level, "number") for level in WORST_FIRST)],
        rows,
        title="Alerts a month, over a year",
        caption="Serious: high or critical." + ("" if over else " The last month is not over yet."),
    )


def _tactics(request: ReportRequest) -> Chart:
    rows = by_tactic(request)
    # Half the width has room for so many bars; the data behind the chart have all.
    shown = rows[:7]
    parts = [(row["plain"], {"alerts": row["alerts"]}) for row in shown]
    svg = charts.rows_of_bars(
        "What the alerts were about", parts, {"alerts": charts.PLAIN}, half=True
    )
    return Chart(
        "alerts_by_tactic",
        svg if shown else None,
        [
            Column("plain", "About"),
            Column("tactic", "Tactic"),
            Column("alerts", "Alerts", "number"),
        ],
        rows,
        title="What the alerts were about",
        caption="What an attacker would want with it; an alert may count in two.",
        empty="No alert of this month names what an attacker would want with it.",
    )


def _handling(totals: dict[str, Any], earlier: dict[str, Any]) -> Chart:
    steps = (("detect", "noticed"), ("acknowledge", "taken up"), ("close", "closed"))
    rows = [
        {"step": words, "now": totals[key], "before": earlier[key]}
        for key, words in steps
        if totals[key] is not None
    ]
    svg = charts.rows_of_bars(
        "How soon half of the alerts were noticed, taken up and closed",
        [(row["step"], {"now": row["now"]}) for row in rows],
        {"now": charts.PLAIN},
        half=True,
        ends=[_then(row) for row in rows],
    )
    return Chart(
        "handling",
        svg if rows else None,
        [
            Column("step", "Step"),
            Column("now", "Median, seconds", "decimal"),
            Column("before", "Before", "decimal"),
        ],
        rows,
        title="How soon half of the alerts were ...",
        caption="Noticed: after the event; taken up and closed: after the alert.",
        empty="No alert of a live event, and nobody has taken one up.",
    )


def _then(row: dict[str, Any]) -> str:
    """A span, and beside it the one of the period before."""
    before = row["before"]
    return seconds_text(row["now"]) + (
        f" (before: {seconds_text(before)})" if before is not None else ""
    )


def _records(sources: list[dict[str, Any]]) -> Chart:
    shown = sorted(sources, key=lambda row: -row["events"])[:8]
    parts = [(source_name(row["source"]), {"events": row["events"]}) for row in shown]
    svg = charts.rows_of_bars(
        "Log records by kind", parts, {"events": charts.VERDICT_LOOKS["true"]}, half=True
    )
    return Chart(
        "records_by_source",
        svg if shown else None,
        [
            Column("name", "Kind of log"),
            Column("source", "Source"),
            Column("events", "Records", "number"),
            Column("dead", "Unreadable", "number"),
        ],
        [row | {"name": source_name(row["source"])} for row in sources],
        title="Log records by kind",
        caption="The kinds with most records.",
        empty="No log record arrived.",
    )


def _basis(request: ReportRequest, sources: list[dict[str, Any]]) -> list[str]:
    """How far the figures can be trusted, in words."""
    dead = sum(row["dead"] for row in sources)
    unread = [f"{_many(dead, 'record')} could not be read; they are kept."] if dead else []
    if request.tenant:
        return unread or ["All log records that arrived could be read."]
    silent = silences(request)
    gaps = missed(request.connection, request.interval.start, request.interval.end)
    lost = request.value(_CHECKS)
    sentences = []
    if lost or gaps:
        # Of some gaps nobody knows how many messages they held: these count as gaps alone.
        known = sum(gap.messages or 0 for gap in gaps)
        parts = []
        if gaps:
            parts.append(
                f"{_many(len(gaps), 'gap')} in what was received ({_many(known, 'known message')} "
                "lost)"
            )
        if lost:
            parts.append(f"{_many(lost, 'record')} that checks found missing")
        what = ", and ".join(parts)
        sentences.append(f"Not all was seen: {what}. What happened in them cannot be told.")
    else:
        sentences.append("No loss of log records is known.")
    sentences += unread
    if silent:
        sentences.append(
            f"{_many(len(silent), 'kind')} of logs fell silent for longer than ever before at "
            "some time; in that time nothing could be seen in them."
        )
    return sentences
