"""Rules over REST: the same functions that `headgate rules` calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from alerts.compiler.compiler import Compiled, RefusedRule
from alerts.compiler.model_rule_files import BadModel
from alerts.coverage.run import CoverageState, coverage_folder
from alerts.rulebook.model_rule_tests import check_models
from alerts.rulebook.preview import known_rule, preview
from alerts.rulebook.rule_store import model_rules
from alerts.rulebook.rule_switch import (
    compiled_rules,
    rule_id_of,
    rule_rows,
    switch_off,
    switch_on,
)
from alerts.rulebook.rule_tests import check_rules
from alerts.rulepack.rule_pack import Query, RulePack
from alerts.tuning.scorecard import scorecard
from api.services.reader import Reader
from api.wire import rules as wire
from infra.config.settings import Settings
from infra.delta.duckdb_views import connect
from infra.errors import Usage

KEPT_SECONDS = 5.0
"""Compiling takes a second or two; files that changed are seen that much later."""


class RuleDesk:
    """Lists, reads, tests, previews and switches rules."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._kept: tuple[float, Compiled] | None = None
        self._lock = threading.Lock()

    def all(self) -> wire.RuleList:
        """All rules, and the files that are none."""
        compiled = self._compiled()
        models = model_rules(self._settings)
        refused = [_refused(known) for known in compiled.refused]
        refused += [_refused(known) for known in models.refused]
        return wire.RuleList(items=self._items(), refused=refused)

    def scorecard(self, reader: Reader, days: int) -> wire.RuleScorecard:
        """How each rule in force did in the last days, by what people judged its alerts to be."""
        until = datetime.now(UTC)
        card = scorecard(reader.rows, self._rows(), until - timedelta(days=days), until)
        return wire.RuleScorecard(
            since=card.since,
            until=card.until,
            covered_days=round(card.covered / timedelta(days=1), 1),
            items=[wire.RuleScoreItem(**asdict(score)) for score in card.rules],
            elsewhere=card.elsewhere,
        )

    def one(self, rule: str) -> wire.RuleDetail:
        """A rule by id or name, with its text; raises `Usage`."""
        model = model_rules(self._settings).named(rule)
        compiled = self._compiled()
        source = model or compiled.sources[rule_id_of(compiled, rule)]
        described = source.rule
        item = next(item for item in self._items() if item.id == described.id)
        return wire.RuleDetail(
            rule=item,
            path=str(source.path),
            # A rule that does not compile may hold any bytes, and has to be shown all the same.
            text=source.path.read_text("utf-8", "replace"),
            tags=list(described.tags),
            techniques=list(described.techniques),
            tactics=list(described.tactics),
            runbook=described.runbook,
            falsepositives=list(described.falsepositives),
        )

    def test(self, rule: str) -> wire.RuleTested:
        """Run the tests that a rule brings."""
        models = model_rules(self._settings)
        model = models.named(rule)
        if model is not None:
            outcomes = check_models(models, {model.rule.id})
        else:
            compiled = self._compiled()
            rule_id = rule_id_of(compiled, rule)
            if isinstance(compiled.sources[rule_id].rule, Query):
                # The API runs beside the stream on the same machine; a JVM of its own would be too
                # much.
                raise _needs_spark(rule, "test")
            outcomes = check_rules(compiled, {rule_id})
        passed = sum(outcome.passed for outcome in outcomes)
        return wire.RuleTested(
            passed=passed,
            failed=len(outcomes) - passed,
            tests=[
                wire.RuleTest(
                    number=outcome.number,
                    must_match=outcome.must_match,
                    passed=outcome.passed,
                    detail=outcome.detail,
                )
                for outcome in outcomes
            ],
        )

    def preview(self, rule: str, since: datetime, limit: int) -> wire.RulePreview:
        """What a rule over events would have found."""
        compiled = self._compiled()
        found_rule = known_rule(compiled, rule_id_of(compiled, rule))
        if isinstance(found_rule, Query):
            raise _needs_spark(rule, "preview")
        connection = connect(self._settings.lake_root, needs=("silver.event",))
        try:
            rows, total, looked_at = preview(connection, found_rule, since, limit)
        finally:
            connection.close()
        return wire.RulePreview(
            since=since, findings=total, events=looked_at, shown=[_shown(row) for row in rows]
        )

    def switch(self, who: str, rule: str, *, on: bool, reason: str) -> wire.RuleSwitched:
        """Switch a rule on or off; the pack is in force from the next batch on."""
        rule_id = self.one(rule).rule.id
        if on:
            pack, changed = switch_on(self._settings, rule)
        else:
            # Asked before it is switched: after that every rule is off.
            changed = not self.one(rule).rule.state.startswith("off")
            pack = switch_off(self._settings, rule, who, reason)
        with self._lock:
            # Whoever switched it sees it at once, not after `KEPT_SECONDS`.
            self._kept = None
        return wire.RuleSwitched(
            id=rule_id,
            pack=pack.hash,
            rules=_count(pack),
            changed=changed,
            visible="from the next batch of each job on",
        )

    def _compiled(self) -> Compiled:
        with self._lock:
            now = self._clock()
            if self._kept is None or now - self._kept[0] > KEPT_SECONDS:
                self._kept = (now, compiled_rules(self._settings))
            return self._kept[1]

    def _items(self) -> list[wire.RuleItem]:
        return [_item(row) for row in self._rows()]

    def _rows(self) -> list[dict[str, Any]]:
        blind = CoverageState.load(coverage_folder(self._settings)).blind
        causes = {rule_id: str(cause["reason"]) for rule_id, cause in blind.items()}
        models = model_rules(self._settings)
        return rule_rows(self._settings, self._compiled(), models, causes)


def _item(row: dict[str, Any]) -> wire.RuleItem:
    names = ("id", "name", "title", "level", "kind", "state")
    return wire.RuleItem(
        **{name: row[name] or "" for name in names},
        alerts=row["alerts"] == "yes",
        blindness=row["sees"],
    )


def _refused(known: RefusedRule | BadModel) -> wire.RefusedRuleItem:
    if isinstance(known, BadModel):
        remedy = "put the file right; 'headgate rules list' reads it anew"
        name, path = known.path.name, str(known.path)
    else:
        name, path, remedy = known.rule, known.path, known.remedy
    return wire.RefusedRuleItem(rule=name, path=path, reason=known.reason, remedy=remedy)


def _needs_spark(rule: str, verb: str) -> Usage:
    return Usage(
        f"rule '{rule}' is in SQL or Python and runs on Spark, which the API does not start; "
        f"run headgate rules {verb} {rule}"
    )


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    names = ("source", "ip", "user_name", "host_name", "event_uid", "snippet")
    return {"event_time": row["event_time"].isoformat()} | {name: row[name] for name in names}


def _count(pack: RulePack) -> int:
    return sum(map(len, (pack.rules, pack.correlations, pack.queries, pack.models)))
