"""An alert as the state keeps it, and how findings fill it; plain data, no decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from alerts.domain.entity import Entity, Holder, fields_of, micros
from alerts.domain.rate_limit import HELD_BACK, HourlyBudget

MAX_REFS = 1_000
"""Findings remembered by an alert, for corrections; beyond them it only counts."""

_EVIDENCE = 10
MAX_MUTED = 1_000
"""Alerts kept from the topic that one rule remembers, of all tenants together."""

EXPIRES = 24 * 3600 * 1_000_000
"""An alert without activity for that long, microseconds, leaves the state."""

EXPIRES_HELD = 2 * 3600 * 1_000_000
"""The same for one that a budget held back: past folding and past the corrections of job repair."""


class Ref(msgspec.Struct):
    """A finding that counts on an alert, with the attribution it came with."""

    finding_id: str
    rev: int
    entity_key: str
    time: int
    total: int


class Evidence(msgspec.Struct):
    """One event an alert rests on."""

    finding_id: str
    event_uid: str
    time: int
    snippet: str


class About(msgspec.Struct):
    """What the newest finding says of itself."""

    rule_version: str
    rule_title: str
    level: str
    pack: str
    kind: str
    mode: str
    source: str
    role: str
    scope: str | None
    ip: str | None
    host_name: str | None
    user_name: str | None
    dst_ip: str | None
    snippet: str
    fields: dict[str, str]


class Alert(msgspec.Struct, kw_only=True):
    """An alert as the state keeps it; times are microseconds.

    `disproved`: its findings count no more: what a correlation had counted was of several
    devices, or whom it is about is not what the rule asks. `changed_by`, `changed_at`: who asked
    something of it last, and when.
    `tenant_uid`: whose events all of its findings are of; None: nobody's in particular.
    """

    alert_id: str
    rule_id: str
    entity_type: str
    entity_value: str
    entity_key: str
    first: int
    last: int
    window_start: int
    received: int
    about: About
    holder: Holder | None
    revision: int = 0
    count: int = 0
    total: int = 0
    refs: dict[str, Ref] = {}
    evidence: list[Evidence] = []
    state: str = "open"
    closed_at: int | None = None
    assignee: str | None = None
    verdict: str | None = None
    comment: str | None = None
    superseded_by: str | None = None
    previous: Holder | None = None
    previous_entity: str | None = None
    pending: bool = False
    told_at: int = 0
    touched: int = 0
    suppressed_by: str | None = None
    incident_id: str | None = None
    disproved: bool = False
    changed_by: str | None = None
    changed_at: int | None = None
    tenant_uid: str | None = None

    @property
    def silenced(self) -> bool:
        """Whether a suppression silenced it; a budget only holds back."""
        return self.suppressed_by not in (None, HELD_BACK)

    @property
    def holds_findings(self) -> bool:
        """False for one whose findings went to another alert, or count no more."""
        return self.superseded_by is None and not self.disproved

    @property
    def lifecycle(self) -> str:
        """new, triaged (somebody took or judged it) or closed."""
        if self.state == "closed":
            return "closed"
        return "triaged" if self.assignee or self.verdict else "new"


class FoldState(msgspec.Struct):
    """All alerts that one rule still remembers, by id, and what its budgets were spent on.

    Each tenant has the rule's budget by itself. `budget` is that of what is nobody's in particular;
    in a state that an earlier release wrote, what all tenants had.
    """

    alerts: dict[str, Alert] = {}
    budget: HourlyBudget = msgspec.field(default_factory=HourlyBudget)
    tenant_budgets: dict[str, HourlyBudget] = {}

    def budget_of(self, tenant: str | None) -> HourlyBudget:
        """What the alerts of a tenant are counted on: no tenant uses up another's."""
        if tenant is None:
            return self.budget
        return self.tenant_budgets.setdefault(tenant, HourlyBudget())


@dataclass(frozen=True)
class Revised:
    """An alert that gets a revision now, and why."""

    alert: Alert
    activity: str
    reason: str


def forget_alerts(state: FoldState, clock: int, folding: int) -> None:
    """Drop alerts without activity for a day, unless they have a count still to tell.

    `folding`: for how long repeats count on an alert, microseconds; for so long each is
    remembered at least. Of alerts that are kept from the topic only the newest
    thousand stay: a storm of them must not make every later batch slow. Of several tenants each
    has its share of them, so that one's storm makes no other's forgotten.
    """
    for alert in list(state.alerts.values()):
        lasts = EXPIRES_HELD if alert.suppressed_by == HELD_BACK else EXPIRES
        # A count that was not told yet would be lost with the alert.
        if clock - alert.touched > max(lasts, folding) and not alert.pending:
            del state.alerts[alert.alert_id]
    muted: dict[str | None, list[Alert]] = {}
    for alert in state.alerts.values():
        if alert.suppressed_by is not None:
            muted.setdefault(alert.tenant_uid, []).append(alert)
    most = equal_share([len(alerts) for alerts in muted.values()], MAX_MUTED)
    for alerts in muted.values():
        # The id last, so that a retry drops the same ones.
        alerts.sort(key=lambda alert: (alert.touched, alert.last, alert.alert_id))
        for alert in alerts[: max(0, len(alerts) - most)]:
            del state.alerts[alert.alert_id]


def equal_share(wanted: Sequence[int], places: int) -> int:
    """How many places each may have at most, of `places` that several want some of: what those who
    want few leave goes to the others."""
    left = sorted(wanted)
    while left:
        share = max(1, places // len(left))
        if left[0] > share:
            return share
        places -= left.pop(0)
    return max(wanted, default=0)


def rev_of(row: Mapping[str, Any]) -> int:
    """The attribution's revision; -1 for a finding that came without one."""
    rev = row.get("attr_rev")
    return -1 if rev is None else int(rev)


def about_of(row: Mapping[str, Any]) -> About:
    """What the finding says of itself."""
    named = {name: row.get(name) for name in About.__struct_fields__}
    return msgspec.convert(
        named | {"fields": fields_of(row), "snippet": row.get("snippet") or ""}, About
    )


def new_alert(
    alert_id: str, row: Mapping[str, Any], entity: Entity, holder: Holder | None
) -> Alert:
    """The alert that a finding opens, before any finding is counted on it."""
    time = micros(row["event_time"])
    return Alert(
        alert_id=alert_id,
        rule_id=row["rule_id"],
        entity_type=entity.type,
        entity_value=entity.value,
        entity_key=entity.key,
        first=time,
        last=time,
        window_start=time,
        received=micros(row["received_at"]),
        about=about_of(row),
        holder=holder,
        refs={},
        evidence=[],
        tenant_uid=row.get("tenant_uid"),
    )


def evidence_of(row: Mapping[str, Any]) -> list[Evidence]:
    """The finding's own evidence (a correlation), else the event it is about."""
    own = row.get("evidence") or [
        {"event_uid": row["event_uid"], "time": row["event_time"], "snippet": row.get("snippet")}
    ]
    return [
        Evidence(row["finding_id"], e["event_uid"], micros(e["time"]), e["snippet"] or "")
        for e in own
    ]


def sampled(evidence: Sequence[Evidence]) -> list[Evidence]:
    """At most ten, each event once, by time: the first and the last five."""
    # Several findings of a correlation may rest on one event.
    once = {e.event_uid: e for e in evidence}
    ordered = sorted(once.values(), key=lambda e: (e.time, e.event_uid))
    if len(ordered) <= _EVIDENCE:
        return ordered
    return [*ordered[: _EVIDENCE // 2], *ordered[-(_EVIDENCE // 2) :]]
