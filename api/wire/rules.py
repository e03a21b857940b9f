"""Rules: what there is of them, their text, tests, and what one would have found."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from api.wire.base import WireModel
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
    tags: list[str] = Field(description="tags, ATT&CK among them")
    techniques: list[str] = Field(description="ATT&CK techniques")
    tactics: list[str] = Field(description="ATT&CK tactics")
    runbook: str = Field(description="what to do when it fires")
    falsepositives: list[str] = Field(description="what it may match and not mean")


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


class PreviewWanted(WireModel):
    """How much history to look at."""

    since: Moment = Field(description="events from here on", examples=["-7d"])
    limit: int = Field(50, ge=1, le=500, description="findings to show")


class RulePreview(WireModel):
    """What a rule would have found; no finding is kept and no alert is made."""

    since: datetime = Field(description="events from here on, UTC")
    findings: int = Field(description="all that it would have found")
    events: int = Field(description="events of its log source that were looked at")
    shown: list[dict[str, Any]] = Field(description="the first of the findings")


class SwitchReason(WireModel):
    """Why a rule is switched."""

    reason: str = Field("", max_length=2_000, description="for those who wonder later")


class RuleSwitched(WireModel):
    """A rule that was switched on or off."""

    id: str = Field(description="of the rule")
    pack: str = Field(description="hash of the rule pack that is in force now")
    rules: int = Field(description="rules in it")
    changed: bool = Field(description="false: it was so already")
    visible: str = Field(description="when it takes effect", examples=["from the next batch on"])
