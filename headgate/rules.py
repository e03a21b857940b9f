"""The rules of a lake for notebooks: looked at, drafted, tried on history, switched."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from alerts.rulebook.rule_store import model_rules, recompile
from alerts.rulebook.rule_switch import (
    compiled_rules,
    rule_id_of,
    rule_rows,
    switch_off,
    switch_on,
)
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, Query
from headgate.result import QueryResult, result_of
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.os_user import acting_user

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.streaming.lake import Lake

_TEST_COLUMNS = ["id", "title", "event", "must", "passed", "detail"]
_ALERT_COLUMNS = ["raised", "first", "last", "rule_id", "level", "entity_type", "entity", "title"]


class RuleDraft:
    """A rule that is tried before it goes live: its text, in a file that goes with this object."""

    def __init__(self, text: str, name: str, suffix: str) -> None:
        self.text = text
        self.name = name
        # A real file: the compiler and the tests then treat a draft like any other rule.
        self._folder = TemporaryDirectory(prefix="headgate-draft-")
        self.path = Path(self._folder.name) / f"{name}{suffix}"
        self.path.write_text(text, "utf-8")

    def __repr__(self) -> str:
        return f"draft '{self.name}'\n{self.text}"


class BacktestReport:
    """What a backtest came to: by rule and by day, and its alerts."""

    def __init__(self, summary: dict[str, Any], alerts: list[dict[str, Any]]) -> None:
        self.summary = summary
        self._alerts = alerts

    @property
    def rules(self) -> QueryResult:
        """Findings and alerts of each rule."""
        return result_of(self.summary["sides"]["new"]["rules"])

    @property
    def by_day(self) -> dict[str, int]:
        """Alerts of each day that had any, by the day (UTC) on which they were raised."""
        return dict(self.summary["sides"]["new"]["by_day"])

    @property
    def alerts(self) -> QueryResult:
        """Each alert; compared with another rule, `change` is gained, lost or same."""
        return result_of(self._alerts, _ALERT_COLUMNS)

    @property
    def change(self) -> dict[str, int]:
        """How many alerts are gained, lost and same; raises `Usage` without `against`."""
        if "difference" not in self.summary:
            raise Usage("this backtest compared nothing; give against=")
        return dict(self.summary["difference"]["alerts"])

    def __repr__(self) -> str:
        many = self.summary["sides"]["new"]["alerts"]
        summary = f"{self.summary['since']} to {self.summary['until']}: {many} alerts"
        if "difference" in self.summary:
            summary += ", " + ", ".join(f"{n} {what}" for what, n in self.change.items())
        return f"{summary}\n{self.rules!r}"


class RuleBook:
    """The rules of one lake."""

    def __init__(self, settings: Settings, spark: Callable[[], SparkSession]) -> None:
        self._settings = settings
        self._spark = spark

    def list(self) -> QueryResult:
        """All rules: id, name, level, kind, state, whether they alert, and what they see."""
        from alerts.cli.coverage import known_blindness

        settings = self._settings
        models = model_rules(settings)
        return result_of(
            rule_rows(settings, compiled_rules(settings), models, known_blindness(settings))
        )

    def scorecard(self, since: datetime, until: datetime) -> QueryResult:
        """What verdicts say of each rule over alerts that began in [since, until).

        Columns as `headgate rules scorecard --output json` has them: alerts, precision with its
        bounds, seconds to close, and keep, tune or retire with the reason.
        """
        from dataclasses import asdict

        from alerts.cli.coverage import known_blindness
        from alerts.cli.explain import asking
        from alerts.tuning.scorecard import scorecard

        settings = self._settings
        known = known_blindness(settings)
        rules = rule_rows(settings, compiled_rules(settings), model_rules(settings), known)
        with asking(settings) as ask:
            card = scorecard(ask, rules, since, until)
        return result_of([asdict(score) for score in card.rules])

    def draft(self, text: str, *, name: str = "draft") -> RuleDraft:
        """A rule from the text of its file: Sigma or SQL in YAML, or Python.

        Raises `Usage` with the reason and the remedy when it does not compile.
        """
        from alerts.rulebook.rules_anywhere import rules_at

        # A rule in Python carries its description in a docstring at the top; YAML cannot begin so.
        suffix = ".py" if text.lstrip().startswith(('"""', "'''")) else ".yml"
        made = RuleDraft(text, name, suffix)
        here = rules_at(made.path, self._settings)
        # The first reason is enough: a draft is one rule.
        for refused in here.refused:
            raise Usage(f"the draft is refused: {refused.reason}; {refused.remedy}")
        if not here.ids:
            raise Usage("the draft holds no rule; see docs/how-to/write-a-sigma-rule.md")
        return made

    def test(self, *rules: str | RuleDraft) -> QueryResult:
        """Run the events that rules bring as their tests, of all rules where none is named."""
        from alerts.rulebook.model_rule_tests import check_models
        from alerts.rulebook.rule_tests import check_rules
        from alerts.rulebook.rules_anywhere import rules_at

        outcomes = []
        names = [rule for rule in rules if isinstance(rule, str)]
        models = model_rules(self._settings)
        if names or not rules:
            compiled = compiled_rules(self._settings)
            only = {rule_id_of(compiled, n) for n in names if models.named(n) is None}
            judged = {model.rule.id for n in names if (model := models.named(n)) is not None}
            if only or not rules:
                outcomes += check_rules(compiled, only, self._spark)
            if judged or not rules:
                outcomes += check_models(models, judged)
        for rule in rules:
            if isinstance(rule, RuleDraft):
                here = rules_at(rule.path, self._settings)
                outcomes += check_rules(here.compiled, here.ids, self._spark)
        return result_of([outcome.row for outcome in outcomes], _TEST_COLUMNS)

    def preview(
        self, rule: str | RuleDraft, since: datetime | str = "24h", *, limit: int = 100
    ) -> QueryResult:
        """What a rule finds in events that are there; nothing is kept and no alert is made.

        `since`: an instant, or a span before now such as 24h or 7d. The first `limit` findings;
        `truncated` of the result: there are more, and `total` says how many in all.
        """
        from alerts.backtest.correlation_preview import preview_over_events
        from alerts.cli.output import since_when
        from alerts.rulebook import preview as over_events

        settings = self._settings
        if limit < 1:
            raise Usage(f"limit {limit}: must be at least 1")
        if isinstance(since, str):
            since = since_when(since, datetime.now(UTC), "since")
        if isinstance(rule, RuleDraft):
            chosen, drafted = over_events.draft(rule.path, settings)
        else:
            compiled, drafted = compiled_rules(settings), None
            chosen = compiled.sources[rule_id_of(compiled, rule)].rule
        if isinstance(chosen, Query):
            from alerts.spark_rules import rule_tests

            self._spark()  # the session it then finds running
            findings, total, _ = rule_tests.preview_query(settings, chosen, since, limit)
        else:
            counts = preview_over_events(settings, chosen, since, limit, drafted)
            findings, total = counts.shown, counts.findings
            for note in counts.notes:
                print(note, file=sys.stderr)
        shown = ["event_time", "source", "ip", "user_name", "host_name", "event_uid", "snippet"]
        rows = [over_events.shown_row(row) | {"event_time": row["event_time"]} for row in findings]
        return result_of(rows, shown, total=total)

    def enable(self, rule: str) -> str:
        """Switch a rule on from the next micro-batch; the hash of the pack then in force."""
        return switch_on(self._settings, rule)[0].hash

    def disable(self, rule: str, reason: str) -> str:
        """Switch a rule off from the next micro-batch; the hash of the pack then in force."""
        return switch_off(self._settings, rule, acting_user(), reason).hash

    def put_live(self, draft: RuleDraft) -> str:
        """Keep a draft among the rules and put it in force; the hash of the rule pack.

        Its tests must pass. Sigma and SQL go to the first folder of `alerts.rules`; a function in
        Python is let in as by `headgate rules import`. Raises `Usage`, and changes nothing, where
        that is not possible.
        """
        settings = self._settings
        if draft.path.suffix == ".py":
            from alerts.rulebook.import_function import import_function

            self._spark()  # the session it then finds running
            return import_function(settings, draft.path).pack
        if not settings.alerts.rules:
            raise Usage("alerts.rules names no folder to keep a rule in; name one in the settings")
        # Before it is copied: a rule whose tests fail must not come into force for a moment.
        failed = [row for row in self.test(draft) if not row["passed"]]
        if failed:
            raise Usage(f"test {failed[0]['event']} of the draft fails: it {failed[0]['detail']}")
        target = settings.alerts.rules[0] / draft.path.name
        # Never written over: somebody else's rule may have that name.
        if target.exists():
            raise Usage(f"{target} is there already; give the draft another name")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(draft.path, target)
        return recompile(settings).pack.hash

    def run_backtest(
        self,
        lake: Callable[[], Lake],
        rule: str | RuleDraft,
        since: datetime,
        until: datetime,
        against: str | RuleDraft | None,
        progress: bool,
    ) -> BacktestReport:
        """As `Headgate.backtest`."""
        from alerts.backtest.result import kept_alerts, summarise
        from alerts.backtest.rule_selection import choose_against, select_rules
        from alerts.backtest.run import (
            Backtest,
            BacktestRequest,
            backtest_folder,
            begin_backtest,
            forget_backtest,
            require_fit_queries,
        )

        settings = self._settings
        if since >= until:
            raise Usage(f"since {since.isoformat()}: not before until {until.isoformat()}")
        chosen = select_rules(settings, [_name(rule)])
        other = choose_against(settings, _name(against), chosen.ids) if against else None
        # Absolute times: asked again later, the same cell means the same span and takes up the same
        # run.
        asked = f"{since.isoformat()} {until.isoformat()}"
        against_name = _name(against) if against else None
        request = BacktestRequest((_name(rule),), chosen, since, until, other, against_name, asked)
        require_fit_queries(request, lake)
        run = begin_backtest(settings, request)
        work = Backtest(settings, lake, run)
        tell = _say if progress else _silent
        summary = summarise(work, work.through(tell), PackStore(store_folder(settings)))
        work.finish()
        # Read before the oldest results are taken away, which may include this one.
        alerts = kept_alerts(backtest_folder(settings) / run.id)
        forget_backtest(settings)
        return BacktestReport(summary, alerts)


def _name(rule: str | RuleDraft) -> str:
    return str(rule.path) if isinstance(rule, RuleDraft) else rule


def _say(sentence: str) -> None:
    # To stderr: what is printed to stdout may be piped on.
    print(sentence, file=sys.stderr, flush=True)


def _silent(sentence: str) -> None:
    """Nobody asked how far it is."""
