"""What a person does to alerts: take, close with verdict, note and suppression, reopen, undo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from alerts.delivery.triage_request import ChangeRefused
from alerts.domain.tenant_rows import TENANT
from alerts.domain.verdict import VERDICTS
from api.console.page import Page, console_router
from api.console.render import respond
from api.console.request import CheckedForm, Here, Signed, form_field, signed_in
from api.console.session import ConsoleSession
from api.console.wrong_values import sentence_of, wrong_value
from api.routes.access import Services
from api.services.alert_snapshot import alerts_now
from api.services.triage import Stale
from api.tenant_views import refused_to_tenants
from api.wire.suppressions import NewSuppression, SuppressionPatterns
from api.wire.triage import AlertChange, BulkAct, BulkPlan
from infra.errors import Usage

router = console_router()
PAGE = Page("act", "Act", router)
MOST = 500
"""Alerts that one act from a page changes; more is for the API's bulk change by filter."""
Ids = Annotated[list[str], Query(min_length=1, max_length=MOST)]
SPANS_OF_SILENCE = (("+1d", "a day"), ("+7d", "a week"), ("+30d", "30 days"), ("+90d", "90 days"))


def analyst(session: Annotated[ConsoleSession, Depends(signed_in)]) -> ConsoleSession:
    """The session of somebody who may change alerts; raises 403."""
    if not session.caller.may("analyst"):
        raise HTTPException(
            403, f"'{session.caller.name}' is {session.caller.role}; changing alerts needs analyst"
        )
    return session


Analyst = Annotated[ConsoleSession, Depends(analyst)]


@router.get("/alerts/act/close")
def close_form(request: Request, services: Here, session: Analyst, id: Ids) -> Response:
    """The question before alerts are closed: how many, as what, why, and whether silenced."""
    return _form(request, services, session, id)


@router.post("/alerts/act/close")
def close(request: Request, services: Here, session: Analyst, form: CheckedForm) -> Response:
    """Close them; a suppression that was wanted besides is made with the same note."""
    ids, note = form.get("id", []), form_field(form, "note")
    if form_field(form, "silence") and services.reader.tenants is not None:
        raise refused_to_tenants("a suppression")
    verdict = form_field(form, "verdict") or None
    change = _change(status="closed", verdict=verdict, note=note or None)
    try:
        done = _apply(services, session, ids, change, form)
    # Back to the form with what was typed: a note that took minutes must not be lost.
    except (Stale, ChangeRefused, Usage) as error:
        return _form(request, services, session, ids, problem=sentence_of(error), form=form)
    # After the alerts: if they could not be closed, nothing may be silenced for them.
    if form_field(form, "silence"):
        done["silenced"] = _silence(services, session, form, note)
    return _done(request, "closed", done)


@router.post("/alerts/act/take")
def take(request: Request, services: Here, session: Analyst, form: CheckedForm) -> Response:
    """Take them: whoever is signed in looks at them."""
    done = _apply(services, session, form.get("id", []), _change(assignee="me"), form)
    return _done(request, "taken", done)


@router.post("/alerts/act/reopen")
def reopen(request: Request, services: Here, session: Analyst, form: CheckedForm) -> Response:
    """Open closed alerts again."""
    done = _apply(services, session, form.get("id", []), _change(status="open"), form)
    return _done(request, "opened again", done)


@router.post("/alerts/act/note")
def note(request: Request, services: Here, session: Analyst, form: CheckedForm) -> Response:
    """Write a note on one alert."""
    alert_id, text = form_field(form, "id"), form_field(form, "text")
    if not text:
        raise Usage("note: write something")
    services.triage.write_note(session.caller.name, alert_id, text)
    return _done(request, "noted", {"alerts": 1, "act_id": None, "when": "", "skipped": 0})


@router.post("/alerts/act/undo/{act_id}")
def undo(
    request: Request, services: Here, session: Analyst, act_id: str, form: CheckedForm
) -> Response:
    """Take an act back."""
    undone = services.triage.undo(session.caller.name, act_id)
    return _done(
        request,
        "as before",
        {
            "alerts": undone.alerts,
            "act_id": None,
            "when": undone.visible.when,
            "skipped": len(undone.skipped),
        },
    )


@router.get("/alerts/act/silence")
def silence_preview(
    request: Request,
    services: Here,
    session: Signed,
    rule: str = "",
    entity: str = "",
    tenant: str = "",
) -> Response:
    """What the suppression would have hidden in 30 days."""
    preview = None
    if rule or entity:
        patterns = SuppressionPatterns(
            rule=rule or None, entity=entity or None, fields=_of_tenant(tenant)
        )
        preview = services.suppressions.preview(patterns)
    return respond(request, "silence_preview.html", preview=preview)


