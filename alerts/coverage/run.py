"""Looking for blind rules beside the jobs: what was found is kept, told, and taken back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from alerts.compiler.required_inputs import Seeing, required_inputs
from alerts.coverage.blind import Blind, Cause, blind_rules, causes_told
from alerts.coverage.field_baseline import as_rows, gone_of, learn_fields, leaves_of, of_rows
from alerts.coverage.state import CoverageReport, CoverageState, coverage_folder
from alerts.delivery.action_request import request_action
from alerts.domain.alert_body import in_body
from alerts.domain.levels import SEVERITY_BY_LEVEL
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import Described, PackStore, RulePack
from infra.delta.duckdb_views import connect
from ingest.quality.outcome_store import quality_lock
from ingest.quality.self_events import send
from ingest.quality.silence_rules import OURS, finished
from ingest.quality.source_silence import ASKED, NEEDS, silences

if TYPE_CHECKING:
    import duckdb

    from infra.config.settings import Settings

KIND = "rule_blind"
"""`kind` of its records in the topic of the platform itself (`ingest.sources.generic.headgate`)."""
RULE_ID = "5b0c1a53-8a0f-4c53-9a39-6b1d6d6cf0e4"
"""The bundled rule that makes alerts of them."""

_AT_FIRST = timedelta(days=1)
"""How far the first look goes back, and any look at most."""
_LOOK_BACK = timedelta(days=30)
_NAMED = 20
"""Rules that one record names; of more it says how many."""
TAKEN_BACK = timedelta(days=1)
"""How long an alert is waited for that is to be closed: it may still be on its way."""

_FEEDS = """
SELECT DISTINCT source, class_uid FROM silver.event
WHERE mode = 'live' AND received_at >= $since AND received_at < $at
  AND dead_letter_reason IS NULL AND class_uid IS NOT NULL
  AND source NOT IN (SELECT unnest($ours))
"""
_OPEN = f"""
SELECT alert_id FROM gold.alert_current
WHERE rule_id = $rule AND {in_body("state")} <> 'closed'
  AND {in_body('fields."finding_info.uid"')} = $uid
