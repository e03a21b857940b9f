"""Metrics for Prometheus, and the description of the API itself."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST

from alerts.asyncapi_document import asyncapi_document
from api.problems import responses
from api.routes.access import Here, wants

ROLE = "metrics"
"""Who may ask: a scraper, with a key that can do nothing else."""

router = APIRouter(tags=["operate"])


@router.get(
    "/metrics",
    summary="Metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus text",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **responses(503),
    },
)
def metrics(services: Here) -> Response:
    """Requests and their latency, alerts by level, the ledger's totals by job."""
    return Response(services.meters.text(services.reader), media_type=CONTENT_TYPE_LATEST)


@router.get("/api/v1/openapi.json", summary="This description")
def openapi(request: Request) -> dict[str, Any]:
    """OpenAPI 3.1."""
    described: dict[str, Any] = request.app.openapi()
    return described


@router.get(
    "/api/v1/asyncapi.json",
    summary="What goes over Kafka",
    # The name of the broker is nothing for a key that only reads metrics.
    dependencies=[Depends(wants("read"))],
)
def asyncapi(services: Here) -> dict[str, Any]:
    """AsyncAPI 3.0: topics, headers, messages and their schemas, whole in itself."""
    return asyncapi_document(services.settings.kafka)