def _form(
    request: Request,
    services: Services,
    session: ConsoleSession,
    ids: Sequence[str],
    problem: str | None = None,
    form: dict[str, list[str]] | None = None,
) -> Response:
    name = session.caller.name
    wanted = {key: form_field(form or {}, key) or None for key in ("verdict", "note")}
    # With what was typed: another verdict is a change also of what somebody closed meanwhile.
    change = _change(status="closed", **wanted)
    count = services.triage.preview(name, BulkPlan(ids=list(ids), change=change))
    known = alerts_now(services.reader, services.settings, ids)
    first = next(iter(known.values()), None)
    same = first is not None and all(alert.rule_id == first.rule_id for alert in known.values())
    # Nothing of a damaged body can be shared.
    about = first.body.get("entity", {}) if first else {}
    # A suppression is offered only for what all chosen alerts share.
    one_entity = all(alert.body.get("entity") == about for alert in known.values())
    # Two tenants may use one address: what is noise of one of them may be an attack on the other.
    tenants = {alert.body.get(TENANT) for alert in known.values()}
    return respond(
        request,
        "close.html",
        ids=list(ids),
        count=count,
        first=first,
        etag=first.etag if first and len(ids) == 1 else "",
        # A suppression silences everybody's alerts, so who is limited is offered none.
        rule=first.rule_id if first and same and services.reader.tenants is None else "",
        rule_name=first.body.get("rule", {}).get("name", "") if first and same else "",
        entity=about.get("value", "") if one_entity and services.reader.tenants is None else "",
        tenant=(tenants.pop() or "") if len(tenants) == 1 else "",
        verdicts=[(verdict, meaning) for verdict, (_, meaning) in VERDICTS.items()],
        spans=SPANS_OF_SILENCE,
        problem=problem,
        given={key: values[0] for key, values in (form or {}).items()},
    )


def _apply(
    services: Services,
    session: ConsoleSession,
    ids: Sequence[str],
    change: AlertChange,
    form: dict[str, list[str]],
) -> dict[str, Any]:
    """Change one alert as it was looked at, or several after their number was confirmed."""
    who = session.caller.name
    if not 0 < len(ids) <= MOST:
        raise Usage(f"id: name 1 to {MOST} alerts, not {len(ids)}")
    if len(ids) == 1:
        # The etag is that of the page: whoever changed the alert since is not overwritten.
        changed = services.triage.change(who, ids[0], change, form_field(form, "etag") or "*")
        return {
            "alerts": 1 if changed.act_id else 0,
            "act_id": changed.act_id,
            "when": changed.visible.when,
            "skipped": 0,
        }
    counted = services.triage.preview(who, BulkPlan(ids=list(ids), change=change))
    shown = form_field(form, "alerts") or str(counted.alerts)
    # Counted anew, since what a person confirmed is a number, not a list they could read.
    if shown != str(counted.alerts):
        raise Usage(
            f"meanwhile {counted.alerts} of them would change, not {shown}: look again, then "
            "confirm the new number"
        )
    done = services.triage.bulk(who, BulkAct(token=counted.token, alerts=counted.alerts))
    return {
        "alerts": done.alerts,
        "act_id": done.act_id,
        "when": done.visible.when,
        "skipped": len(done.skipped),
    }


def _silence(
    services: Services, session: ConsoleSession, form: dict[str, list[str]], note: str
) -> str:
    rule, entity = form_field(form, "silence_rule"), form_field(form, "silence_entity")
    # Without either it is refused, instead of silencing all of a tenant.
    tenant = form_field(form, "silence_tenant") if rule or entity else ""
    try:
        wanted = NewSuppression(
            rule=rule or None,
            entity=entity or None,
            fields=_of_tenant(tenant),
            reason=note or "closed as noise",
            until=form_field(form, "silence_until") or "+7d",
        )
    except ValidationError as error:
        raise Usage(f"suppression: {wrong_value(error)}") from None
    taken = services.suppressions.begin(session.caller.name, wanted)
    return taken.suppression.suppression_id


def _of_tenant(tenant: str) -> dict[str, str]:
    """What bounds a suppression to a tenant; empty: it covers everybody's alerts."""
    return {TENANT: tenant} if tenant else {}


def _done(request: Request, what: str, done: dict[str, Any]) -> Response:
    response = respond(request, "done.html", what=what, done={"silenced": None} | done)
    # Lists on the page reload themselves when they hear this event.
    response.headers["HX-Trigger-After-Settle"] = "headgate:changed"
    return response


def _change(**fields: Any) -> AlertChange:
    try:
        return AlertChange(**{name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise Usage(wrong_value(error)) from None
