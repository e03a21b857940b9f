"""Which alert a finding counts on, from the tables: for findings that are attributed anew."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql import functions as F

from alerts.entity import micros
from alerts.finding import identity
from alerts.tables import ALERT
from infra.lake import Lake
from infra.settings import Settings


def with_alerts(lake: Lake, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of gold.attribution whose `finding` has the alert it counts on, if there is one.

    `was` of a row is the newest attribution before it; it is left out of the answer.
    """
    if not rows:
        return []
    findings = [msgspec.json.decode(row["finding"]) for row in rows]
    alerts = _alerts(lake, {finding["rule_id"] for finding in findings}, rows)
    out = []
    for row, finding in zip(rows, findings, strict=True):
        counts = [alert for alert in alerts if _counts(alert, finding, row, lake.settings)]
        if counts:
            finding["alert"] = counts[0]
        plain = {name: value for name, value in row.items() if name != "was"}
        out.append(plain | {"finding": msgspec.json.encode(finding).decode()})
    return out


def _alerts(
    lake: Lake, rules: Collection[str], rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The newest bodies of these rules' alerts that ever spanned an instant of the rows."""
    times = [row["event_time"] for row in rows]
    revisions = lake.read(ALERT).where(F.col("rule_id").isin(sorted(rules)))
    spanning = revisions.where(
        (F.col("window_start") <= F.lit(max(times))) & (F.col("window_end") >= F.lit(min(times)))
    )
    bodies = (
        revisions.join(spanning.select("alert_id").distinct(), "alert_id", "left_semi")
        .groupBy("alert_id")
        .agg(F.max_by("body", "revision").alias("body"))
        .orderBy("alert_id")
    )
    return [msgspec.json.decode(row.body) for row in bodies.collect()]


def _counts(
    alert: Mapping[str, Any], finding: Mapping[str, Any], row: Mapping[str, Any], settings: Settings
) -> bool:
    """Whether an alert is the one a finding counts on: it made it, or it is about the same entity
    and spans the finding's instant."""
    if alert["rule"]["id"] != finding["rule_id"] or alert["superseded_by"]:
        return False
    tenant, rule_id, event_uid = settings.alerts.tenant, finding["rule_id"], finding["event_uid"]
    if alert["alert_id"] == identity(tenant, rule_id, event_uid):
        return True
    holder = row["was"]["holder"] or {}
    leased = holder.get("status") == "leased"
    named = holder.get("mac") if leased else finding.get("ip")
    spanned = _instant(alert["window_start"]) <= micros(row["event_time"])
    spanned = spanned and micros(row["event_time"]) <= _instant(alert["window_end"])
    return alert["entity"]["value"] == named and spanned


def _instant(text: str) -> int:
    return micros(datetime.fromisoformat(text))
