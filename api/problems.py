"""Every error of the API as problem+json (RFC 9457)."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from alerts.cases.case_store import NoSuchCase
from alerts.delivery.triage_request import ChangeRefused
from alerts.delivery.webhook_queue import NoSuchWebhook
from alerts.domain.alert_body import DamagedAlert
from api import models
from api.services.alert_snapshot import NoSuchAlert
from api.services.configuration.indicators import NoSuchList
from api.services.proposals import NoSuchProposal
from api.services.quotas import QuotaUsedUp
from api.services.suppressions import NoSuchSuppression
from api.services.triage import NoSuchAct, NotYours, Stale
from api.sql.runner import Failed, Limit, Refused
from api.sql.worker_line import Busy, Cancelled, HungUp
from api.tenant_views import NotForTenants
from infra.errors import HeadgateError, NoSuch, Retryable, Usage

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger("headgate.api")

_KINDS: tuple[tuple[type[HeadgateError], int, str], ...] = (
    (Refused, 422, "statement-refused"),
    (Failed, 422, "statement-failed"),
    (Limit, 422, "statement-limit"),
    (Busy, 503, "busy"),
    (Cancelled, 503, "cancelled"),
    (Stale, 412, "changed-since"),
    (DamagedAlert, 409, "damaged"),
    (ChangeRefused, 409, "conflict"),
    (NoSuchAlert, 404, "not-found"),
    (NoSuchCase, 404, "not-found"),
    (NoSuchAct, 404, "not-found"),
    (NoSuchProposal, 404, "not-found"),
    (NoSuchSuppression, 404, "not-found"),
    (NoSuchList, 404, "not-found"),
    (NoSuchWebhook, 404, "not-found"),
    (NotForTenants, 403, "forbidden"),
    (NotYours, 403, "forbidden"),
    (NoSuch, 404, "not-found"),
    (Usage, 422, "invalid-request"),
    (Retryable, 503, "unavailable"),
    (HeadgateError, 500, "internal-error"),
)
"""Status and name of a problem by the error behind it, the first that fits."""


HUNG_UP = 499
"""Status of a request whose caller left before its answer: nobody reads it, and what counts
requests must not take it for a fault of the server. nginx has made the number usual."""

_USUAL_SECONDS = 5
"""After which one is told to come again, where the error does not say it."""

_RETRY_AFTER = {
    "description": "seconds after which the same request may be taken",
    "schema": {"type": "integer", "minimum": 1},
}


def problem(
    request: Request,
    status: int,
    detail: str,
    *,
    name: str | None = None,
    errors: list[models.FieldProblem] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """A problem as a response."""
    title = HTTPStatus(status).phrase
    body = models.Problem(
        type=f"urn:headgate:problem:{name or title.lower().replace(' ', '-')}",
        title=title,
        status=status,
        detail=_encodable(detail),
        instance=_encodable(request.url.path),
        errors=errors,
    )
    return JSONResponse(
        body.model_dump(exclude_none=True), status, media_type=MEDIA_TYPE, headers=headers
    )


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of these errors, for a route."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        | ({"headers": {"Retry-After": _RETRY_AFTER}} if status in (429, 503) else {})
        for status in statuses
    }


def status_of(error: HeadgateError) -> int:
    """The status of an error of ours."""
    return next(status for kind, status, _ in _KINDS if isinstance(error, kind))


def retry_after(error: Exception) -> int:
    """Seconds after which who got this error may ask again."""
    return int(getattr(error, "retry_after", _USUAL_SECONDS))


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem; none shows a stack trace."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HeadgateError, _ours)
    app.add_exception_handler(QuotaUsedUp, _too_many)
    app.add_exception_handler(UnicodeEncodeError, _half_a_character)
    app.add_exception_handler(Exception, _unforeseen)


_NO_BODY = "There was an error parsing the body"
"""FastAPI's words for bytes that are no text; text that is no JSON is a 422 of its own."""


async def _http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if isinstance(error.__cause__, ClientDisconnect):  # in the middle of its body
        return Response(status_code=HUNG_UP)
    detail = str(error.detail)
    # Starlette's own words for a path that no route has; a route's 404 says more.
    if error.status_code == 404 and detail == "Not Found":
        detail = f"there is no {request.url.path}; see /api/v1/openapi.json"
    elif error.status_code == 400 and detail == _NO_BODY:
        detail = "the body is not JSON in UTF-8"
        return problem(request, 422, detail, name="invalid-request")
    elif error.status_code == 405:
        detail = f"{request.method} is not for {request.url.path}; see /api/v1/openapi.json"
    return problem(request, error.status_code, detail, headers=dict(error.headers or {}))


async def _validation(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    wrong = [
        models.FieldProblem(
            where=_encodable(".".join(str(part) for part in fault["loc"])),
            message=_encodable(str(fault["msg"])),
        )
        for fault in error.errors()
    ]
    detail = "; ".join(f"{field.where}: {field.message}" for field in wrong)
    # 428 is HTTP's word for a missing condition (RFC 6585), not 422.
    if [field.where for field in wrong] == ["header.if-match"]:
        detail = (
            "send If-Match: the ETag that GET answered for it, so that nobody's work is "
            "overwritten; * changes it whatever it is now"
        )
        return problem(request, 428, detail)
    return problem(request, 422, detail, name="invalid-request", errors=wrong)


async def _ours(request: Request, error: Exception) -> Response:
    if isinstance(error, HungUp):
        return Response(status_code=HUNG_UP)
    # In order: special errors are subclasses of general ones that stand further down.
    for kind, status, name in _KINDS:
        if isinstance(error, kind):
            # 404 is about what the path names; a name in the body is a fault of the request.
            if kind is NoSuch and not request.path_params:
                continue
            # So that clients wait and do not ask again at once.
            headers = {"Retry-After": str(retry_after(error))} if status == 503 else None
            if isinstance(error, Stale):
                headers = {"ETag": error.etag}
            return problem(request, status, str(error), name=name, headers=headers)
    raise error


async def _too_many(request: Request, error: Exception) -> Response:
    if not isinstance(error, QuotaUsedUp):
        raise error
    return problem(request, 429, str(error), headers={"Retry-After": str(error.retry_after)})


async def _half_a_character(request: Request, error: Exception) -> Response:
    """JSON may name half a surrogate, which no table and no answer can hold."""
    detail = f"a text in the request is no Unicode text ({str(error)[:200]})"
    return problem(request, 422, detail, name="invalid-request")


def _encodable(text: str) -> str:
    # A request may hold half a surrogate; JSON could not be written of it.
    return text.encode("utf-8", "backslashreplace").decode()


async def _unforeseen(request: Request, error: Exception) -> Response:
    # The trace goes to the log alone: it would tell a caller about the machine.
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(
        request, 500, "this is a fault of the server; its log says more", name="internal-error"
    )
