"""Many rules at once, counted first; and what rules in shadow would have alerted."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from api.problems import responses
from api.routes.access import Here, Who, wants
from api.services.rules import rollout
from api.wire import rollout as wire

router = APIRouter(prefix="/api/v1", tags=["rules"])
_CHANGES = [Depends(wants("engineer"))]


@router.post(
    "/rule-switches/preview",
    summary="Count what a change of many rules would change",
    responses=responses(422, 503),
    dependencies=_CHANGES,
)
def preview_rule_switches(services: Here, plan: wire.SwitchPlan) -> wire.SwitchCount:
    """Changes nothing. Rules are named, or described by tag, level, status, product and pack."""
    return rollout.count_switch(services.settings, plan)


@router.post(
    "/rule-switches",
    summary="Switch, try, promote or drop many rules",
    responses=responses(422, 503),
    dependencies=_CHANGES,
)
def switch_many_rules(services: Here, who: Who, act: wire.SwitchAct) -> wire.SwitchDone:
    """All of them, and put in force as one. Their number has to be named as it was counted, so
    that no script changes more than it looked at."""
    return rollout.switch_many(services.settings, services.rules, who.name, act)


@router.get(
    "/rule-shadows",
    summary="What rules in shadow would have alerted",
    responses=responses(503),
    dependencies=[Depends(wants("viewer"))],
)
def list_rule_shadows(services: Here) -> wire.ShadowList:
    """Findings of each since it was put there, folded to alerts as job `alert` folds live ones."""
    return rollout.shadows(services.settings, services.reader)
