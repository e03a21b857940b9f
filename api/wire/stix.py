"""STIX 2.1 as an answer."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from alerts.cases.stix_bundle import MEDIA_TYPE
from api.problems import responses


class StixResponse(JSONResponse):
    """A bundle under its own media type."""

    media_type = MEDIA_TYPE


def stix_responses(description: str) -> dict[int | str, dict[str, Any]]:
    """What such a route answers, for the API's description."""
    bundle = {"description": description, "content": {MEDIA_TYPE: {"schema": {"type": "object"}}}}
    return {200: bundle, **responses(404, 409, 422, 503)}
