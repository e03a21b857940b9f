"""What assistants propose, whole, and a person's yes or no to each."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import Response

from alerts.delivery.triage_request import ChangeRefused
from api.console.page import Page, console_router
from api.console.pages.act import Analyst
from api.console.render import respond
from api.console.request import CheckedForm, Here, Signed, form_field
from api.console.wrong_values import sentence_of
from api.routes.access import Services
from api.services.alert_snapshot import NoSuchAlert
from api.services.proposals import NoSuchProposal
from api.services.triage import Stale
from api.wire.proposals import ProposedChange
from infra.errors import Usage

router = console_router()
PAGE = Page("proposals", "Proposals", router, "/proposals", "hand", 28, "y")


@router.get("/proposals")
def proposals_page(request: Request, services: Here, session: Signed) -> Response:
    """Those that wait, oldest first."""
    return _page(request, services)


@router.post("/proposals/{proposal_id}/confirm")
def confirm(
    request: Request, services: Here, session: Analyst, proposal_id: str, form: CheckedForm
) -> Response:
    """Do it, as who is signed in, to the alert as the page showed it."""
    try:
        done = services.proposals.confirm(
            session.caller.name, proposal_id, form_field(form, "etag")
        )
    # On the page itself, where the proposal stands with what happened meanwhile.
    except (Stale, ChangeRefused, NoSuchProposal, NoSuchAlert, Usage) as error:
        return _page(request, services, problem=sentence_of(error))
    return _page(request, services, decided=done, outcome="confirmed")


@router.post("/proposals/{proposal_id}/reject")
def reject(
    request: Request, services: Here, session: Analyst, proposal_id: str, form: CheckedForm
) -> Response:
    """Put it away; nothing is changed."""
    reason = form_field(form, "reason") or None
    try:
        done = services.proposals.reject(session.caller.name, proposal_id, reason)
    except NoSuchProposal as error:
        return _page(request, services, problem=str(error))
    return _page(request, services, decided=done, outcome="rejected")


def _page(
    request: Request,
    services: Services,
    problem: str | None = None,
    decided: ProposedChange | None = None,
    outcome: str = "",
) -> Response:
    return respond(
        request,
        "proposals.html",
        page=PAGE,
        waiting=[_beside_now(services, proposal) for proposal in services.proposals.waiting()],
        problem=problem,
        decided=decided,
        outcome=outcome,
    )


def _beside_now(services: Services, proposal: ProposedChange) -> dict[str, Any]:
    """A proposal, its alert as it is now, and what happened to that since."""
    try:
        alert = services.proposals.alert_of(proposal)
    except NoSuchAlert as error:
        # Retention may have taken it; the proposal can then only be rejected.
        return {"proposal": proposal, "alert": None, "since": str(error), "gone": True}
    since = None if alert is None else services.proposals.change_since(proposal, alert)
    return {"proposal": proposal, "alert": alert, "since": since, "gone": False}
