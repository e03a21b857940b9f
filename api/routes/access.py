"""What every route shares: the services of the app, and who may call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.responses import Response, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.asking import note_caller
from api.auth import Access, Caller, basic_of
from api.auth_roles import Role
from api.observability.metrics import Meters
from api.problems import responses
from api.services.cases import Cases
from api.services.configuration.inventories import InventoryDesk
from api.services.event_stream import OVER, Streams, progress_id, progress_stream
from api.services.proposals import ProposalDesk
from api.services.quotas import Quotas
from api.services.reader import Reader
from api.services.rules.desk import RuleDesk
from api.services.rules.jobs import RuleJobs
from api.services.rules.tenant_rules import TenantRules
from api.services.runs.command_runs import CommandRuns
from api.services.runs.evidence_jobs import EvidenceJobs
from api.services.runs.report_runs import ReportDesk
from api.services.searches.saved_queries import SavedQueries
from api.services.searches.search_jobs import SearchJobs
from api.services.suppressions import Suppressions
from api.services.triage import Triage
from api.sql.runner import Statements
from api.tenant_views import closed
from infra.config.settings import Settings

bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="The API token (api.token of the settings, or the content of <home>/api.token), or "
    "a key of api.keys, whose role may allow less. A local user (headgate accounts) signs in with "
    "Authorization: Basic instead.",
)


@dataclass(frozen=True)
class Services:
    """What the routes work with."""

    settings: Settings
    reader: Reader
    statements: Statements
    meters: Meters
    access: Access
    triage: Triage
    suppressions: Suppressions
    cases: Cases
    searches: SearchJobs
    queries: SavedQueries
    streams: Streams
    quotas: Quotas
    rules: RuleDesk
    proposals: ProposalDesk
    rule_jobs: RuleJobs
    evidence: EvidenceJobs
    runs: CommandRuns
    reports: ReportDesk
    inventories: InventoryDesk
    limited: OfTenants

    def of(self, caller: Caller) -> Services:
        """What of these works for a caller: for who is limited to tenants, just what is theirs."""
        limits = caller.limits
        if limits is None or limits.tenants is None:
            return self
        return self.limited.services(self, tuple(sorted(set(limits.tenants))))

    def close(self) -> None:
        """End the streams, the engines and their processes."""
        # Streams first: each still asks the reader until it ends.
        self.streams.close()
        self.queries.close()
        self.runs.close()
        self.searches.close()
        self.rule_jobs.close()
        self.evidence.close()
        self.statements.close()
        self.limited.close()
        self.reader.close()


class OfTenants:
    """The services of callers who are limited to tenants; safe to share between threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: OrderedDict[tuple[str, ...], Services] = OrderedDict()
        self._lock = threading.Lock()

    def services(self, whole: Services, tenants: tuple[str, ...]) -> Services:
        """Those that can be limited to these tenants; what else is asked for is refused.

        `statements`, `searches` and `evidence` are the whole ones: they limit each caller by
        themselves.
        """
        with self._lock:
            if tenants not in self._known:
                self._known[tenants] = self._made(whole, tenants)
                if len(self._known) > _MOST_TENANTS:
                    # Not closed: somebody may be asking it now.
                    self._known.popitem(last=False)
            self._known.move_to_end(tenants)
            return self._known[tenants]

    def close(self) -> None:
        """Let go of the engines."""
        with self._lock:
            for services in self._known.values():
                services.reader.close()
            self._known.clear()

    def _made(self, whole: Services, tenants: tuple[str, ...]) -> Services:
        reader = Reader(self._settings, tenants, whole.reader.threads)
        rules: Any = TenantRules(whole.rules, reader)
        return replace(
            whole,
            reader=reader,
            rules=rules,
            triage=Triage(reader, self._settings),
            cases=Cases(reader, self._settings, whole.reader),
            reports=ReportDesk(self._settings, whole.runs, tenants),
            **{name: closed(name.replace("_", " ")) for name in _CLOSED},
        )


_CLOSED = ("suppressions", "queries", "proposals", "rule_jobs", "runs", "inventories")
_MOST_TENANTS = 32
"""Sets of tenants whose engines are kept: each holds the newest revision of their alerts."""

FOR_LIMITED = frozenset(
    {
        "/api/v1/statements",
        "/api/v1/tables",
        "/api/v1/openapi.json",
        "/api/v1/search/jobs",
        "/api/v1/search/jobs/{job_id}",
        "/api/v1/search/jobs/{job_id}/stream",
        "/api/v1/search/jobs/{job_id}/results",
    }
)
"""Routes for who is limited to tables, sources or tenants: all others would show more."""

