"""Which alert a finding counts on, from the tables: for findings that are attributed anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql import functions as F

from alerts.domain.entity import micros
from alerts.domain.finding import identity
from alerts.lifecycle.restore_alert import holds_findings
from alerts.tables import ALERT
from infra.config.settings import Settings
from infra.streaming.lake import Lake


def with_alerts(lake: Lake, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of gold.attribution whose `finding` has the alert it counts on, if there is one.

    `was` of a row is the newest attribution before it; it is left out of the answer.
    """
    if not rows:
        return []
    pairs = [(row, msgspec.json.decode(row["finding"])) for row in rows]
    alerts = _alerts(lake, pairs)
    out = []
    for row, finding in pairs:
        alert = counting(alerts, finding, row, lake.settings)
        if alert is not None:
            finding["alert"] = alert
        plain = {name: value for name, value in row.items() if name != "was"}
        out.append(plain | {"finding": msgspec.json.encode(finding).decode()})
    return out


Pair = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A row of gold.attribution with `was`, and its finding."""


def _alerts(lake: Lake, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """The newest bodies of alerts that these findings made, or that are about the same entities
    and ever spanned an instant of the rows."""
    times = [row["event_time"] for row, _ in pairs]
    rules = {finding["rule_id"] for _, finding in pairs}
    made = {_made(finding, lake.settings) for _, finding in pairs}
    named = {name for row, finding in pairs if (name := _named(row, finding)) is not None}
    revisions = lake.read(ALERT).where(F.col("rule_id").isin(sorted(rules)))
    spanning = revisions.where(
        # Bounds over all rows at once let Delta skip files; the exact match follows in `counting`.
        (F.col("window_start") <= F.lit(max(times)))
        & (F.col("window_end") >= F.lit(min(times)))
        & (F.col("alert_id").isin(sorted(made)) | F.col("entity_value").isin(sorted(named)))
    )
    bodies = (
        # Any revision may have spanned the instant, but the newest one is what goes on.
        revisions.join(spanning.select("alert_id").distinct(), "alert_id", "left_semi")
        .groupBy("alert_id")
        .agg(F.max_by("body", "revision").alias("body"))
        .orderBy("alert_id")
    )
    return [msgspec.json.decode(row.body) for row in bodies.collect()]


def counting(
    alerts: Sequence[Mapping[str, Any]],
    finding: Mapping[str, Any],
    row: Mapping[str, Any],
    settings: Settings,
) -> dict[str, Any] | None:
    """The body of the alert that a finding counts on, None without one.

    That is the one about whom the finding was about, around its instant. The alert that it made
    comes along as `made`, since it may have left that one and its id must not be given again;
    it stands alone where no other is known.
    """
    mine = [alert for alert in alerts if alert["rule"]["id"] == finding["rule_id"]]
    # Ids are made from rule and event, so the alert that a finding made is known without a search.
    made = next((a for a in mine if a["alert_id"] == _made(finding, settings)), None)
    held = next((a for a in mine if holds_findings(a) and _spans(a, finding, row)), None)
    if held is None or held is made:
        return None if made is None else dict(made)
    return dict(held) | ({} if made is None else {"made": made})


def _spans(alert: Mapping[str, Any], finding: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether an alert is about the entity that a finding was about, around its instant."""
    since, until = _instant(alert["window_start"]), _instant(alert["window_end"])
    within = since <= micros(row["event_time"]) <= until
    return within and alert["entity"]["value"] == _named(row, finding)


def _made(finding: Mapping[str, Any], settings: Settings) -> str:
    """Id of the alert that a finding made, if it made one."""
    return identity(settings.alerts.tenant, finding["rule_id"], finding["event_uid"])


def _named(row: Mapping[str, Any], finding: Mapping[str, Any]) -> str | None:
    """The entity that a finding was about before: its device, or the address without one."""
    holder = row["was"]["holder"] or {}
    named: str | None = holder.get("mac") if holder.get("status") == "leased" else finding.get("ip")
    return named


def _instant(text: str) -> int:
    return micros(datetime.fromisoformat(text))
