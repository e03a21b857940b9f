"""Rules: list, read, test, preview, switch on and off."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from api.observability.audit_log import audit_request
from api.problems import responses
from api.routes.access import Here, Services, Who, wants
from api.wire import rules as wire

router = APIRouter(prefix="/api/v1", tags=["rules"])

RuleName = Annotated[str, Path(description="id or name of the rule", max_length=500)]
_SWITCHES = [Depends(wants("engineer"))]


@router.get("/rules", summary="List rules", responses=responses(503))
def list_rules(services: Here) -> wire.RuleList:
    """Rules of every kind, as their files are now, and the files that are refused."""
    return services.rules.all()


Days = Annotated[int, Query(ge=1, le=3_650, description="how many days back")]


@router.get(
    "/rule-scorecard",
    summary="How rules do",
    responses=responses(422, 503),
    dependencies=[Depends(wants("viewer"))],
)
def rules_scorecard(services: Here, days: Days = 30) -> wire.RuleScorecard:
    """Precision by verdicts, and what it rests on; keep, tune, retire, too few verdicts, none."""
    return services.rules.scorecard(services.reader, days)


@router.get(
    "/rules/scorecard",
    summary="The scorecard, or a rule of that name",
    deprecated=True,
    responses=responses(422, 503),
    dependencies=[Depends(wants("viewer"))],
)
def scorecard_or_rule(
    services: Here, answer: Response, days: Days = 30
) -> wire.RuleScorecard | wire.RuleDetail:
    """Ask `/api/v1/rule-scorecard`: a rule that is named `scorecard` is what this path means."""
    if services.rules.has("scorecard"):
        return _shown(services, answer, "scorecard")
    return services.rules.scorecard(services.reader, days)


@router.get("/rules/{rule}", summary="One rule", responses=responses(404, 422, 503))
def one_rule(services: Here, rule: RuleName, answer: Response) -> wire.RuleDetail:
    """With the text of its file. The ETag is what changes want as If-Match."""
    return _shown(services, answer, rule)


def _shown(services: Services, answer: Response, rule: str) -> wire.RuleDetail:
    detail = services.rules.one(rule)
    answer.headers["ETag"] = f'"{detail.version}"'
    return detail


@router.post(
    "/rules/{rule}/test", summary="Run the tests of a rule", responses=responses(404, 422, 503)
)
def test_rule(services: Here, rule: RuleName) -> wire.RuleTested:
    """The events that it brings: each must match, or must not."""
    return services.rules.test(rule)


@router.post(
    "/rules/{rule}/preview",
    summary="What a rule would have found",
    responses=responses(404, 422, 503),
    dependencies=[Depends(wants("viewer"))],
)
def preview_rule(services: Here, rule: RuleName, wanted: wire.PreviewWanted) -> wire.RulePreview:
    """Over events of the lake, by the matcher that jobs use; nothing is kept, no alert is made."""
    return services.rules.preview(rule, wanted.since, wanted.limit)


@router.post(
    "/rules/{rule}/enable",
    summary="Switch a rule on",
    responses=responses(404, 422, 503),
    dependencies=_SWITCHES,
)
def enable_rule(services: Here, who: Who, rule: RuleName) -> wire.RuleSwitched:
    """Also lets one run again that was set aside."""
    return _switch(services, who.name, rule, on=True)


@router.post(
    "/rules/{rule}/disable",
    summary="Switch a rule off",
    responses=responses(404, 422, 503),
    dependencies=_SWITCHES,
)
def disable_rule(
    services: Here, who: Who, rule: RuleName, why: wire.SwitchReason
) -> wire.RuleSwitched:
    """It finds nothing from the next batch on; its reason is listed with it."""
    return _switch(services, who.name, rule, on=False, reason=why.reason.strip())


def _switch(
    services: Services, who: str, rule: str, *, on: bool, reason: str = ""
) -> wire.RuleSwitched:
    switched = services.rules.switch(who, rule, on=on, reason=reason)
    return audited_switch(services, who, "rule.enable" if on else "rule.disable", switched, reason)


def audited_switch(
    services: Services, who: str, act: str, switched: wire.RuleSwitched, reason: str
) -> wire.RuleSwitched:
    """What was switched, once the audit has it."""
    detail = {"reason": reason.strip(), "pack": switched.pack}
    audit_request(services.settings, act, "ok", who=who, target=switched.id, detail=detail)
    return switched
