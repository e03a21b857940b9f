"""Webhooks: listed without their secrets, tried, and given another day.

They are added, changed and removed in the settings file alone, and the list says so.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query

from api.problems import responses
from api.routes.access import Here, Who, wants
from api.services.configuration import webhooks
from api.wire import webhooks as wire

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])

HookName = Annotated[str, Path(description="name of the webhook", max_length=200)]
_ACTS = [Depends(wants("engineer"))]


@router.get("", summary="List webhooks", responses=responses(503))
def list_webhooks(services: Here) -> wire.Webhooks:
    """Where alerts go by HTTP, which of them, and how many wait."""
    return webhooks.hooks(services.settings)


@router.get("/deliveries", summary="What webhooks have not taken", responses=responses(422, 503))
def list_deliveries(
    services: Here,
    state: Annotated[
        Literal["waiting", "dead"] | None, Query(description="dead: given up after a day")
    ] = None,
) -> wire.Deliveries:
    """Oldest first."""
    return webhooks.deliveries(services.settings, state)


@router.get("/{name}", summary="One webhook", responses=responses(404, 422, 503))
def one_webhook(services: Here, name: HookName) -> wire.WebhookItem:
    """As the settings have it."""
    return webhooks.one_hook(services.settings, name)


@router.post(
    "/{name}/test",
    summary="Send a made-up alert",
    responses=responses(404, 422, 503),
    dependencies=_ACTS,
)
def test_webhook(services: Here, who: Who, name: HookName) -> wire.WebhookTried:
    """In the hook's form. Whether it took it is in the answer."""
    return webhooks.send_sample(services.settings, who.name, name)


@router.post(
    "/{name}/retry",
    summary="Try again what was given up",
    responses=responses(404, 422, 503),
    dependencies=_ACTS,
)
def retry_webhook(services: Here, who: Who, name: HookName) -> wire.WebhookRetried:
    """Each dead revision gets another day."""
    return webhooks.retry(services.settings, who.name, name)
