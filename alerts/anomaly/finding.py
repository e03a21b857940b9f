"""The finding that an hour of a device makes, told so that a person sees what is unusual."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from alerts.anomaly.baseline import MOST_SCORE
from alerts.anomaly.store import AnyModel, Judged
from alerts.compiler.model_rule_files import MODEL
from alerts.domain.finding import identity, named, single_line
from alerts.rulepack.rule_pack import ModelRule

_VERBS = {"events": "made", "bytes_out": "sent", "bytes_in": "received"}
EVIDENCE = 10


def finding_id(rule_id: str, entity: str, hour: int) -> str:
    """The same for an hour of an entity, whenever and by whichever model it is judged."""
    return identity(rule_id, entity, str(hour))


def anomaly_finding(
    rule: ModelRule, model: AnyModel, row: Mapping[str, Any], judged: Judged, pack: str
) -> dict[str, Any]:
    """A row of gold.finding for an hour, given as `alerts.anomaly.device_hours.hours` names it.

    It brings its holder along, so it waits for no lease.
    """
    hour, last = int(row["hour"]), row["last"]
    sentence = said(judged, hour)
    facts = row["top"] or ()
    # Steps come by their rarity, and none of them has bytes.
    if not judged.what:
        facts = sorted(facts, key=lambda fact: (-fact["bytes"], fact["event_uid"]))
    shown = facts[:EVIDENCE]
    return {
        "finding_id": finding_id(rule.id, row["entity"], hour),
        "rule_id": rule.id,
        "rule_version": rule.version,
        "rule_title": rule.title,
        "level": rule.level,
        "kind": MODEL,
        "pack": pack,
        "feeds": list(rule.feeds),
        "alerting": rule.alerting,
        # No single event is behind it: the hour itself stands for one.
        "event_uid": identity(row["entity"], str(hour)),
        "event_time": row["event_time"],
        "received_at": row["received_at"],
        "window_start": datetime.fromtimestamp(hour, UTC),
        "class_uid": row["class_uid"],
        "source": row["source"],
        "mode": row["mode"],
        "role": rule.role,
        "scope": last["scope"] or None,
        "ip": last["ip"],
        "host_name": named(last["host"]),
        "user_name": None,
        "dst_ip": None,
        "holder": _holder(last),
        "fields": _fields(model, row, judged),
        "snippet": single_line(sentence),
        "evidence": [
            {"event_uid": fact["event_uid"], "time": fact["time"], "snippet": fact["snippet"]}
            for fact in shown
        ],
        "evidence_total": int(row["events"]),
    }


def _holder(last: Mapping[str, Any]) -> dict[str, Any]:
    """Whose address it was, as `enrich.tables.HOLDER` has it, from the lease that was found."""
    leaves: dict[str, Any] = {"ip": last["ip"], "scope": last["scope"] or None}
    if last["s_mac"] is None:
        return leaves | {"status": "outside" if last["ip"] else "unknown"}
    return leaves | {
        "mac": last["s_mac"],
        "hostname": last["s_hostname"],
        "session_id": last["s_session_id"],
        "lease_start": last["s_session_start"],
        "lease_end": last["s_session_end"],
        "known_at": last["s_known_at"],
        "status": "leased",
    }


def _fields(model: AnyModel, row: Mapping[str, Any], judged: Judged) -> dict[str, str]:
    """The score and what it rests on, under names that stay."""
    if judged.what:
        return {
            "model.hash": model.hash,
            "model.trained_until": model.header.until.isoformat(),
            "score": f"{judged.score:g}",
            "feature": judged.feature,
            "step": row["top"][0]["snippet"],
            "steps": "; ".join(fact["snippet"] for fact in row["top"]),
            "days": str(judged.days),
            "peers": str(judged.peers),
        }
    return {
        "model.hash": model.hash,
        "model.trained_until": model.header.until.isoformat(),
        "score": f"{judged.score:g}",
        "feature": judged.feature,
        "value": str(judged.value),
        "usual.low": str(round(judged.low)),
        "usual.high": str(round(judged.high)),
        "largest_before": str(round(judged.largest)),
        "days": str(judged.days),
        "peers": str(judged.peers),
        **{name: str(int(row[name])) for name in model.header.features},
    }


def said(judged: Judged, hour: int) -> str:
    """The score in words: sent 4.2 GB in the hour from 03:00, usual then is ..."""
    peers = f"{judged.peers} like it" if judged.peers > 1 else "it alone"
    far = judged.score >= MOST_SCORE
    rare = "beyond any hour of" if far else f"one such hour in 10^{judged.score:.1f} of"
    if judged.what:
        return f"{judged.what}; score {judged.score:g} ({rare} {peers})"
    name = judged.feature
    low, high = amount(name, judged.low), amount(name, judged.high)
    usual = f"{low} to {high}" if judged.high >= 1 else "nothing"
    instant = datetime.fromtimestamp(hour, UTC)
    return (
        f"{_VERBS[name]} {amount(name, judged.value)} in the hour from {instant:%H:%M} UTC on "
        f"{instant:%Y-%m-%d}; usual at that time {usual} ({judged.days} days), at most "
        f"{amount(name, judged.largest)} in any hour; score {judged.score:g} ({rare} {peers})"
    )


def amount(feature: str, value: float) -> str:
    """A quantity as people say it; bytes in powers of ten."""
    if feature == "events":
        return f"{value:,.0f} events"
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"
