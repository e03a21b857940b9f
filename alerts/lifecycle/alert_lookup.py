"""Which alert a finding counts on, from the tables: for findings that are attributed anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql import functions as F

from alerts.domain.alert_body import damage, readable_body
from alerts.domain.entity import key_of, micros
from alerts.domain.finding import identity
from alerts.lifecycle.restore_alert import holds_findings
from alerts.tables import ALERT
from infra.config.settings import Settings
from infra.streaming.lake import Lake


@dataclass(frozen=True)
class Counted:
    """Rows whose findings have the alerts that they count on, and of those left out why."""

    rows: list[dict[str, Any]]
    left_out: list[str]


@dataclass(frozen=True)
class DamagedCount:
    """An alert whose body is damaged: what its columns tell of whom it is about, and what is
    said of it."""

    alert_id: str
    rule_id: str
    entity_value: str
    tenant_uid: str | None
    sentence: str
    dedup_key: str | None = None


def with_alerts(lake: Lake, rows: Sequence[Mapping[str, Any]]) -> Counted:
    """Rows of gold.attribution whose `finding` has the alert it counts on, if there is one.

    `was` of a row is the newest attribution before it; it is left out of the answer. So is a row
    whose alert is damaged: job `alert`, which may have forgotten it, would make it again from
    revision 1 on, under an id that consumers know.
    """
    if not rows:
        return Counted([], [])
    pairs = [(row, msgspec.json.decode(row["finding"])) for row in rows]
    alerts, damaged = _alerts(lake, pairs)
    by_name = _by_name(alerts)
    out, left_out = [], []
    for row, finding in pairs:
        if (lost := counting_damaged(damaged, finding, row, lake.settings)) is not None:
            left_out.append(f"finding {row['finding_id']} stays as it was attributed: {lost}")
            continue
        # Only those that it may be about: a noisy rule has as many alerts as findings here.
        names = (_made(finding, lake.settings), (finding["rule_id"], _named(row, finding)))
        mine = [alert for name in names for alert in by_name.get(name, ())]
        alert = counting(mine, finding, row, lake.settings)
        if alert is not None:
            finding["alert"] = alert
        plain = {name: value for name, value in row.items() if name != "was"}
        out.append(plain | {"finding": msgspec.json.encode(finding).decode()})
    return Counted(out, left_out)


_Name = str | tuple[str, str | None]


def _by_name(alerts: Sequence[dict[str, Any]]) -> dict[_Name, list[dict[str, Any]]]:
    """Alerts by their id, and by their rule and whom they are about."""
    by_name: dict[_Name, list[dict[str, Any]]] = {}
    for alert in alerts:
        names: tuple[_Name, _Name] = (
            alert["alert_id"],
            (alert["rule"]["id"], alert["entity"]["value"]),
        )
        for name in names:
            by_name.setdefault(name, []).append(alert)
    return by_name


Pair = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A row of gold.attribution with `was`, and its finding."""


def _alerts(lake: Lake, pairs: Sequence[Pair]) -> tuple[list[dict[str, Any]], list[DamagedCount]]:
    """The newest bodies of alerts that these findings made, or that are about the same entities
    and ever spanned an instant of the rows; and those of them whose body is damaged."""
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
        .agg(
            F.max("revision").alias("revision"),
            *[F.max_by(name, "revision").alias(name) for name in _WHOLE],
        )
        .orderBy("alert_id")
    )
    alerts, damaged = [], []
    for row in bodies.collect():
        body = readable_body(row.body)
        sentence = damage(body, row.alert_id, row.revision)
        if sentence is None:
            alerts.append(body)
        else:
            columns = (row.alert_id, row.rule_id, row.entity_value, row.tenant_uid)
            damaged.append(DamagedCount(*columns, sentence, row.dedup_key))
    return alerts, damaged


_WHOLE = ("body", "rule_id", "entity_value", "tenant_uid", "dedup_key")
"""The body of an alert, and the columns that tell whose it is where its body is damaged."""


def counting_damaged(
    damaged: Sequence[DamagedCount],
    finding: Mapping[str, Any],
    row: Mapping[str, Any],
    settings: Settings,
) -> str | None:
    """What is said of the damaged alert that a finding may count on; None: there is none."""
    made, named = _made(finding, settings), _named(row, finding)
    # With the tenant: two may have one address, and another's damage must hold up none.
    mine = (finding["rule_id"], named, finding.get("tenant_uid"))
    for alert in damaged:
        about = (alert.rule_id, alert.entity_value, alert.tenant_uid)
        same = about == mine and _is_of_scope(alert.dedup_key, row, finding)
        if same or alert.alert_id == made:
            return alert.sentence
    return None


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
    # Two tenants may have one address, and none is to be told of the other's findings.
    if alert.get("tenant_uid") != finding.get("tenant_uid"):
        return False
    if alert["entity"]["value"] != _named(row, finding):
        return False
    if not _is_of_scope(alert["dedup_key"], row, finding):
        return False
    since, until = _instant(alert["window_start"]), _instant(alert["window_end"])
    return since <= micros(row["event_time"]) <= until


def _is_of_scope(dedup_key: str | None, row: Mapping[str, Any], finding: Mapping[str, Any]) -> bool:
    """Whether an alert about what a finding was about is of the same site, as `entity_of` has it:
    two sites may have one address."""
    if dedup_key is None or (row["was"]["holder"] or {}).get("status") == "leased":
        return True
    key = f"{finding['rule_id']}|ip|{finding.get('scope') or ''}|{finding.get('ip')}"
    # Without its tenant an earlier release wrote it.
    return dedup_key in (key, key_of(finding.get("tenant_uid"), key))


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
