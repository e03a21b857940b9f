"""Less noise of one rule: filters that verdicts propose, or what other counts would have raised.

A filter that was kept stands on the rule's page, and is ended from there.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from alerts.rulepack.rule_pack import Correlation, Rule
from alerts.tuning.rule_tuning import require_tunable
from api.console.page import Page, console_router
from api.console.pages.rule_tries import HistoryViewer
from api.console.pages.rules import PAGE as RULES
from api.console.pages.rules import Engineer
from api.console.render import respond
from api.console.request import CheckedForm, Here, form_reason
from api.console.wrong_values import wrong_value
from api.routes.access import Services
from api.services.console.rule_stats import alerts_named
from api.services.rules import tuning
from api.wire.rules import FilterProposals, NewFilter, NewThreshold
from infra.errors import HeadgateError, Usage

router = console_router()
PAGE = Page("rule-tuning", "Less noise", router, role="viewer")
_DAYS = (7, 30, 90, 365)
_LASTS = timedelta(days=90)
"""How long a filter is proposed to last: noise changes, and somebody should look again."""


@router.get("/rules/{rule_id}/tuning")
def tuning_page(
    request: Request, services: Here, session: HistoryViewer, rule_id: str, days: int = 30
) -> Response:
    """What would make it quieter, and what each choice would have hidden."""
    if days not in _DAYS:
        raise Usage(f"days: {days} is none of {', '.join(map(str, _DAYS))}")
    return _page(request, services, session.caller.may("engineer"), rule_id, days)


@router.post("/rules/{rule_id}/tuning/filter")
def keep_proposal(
    request: Request, services: Here, session: Engineer, rule_id: str, form: CheckedForm
) -> Response:
    """Keep a filter that was proposed."""
    given = {name: values[0] for name, values in form.items()}
    try:
        asked = NewFilter(
            conditions=json.loads(given.get("conditions", "[]")),
            owner=given.get("owner", ""),
            reason=given.get("reason", ""),
            # Read by the model, as one from JSON would be.
            expires=given.get("expires", ""),
        )
        tuning.save_filter(services.settings, services.reader, session.caller.name, rule_id, asked)
    except (ValueError, HeadgateError) as error:
        return _page(request, services, True, rule_id, _days_of(given), _words(error), given)
    # The desk keeps compiled rules for some seconds; who saved one sees it at once.
    services.rules.forget()
    return RedirectResponse(f"/rules/{quote(rule_id, safe='')}?saved=filter", 303)


@router.post("/rules/{rule_id}/tuning/filter/end")
def end_kept_filter(services: Here, session: Engineer, rule_id: str, form: CheckedForm) -> Response:
    """Let the rule run without a filter again."""
    given = {name: values[0] for name, values in form.items()}
    rule, reason = require_tunable(services.rules.source(rule_id).rule, rule_id), form_reason(form)
    with services.rules.changing():
        tuning.end_rule_filter(
            services.settings, session.caller.name, rule, given.get("filter", ""), reason
        )
    return RedirectResponse(f"/rules/{quote(rule_id, safe='')}?rollout=filter_ended", 303)


@router.post("/rules/{rule_id}/tuning/threshold")
def keep_choice(
    request: Request, services: Here, session: Engineer, rule_id: str, form: CheckedForm
) -> Response:
    """Keep another count or window as a copy."""
    given = {name: values[0] for name, values in form.items()}
    count, _, window = given.get("choice", "").partition(" ")
    try:
        asked = NewThreshold(
            count=float(count),
            window_seconds=int(window),
            owner=given.get("owner", ""),
            reason=given.get("reason", ""),
        )
        saved = tuning.save_threshold(services.settings, session.caller.name, rule_id, asked)
    except (ValueError, HeadgateError) as error:
        words = _words(error) if given.get("choice") else "choose one of the rows first"
        return _page(request, services, True, rule_id, _days_of(given), words, given)
    services.rules.forget()
    return RedirectResponse(f"/rules/{quote(saved.rule_id, safe='')}?saved=threshold", 303)


def _days_of(given: dict[str, str]) -> int:
    """The time that the page was of; a page that is refused is of the same."""
    days = given.get("days") or given.get("since", "").strip("-d")
    return next((each for each in _DAYS if str(each) == days), 30)


def _refused(given: dict[str, str]) -> Any:
    """The conditions that were refused: only their form comes back open, and filled in."""
    try:
        return json.loads(given.get("conditions", "null"))
    except ValueError:
        return None


def _words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return wrong_value(error)
    return str(error)


def _page(
    request: Request,
    services: Services,
    may_keep: bool,
    rule_id: str,
    days: int,
    problem: str | None = None,
    given: dict[str, str] | None = None,
) -> Response:
    try:
        rule = services.rules.source(rule_id).rule
    except Usage as error:
        raise HTTPException(404, str(error)) from None
    proposals, unknown = None, None
    if isinstance(rule, Rule):
        proposals, unknown = _proposals(services, rule.id, days)
    refused = _refused(given or {})
    shown = [each.model_dump()["conditions"] for each in proposals.items] if proposals else []
    context: dict[str, Any] = {
        "page": RULES,
        "rule": rule,
        "counts": isinstance(rule, Correlation) and rule.type != "first_seen",
        # Known before somebody chooses: a copy in its place would be refused.
        "counted_by": services.rules.counted_by(rule.id),
        "proposals": proposals,
        # Whom they name is looked up once for all filters.
        "named": alerts_named(
            services.reader,
            sorted({e.alert_id for each in proposals.items for e in each.hidden}),
        )
        if proposals
        else {},
        "unknown": unknown,
        "days": days,
        "choices_of_days": _DAYS,
        "may_keep": may_keep,
        "problem": problem,
        "given": given or {},
        "refused": refused,
        # Its form is gone: what was typed there has to stand somewhere.
        "homeless": (given or {}).get("reason", "") if refused and refused not in shown else "",
        "expires": date.fromordinal((datetime.now(UTC) + _LASTS).toordinal()),
    }
    return respond(request, "rule_tuning.html", 422 if problem else 200, **context)


def _proposals(
    services: Services, rule_id: str, days: int
) -> tuple[FilterProposals | None, str | None]:
    """What verdicts propose, or why that is not known: the page says it in its place."""
    try:
        return tuning.rule_proposals(services.settings, services.reader, rule_id, days), None
    except HeadgateError as error:
        return None, str(error)
