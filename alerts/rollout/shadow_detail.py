"""One rule in shadow, so that somebody can decide: its alerts by day, about whom, and examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from alerts.backtest.fold import Brief
from alerts.backtest.rerun import Ask, RerunRow
from alerts.domain.entity import micros
from alerts.rollout.shadow_report import ShadowOutcome, as_if_live, shadow_fold, shadow_outcome
from alerts.rulepack.locations import store_folder
from alerts.rulepack.shadow_marks import ShadowMark, ShadowMarks
from infra.config.settings import Settings

MOST_ENTITIES = 12
MOST_EXAMPLES = 20
_DAY = timedelta(days=1)
_SECOND = 1_000_000


@dataclass(frozen=True)
class ShadowEntity:
    """Somebody or something that alerts would have named. `name`: a device's, by its lease."""

    type: str
    value: str
    name: str | None
    alerts: int
    findings: int


@dataclass(frozen=True)
class ShadowExample:
    """An alert that there would have been; times are UTC.

    `event_uid`: the newest event it rests on. `event_time`, `ip`, `user` and `host` are of the
    rule's finding in that event; None where there is none, or it names none.
    """

    level: str
    title: str
    entity_type: str
    entity: str
    name: str | None
    count: int
    first: datetime
    last: datetime
    event_uid: str
    event_time: datetime | None
    snippet: str
    ip: str | None
    user: str | None
    host: str | None


@dataclass(frozen=True)
class ShadowDetail:
    """A rule's time in shadow.

    `days`: midnights, UTC, with findings and would-be alerts of each in `findings_by_day` and
    `alerts_by_day`; all three are empty where there were too many to fold. `entities`: those with
    most alerts, of `entities_total`; `examples`: the newest alerts first. `outcome` is None where
    the rule's file is gone.
    """

    mark: ShadowMark
    outcome: ShadowOutcome | None
    days: tuple[datetime, ...] = ()
    findings_by_day: tuple[int, ...] = ()
    alerts_by_day: tuple[int, ...] = ()
    entities: tuple[ShadowEntity, ...] = ()
    entities_total: int = 0
    examples: tuple[ShadowExample, ...] = ()


def shadow_mark(settings: Settings, rule_id: str) -> ShadowMark | None:
    """The mark of a rule in shadow; None for one that is not."""
    return ShadowMarks(store_folder(settings)).all().get(rule_id)


def shadow_detail(
    settings: Settings, ask: Ask, rule_id: str, mark: ShadowMark, now: datetime
) -> ShadowDetail:
    """What a rule would have alerted since its mark."""
    source = as_if_live(settings).get(rule_id)
    if source is None:
        return ShadowDetail(mark, None)
    fold = shadow_fold(ask, source, mark, settings, now)
    outcome = shadow_outcome(fold, source, mark, now)
    if fold.rows is None or fold.alerts is None:
        return ShadowDetail(mark, outcome)
    days = _days(mark.since, now)
    by_entity = Counter((alert.entity_type, alert.entity_value) for alert in fold.alerts)
    repeats: Counter[tuple[str, str]] = Counter()
    rows = {str(row["event_uid"]): row for row in fold.rows}
    names: dict[str, str | None] = {}
    for alert in fold.alerts:
        repeats[alert.entity_type, alert.entity_value] += alert.count
        names[alert.entity_value] = _host_of(alert, rows)
    newest = sorted(fold.alerts, key=lambda alert: alert.last, reverse=True)[:MOST_EXAMPLES]
    return ShadowDetail(
        mark=mark,
        outcome=outcome,
        days=days,
        findings_by_day=_by_day(days, (micros(row["event_time"]) for row in fold.rows)),
        alerts_by_day=_by_day(days, (alert.raised for alert in fold.alerts)),
        entities=tuple(
            ShadowEntity(*entity, names[entity[1]], count, repeats[entity])
            for entity, count in by_entity.most_common(MOST_ENTITIES)
        ),
        entities_total=len(by_entity),
        examples=tuple(_example(alert, rows) for alert in newest),
    )


def _days(since: datetime, until: datetime) -> tuple[datetime, ...]:
    first = since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return tuple(first + n * _DAY for n in range((until - first) // _DAY + 1))


def _by_day(days: tuple[datetime, ...], instants: Iterable[int]) -> tuple[int, ...]:
    start, width = micros(days[0]), _DAY // timedelta(microseconds=1)
    counts = Counter((instant - start) // width for instant in instants)
    return tuple(counts[n] for n in range(len(days)))


def _host_of(alert: Brief, rows: dict[str, RerunRow]) -> str | None:
    """What a device called itself when it got the address."""
    row = rows.get(alert.evidence[-1], {}) if alert.evidence else {}
    holder = row.get("told_holder") or row.get("holder") or {}
    return holder.get("hostname") if alert.entity_type == "device" else None


def _example(alert: Brief, rows: dict[str, RerunRow]) -> ShadowExample:
    uid = alert.evidence[-1] if alert.evidence else ""
    # An alert of a correlation rests on events that are no findings of the rule itself.
    row = rows.get(uid, {})
    return ShadowExample(
        level=alert.level,
        title=alert.title,
        entity_type=alert.entity_type,
        entity=alert.entity_value,
        name=_host_of(alert, rows),
        count=alert.count,
        first=_instant(alert.first),
        last=_instant(alert.last),
        event_uid=uid,
        event_time=row.get("event_time"),
        snippet=alert.snippet,
        ip=row.get("ip"),
        user=row.get("user_name"),
        host=row.get("host_name"),
    )


def _instant(microseconds: int) -> datetime:
    seconds, rest = divmod(microseconds, _SECOND)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