"""


@dataclass(frozen=True)
class Looked:
    """What a look found, as of `at`; `told`: how many records it sent, `closed`: alerts."""

    at: datetime
    blind: Mapping[str, Blind]
    told: int = 0
    closed: int = 0


def look_for_blind_rules(
    settings: Settings, now: datetime | None = None, *, tell: bool = False
) -> Looked:
    """Which rules in force are blind. With `tell` it is kept, and alerts arise or are taken back.

    Raises `Fatal` before a rule pack is in force, `Retryable` when the broker is away: the next
    look then tells again what this one could not.
    """
    folder = coverage_folder(settings)
    if not tell:
        position, state, result = _seen(settings, CoverageState.load(folder), now)
        return Looked(position, result)
    with quality_lock(folder):
        position, state, result = _seen(settings, CoverageState.load(folder), now)
        records = list(_records(state, causes_told(result), position))
        # Before the state is saved: a broker that is away lets the next look tell the same again.
        send(settings, records)
        closed = _take_back(settings, state, position)
        state.save(folder)
    return Looked(position, result, len(records), closed)


def _seen(
    settings: Settings, state: CoverageState, now: datetime | None
) -> tuple[datetime, CoverageState, dict[str, Blind]]:
    store = PackStore(store_folder(settings))
    pack = store.get(store.current())
    connection = connect(
        settings.lake_root,
        needs=NEEDS,
        only=ASKED,
        memory=settings.api.statement_memory,
    )
    try:
        instant = now or datetime.now(UTC)
        # No further than ingest has got: behind a backlog every source would look silent.
        instant = min(instant, finished(connection) or instant)
        habits = of_rows(state.habits)
        since = instant - _AT_FIRST
        if state.until is not None:
            # At most a day back, even after a long pause: the habits then go on from there.
            since = max(since, datetime.fromisoformat(state.until))
        gone = set(gone_of(habits, since.timestamp()))
        learn_fields(connection, habits, _leaves(pack), gone, since, instant)
        silent = _silent(state)
        _note_feeds(
            connection, state, since if state.until else instant - _LOOK_BACK, instant, silent
        )
        quiet = silences(connection, settings, instant, silent)
    finally:
        connection.close()
    result = blind_rules(pack, _feeds(state), quiet, gone_of(habits, instant.timestamp()))
    state.until, state.habits = instant.isoformat(), as_rows(habits)
    state.blind = {
        rule_id: {"state": blind.state, "since": blind.since.isoformat(), "reason": blind.reason}
        for rule_id, blind in result.items()
    }
    return instant, state, result


def _leaves(pack: RulePack) -> set[str]:
    rules: tuple[Seeing, ...] = (*pack.rules, *pack.queries)
    asked = [needed.predicate for rule in rules for needed in required_inputs(rule)]
    return {leaf for predicate in asked if predicate for leaf in leaves_of(predicate)}


def _silent(state: CoverageState) -> dict[str, datetime]:
    """Sources that were reported as silent and not heard since, and since when they are."""
    ordered = sorted(
        (silence.since, silence.source)
        for silence in state.told.values()
        if silence.source is not None
    )
    return {source: datetime.fromisoformat(since) for since, source in ordered}


def _note_feeds(
    connection: duckdb.DuckDBPyConnection,
    state: CoverageState,
    since: datetime,
    at: datetime,
    silent: Collection[str],
) -> None:
    """Note which pairs of source and class were heard.

    Those not heard for long are forgotten, but for sources whose silence was told: what they feed
    is blind until they are heard again.
    """
    bounds = {"since": since, "at": at, "ours": list(OURS)}
    for source, class_uid in connection.execute(_FEEDS, bounds).fetchall():
        state.feeds[f"{source}|{class_uid}"] = at.isoformat()
    oldest = (at - _LOOK_BACK).isoformat()
    state.feeds = {
        pair: last_heard
        for pair, last_heard in state.feeds.items()
        # Without the exception a long silence would be forgotten and its alert closed as if it
        # ended.
        if last_heard >= oldest or pair.rpartition("|")[0] in silent
    }


def _feeds(state: CoverageState) -> Iterator[tuple[str, int]]:
    for pair in state.feeds:
        source, _, class_uid = pair.rpartition("|")
        yield source, int(class_uid)


def _records(
    state: CoverageState, causes: Mapping[str, tuple[Cause, Sequence[Described]]], at: datetime
) -> Iterator[dict[str, Any]]:
    """A record for each cause that began, and for each that ended; none while it lasts."""
    for key in sorted(state.told.keys() - causes.keys()):
        over = state.told.pop(key)
        state.closing[key] = at.isoformat()
        yield _record(
            key, over, "close", f"no longer blind, or switched off: {', '.join(over.rules)}", at
        )
    for key, (cause, rules) in sorted(causes.items()):
        if key in state.told:
            state.told[key].source = _source(cause)  # an earlier release did not keep it
            continue
        previous = _report_of(cause, rules)
        state.told[key] = previous
        yield _record(key, previous, "create", f"{cause.why}; blind by it: {_names(rules)}", at)


def _source(cause: Cause) -> str | None:
    return cause.source if cause.field is None else None


def _report_of(cause: Cause, rules: Sequence[Described]) -> CoverageReport:
    what = f"{cause.source} is silent" if cause.field is None else (
        f"{cause.source} no longer fills {cause.field}"
    )  # fmt: skip
    many = "1 rule is" if len(rules) == 1 else f"{len(rules)} rules are"
    highest = max((rule.level for rule in rules), key=lambda level: SEVERITY_BY_LEVEL[level][0])
    # Blind is not attacked: at most high, and never below what makes an alert.
    level = "high" if SEVERITY_BY_LEVEL[highest][0] >= SEVERITY_BY_LEVEL["high"][0] else "medium"
    names = [rule.name or rule.title for rule in rules]
    return CoverageReport(
        f"{many} blind: {what}", level, cause.since.isoformat(), names, _source(cause)
    )


def _names(rules: Sequence[Described]) -> str:
    names = [rule.name or rule.title for rule in rules]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _record(
    key: str, report: CoverageReport, activity: str, message: str, at: datetime
) -> dict[str, Any]:
    return {
        "kind": KIND,
        "activity": activity,
        # The end of a cause must not raise an alert of its own.
        "level": report.level if activity == "create" else "informational",
        "time": at.isoformat(),
        # The same cause has the same uid, told by whichever look.
        "uid": f"{key}-{activity}",
        "finding": key,
        "title": report.title if activity == "create" else f"No longer: {report.title}",
        "message": message,
        "check": "blind",
        "blind_since": report.since,
        "rules": report.rules[:_NAMED],
        "rule_count": len(report.rules),
    }


def _take_back(settings: Settings, state: CoverageState, at: datetime) -> int:
    """Ask that alerts of causes that ended be closed, once they are there."""
    if not state.closing:
        return 0
    closed = 0
    connection = connect(settings.lake_root, needs=("gold.alert", "gold.alert_current"), only=())
    try:
        for key, since in list(state.closing.items()):
            asked = {"rule": RULE_ID, "uid": key}
            for (alert_id,) in connection.execute(_OPEN, asked).fetchall():
                request_action(
                    settings, "close", alert_id, RULE_ID, who="headgate", comment="sees again"
                )
                closed += 1
                state.closing.pop(key, None)
            if at - datetime.fromisoformat(since) > TAKEN_BACK:
                # Its alert may never have come, say through a suppression; it is not waited for for
                # ever.
                state.closing.pop(key, None)
    finally:
        connection.close()
    return closed
