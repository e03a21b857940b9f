"""Suppressions: what they would hide, begin, list, end."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from api.problems import responses
from api.routes.access import Here, Who, wants
from api.wire import suppressions as wire

router = APIRouter(prefix="/api/v1/suppressions", tags=["suppressions"])

SuppressionId = Annotated[
    str, Path(description="its id, or the first characters where they are unique")
]
_WRITES = [Depends(wants("analyst"))]


@router.get("", summary="List suppressions", responses=responses(422, 503))
def list_suppressions(
    services: Here,
    over: Annotated[bool, Query(description="also those that ended or expired")] = False,
) -> wire.SuppressionList:
    """The longest lasting first, with how many alerts each kept from the topic so far."""
    return services.suppressions.list(over=over)


@router.get("/{suppression_id}", summary="One suppression", responses=responses(404, 422, 503))
def one_suppression(services: Here, suppression_id: SuppressionId) -> wire.SuppressionItem:
    """Also one that waits, ended or expired."""
    return services.suppressions.one(suppression_id)


@router.post(
    "/preview",
    summary="What a suppression would have hidden",
    responses=responses(422, 503),
)
def preview_suppression(
    services: Here, patterns: wire.SuppressionPatterns
) -> wire.SuppressionPreview:
    """Of the alerts of the last 30 days, by the rule that job `alert` uses; silences nothing."""
    return services.suppressions.preview(patterns)


@router.post(
    "",
    status_code=201,
    summary="Silence alerts",
    responses=responses(422, 503),
    dependencies=_WRITES,
)
def begin_suppression(services: Here, who: Who, new: wire.NewSuppression) -> wire.SuppressionTaken:
    """What fits stays in gold.alert, with this suppression, and does not go to the topic.

    Look at `preview` before: it takes the same patterns.
    """
    return services.suppressions.begin(who.name, new)


@router.delete(
    "/{suppression_id}",
    summary="End a suppression",
    responses=responses(404, 422, 503),
    dependencies=_WRITES,
)
def end_suppression(
    services: Here,
    who: Who,
    suppression_id: SuppressionId,
    reason: Annotated[
        str | None, Query(description="why it ends before its time", max_length=2_000)
    ] = None,
) -> wire.SuppressionTaken:
    """What arrives from then on is told again; what it hid stays hidden."""
    return services.suppressions.end(who.name, suppression_id, reason)
