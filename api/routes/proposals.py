"""Proposals: made and listed here, decided by a person in the console only."""

from __future__ import annotations

from fastapi import APIRouter

from api.problems import responses
from api.routes.access import Here, Who
from api.wire import proposals as wire

router = APIRouter(prefix="/api/v1/proposals", tags=["proposals"])


@router.get("", summary="List proposals", responses=responses(503))
def list_proposals(services: Here) -> wire.Proposals:
    """Those that wait for a person, oldest first."""
    return wire.Proposals(items=services.proposals.waiting())


@router.post(
    "",
    status_code=201,
    summary="Propose a change",
    responses=responses(404, 409, 422, 503),
)
def propose_change(services: Here, who: Who, change: wire.NewProposal) -> wire.ProposedChange:
    """Changes nothing: who may change alerts confirms or rejects it in the console within a day."""
    return services.proposals.propose(who.name, change)
