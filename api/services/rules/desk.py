"""Rules over REST: the same functions that `headgate rules` calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from alerts.backtest.correlation_preview import preview_over_events
from alerts.compiler.compiler import Compiled, RefusedRule, RuleSource
from alerts.compiler.model_rule_files import BadModel, ModelSource
from alerts.coverage.state import CoverageState, coverage_folder
from alerts.rollout.shadow import (
    ShadowWish,
    drop_rules,
    promote_rules,
    shadow_ids,
    shadow_rules,
)
from alerts.rulebook.model_rule_tests import check_models
from alerts.rulebook.own_rules import (
    OwnRule,
    add_own_rule,
    change_own_rule,
    is_own,
    remove_own_rule,
)
from alerts.rulebook.preview import shown_row
from alerts.rulebook.rule_store import model_rules
from alerts.rulebook.rule_switch import (
    compiled_rules,
    rule_id_of,
    rule_rows,
    switch_off,
    switch_on,
)
from alerts.rulebook.rule_tests import RuleTestOutcome, check_rules
from alerts.rulebook.rule_texts import check_text, testable
from alerts.rulebook.rule_versions import RuleVersion, rule_versions, text_diff, text_version
from alerts.rulepack.rule_pack import Correlation, Query, RulePack
from alerts.tuning.scorecard import scorecard
from api.observability.audit_log import audit_request
from api.services.act_store import StateFolder
from api.services.reader import Reader
from api.services.triage import NoSuchAct, Stale
from api.services.visibility import in_force_when
from api.wire import rules as wire
from infra.config.settings import Settings
from infra.errors import NoSuch, Usage

KEPT_SECONDS = 5.0
"""Compiling takes a second or two; files that changed are seen that much later."""


class RuleDesk:
    """Lists, reads, tests, previews and switches rules."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._kept: tuple[float, Compiled] | None = None
        self._lock = threading.Lock()
        self._turn = StateFolder(settings, "rules", timedelta(days=1))

    def all(self) -> wire.RuleList:
        """All rules, and the files that are none."""
        return self._list(self._rows())

    def refused(self) -> tuple[RefusedRule, ...]:
        """The files that do not load, with the reasons."""
        return self._compiled().refused

    def all_scored(self, reader: Reader, days: int) -> tuple[wire.RuleList, wire.RuleScorecard]:
        """The list, and how each of its rules did, from the same rows."""
        rows = self._rows()
        return self._list(rows), self._card(reader, rows, days)

    def scorecard(self, reader: Reader, days: int, only: str | None = None) -> wire.RuleScorecard:
        """How each rule in force, or `only` that of an id, did in the last days, by what people
        judged its alerts to be."""
        rows = self._rows()
        return self._card(reader, [r for r in rows if only in (None, r["id"])], days, only)

    def _list(self, rows: list[dict[str, Any]]) -> wire.RuleList:
        refused = [_refused(known) for known in self._compiled().refused]
        refused += [_refused(known) for known in model_rules(self._settings).refused]
        return wire.RuleList(items=[_item(row) for row in rows], refused=refused)

    def _card(
        self, reader: Reader, rows: list[dict[str, Any]], days: int, only: str | None = None
    ) -> wire.RuleScorecard:
        until = datetime.now(UTC)
        card = scorecard(reader.rows, rows, until - timedelta(days=days), until, only)
        return wire.RuleScorecard(
            since=card.since,
            until=card.until,
            covered_days=round(card.covered / timedelta(days=1), 1),
            items=[wire.RuleScoreItem(**asdict(score)) for score in card.rules],
            elsewhere=card.elsewhere,
        )

    def one(self, rule: str) -> wire.RuleDetail:
        """A rule by id or name, with its text; raises `NoSuch`."""
        source = self.source(rule)
        described = source.rule
        item = next(_item(row) for row in self._rows() if row["id"] == described.id)
        try:
            content = source.path.read_bytes()
        except FileNotFoundError:
            # Compiled rules are kept for moments, in which a file may go.
            raise NoSuch(f"no rule '{rule}': its file was just taken away") from None
        return wire.RuleDetail(
            rule=item,
            path=str(source.path),
            # A rule that does not compile may hold any bytes, and has to be shown all the same.
            text=content.decode("utf-8", "replace"),
            version=text_version(content),
            own=is_own(self._settings, source.path),
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
            if not testable(compiled, [rule_id])[0]:
                # The API runs beside the stream on the same machine; a JVM of its own would be too
                # much.
                raise _needs_spark(rule, "test")
            outcomes = check_rules(compiled, {rule_id})
        return tested(outcomes)

    def preview(self, rule: str, since: datetime, limit: int) -> wire.RulePreview:
        """What a rule would have found."""
        compiled = self._compiled()
        found_rule = compiled.sources[rule_id_of(compiled, rule)].rule
        if isinstance(found_rule, Query):
            raise _needs_spark(rule, "preview")
        counts = preview_over_events(self._settings, found_rule, since, limit)
        return wire.RulePreview(
            since=since,
            findings=counts.findings,
            events=counts.events,
            counted=counts.counted,
            notes=list(counts.notes),
            shown=[shown_row(row) for row in counts.shown],
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
        self.forget()
        return self._switched(rule_id, pack, changed=changed)

    def shadow(self, who: str, rule: str, asked: wire.NewShadow) -> wire.RuleSwitched:
        """Put a rule in force in shadow; raises `Usage` for one that is not there."""
        with self.changing():
            source = self.source(rule)
            changed = not source.rule.in_shadow
            shadow_wish = ShadowWish(who, asked.reason.strip(), asked.days)
            pack = shadow_rules(self._settings, [source.rule.id], shadow_wish)
        return self._switched(source.rule.id, pack, changed=changed)

    def leave_shadow(
        self, who: str, rule: str, reason: str, *, promoted: bool
    ) -> wire.RuleSwitched:
        """Promote a rule, or drop it; raises `Usage` for one that is not in shadow, `NoSuch` for
        one that there is not."""
        leave = promote_rules if promoted else drop_rules
        with self.changing():
            (rule_id,) = self._in_shadow(rule)
            pack = leave(self._settings, [rule_id], who, reason.strip())
        return self._switched(rule_id, pack, changed=True)

    def _in_shadow(self, rule: str) -> list[str]:
        try:
            return shadow_ids(self._settings, [rule])
        except Usage:
            # A rule that there is not is another thing than one that is not in shadow.
            self.source(rule)
            raise

    def _switched(self, rule_id: str, pack: RulePack, *, changed: bool) -> wire.RuleSwitched:
        return wire.RuleSwitched(
            id=rule_id,
            pack=pack.hash,
            rules=_count(pack),
            changed=changed,
            visible=in_force_when(self._settings),
        )

    def check(self, draft: wire.DraftText) -> wire.DraftChecked:
        """What a text would be as a rule; nothing is kept."""
        checked = check_text(self._settings, draft.text, tests=draft.tests)
        names = ("id", "name", "title", "level")
        return wire.DraftChecked(
            loads=bool(checked.rules) and not checked.problems,
            rules=[
                wire.DraftRule(**{name: getattr(rule, name) for name in names})
                for rule in checked.rules
            ],
            problems=[wire.DraftProblem(**asdict(problem)) for problem in checked.problems],
            tested=tested(checked.outcomes),
            untested=list(checked.untested),
            warnings=[
                wire.DraftWarning(code=odd.code, line=odd.line, detail=odd.detail)
                for odd in checked.odd
                # What is no YAML is among the problems already.
                if odd.code != "HG000"
            ],
        )

    def create(self, who: str, asked: wire.RuleText) -> wire.RuleSaved:
        """Keep a rule of one's own and put it in force; raises `Usage` for one that is not good."""
        with self.changing():
            own = add_own_rule(self._settings, asked.text, who, asked.reason.strip())
        first = own.checked.rules[0].id if own.checked else ""
        return self._saved("rule.create", who, first, own, asked.reason)

    def replace(self, who: str, rule: str, asked: wire.RuleText, if_match: str) -> wire.RuleSaved:
        """Give a rule of one's own another text; raises `Stale` where it has changed since."""
        with self.changing():
            known = self._as_looked_at(rule, if_match)
            own = change_own_rule(
                self._settings, known.rule.id, known.path, asked.text, who, asked.reason.strip()
            )
        return self._saved("rule.change", who, known.rule.id, own, asked.reason)

    def remove(self, who: str, rule: str, reason: str, if_match: str) -> wire.RuleSaved:
        """Take a rule of one's own away; raises `Stale` where it has changed since."""
        with self.changing():
            known = self._as_looked_at(rule, if_match)
            own = remove_own_rule(self._settings, known.rule.id, known.path, who, reason.strip())
        return self._saved("rule.remove", who, known.rule.id, own, reason)

    def versions(self, rule: str) -> wire.RuleVersionList:
        """The texts that a rule had, newest first; by its id also after it was taken away."""
        known, current = self._versions(rule)
        return wire.RuleVersionList(items=[_version(each, current) for each in reversed(known)])

    def version(self, rule: str, version: str, against: str | None) -> wire.RuleVersionText:
        """One of them with its text, and what differs from it to another, or to that of now."""
        known, current = self._versions(rule)
        by_name = {each.version: each for each in known}
        for name in (version, against):
            if name is not None and name not in by_name:
                raise NoSuchAct(f"rule '{rule}' has no version '{name}'; .../versions lists them")
        old, new = by_name[version], by_name[against or known[-1].version]
        return wire.RuleVersionText(
            version=_version(old, current),
            text=old.text,
            diff=text_diff(old.text, new.text, (old.version, new.version)),
        )

    def _versions(self, rule: str) -> tuple[list[RuleVersion], str | None]:
        try:
            source = self.source(rule)
        except Usage:
            # Its history outlives it, and a rule that does not compile any more has one too.
            known = rule_versions(self._settings, rule, None)
            if not known:
                raise
            return known, None
        known = rule_versions(self._settings, source.rule.id, source.path)
        return known, known[-1].version

    def _as_looked_at(self, rule: str, if_match: str) -> RuleSource | ModelSource:
        # Anew: what was compiled seconds ago may not be what is overwritten now.
        self.forget()
        source = self.source(rule)
        etag = f'"{text_version(source.path.read_bytes())}"'
        # `*` overwrites whatever is there (RFC 9110, 13.1.1).
        if if_match.strip() not in ("*", etag):
            raise Stale(f"rule '{rule}' was changed since; look at it again", etag)
        return source

    def _saved(self, act: str, who: str, rule_id: str, own: OwnRule, reason: str) -> wire.RuleSaved:
        version = None if own.checked is None else text_version(own.path.read_bytes())
        detail = {"reason": reason, "version": version, "pack": own.pack.hash}
        audit_request(self._settings, act, "ok", who=who, target=rule_id, detail=detail)
        return wire.RuleSaved(
            id=rule_id,
            version=version,
            path=str(own.path),
            pack=own.pack.hash,
            rules=_count(own.pack),
            untested=list(own.checked.untested) if own.checked else [],
            visible=in_force_when(self._settings),
        )

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change at a time, of all processes of the API on this machine."""
        with self._turn.alone():
            yield
        self.forget()

    def forget(self) -> None:
        """Compile anew at the next question: who changed rules sees it at once."""
        with self._lock:
            self._kept = None

    def has(self, rule: str) -> bool:
        """Whether there is a rule of that id or name."""
        try:
            self.source(rule)
        except Usage:
            return False
        return True

    def counted_by(self, rule_id: str) -> list[str]:
        """Titles of the correlations that count a rule's findings."""
        rules = [source.rule for source in self._compiled().sources.values()]
        return [
            rule.title for rule in rules if isinstance(rule, Correlation) and rule_id in rule.rules
        ]

    def every(self) -> Mapping[str, RuleSource | ModelSource]:
        """The rules of every kind with their files, by id."""
        return {**self._compiled().sources, **model_rules(self._settings).sources}

    def source(self, rule: str) -> RuleSource | ModelSource:
        """A rule of any kind with its file; raises `Usage`."""
        compiled = self._compiled()
        model = model_rules(self._settings).named(rule)
        return model or compiled.sources[rule_id_of(compiled, rule)]

    def _compiled(self) -> Compiled:
        # Held while it compiles: who comes meanwhile waits for that answer, and compiles nothing.
        with self._lock:
            now = self._clock()
            if self._kept is None or now - self._kept[0] > KEPT_SECONDS:
                self._kept = (now, compiled_rules(self._settings))
            return self._kept[1]

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


def tested(outcomes: Sequence[RuleTestOutcome]) -> wire.RuleTested:
    """What tests said."""
    passed = sum(outcome.passed for outcome in outcomes)
    names = ("number", "must_match", "passed", "detail")
    return wire.RuleTested(
        passed=passed,
        failed=len(outcomes) - passed,
        tests=[wire.RuleTest(**{n: getattr(outcome, n) for n in names}) for outcome in outcomes],
    )


def _version(known: RuleVersion, current: str | None) -> wire.RuleVersionItem:
    return wire.RuleVersionItem(
        version=known.version,
        at=datetime.fromisoformat(known.at),
        who=known.who,
        act=known.act,
        reason=known.reason,
        current=known.version == current,
    )


def _needs_spark(rule: str, verb: str) -> Usage:
    return Usage(
        f"rule '{rule}' needs Spark, which the API does not start (it is in SQL or Python), or "
        f"its tests make too many events; run headgate rules {verb} {rule}"
    )


def _count(pack: RulePack) -> int:
    return sum(map(len, (pack.rules, pack.correlations, pack.queries, pack.models)))
