"""Rollout: one pack with its versions and the way back; rules tried, promoted or dropped."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from alerts.rulepack.shadow_marks import MOST_DAYS
from api.console.page import Page, console_router
from api.console.pages.rules import PAGE as RULES
from api.console.pages.rules import Engineer
from api.console.render import respond
from api.console.request import CheckedForm, Signed, reason_of
from api.routes.access import Here
from api.routes.rules.reading import audited_switch
from api.services.rules import rollout
from api.wire.rollout import PackPlan, RollbackAct
from api.wire.rules import NewShadow
from infra.errors import Usage

router = console_router()
PAGE = Page("rule-pack", "Pack of rules", router)


@router.get("/rule-packs/{pack}")
def rule_pack(
    request: Request, services: Here, session: Signed, pack: str, to: str = ""
) -> Response:
    """The pack; `to`: what going back to that version would change."""
    items = rollout.packs(services.settings, services.rules).items
    item = next((each for each in items if each.pack == pack), None)
    if item is None:
        raise HTTPException(404, f"no pack '{pack}'; the page of rules lists them")
    # The bundled rules come with a release, and have no import.
    known = rollout.pack_versions(services.settings, pack).items if item.imported else []
    plan: PackPlan | None = None
    problem = None
    try:
        plan = rollout.rollback_plan(services.settings, pack, to) if to else None
    except Usage as error:
        problem = str(error)
    return respond(
        request,
        "rule_pack.html",
        page=RULES,
        item=item,
        versions=known,
        plan=plan,
        problem=problem,
        may_switch=session.caller.may("engineer"),
    )


@router.post("/rules/{rule_id}/rollout")
def change_rollout(services: Here, session: Engineer, rule_id: str, form: CheckedForm) -> Response:
    """Try a rule without alerts, let it alert, or give it up, with the reason."""
    given = {name: values[0].strip() for name, values in form.items()}
    act, reason, days = given.get("act", ""), reason_of(form), given.get("days", "7")
    who = session.caller.name
    if act == "shadow":
        if not days.isdecimal() or not 1 <= int(days) <= MOST_DAYS:
            raise Usage(f"days: '{days[:20]}'; from 1 to {MOST_DAYS}")
        done = services.rules.shadow(who, rule_id, NewShadow(days=int(days), reason=reason))
    elif act in ("promote", "drop"):
        done = services.rules.leave_shadow(who, rule_id, reason, promoted=act == "promote")
    else:
        raise Usage(f"act: '{act[:20]}' is none of shadow, promote, drop")
    audited_switch(services, who, f"rule.{act}", done, reason)
    # A changed text has no page of its own any more once it was promoted or dropped.
    there = services.rules.has(done.id)
    return RedirectResponse(f"/rules/{quote(done.id, safe='')}" if there else "/rules", 303)


@router.post("/rule-packs/{pack}/rollback")
def roll_back(services: Here, session: Engineer, pack: str, form: CheckedForm) -> Response:
    """Go back to the version that was looked at."""
    given = {name: values[0].strip() for name, values in form.items()}
    reason = reason_of(form)
    changes = given.get("changes", "")
    if not changes.isdecimal() or not given.get("to"):
        raise Usage("look first what going back would change: choose a version")
    asked = RollbackAct(to=given["to"], changes=int(changes), reason=reason)
    rollout.roll_back(services.settings, services.rules, session.caller.name, pack, asked)
    return RedirectResponse(_page_of(pack), status_code=303)


def _page_of(pack: str) -> str:
    """Address of a pack's page."""
    return f"/rule-packs/{quote(pack, safe='')}"
