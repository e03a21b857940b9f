"""Rollout: one pack with its versions and the way back; rules tried, promoted or dropped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from alerts.rollout.shadow_detail import ShadowDetail, ShadowExample, shadow_detail, shadow_mark
from alerts.rulebook.rule_versions import text_diff
from alerts.rulepack.shadow_marks import MOST_DAYS, ShadowMark
from api.console.page import Page, console_router
from api.console.pages.rule_tries import HistoryViewer
from api.console.pages.rules import PAGE as RULES
from api.console.pages.rules import Engineer
from api.console.render import respond
from api.console.request import CheckedForm, Here, Signed, form_reason
from api.routes.access import Services
from api.routes.rules.reading import audited_switch
from api.services.rules import rollout
from api.wire.rollout import PackPlan, RollbackAct
from api.wire.rules import NewShadow
from infra.errors import HeadgateError, Usage

router = console_router()
PAGE = Page("rule-pack", "Pack of rules", router)
_AROUND = timedelta(minutes=5)
"""What Search shows before and after an alert that there would have been."""


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


@router.get("/rules/{rule_id}/shadow")
def rule_shadow(request: Request, services: Here, session: HistoryViewer, rule_id: str) -> Response:
    """What a rule in shadow would have alerted; of another, how it is put there."""
    try:
        item = services.rules.one(rule_id).rule
    except Usage as error:
        raise HTTPException(404, str(error)) from None
    now = datetime.now(UTC)
    mark = shadow_mark(services.settings, item.id)
    detail: ShadowDetail | None = None
    unread = None
    try:
        if mark:
            ask = services.reader.rows
            detail = shadow_detail(services.settings, ask, item.id, mark, now)
    except HeadgateError as error:
        # The mark is there without a lake: who wants to give the rule up can.
        unread = str(error)
    return respond(
        request,
        "rule_shadow.html",
        page=RULES,
        item=item,
        mark=mark,
        detail=detail,
        unread=unread,
        chart=_chart(detail),
        diff=_diff(services, mark),
        around=_around,
        left=max(mark.until - now, timedelta()) if mark else None,
        may_switch=session.caller.may("engineer"),
    )


def _chart(detail: ShadowDetail | None) -> dict[str, Any] | None:
    if detail is None or not any(detail.findings_by_day):
        return None
    pairs = zip(detail.findings_by_day, detail.alerts_by_day, strict=True)
    return {
        "times": [int(day.timestamp()) for day in detail.days],
        "step": 86_400,
        # Stacked: a day is as high as its findings, of which some begin an alert.
        "series": [
            {"name": "begin an alert", "values": list(detail.alerts_by_day)},
            {"name": "fold into one", "values": [max(all_ - new, 0) for all_, new in pairs]},
        ],
    }


def _diff(services: Services, mark: ShadowMark | None) -> str:
    """What a changed text changes of its rule as it is; empty for a rule that is tried itself."""
    if mark is None or not mark.changes or not services.rules.has(mark.changes):
        return ""
    try:
        return text_diff(services.rules.one(mark.changes).text, mark.text, ("live", "in shadow"))
    except Usage as error:
        return str(error)


def _around(example: ShadowExample) -> dict[str, Any]:
    """The address of Search for the events around an example."""
    named = (("src_ip", example.ip), ("user_name", example.user), ("host_name", example.host))
    about = next((f"{column}={value}" for column, value in named if value), None)
    return {
        "f": about,
        "since": f"{example.first - _AROUND:%Y-%m-%dT%H:%M:%SZ}",
        "until": f"{example.last + _AROUND:%Y-%m-%dT%H:%M:%SZ}",
    }


@router.post("/rules/{rule_id}/rollout")
def change_rollout(services: Here, session: Engineer, rule_id: str, form: CheckedForm) -> Response:
    """Try a rule without alerts, let it alert, or give it up, with the reason."""
    given = {name: values[0].strip() for name, values in form.items()}
    act, reason, days = given.get("act", ""), form_reason(form), given.get("days", "7")
    who = session.caller.name
    changed = _changed_by(services, rule_id)
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
    there = next((each for each in (done.id, changed) if services.rules.has(each)), None)
    if there is None:
        return RedirectResponse("/rules", 303)
    if act == "shadow":
        return RedirectResponse(f"/rules/{quote(there, safe='')}/shadow", 303)
    word = act if there == done.id else f"{act}_text"
    return RedirectResponse(f"/rules/{quote(there, safe='')}?rollout={word}", 303)


def _changed_by(services: Services, rule_id: str) -> str:
    """The rule whose changed text is tried under an id; empty where it is none."""
    if not services.rules.has(rule_id):
        return ""
    mark = shadow_mark(services.settings, services.rules.source(rule_id).rule.id)
    return mark.changes if mark else ""


@router.post("/rule-packs/{pack}/rollback")
def roll_back(services: Here, session: Engineer, pack: str, form: CheckedForm) -> Response:
    """Go back to the version that was looked at."""
    given = {name: values[0].strip() for name, values in form.items()}
    reason = form_reason(form)
    changes = given.get("changes", "")
    if not changes.isdecimal() or not given.get("to"):
        raise Usage("look first what going back would change: choose a version")
    asked = RollbackAct(to=given["to"], changes=int(changes), reason=reason)
    rollout.roll_back(services.settings, services.rules, session.caller.name, pack, asked)
    return RedirectResponse(_page_of(pack), status_code=303)


def _page_of(pack: str) -> str:
    """Address of a pack's page."""
    return f"/rule-packs/{quote(pack, safe='')}"
