"""Who may come in, who is in, and what was done: keys, users, sessions, suppressions, the audit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from api.auth_roles import Role
from api.console.page import Page, console_router
from api.console.render import respond
from api.console.request import CheckedForm, Here, console_sessions, form_field, signed_in
from api.console.session import COOKIE, ConsoleSession, Sessions, session_id_of
from api.console.time_words import earliest
from api.credentials import SHORTEST_PASSWORD
from api.key_limits import known_tenants
from api.observability.audit_log import audit_request
from api.routes.access import Services
from api.services.console.audit_view import audit_page, in_words, waiting_acts
from infra.errors import Retryable, Usage

router = console_router()
PAGE = Page("admin", "Admin", router, "/admin", "admin", 70, "d", role="admin", group="run")
_TABS = ("access", "sessions", "suppressions", "audit")
MOST_SESSIONS = 200
"""Sessions on the page: those that asked last."""
_MOST_DAYS = 3650
_DONE = {
    "key.end": "is ended: it is refused from now on.",
    "user.make": "can sign in with that password.",
    "user.change": "has the role and the password that you gave.",
    "user.role": "has the role that you gave; the password is as it was.",
    "user.end": "is ended, and signed out.",
    "session.end": "is signed out there, and may sign in again.",
}
"""What was done to a name, as the page says it afterwards."""


def administrator(session: Annotated[ConsoleSession, Depends(signed_in)]) -> ConsoleSession:
    """The session of an administrator; raises 403."""
    if not session.caller.may("admin"):
        raise HTTPException(
            403, f"'{session.caller.name}' is {session.caller.role}; this page needs admin"
        )
    return session


Administrator = Annotated[ConsoleSession, Depends(administrator)]
Known = Annotated[Sessions, Depends(console_sessions)]


@router.get("/admin")
def overview_of_access(
    request: Request,
    services: Here,
    session: Administrator,
    tab: str = "access",
    who: str = "",
    act: str = "",
    since: str = "-7d",
    cursor: str | None = None,
    done: str = "",
    name: str = "",
) -> Response:
    """The page; `done`: what was just done to the key or user of that name."""
    if tab not in _TABS:
        raise Usage(f"tab: '{tab}' is none of {', '.join(_TABS)}")
    return _page(
        request,
        services,
        tab=tab,
        who=who,
        act=act,
        since=since,
        cursor=cursor,
        done=_DONE.get(done, ""),
        name=name,
    )


@router.post("/admin/keys")
def make_key(
    request: Request, services: Here, session: Administrator, form: CheckedForm
) -> Response:
    """Make a key; its token is on the page that answers, and nowhere else."""
    name, role, days = (form_field(form, each) for each in ("name", "role", "days"))
    key, token = services.access.credentials.add_key(
        name, role, _end_of(days), tenants=_tenants(form, services)
    )
    _note(services, session, "key.make", key.name, {"role": key.role, **key.limits})
    # No redirect here: the token is shown this once, and stands in no address.
    return _page(request, services, tab="access", fresh={"name": key.name, "token": token})


@router.post("/admin/keys/{name}/rotate")
def rotate_key(
    request: Request, services: Here, session: Administrator, name: str, form: CheckedForm
) -> Response:
    """Give a key another token; the one before ends at once."""
    key, token = services.access.credentials.rotate_key(name)
    _note(services, session, "key.rotate", key.name, {"role": key.role})
    fresh = {"name": key.name, "token": token, "rotated": "1"}
    return _page(request, services, tab="access", fresh=fresh)


@router.post("/admin/keys/{name}/end")
def end_key(services: Here, session: Administrator, name: str, form: CheckedForm) -> Response:
    """End a key."""
    key = services.access.credentials.remove_key(name)
    _note(services, session, "key.end", key.name, {"role": key.role})
    return _done("key.end", key.name)


@router.post("/admin/users")
def put_user(services: Here, session: Administrator, form: CheckedForm) -> Response:
    """Make a user, or give one that is there another role and password."""
    name, role, password = (form_field(form, each) for each in ("name", "role", "password"))
    changes = bool(form_field(form, "change"))
    known = name in {user.name for user in services.access.credentials.read().users}
    # One form for both would give a colleague another role where a new one was meant.
    if known and not changes:
        raise Usage(f"user '{name}' is there already; its row has Change")
    if changes and not known:
        raise Usage(f"user '{name}' was ended meanwhile; make it anew")
    if changes and not password:
        # An empty field leaves the password: a promotion is no reason to hand out another one.
        user, done = services.access.credentials.change_role(name, role), "user.role"
    else:
        user = services.access.credentials.put_user(name, role, password, _tenants(form, services))
        done = "user.change" if changes else "user.make"
    _note(services, session, "user.put", user.name, {"role": user.role, **user.limits})
    return _done(done, user.name)


@router.post("/admin/users/{name}/end")
def end_user(services: Here, session: Administrator, name: str, form: CheckedForm) -> Response:
    """End a user."""
    services.access.credentials.remove_user(name)
    _note(services, session, "user.end", name, {})
    return _done("user.end", name)


@router.post("/admin/sessions/{session_id}/end")
def end_session(
    services: Here, sessions: Known, session: Administrator, session_id: str, form: CheckedForm
) -> Response:
    """Sign somebody's browser out."""
    whose = sessions.end_listed(session_id)
    _note(services, session, "session.end", whose, {"session": session_id[:12]})
    return _done("session.end", whose, tab="sessions")


