"""The REST API over the lake."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import Depends, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from api.asking import KnownRequests
from api.auth import Access
from api.auth_roles import Role
from api.console.install import install_console
from api.idempotency import IdempotentPosts
from api.observability.audit_log import note_unended
from api.observability.metrics import Meters
from api.openapi_document import openapi_document
from api.query_parameters import refuse_unknown
from api.routes import route_modules
from api.routes.access import OfTenants, Services, wants
from api.services.cases import Cases
from api.services.configuration.inventories import InventoryDesk
from api.services.event_stream import Streams
from api.services.proposals import ProposalDesk
from api.services.quotas import Quotas
from api.services.reader import Reader
from api.services.rules.desk import RuleDesk
from api.services.rules.jobs import RuleJobs
from api.services.runs.command_runs import CommandRuns
from api.services.runs.evidence_jobs import EvidenceJobs
from api.services.runs.report_runs import ReportDesk
from api.services.searches.saved_queries import SavedQueries
from api.services.searches.search_jobs import SearchJobs
from api.services.suppressions import Suppressions
from api.services.triage import Triage
from api.sql.runner import Statements
from api.sql.worker_line import MOST_WAITING
from infra.config.settings import Settings

MAX_BODY = 1 << 20
"""Bytes of a request; a statement is at most 100,000 characters."""

MAX_PACK_BODY = 16 << 20
"""Of a request that brings a pack of rules: four thousand public ones are six megabytes."""

_PACK_PATH = re.compile(r"/api/v1/rule-packs/[^/]+/import(/preview)?")


def create_app(settings: Settings) -> FastAPI:
    """The API for one lake. Starts no job and needs no Spark; a missing lake is answered 503."""
    services = _services(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # At the start: what a killed process left under way is then noted before new acts come.
        note_unended(settings)
        services.queries.start()
        for store in (services.searches, services.rule_jobs, services.evidence):
            store.start()
        # In three lines callers may wait: for searches, for statements, and for Spark. Each holds a
        # thread, and what takes no turn has as many as ever.
        current_default_thread_limiter().total_tokens += 3 * MOST_WAITING
        yield
        # Before the services that it asks.
        if (flight := getattr(app.state, "flight", None)) is not None:
            await run_in_threadpool(flight.close)
        services.close()

    app = FastAPI(
        title="Headgate",
        version="1",
        summary="Alerts, leases, timelines and bounded Spark SQL over the security lake.",
        # The pages of Swagger and ReDoc load scripts from elsewhere; the description is enough.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # A redirect would tell whoever has no token which paths there are.
        redirect_slashes=False,
        lifespan=lifespan,
        # Generated clients name their functions by it.
        generate_unique_id_function=lambda route: route.name.strip("_"),
    )
    app.state.services = services
    for module in route_modules():
        role: Role | None = getattr(module, "ROLE", "read")
        # A misspelt parameter that is passed over would answer another question than was asked.
        known = [Depends(refuse_unknown)]
        app.include_router(
            module.router,
            dependencies=known if role is None else [Depends(wants(role)), *known],
            responses={} if role is None else problems.responses(401, 403, 429),
        )
    if settings.api.console:
        install_console(app)
    problems.install(app)
    # The last one added is the outermost: a body is bounded first, then measured, then replayed.
    app.add_middleware(IdempotentPosts, settings=settings, access=services.access)
    app.add_middleware(BaseHTTPMiddleware, dispatch=_measured(services.meters))
    app.add_middleware(_BoundedBody)
    app.add_middleware(KnownRequests)
    app.openapi = lambda: openapi_document(app)  # type: ignore[method-assign]  # FastAPI's documented way
    return app


def _services(settings: Settings) -> Services:
    # One reader for all services: each would otherwise hold an engine and a memory limit of its
    # own.
    reader = Reader(settings)
    triage, suppressions = Triage(reader, settings), Suppressions(reader, settings)
    access, searches, rules = Access(settings), SearchJobs(settings), RuleDesk(settings)
    runs = CommandRuns(settings)
    return Services(
        settings=settings,
        reader=reader,
        statements=Statements(settings),
        meters=Meters(settings),
        access=access,
        triage=triage,
        suppressions=suppressions,
        cases=Cases(reader, settings),
        searches=searches,
        queries=SavedQueries(settings, access, searches),
        streams=Streams(),
        quotas=Quotas(),
        proposals=ProposalDesk(reader, settings, triage, suppressions),
        rules=rules,
        rule_jobs=RuleJobs(settings, rules),
        evidence=EvidenceJobs(settings),
        runs=runs,
        reports=ReportDesk(settings, runs),
        inventories=InventoryDesk(settings, runs),
        limited=OfTenants(settings),
    )


def _measured(meters: Meters) -> Any:
    async def dispatch(request: Request, call_next: RequestResponseEndpoint) -> Response:
        began = time.monotonic()
        status = 500
        try:
            response = await call_next(request)
            status = response.status_code
            return response
        finally:
            # The route's pattern, not the path: every alert id would be a series of its own.
            route = getattr(request.scope.get("route"), "path", "unknown")
            method = request.method if request.method in _METHODS else "other"
            meters.request(method, route, status, time.monotonic() - began)

    return dispatch


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods that are counted by name: a caller may make up any other, each a series for good."""


class _BoundedBody:
    """Refuses a body above `MAX_BODY` (of a pack `MAX_PACK_BODY`) before it is held in memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"]).get(b"content-length", b"0")
        most = MAX_PACK_BODY if _PACK_PATH.fullmatch(scope["path"]) else MAX_BODY
        body = _Counted(receive, send, most)
        # What the header says is refused unread; a chunked body has none, and is counted as it
        # comes.
        if not (headers.isdigit() and int(headers) > most):
            await self._app(scope, body.receive, body.send)
            if body.size <= most:
                return
        detail = f"the request has more than {most} bytes"
        await problems.problem(Request(scope), 413, detail)(scope, receive, send)


class _Counted:
    """A body that ends where it becomes too large; what the app then answers is not sent."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self.size = 0
        self._most = most
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        # The app is told that the caller left, so that it stops reading.
        if self.size > self._most:
            return {"type": "http.disconnect"}
        message = await self._receive()
        self.size += len(message.get("body", b""))
        if self.size > self._most:
            # An empty end: what was read so far is no valid request, and its answer is not sent.
            return {"type": "http.request", "body": b"", "more_body": False}
        return message

    async def send(self, message: Message) -> None:
        if self.size <= self._most:
            await self._send(message)