FOR_TENANTS = FOR_LIMITED | {
    "/api/v1/alerts",
    "/api/v1/alerts/stream",
    "/api/v1/alerts/{alert_id}",
    "/api/v1/alerts/{alert_id}/notes",
    "/api/v1/alerts/bulk",
    "/api/v1/alerts/bulk/preview",
    "/api/v1/acts",
    "/api/v1/acts/{act_id}",
    "/api/v1/acts/{act_id}/undo",
    "/api/v1/alerts/{alert_id}/explain",
    "/api/v1/alerts/{alert_id}/stix",
    "/api/v1/cases",
    "/api/v1/cases/{case_id}",
    "/api/v1/cases/{case_id}/alerts",
    "/api/v1/cases/{case_id}/alerts/{alert_id}",
    "/api/v1/cases/{case_id}/notes",
    "/api/v1/cases/{case_id}/merge",
    "/api/v1/cases/{case_id}/evidence",
    "/api/v1/cases/{case_id}/stix",
    "/api/v1/evidence/jobs",
    "/api/v1/evidence/jobs/{job_id}",
    "/api/v1/evidence/jobs/{job_id}/stream",
    "/api/v1/evidence/jobs/{job_id}/results",
    "/api/v1/rules",
    "/api/v1/rules/{rule}",
    "/api/v1/leases",
    "/api/v1/incidents",
    "/api/v1/incidents/{incident_id}",
    "/api/v1/entities",
    "/api/v1/entities/{type}/{value}",
    "/api/v1/entities/{type}/{value}/witnesses",
    "/api/v1/reports",
    "/api/v1/reports/kinds",
    "/api/v1/reports/scheduled",
    "/api/v1/reports/scheduled/failures/{name}",
    "/api/v1/reports/runs",
    "/api/v1/reports/runs/{run_id}",
    "/api/v1/reports/runs/{run_id}/stream",
    "/api/v1/reports/{name}",
}
"""Routes for who is limited to tenants and nothing else."""


def services_of(request: Request) -> Services:
    """The services of the app that answers."""
    services: Services = request.app.state.services
    return services


def caller_of(
    request: Request,
    services: Annotated[Services, Depends(services_of)],
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Caller:
    """Who asks, by token or password; raises 401 for whom nobody knows."""
    locked = 0.0
    if given is not None:
        caller = services.access.caller(given.credentials)
    else:
        caller, locked = _by_password(request, services.access)
    if caller is None:
        wait = f"; after wrong passwords that user is locked for {locked:.0f} s" if locked else ""
        raise HTTPException(
            401,
            f"send the API token: Authorization: Bearer <token>{wait}",
            # A 401 has to name a scheme (RFC 9110); `Basic` would make browsers ask for a password.
            headers={"WWW-Authenticate": 'Bearer realm="headgate"'},
        )
    note_caller(caller.name)
    # After the token: a stranger must not use up the requests of somebody whose name is known.
    usual = None if caller.role == "admin" else services.settings.api.requests_per_minute
    services.quotas.take(caller.name, caller.requests_per_minute or usual)
    route = getattr(request.scope.get("route"), "path", "")
    limits = caller.limits
    if limits is None:
        return caller
    alerts_too = limits.of_tenants_alone
    if route not in (FOR_TENANTS if alerts_too else FOR_LIMITED):
        raise HTTPException(
            403,
            f"key '{caller.name}' is limited to some {limits.of_what}; it may ask with statements"
            + (
                ", work on their alerts and cases, look up leases, read rules and have reports made"
                if alerts_too
                else ""
            ),
        )
    return caller


def _by_password(request: Request, access: Access) -> tuple[Caller | None, float]:
    """Who signs in as a local user (RFC 7617), and for how long that name is locked."""
    name, password = basic_of(request.headers.get("authorization", ""))
    if not name:
        return None, 0.0
    caller = access.caller_of_password(name, password)
    return caller, 0.0 if caller else access.credentials.locked_seconds(name)


Who = Annotated[Caller, Depends(caller_of)]


def wants(role: Role) -> Callable[[Caller], None]:
    """A dependency that raises 403 unless the caller's role covers `role`."""

    def check(caller: Who) -> None:
        if not caller.may(role):
            raise HTTPException(
                403, f"key '{caller.name}' has role '{caller.role}'; this needs '{role}'"
            )

    return check


def services_for(who: Who, services: Annotated[Services, Depends(services_of)]) -> Services:
    """The services that work for who asks."""
    return services.of(who)


Here = Annotated[Services, Depends(services_for)]
Anybody = Annotated[Services, Depends(services_of)]
"""The services where nobody is known: for probes, and before somebody has signed in."""


STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""nginx would hold events back until its buffer is full."""

PROGRESS_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "server-sent events: each `data` is the job; `progress`, the last one `end`",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    204: {"description": "it is over, and Last-Event-ID has seen its end: a browser stops asking"},
    **responses(404, 422, 503),
}
"""What the stream of a job answers."""

LastEvent = Annotated[
    str | None,
    Header(
        alias="last-event-id",
        description="`id` of the last event that was seen; browsers send it by themselves",
    ),
]


async def progress_answer(
    request: Request, services: Services, look: Callable[[], BaseModel], seen: str | None
) -> Response:
    """A job's progress as server-sent events; `look` raises `NoSuchAct` once it is gone."""
    # Before the answer begins: a stream that has begun cannot turn into a 404 or a 503.
    job = await run_in_threadpool(look)
    if seen == progress_id(job) and getattr(job, "state", None) in OVER:
        return Response(status_code=204)
    services.streams.require_room()
    events = progress_stream(look, seen, request.is_disconnected, services.streams)
    return StreamingResponse(events, media_type="text/event-stream", headers=STREAM_HEADERS)
