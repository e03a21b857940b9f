"""Rules: what each finds, whether it can see, how often it was right; one with its tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from alerts.domain.levels import LEVELS
from alerts.rulepack.rule_pack import Correlation, Rule
from api.console.page import Page, console_router
from api.console.render import respond
from api.console.request import CheckedForm, Here, Signed, form_reason, signed_in
from api.console.session import ConsoleSession
from api.console.time_words import earliest
from api.routes.access import Services
from api.routes.rules.reading import audited_switch
from api.services.console import rule_stats
from api.services.reader import ReaderRow
from api.services.rules import rollout as packs
from api.services.rules.tuning import rule_filters
from api.wire.rules import RuleItem, RuleScoreItem
from infra.errors import Retryable, Usage

router = console_router()
PAGE = Page("rules", "Rules", router, "/rules", "rules", 40, "r", group="look")
SORTS = ("alerts", "findings", "newest", "level", "title", "rate")
DAYS = timedelta(days=30)
_ENDED = {
    "promote": "It alerts from the next batch on.",
    "drop": "It is given up, and off from the next batch on.",
    "promote_text": "The text that was in shadow takes the place of this rule's from the next "
    "batch on.",
    "drop_text": "The text that was in shadow is taken away; this rule is as it was.",
    "on": "It is on from the next batch on.",
    "filter_ended": "The filter is ended: the rule runs without it from the next batch on.",
    "off": "It is off from the next batch on; what it found is kept.",
}
"""What was just done to a rule, as its page says it."""


def engineer(session: Annotated[ConsoleSession, Depends(signed_in)]) -> ConsoleSession:
    """The session of somebody who may change rules; raises 403."""
    if not session.caller.may("engineer"):
        raise HTTPException(
            403, f"'{session.caller.name}' is {session.caller.role}; rules need engineer"
        )
    return session


Engineer = Annotated[ConsoleSession, Depends(engineer)]


@router.get("/rules")
def rules(
    request: Request,
    services: Here,
    session: Signed,
    q: str = "",
    state: str = "",
    sort: str = "alerts",
    removed: str = "",
) -> Response:
    """The list; `removed`: id of the rule that was just taken away."""
    if sort not in SORTS:
        raise Usage(f"sort: '{sort}' is none of {', '.join(SORTS)}")
    stats: dict[str, ReaderRow] = {}
    scores: dict[str, RuleScoreItem] = {}
    unread = None
    # What people judged is counted for all tenants together: who is limited is shown no score.
    whole = services.reader.tenants is None
    try:
        if whole:
            listing, card = services.rules.all_scored(services.reader, DAYS.days)
            scores = {score.rule_id: score for score in card.items}
        else:
            listing = services.rules.all()
        stats = rule_stats.rule_stats(services.reader, datetime.now(UTC) - DAYS)
    except Retryable as error:
        # Rules lie in files: they are there, and can be written, before the first event is.
        listing, unread = services.rules.all(), str(error)
    rows = [_row(item, stats.get(item.id, {}), scores.get(item.id)) for item in listing.items]
    shown = [row for row in rows if _fits(row, q.strip().lower(), state)]
    return respond(
        request,
        "rules.html",
        page=PAGE,
        rows=sorted(shown, key=lambda row: _rank(row, sort)),
        refused=listing.refused,
        packs=packs.packs(services.settings, services.rules).items if whole else [],
        unread=unread,
        total=len(rows),
        blind=sum(bool(row["item"].blindness) for row in rows),
        off=sum(not _runs(row["item"]) for row in rows),
        in_shadow=sum(_shadowed(row["item"]) for row in rows),
        at_rest=sum(not row["findings"] for row in rows),
        asked={"q": q, "state": state, "sort": sort},
        removed=_removed(services, removed) if removed and whole else None,
        sorts=SORTS,
        may_look=whole and session.caller.may("viewer"),
        may_write=whole and session.caller.may("engineer"),
    )


@router.get("/rules/{rule_id}")
def rule(
    request: Request,
    services: Here,
    session: Signed,
    rule_id: str,
    test: bool = False,
    preview: str = "",
    saved: str = "",
    left_on: bool = False,
    rollout: str = "",
) -> Response:
    """One rule: its text, what it found, and on request its tests and a preview on history.

    `saved`: the draft that it was until now; `left_on`: the rule it copies is on as well;
    `rollout`: how its time in shadow has just ended, or how it was switched.
    """
    try:
        detail = services.rules.one(rule_id)
    except Usage as error:
        # An id of no rule is an address that is not there, not a form filled in wrongly.
        raise HTTPException(404, str(error)) from None
    now = datetime.now(UTC)
    figures = _figures(services, detail.rule, now)
    whole = services.reader.tenants is None
    described = services.rules.source(rule_id).rule if whole else None
    tested, previewed, problem = None, None, None
    try:
        tested = services.rules.test(rule_id) if test else None
        if preview:
            since = earliest("preview", preview, now) or now
            previewed = services.rules.preview(rule_id, since, 50)
    except Usage as error:
        problem = str(error)
    return respond(
        request,
        "rule.html",
        page=PAGE,
        detail=detail,
        **figures,
        tested=tested,
        previewed=previewed,
        problem=problem,
        may_switch=whole and session.caller.may("engineer"),
        may_try=whole and session.caller.may("viewer"),
        versions=services.rules.versions(detail.rule.id).items if whole else [],
        runs=_runs(detail.rule),
        shadowed=_shadowed(detail.rule),
        counts=isinstance(described, Correlation),
        filters=rule_filters(services.settings, services.rules.refused(), described)
        if isinstance(described, Rule)
        else [],
        saved=saved,
        left_on=left_on,
        ended=_ENDED.get(rollout),
    )


def _removed(services: Services, rule_id: str) -> dict[str, Any] | None:
    """A rule that was taken away, and the text that it last had."""
    try:
        known = services.rules.versions(rule_id).items
    except Usage:
        return None
    if services.rules.has(rule_id) or len(known) < 2:
        return None
    return {"rule_id": rule_id, "version": known[1].version, "who": known[0].who}


def _figures(services: Services, item: RuleItem, now: datetime) -> dict[str, Any]:
    """What the rule found; `unread` says why that is not known."""
    step = timedelta(hours=12)
    stats: dict[str, ReaderRow] = {}
    buckets: list[datetime] = []
    values: list[int] = []
    score = unread = None
    try:
        stats = rule_stats.rule_stats(services.reader, now - DAYS, item.id)
        if services.reader.tenants is None:
            card = services.rules.scorecard(services.reader, DAYS.days, item.id)
            score = next(iter(card.items), None)
        buckets, values = rule_stats.findings_over_time(
            services.reader, item.id, now - DAYS, now, step
        )
    except Retryable as error:
        unread = str(error)
    chart = {
        "times": [int(bucket.timestamp()) for bucket in buckets],
        "step": int(step.total_seconds()),
        "series": [{"name": "findings", "values": values}],
    }
    row = _row(item, stats.get(item.id, {}), score)
    return {"row": row, "chart": chart, "found": sum(values), "unread": unread}


@router.get("/rules/{rule_id}/versions/{version}")
def rule_version(
    request: Request, services: Here, session: Signed, rule_id: str, version: str, against: str = ""
) -> Response:
    """What a rule was, and what differs from it to another version, or to what it is now."""
    try:
        known = services.rules.versions(rule_id).items
        shown = services.rules.version(rule_id, version, against or None)
        detail = services.rules.one(rule_id) if services.rules.has(rule_id) else None
    except Usage as error:
        raise HTTPException(404, str(error)) from None
    return respond(
        request,
        "rule_version.html",
        page=PAGE,
        rule_id=rule_id,
        detail=detail,
        shown=shown,
        versions=known,
        against=against,
        may_switch=session.caller.may("engineer"),
    )


@router.post("/rules/{rule_id}/switch")
def switch(services: Here, session: Engineer, rule_id: str, form: CheckedForm) -> Response:
    """Switch a rule on or off, with the reason."""
    on = (form.get("on") or [""])[0] == "1"
    reason = form_reason(form)
    who = session.caller.name
    switched = services.rules.switch(who, rule_id, on=on, reason=reason)
    audited_switch(services, who, "rule.enable" if on else "rule.disable", switched, reason)
    return RedirectResponse(
        f"/rules/{quote(switched.id, safe='')}?rollout={'on' if on else 'off'}", status_code=303
    )


def _row(item: Any, stats: dict[str, Any], score: RuleScoreItem | None) -> dict[str, Any]:
    return {
        "item": item,
        "findings": stats.get("findings", 0),
        "newest": stats.get("newest"),
        "alerts": stats.get("alerts", 0),
        "muted": stats.get("muted", 0),
        "score": score,
        "judged": score.judged if score else 0,
        "rate": score.precision if score else None,
    }


def _runs(item: RuleItem) -> bool:
    """Whether it matches events: one in shadow does, and raises nothing."""
    return item.state == "on" or _shadowed(item)


def _shadowed(item: RuleItem) -> bool:
    return item.state.startswith("shadow")


def _fits(row: dict[str, Any], text: str, state: str) -> bool:
    item = row["item"]
    named = text in f"{item.title} {item.name} {item.id} {item.kind}".lower()
    kept = {
        "": True,
        "on": _runs(item),
        "off": not _runs(item),
        "shadow": _shadowed(item),
        "blind": bool(item.blindness),
        "rest": not row["findings"],
    }
    if state not in kept:
        raise Usage(f"state: '{state}' is none of on, off, shadow, blind, rest")
    return named and kept[state]


def _rank(row: dict[str, Any], sort: str) -> tuple[Any, ...]:
    item = row["item"]
    level = -LEVELS.index(item.level) if item.level in LEVELS else 0
    newest = -(row["newest"].timestamp() if row["newest"] else 0)
    ranks: dict[str, Any] = {
        "alerts": -row["alerts"],
        "findings": -row["findings"],
        "newest": newest,
        "level": level,
        "title": 0,
        # A share ends at 1: rules that nobody judged come after all that somebody did.
        "rate": row["rate"] if row["rate"] is not None else 2,
    }
    # Level and title keep equal ones in their order from one look to the next.
    return (ranks[sort], level, item.title)