@router.post("/admin/suppressions/{suppression_id}/end")
def end_suppression(
    services: Here, session: Administrator, suppression_id: str, form: CheckedForm
) -> Response:
    """End a suppression before its time."""
    services.suppressions.end(
        session.caller.name, suppression_id, form_field(form, "reason") or None
    )
    return RedirectResponse("/admin?tab=suppressions", status_code=303)


def _page(
    request: Request,
    services: Services,
    *,
    tab: str,
    who: str = "",
    act: str = "",
    since: str = "-7d",
    cursor: str | None = None,
    fresh: dict[str, str] | None = None,
    done: str = "",
    name: str = "",
) -> Response:
    content = services.access.credentials.read()
    sessions = console_sessions(request).listed() if tab == "sessions" else []
    now = datetime.now(UTC)
    entries: list[dict[str, Any]] = []
    waiting, waiting_all = list[dict[str, Any]](), 0
    after = None
    if tab == "audit":
        start = earliest("since", since, now) or now - timedelta(days=7)
        if cursor is None:
            spool = services.settings.home / "spool"
            waiting, waiting_all = waiting_acts(spool, start, who or None, act or None)
        try:
            entries, after = audit_page(services.reader, start, who or None, act or None, cursor)
        except Retryable:
            # Where no driver has made the table yet, what waits is all there is.
            if not waiting:
                raise
    return respond(
        request,
        "admin.html",
        page=PAGE,
        tab=tab,
        tabs=_TABS,
        keys=sorted(content.keys, key=lambda key: key.name),
        users=sorted(content.users, key=lambda user: user.name),
        roles=get_args(Role),
        tenants=services.settings.tenants,
        fresh=fresh,
        done=done,
        name=name,
        shortest=SHORTEST_PASSWORD,
        most_days=_MOST_DAYS,
        over={key.name for key in content.keys if key.is_over(now)},
        sessions=sessions[:MOST_SESSIONS],
        open_sessions=len(sessions),
        this_session=session_id_of(request.cookies.get(COOKIE)),
        suppressions=services.suppressions.list(over=True).items if tab == "suppressions" else [],
        titles={rule_id: source.rule.title for rule_id, source in services.rules.every().items()}
        if tab == "suppressions"
        else {},
        entries=[in_words(entry) for entry in (*waiting, *entries)],
        waiting=waiting_all,
        waiting_shown=len(waiting),
        after=after,
        asked={"who": who, "act": act, "since": since},
    )


def _end_of(days: str) -> datetime | None:
    """When a key ends that is to last so many days; None: it does not end."""
    if not days:
        return None
    # Its length first: zeros before it could hide a number that no date can be of.
    if not (days.isdecimal() and len(days) <= 9 and 1 <= int(days) <= _MOST_DAYS):
        # Taken for none, a slip of the pen would make a key that never ends.
        raise Usage(f"days: '{days[:20]}'; from 1 to {_MOST_DAYS}, or empty for a key without end")
    return datetime.now(UTC) + timedelta(days=int(days))


def _done(act: str, name: str, tab: str = "access") -> Response:
    asked = urlencode({"tab": tab, "done": act, "name": name})
    return RedirectResponse(f"/admin?{asked}", status_code=303)


def _note(
    services: Services, session: ConsoleSession, act: str, target: str, detail: dict[str, Any]
) -> None:
    who = session.caller.name
    audit_request(services.settings, act, "ok", who=who, target=target, detail=detail)


def _tenants(form: dict[str, list[str]], services: Services) -> tuple[str, ...] | None:
    """The tenant that a form limits somebody to; None: to none."""
    tenant = form_field(form, "tenant")
    return known_tenants([tenant], services.settings) if tenant else None
