"""Rules: what there is of them, their text, tests, and what one would have found."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from pydantic import Field

from alerts.rulepack.shadow_marks import MOST_DAYS
from api.wire.base import WireModel
from api.wire.jobs import StoredJob
from api.wire.moment import Moment


class RuleItem(WireModel):
    """A rule in short."""

    id: str = Field(description="never changes")
    name: str = Field(description="short name; empty where it has none")
    title: str = Field(description="what it is about")
    level: str = Field(description="informational, low, medium, high or critical")
    kind: str = Field(description="rule, indicator, model, a kind of correlation, or query")
    state: str = Field(description="on, or why it is not: off (who: why), set aside, untrained")
    alerts: bool = Field(description="whether its findings become alerts")
    blindness: str = Field(description="what the last look at its inputs said; empty: nothing")


class RefusedRuleItem(WireModel):
    """A file that is no rule as it stands."""

    rule: str = Field(description="its title, or the file's name")
    path: str = Field(description="file")
    reason: str = Field(description="why it is refused")
    remedy: str = Field(description="what to do about it")


class RuleList(WireModel):
    """All rules, as their files are now."""

    items: list[RuleItem] = Field(description="rules of every kind")
    refused: list[RefusedRuleItem] = Field(description="files that are no rules")


class RuleDetail(WireModel):
    """A rule with its text."""

    rule: RuleItem = Field(description="in short")
    path: str = Field(description="file it comes from")
    text: str = Field(description="the file as it is")
    version: str = Field(description="names this text; in quotes it is the ETag that changes want")
    own: bool = Field(description="whether the file is in alerts.rules, and can be changed here")
    tags: list[str] = Field(description="tags, ATT&CK among them")
    techniques: list[str] = Field(description="ATT&CK techniques")
    tactics: list[str] = Field(description="ATT&CK tactics")
    runbook: str = Field(description="what to do when it fires")
    falsepositives: list[str] = Field(description="what it may match and not mean")


class RuleScoreItem(WireModel):
    """How a rule did."""

    rule_id: str = Field(description="never changes")
    name: str = Field(description="short name; empty where it has none")
    title: str = Field(description="what it is about")
    level: str = Field(description="informational, low, medium, high or critical")
    alerts: int = Field(description="alerts that began in this time, without muted ones")
    per_week: float = Field(description="alerts a week, of the time that findings cover")
    judged: int = Field(description="alerts judged true, false or benign: what precision rests on")
    true_positive: int = Field(description="judged true_positive or suspicious")
    false_positive: int = Field(description="judged false_positive")
    benign: int = Field(description="judged benign")
    other: int = Field(description="judged test, duplicate or insufficient_data")
    unjudged: int = Field(description="alerts without a verdict")
    precision: float | None = Field(description="true among those judged; null: none is judged")
    precision_low: float = Field(description="lower bound of precision, with 95 % confidence")
    precision_high: float = Field(description="upper bound")
    close_seconds: float | None = Field(description="median from opened to closed")
    cpu_seconds: float | None = Field(
        description="CPU time spent confirming its candidates; null: not measured"
    )
    blindness: str = Field(description="what the last look at its inputs said; empty: nothing")
    last_true_positive: datetime | None = Field(
        description="newest event of an alert judged true, in all that is retained, UTC"
    )
    last_fired: datetime | None = Field(
        description="newest event of its findings, in all that is retained, UTC"
    )
    recommendation: str = Field(
        description="keep, tune, retire, too few verdicts, or none: it had no alert"
    )
    reason: str = Field(description="why")


class RuleScorecard(WireModel):
    """How each rule in force did, most alerts first."""

    since: datetime = Field(description="alerts that began from here on, UTC")
    until: datetime = Field(description="and before, UTC")
    covered_days: float = Field(description="days of it since the first finding")
    items: list[RuleScoreItem] = Field(description="rules that are on")
    elsewhere: int = Field(description="alerts of several rules together, or of rules not in force")


class RuleTest(WireModel):
    """One test that a rule brings."""

    number: int = Field(description="of the event, from 1")
    must_match: bool = Field(description="whether the rule must match it, or must not")
    passed: bool = Field(description="whether it did so")
    detail: str = Field(description="what was wrong")


class RuleTested(WireModel):
    """What the tests of a rule said."""

    passed: int = Field(description="tests that passed")
    failed: int = Field(description="tests that failed")
    tests: list[RuleTest] = Field(description="each of them")


_TEXT = Field(
    min_length=1,
    max_length=200_000,
    description="a file of rules: Sigma, SQL or a model, in YAML",
    examples=["title: ...\nid: ...\nlogsource: ...\ndetection: ...\n"],
)
_WHY = Field("", max_length=2_000, description="for those who wonder later")


class DraftText(WireModel):
    """A text that may become a rule."""

    text: str = _TEXT
    tests: bool = Field(True, description="run the tests that it brings")


class RuleText(WireModel):
    """A text that becomes a rule."""

    text: str = _TEXT
    reason: str = _WHY


class DraftRule(WireModel):
    """A rule that a text holds."""

    id: str = Field(description="never changes")
    name: str = Field(description="short name; empty where it has none")
    title: str = Field(description="what it is about")
    level: str = Field(description="informational, low, medium, high or critical")


class DraftProblem(WireModel):
    """Why a text, or a part of it, is no rule."""

    rule: str = Field(description="its id or title, as far as it can be read")
    line: int | None = Field(description="where, from 1; null: it concerns the rule as a whole")
    reason: str = Field(description="what is wrong")
    remedy: str = Field(description="what to do about it")


class DraftWarning(WireModel):
    """What is odd about a text though it loads."""

    code: str = Field(description="HG and a number, as headgate rules lint has it")
    line: int = Field(description="where, from 1")
    detail: str = Field(description="what it is")


class DraftChecked(WireModel):
    """What a text would be."""

    loads: bool = Field(description="whether all of it compiles; false also for no rule at all")
    rules: list[DraftRule] = Field(description="rules that it holds")
    problems: list[DraftProblem] = Field(description="what does not compile")
    tested: RuleTested = Field(description="the tests that it brings")
    untested: list[str] = Field(
        description="ids whose tests need Spark or are large: headgate rules test runs those"
    )
    warnings: list[DraftWarning] = Field(description="what is odd about it though it loads")


class RuleSaved(WireModel):
    """A rule that was saved or taken away."""

    id: str = Field(description="of the rule")
    version: str | None = Field(description="names its text; null: it was taken away")
    path: str = Field(description="its file")
    pack: str = Field(description="hash of the rule pack that is in force now")
    rules: int = Field(description="rules in it")
    untested: list[str] = Field(description="ids whose tests were not run: headgate rules test")
    visible: str = Field(description="when it takes effect")


class RuleVersionItem(WireModel):
    """A text that a rule had or has."""

    version: str = Field(description="names the text")
    at: datetime = Field(description="when it was saved, or its file was written, UTC")
    who: str = Field(description="who saved it; empty: the file was changed by another way")
    act: str = Field(description="created, changed, removed, or file: as it was found")
    reason: str = Field(description="why, as they said")
    current: bool = Field(description="whether the file holds this text now")


class RuleVersionList(WireModel):
    """The versions of a rule, newest first."""

    items: list[RuleVersionItem] = Field(description="the newest hundred at most")


class RuleVersionText(WireModel):
    """A version with its text."""

    version: RuleVersionItem = Field(description="in short")
    text: str = Field(description="the whole text")
    diff: str = Field(description="unified diff from it to the text asked for, or to that of now")


class PreviewWanted(WireModel):
    """How much history to look at."""

    since: Moment = Field(description="events from here on", examples=["-7d"])
    limit: int = Field(50, ge=1, le=500, description="findings to show")


class RulePreview(WireModel):
    """What a rule would have found; no finding is kept and no alert is made."""

    since: datetime = Field(description="events from here on, UTC")
    findings: int = Field(description="all that it would have found")
    events: int = Field(description="events of its log source that were looked at")
    counted: int | None = Field(
        description="of a correlation: findings of the rules it counts; null: it counts none"
    )
    notes: list[str] = Field(description="limits that were reached, and what was left out")
    shown: list[dict[str, Any]] = Field(description="the first of the findings")


class SwitchReason(WireModel):
    """Why a rule is switched."""

    reason: str = _WHY


class NewShadow(WireModel):
    """A rule that is to be tried on live events without alerts."""

    days: int = Field(7, ge=1, le=MOST_DAYS, description="how long it is to be tried")
    reason: str = _WHY


class RuleSwitched(WireModel):
    """A rule that was switched on or off, or put in shadow or taken out of it."""

    id: str = Field(description="of the rule")
    pack: str = Field(description="hash of the rule pack that is in force now")
    rules: int = Field(description="rules in it")
    changed: bool = Field(description="false: it was so already")
    visible: str = Field(description="when it takes effect", examples=["from the next batch on"])


RuleJobKind = Literal["preview", "backtest", "thresholds"]


class NewRuleJob(WireModel):
    """A rule, or a text that may become one, to be tried on history."""

    kind: RuleJobKind = Field(
        description="preview: findings; backtest: alerts, as the jobs would have raised them; "
        "thresholds: what other counts and windows of a correlation would have raised"
    )
    rule: str | None = Field(None, max_length=500, description="id or name of a rule")
    text: str | None = Field(
        None, min_length=1, max_length=200_000, description="or the text of a draft"
    )
    since: Moment = Field(description="events from here on", examples=["-7d"])
    until: Moment | None = Field(None, description="and before (backtest); null: now")
    against: str | None = Field(
        None,
        max_length=500,
        description="compare with this (backtest): id or name of a rule, hash of a pack, or "
        "'current'",
    )
    limit: int = Field(50, ge=1, le=500, description="findings to show (preview)")
    ttl_seconds: int = Field(
        86_400, ge=60, le=7 * 86_400, description="for so long the result is kept"
    )


class RuleJob(StoredJob):
    """A preview or backtest as a job."""

    kind: RuleJobKind = Field(description="what is done")
    rule_id: str = Field(description="the rule, or that of the text")
    title: str = Field(description="what the rule is about")
    draft: bool = Field(description="whether a text was tried that is not in force")
    since: datetime = Field(description="events from here on, UTC")
    until: datetime | None = Field(description="and before, UTC; null: to the end")
    against: str | None = Field(description="what it is compared with")
    elapsed_ms: float | None = Field(description="time it took")


class RuleJobList(WireModel):
    """Previews and backtests."""

    items: list[RuleJob] = Field(description="newest first")


class FilterCondition(WireModel):
    """One question of a filter."""

    field: str = Field(max_length=200, description="field of an event", examples=["user.name"])
    op: Literal["eq", "cidr", "endswith", "startswith", "contains"] = Field(
        description="how the field is compared"
    )
    value: str = Field(min_length=1, max_length=300, description="literally, without wildcards")


class HiddenAlert(WireModel):
    """An alert that a filter would have hidden."""

    alert_id: str = Field(description="id of the alert")
    verdict: str | None = Field(description="what it was judged; null: nobody judged it")


class FilterProposal(WireModel):
    """A filter, and what it would have hidden in all retained alerts."""

    conditions: list[FilterCondition] = Field(description="one, or two that one event satisfies")
    words: str = Field(description="the conditions as a sentence")
    wide: str = Field("", description="how wide it is where it names a host alone; else empty")
    removes: int = Field(description="alerts judged false or benign that it removes")
    false_positive: int = Field(description="hidden alerts judged false_positive")
    benign: int = Field(description="hidden alerts judged benign")
    true_positive: int = Field(description="hidden alerts judged true: none")
    unjudged: int = Field(description="hidden alerts that nobody judged")
    other: int = Field(description="hidden alerts with other verdicts")
    unjudged_examples: list[str] = Field(description="ids of some of those")
    hidden: list[HiddenAlert] = Field(
        description="what it would have hidden: at most 20, those that nobody judged first"
    )
    kept: bool = Field(False, description="whether a filter of just that is kept already")


class FilterProposals(WireModel):
    """What verdicts teach about one rule."""

    judged: int = Field(description="alerts judged true, false or benign")
    items: list[FilterProposal] = Field(description="what removes most for each condition first")
    limits: list[str] = Field(description="what the proposals rest on, and what not")


class NewFilter(WireModel):
    """A filter that somebody answers for."""

    conditions: list[FilterCondition] = Field(
        min_length=1, max_length=2, description="as they were proposed"
    )
    owner: str = Field(min_length=1, max_length=200, description="who answers for it")
    reason: str = Field(min_length=1, max_length=2_000, description="why")
    expires: date = Field(description="the rule is compiled without it from this day on")


class FilterSaved(WireModel):
    """A filter that is in force."""

    rule_id: str = Field(description="the rule that it narrows")
    path: str = Field(description="its file")
    pack: str = Field(description="hash of the rule pack that is in force now")
    visible: str = Field(description="when it takes effect")


class RuleFilter(WireModel):
    """A Sigma filter that narrows a rule."""

    filter_id: str = Field(description="its id; empty: its file gives none, and it does not load")
    title: str = Field(description="what it is about")
    text: str = Field(description="what it leaves out, in YAML as its file says it")
    owner: str = Field(description="who answers for it; empty: its file does not say")
    reason: str = Field(description="why; empty: its file does not say")
    expires: date | None = Field(
        description="the rule is compiled without it from this day on; null: it has no end"
    )
    of_all: bool = Field(description="whether it narrows every rule of its log source")
    path: str = Field(description="its file")
    can_end: bool = Field(
        description="whether DELETE ends it; false: its file holds more, or narrows other rules too"
    )
    not_in_force: str | None = Field(description="why it narrows nothing now; null: it does")


class RuleFilterList(WireModel):
    """Filters of one rule."""

    items: list[RuleFilter] = Field(description="those whose day is over last")


class FilterEnded(WireModel):
    """A filter whose file was taken away."""

    rule_id: str = Field(description="the rule that it narrowed")
    filter_id: str = Field(description="its id")
    path: str = Field(description="the file that is gone; the audit has its text")
    pack: str = Field(description="hash of the rule pack that is in force now")
    visible: str = Field(description="when it takes effect")


class NewThreshold(WireModel):
    """Another number of a correlation, that somebody answers for."""

    count: float | None = Field(None, gt=0, description="null: as it is")
    window_seconds: int | None = Field(None, ge=1, description="null: as it is")
    owner: str = Field(min_length=1, max_length=200, description="who answers for it")
    reason: str = Field(min_length=1, max_length=2_000, description="why")


class ThresholdSaved(WireModel):
    """A copy with that number, in force in place of the rule."""

    rule_id: str = Field(description="the copy")
    replaces: str = Field(description="the rule that is off now")
    path: str = Field(description="the copy's file")
    pack: str = Field(description="hash of the rule pack that is in force now")
    tests_left_out: int = Field(description="tests of the rule that do not hold with it")
    visible: str = Field(description="when it takes effect")
