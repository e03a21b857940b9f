"""A rule run again on what is there now: does it still say so, and whose address is it now?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from alerts.domain.entity import Holder, holder_of, micros
from alerts.domain.finding import DISPROVED
from alerts.rulepack.rule_pack import Correlation, Rule, RulePack
from enrich.attribution.lease_lookup import LEASE_AT_DUCKDB

RerunRow = dict[str, Any]
Ask = Callable[..., list[RerunRow]]
"""`ask(sql, params, needs=tables)` gives rows as dictionaries."""

FINDINGS_SQL = """
SELECT f.*, a.holder AS told_holder, a.via, a.rev AS attr_rev, a.attributed_at
FROM gold.finding f LEFT JOIN gold.attribution_current a USING (finding_id)
WHERE list_contains($rules, f.rule_id) AND f.event_time >= $since AND f.event_time <= $until
ORDER BY f.event_time, f.finding_id
"""
FINDINGS_NEED = ("gold.finding", "gold.attribution", "gold.attribution_current")


def rerun_verdict(then: set[str], now: set[str]) -> str:
    """How the findings that a rule makes now stand to those that were told."""
    if not then:
        return "nothing left to compare"
    # More than was told is the same verdict: an alert shows a sample of its findings.
    if then <= now:
        return "same"
    return "different" if then & now else "no longer"


def found_by(rule: Rule, events: Sequence[RerunRow]) -> set[str]:
    """Ids of the findings that a rule makes of events as silver.event has them now."""
    # Late, here and below: to explain an alert its rule need not run, and they take long to load.
    from alerts.matching.event_rows import event_batch
    from alerts.matching.matcher import Matcher
    from ingest.parsing.source import MODES

    names = set(event_batch([]).schema.names)
    # The table may have columns of a newer release, which the batch does not take.
    rows = [{name: v for name, v in event.items() if name in names} for event in events]
    matched = Matcher(RulePack(rules=(rule,)), MODES).match(event_batch(rows))
    return {str(row) for row in matched.column("finding_id").to_pylist()}


def counted_by(ask: Ask, rule: Correlation, pack: str, since: Any, until: Any) -> set[str]:
    """Ids of the findings that a correlation makes of the findings of a span.

    They are taken with their newest attribution, from as far before `since` as `looks_back` says,
    so that what the group rested from is there too.
    """
    from alerts.correlation.history import over_history
    from alerts.correlation.negation import looks_back

    before = looks_back(rule, rule.timespan_seconds)
    rows = counted_rows(ask, rule, pack, since - before, until)
    return {str(row["finding_id"]) for row in over_history(rule, rows, micros(until))}


def counted_rows(
    ask: Ask, rule: Correlation, pack: str, since: Any, until: Any
) -> Iterator[RerunRow]:
    """The findings of a span that a correlation counts, with their newest attribution, by time.

    They say that they are of `pack`; an empty one leaves them their own.
    """
    bounds = {"rules": list(rule.rules), "since": since, "until": until}
    for row in ask(FINDINGS_SQL, bounds, needs=FINDINGS_NEED):
        # What was taken back must not be counted again.
        if row["via"] != DISPROVED:
            yield row | {"holder": row["told_holder"] or row["holder"], "pack": pack or row["pack"]}


def holder_again(ask: Ask, own: Sequence[RerunRow], wait: timedelta) -> RerunRow:
    """Who held the newest finding's address: as told, as was known then, and as is known now."""
    newest = max(own, key=lambda row: micros(row["event_time"]), default=None)
    if newest is None or not newest["ip"]:
        return {"verdict": "no address"}
    address = {"ip": newest["ip"], "at": newest["event_time"], "scope": newest["scope"]}
    needs = ("silver.dhcp_segment",)
    then, now = (
        _mac(ask(LEASE_AT_DUCKDB, address | {"known_by": by}, needs=needs))
        for by in (newest["received_at"] + wait, None)
    )
    holder = holder_of({"holder": newest["told_holder"] or newest["holder"]}) or Holder()
    return {
        "told": holder.mac,
        "known_then": then,
        "known_now": now,
        "verdict": "same" if holder.mac == now else "different",
    }


def _mac(rows: Sequence[RerunRow]) -> str | None:
    return str(rows[0]["mac"]) if rows and rows[0]["mac"] else None
