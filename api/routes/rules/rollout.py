"""Rules in shadow: tried on live events without alerts, then promoted or dropped."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from api.problems import responses
from api.routes.access import Here, Who, wants
from api.routes.rules.reading import RuleName, audited_switch
from api.wire import rules as wire

router = APIRouter(prefix="/api/v1/rules", tags=["rules"])
_SWITCHES = [Depends(wants("engineer"))]


@router.post(
    "/{rule}/shadow",
    summary="Try a rule without alerts",
    responses=responses(404, 422, 503),
    dependencies=_SWITCHES,
)
def shadow_rule(
    services: Here, who: Who, rule: RuleName, asked: wire.NewShadow
) -> wire.RuleSwitched:
    """It finds as always; it alerts nobody, adds to no risk and no live correlation counts it."""
    done = services.rules.shadow(who.name, rule, asked)
    return audited_switch(services, who.name, "rule.shadow", done, asked.reason)


@router.post(
    "/{rule}/promote",
    summary="Let a rule in shadow alert",
    responses=responses(404, 422, 503),
    dependencies=_SWITCHES,
)
def promote_rule(
    services: Here, who: Who, rule: RuleName, why: wire.SwitchReason
) -> wire.RuleSwitched:
    """A changed text takes the place of the rule that it changes."""
    done = services.rules.leave_shadow(who.name, rule, why.reason, promoted=True)
    return audited_switch(services, who.name, "rule.promote", done, why.reason)


@router.post(
    "/{rule}/drop",
    summary="Give up a rule in shadow",
    responses=responses(404, 422, 503),
    dependencies=_SWITCHES,
)
def drop_rule(
    services: Here, who: Who, rule: RuleName, why: wire.SwitchReason
) -> wire.RuleSwitched:
    """It is switched off; a changed text is taken away, and its rule stays as it is."""
    done = services.rules.leave_shadow(who.name, rule, why.reason, promoted=False)
    return audited_switch(services, who.name, "rule.drop", done, why.reason)
