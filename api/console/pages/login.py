"""Signing in: with a key, or by a link for one use; and out again."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response

from api.auth import BY_LINK, Caller
from api.console.page import Page, console_router
from api.console.render import respond
from api.console.request import CheckedForm, Form, console_sessions
from api.console.session import COOKIE, SESSION_SECONDS, Sessions, use_link
from api.observability.audit_log import audit_request
from api.routes.access import Anybody

router = console_router()
PAGE = Page("login", "Sign in", router)
_USED = (
    "This login link was used already or is too old. `headgate console-link` makes another; or "
    "sign in with a key or a password."
)
Known = Annotated[Sessions, Depends(console_sessions)]


@router.get("/login")
def login_page(
    request: Request, next: str = "/", ended: bool = False, left: bool = False
) -> Response:
    """The form; `left`: somebody of the identity provider signed out and may do so there too."""
    return login_form(request, next=inside(next), ended=ended, left=left)


@router.post("/login")
def sign_in(request: Request, services: Anybody, sessions: Known, form: Form) -> Response:
    """Check the key and begin a session."""
    key, target = (form.get("key") or [""])[0].strip(), inside((form.get("next") or ["/"])[0])
    name = (form.get("name") or [""])[0].strip()
    access = services.access
    caller = access.caller_of_password(name, key) if name else access.caller(key)
    if caller is None:
        audit_request(services.settings, "console.login", "refused", who=name or "console")
        wrong = "No such key. The API's own is in <home>/api.token."
        if name:
            wrong = "The name or the password is wrong."
        if name and (locked := access.credentials.locked_seconds(name)):
            wrong = f"Too many wrong passwords: wait {locked:.0f} s, then try again."
        return login_form(request, 403, next=target, wrong=wrong)
    audit_request(services.settings, "console.login", "ok", who=caller.name)
    return begin_session(request, sessions, caller, RedirectResponse(target, status_code=303))


@router.get("/login/{code}")
def by_link(request: Request, services: Anybody, sessions: Known, code: str) -> Response:
    """Sign in by a link for one use."""
    if not use_link(services.settings, code):
        # Who clicks the link in the terminal again is signed in already, and wants the console.
        if sessions.of(request.cookies.get(COOKIE)) is not None:
            return respond(request, "enter.html", page=None, next="/")
        return login_form(request, 403, wrong=_USED)
    audit_request(services.settings, "console.login", "ok", who=BY_LINK.name, detail={"by": "link"})
    # Not a redirect: a browser that came from elsewhere would not send the cookie along with it.
    return begin_session(
        request, sessions, BY_LINK, respond(request, "enter.html", page=None, next="/")
    )


@router.post("/logout")
def sign_out(request: Request, sessions: Known, form: CheckedForm) -> Response:
    """End the session."""
    cookie = request.cookies.get(COOKIE)
    session = sessions.of(cookie)
    sessions.end(cookie)
    # Not sent on to the provider: the page's policy lets no form lead elsewhere.
    is_theirs = session is not None and session.caller.name.startswith("oidc:")
    response = RedirectResponse("/login?left=1" if is_theirs else "/login", status_code=303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


def login_form(
    request: Request,
    status: int = 200,
    *,
    next: str = "/",
    ended: bool = False,
    left: bool = False,
    wrong: str | None = None,
) -> Response:
    """The page of the form; `wrong`: why somebody did not come in."""
    return respond(
        request, "login.html", status, page=None, next=next, ended=ended, left=left, wrong=wrong
    )


def begin_session(
    request: Request, sessions: Sessions, caller: Caller, response: Response
) -> Response:
    """The response with the cookie of a new session."""
    response.set_cookie(
        COOKIE,
        sessions.begin(caller, request.client.host if request.client else ""),
        max_age=int(SESSION_SECONDS),
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


def inside(target: str) -> str:
    """The path to go on to; an address of elsewhere becomes the first page."""
    parts = urlsplit(target.replace("\\", "/"))
    inside = target.startswith("/") and not target.startswith("//")
    return target if inside and not parts.scheme and not parts.netloc else "/"
