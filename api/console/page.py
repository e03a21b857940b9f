"""A page of the console, how its routes answer, and how pages are found."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.auth_roles import Role
from api.console.render import error_page, page_before
from api.console.wrong_values import sentence_of, wrong_value
from api.problems import HUNG_UP, retry_after, status_of
from api.sql.worker_line import HungUp
from infra.errors import HeadgateError

log = logging.getLogger("headgate.api")
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class SignInFirst(Exception):
    """Nobody is signed in."""


class ConsoleRoute(APIRoute):
    """A route whose errors are pages, and whose answers carry the console's policy."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that FastAPI calls."""
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                response = await handle(request)
            except SignInFirst:
                response = _to_login(request)
            except (HungUp, ClientDisconnect):  # also in the middle of a form
                response = Response(status_code=HUNG_UP)
            except (HTTPException, RequestValidationError, HeadgateError) as error:
                response = error_page(request, *_status_and_text(error))
                if response.status_code == 503:
                    response.headers["Retry-After"] = str(retry_after(error))
            except Exception as error:
                log.error("%s %s failed", request.method, request.url.path, exc_info=error)
                response = error_page(request, 500, "a fault of the server; its log says more")
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return answered


def console_router() -> APIRouter:
    """A router for a page's routes; they are no part of the API's description."""
    return APIRouter(route_class=ConsoleRoute, include_in_schema=False)


@dataclass(frozen=True)
class Page:
    """A page: its routes, and its place in the navigation (none: it is reached by links)."""

    name: str
    title: str
    router: APIRouter
    path: str | None = None
    icon: str = ""
    order: int = 100
    key: str = ""
    """The key that goes there after g."""
    role: Role = "read"
    group: str = field(default="watch")


def pages() -> list[Page]:
    """Every page under `api/console/pages`, in the order of the navigation."""
    from api.console import pages as folder

    modules = [
        import_module(f"{folder.__name__}.{module.name}")
        for module in pkgutil.iter_modules(folder.__path__)
    ]
    known: list[Page] = [module.PAGE for module in modules if hasattr(module, "PAGE")]
    return sorted(known, key=lambda page: (page.order, page.name))


def _to_login(request: Request) -> Response:
    # A browser follows a redirect within htmx's request by itself: the sign-in form would be put
    # into a part of the page. This header makes htmx load the whole page anew.
    if request.headers.get("HX-Request"):
        here = urlsplit(request.headers.get("HX-Current-URL", ""))
        # Back to the page that asked, not to the part of it that was asked for.
        target = quote(here.path + (f"?{here.query}" if here.query else ""), safe="")
        back = f"&next={target}" if here.path.startswith("/") else ""
        return Response(status_code=401, headers={"HX-Redirect": f"/login?ended=1{back}"})
    if request.method != "GET" and (before := page_before(request)):
        # What a form is sent to is no page: back to where it stands, and what was typed with it.
        return RedirectResponse(f"/login?ended=1&next={quote(before, safe='')}", status_code=303)
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/login?next={quote(target, safe='')}", status_code=303)


def _status_and_text(error: Exception) -> tuple[int, str]:
    """Status and sentence of an error."""
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, RequestValidationError):
        return 422, wrong_value(error)
    return status_of(error) if isinstance(error, HeadgateError) else 500, sentence_of(error)
