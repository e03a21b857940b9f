"""The API's description as OpenAPI 3.1: FastAPI's, with what the app does around its routes."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api import models, problems
from api.idempotency import LONGEST_KEY

_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "the same key with the same request is answered as the first time, for 24 hours",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The description of all routes; built once, as it goes through all routes and models."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        known = schema["components"]["schemas"]
        known["Problem"] = models.Problem.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        # Pydantic nests the definitions; OpenAPI has one place for all.
        known.update(known["Problem"].pop("$defs"))
        # FastAPI's own form of a 422 is never sent: every error is a problem.
        for unused in ("HTTPValidationError", "ValidationError"):
            known.pop(unused, None)
        for path in schema["paths"].values():
            for method, operation in path.items():
                _complete(method, operation)
        app.openapi_schema = schema
    return app.openapi_schema


def _complete(method: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    if "422" in answers:
        _describe(answers, 422)
    if "requestBody" in operation:
        _describe(answers, 413)
    if method == "post":
        operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
        for status in (409, 422):
            _describe(answers, status)


def _describe(answers: dict[str, Any], status: int) -> None:
    answers[str(status)] = problems.responses(status)[status]
