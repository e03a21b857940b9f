"""What a page takes from a request: who asks, and the fields of a form."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from api.asking import note_caller
from api.auth import Caller
from api.console.page import SignInFirst
from api.console.session import COOKIE, ConsoleSession, Sessions
from api.routes.access import Services, services_of
from infra.errors import Usage

_MOST_FIELDS = 6_000
"""Of a form: a case is opened with 5,000 alerts at most."""


def console_sessions(request: Request) -> Sessions:
    """The sessions of the console."""
    sessions: Sessions = request.app.state.console.sessions
    return sessions


def signed_in(request: Request) -> ConsoleSession:
    """The session of who asks; raises `SignInFirst` when there is none."""
    session = console_sessions(request).of(request.cookies.get(COOKIE))
    if session is None:
        raise SignInFirst
    if not session.caller.may("read"):
        raise HTTPException(
            403, f"key '{session.caller.name}' has role '{session.caller.role}'; pages need 'read'"
        )
    _require_open(request, session.caller)
    note_caller(session.caller.name)
    request.state.session = session
    return session


def _require_open(request: Request, caller: Caller) -> None:
    """Raises 403 where a page shows more than a caller may see."""
    limits = caller.limits
    if limits is None:
        return
    limited = f"'{caller.name}' is limited to some {limits.of_what}"
    if not limits.of_tenants_alone:
        raise HTTPException(403, f"{limited} and asks over REST only")
    if getattr(request.scope.get("route"), "path", "") not in FOR_TENANTS:
        raise HTTPException(
            403,
            f"{limited}, and this page shows what is of others, too; the overview, "
            "alerts, cases, search, devices and addresses, rules and reports are open",
        )


async def form_fields(request: Request) -> dict[str, list[str]]:
    """The fields of a form, in plain URL encoding."""
    fields: dict[str, list[str]] = {}
    body = (await request.body()).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Usage(f"a form has at most {_MOST_FIELDS} fields; choose fewer") from None
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields


def checked_form(
    form: Annotated[dict[str, list[str]], Depends(form_fields)],
    session: Annotated[ConsoleSession, Depends(signed_in)],
) -> dict[str, list[str]]:
    """The fields of a form that this session's page sent; raises 403 for another's."""
    if not session.sent_by_us((form.pop("csrf", None) or [""])[0]):
        raise HTTPException(403, "this form was not made by your session; load the page again")
    return form


def form_field(form: dict[str, list[str]], name: str) -> str:
    """What was typed into a field; empty where the form has none of that name."""
    return (form.get(name) or [""])[0].strip()


def form_reason(form: dict[str, list[str]]) -> str:
    """Why somebody does what a form asks for; raises `Usage` where it does not say."""
    reason = form_field(form, "reason")
    if not reason:
        raise Usage("reason: say why, for those who wonder later")
    return reason


def services_of_session(
    session: Annotated[ConsoleSession, Depends(signed_in)],
    services: Annotated[Services, Depends(services_of)],
) -> Services:
    """The services that work for who is signed in."""
    return services.of(session.caller)


FOR_TENANTS = frozenset(
    {
        "/",
        "/alerts",
        "/alerts/live",
        "/alerts.csv",
        "/alerts/{alert_id}",
        "/alerts/act/close",
        "/alerts/act/take",
        "/alerts/act/reopen",
        "/alerts/act/note",
        "/alerts/act/undo/{act_id}",
        "/rules",
        "/rules/{rule_id}",
        "/cases",
        "/cases/add",
        "/cases/{case_id}",
        "/cases/{case_id}/evidence",
        "/cases/{case_id}/change",
        "/cases/{case_id}/merge",
        "/cases/{case_id}/unlink",
        "/evidence",
        "/evidence/{job_id}",
        "/evidence/{job_id}/file",
        "/evidence/{job_id}/end",
        "/incidents/{incident_id}",
        "/alert-views",
        "/alert-views/remove",
        "/search",
        "/search/export.{form}",
        "/events/{uid:path}",
        "/entity",
        "/entity/{kind}/{value:path}",
        "/reports",
        "/reports/file/{name}",
        "/reports/runs/{run_id}/end",
        "/reports/dismiss",
        "/logout",
    }
)
"""Pages for who is limited to tenants and nothing else."""

Here = Annotated[Services, Depends(services_of_session)]
Signed = Annotated[ConsoleSession, Depends(signed_in)]
Form = Annotated[dict[str, list[str]], Depends(form_fields)]
CheckedForm = Annotated[dict[str, list[str]], Depends(checked_form)]
