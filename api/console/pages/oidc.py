"""Signing in with the identity provider, and out there too."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from api.auth import Caller
from api.console.page import Page, console_router
from api.console.pages.login import begin_session, inside, login_form
from api.console.render import respond
from api.console.request import console_sessions
from api.console.session import Sessions
from api.observability.audit_log import audit_request
from api.oidc import Provider, SignInRefused
from api.people import known_person
from api.query_parameters import reads_own_query
from api.routes.access import Anybody, Services
from api.services.act_store import StateFolder

router = console_router()
PAGE = Page("oidc", "Sign in", router)
Known = Annotated[Sessions, Depends(console_sessions)]
COOKIE = "headgate_sign_in"
_UNDER_WAY = timedelta(minutes=10)
_MOST_UNDER_WAY = 1000
"""Sign-ins that wait at a time: anybody may begin one."""


@router.get("/oidc/begin")
def begin_sign_in(request: Request, services: Anybody, next: str = "/") -> Response:
    """Send the browser to the provider; what must come back is kept here."""
    begun = _provider(services).begin(_back(request, services))
    waiting = _waiting(services)
    for name in sorted(waiting.ids(), key=waiting.age)[_MOST_UNDER_WAY - 1 :]:
        waiting.take(name)
    waiting.put(
        _hash(begun.state),
        {"nonce": begun.nonce, "verifier": begun.verifier, "next": inside(next)},
    )
    response = RedirectResponse(begun.url, status_code=303)
    # Not `strict`: the browser has to send it along as it comes back from the provider.
    response.set_cookie(
        COOKIE,
        begun.state,
        max_age=int(_UNDER_WAY.total_seconds()),
        path="/oidc",
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return response


@router.get("/oidc/back")
@reads_own_query  # a provider may add parameters of its own, such as session_state
def come_back(request: Request, services: Anybody, sessions: Known) -> Response:
    """Take the provider's answer and begin a session."""
    provider, query = _provider(services), request.query_params
    state = query.get("state", "")
    # The cookie ties the answer to this browser: another's code signs nobody in here.
    waits = _waiting(services).take(_hash(state)) if state == request.cookies.get(COOKIE) else None
    try:
        if waits is None:
            raise SignInRefused("this sign-in was begun elsewhere, used already, or is too old")
        if "iss" in query and not provider.is_issuer(query["iss"]):
            raise SignInRefused("the answer is another provider's")
        if "code" not in query:
            raise SignInRefused(f"the provider let nobody in ({query.get('error', 'no code')})")
        person = provider.finish(
            query["code"], _back(request, services), str(waits["nonce"]), str(waits["verifier"])
        )
        oidc = services.settings.api.oidc
        assert oidc is not None  # there is a provider
        known = known_person(oidc, person)
        detail = {"by": "oidc", "subject": person.subject}
        if known is None:
            audit_request(
                services.settings, "console.login", "refused", who=person.name, detail=detail
            )
            name = person.name.removeprefix("oidc:")
            wrong = (
                f"You are {name}, and none of your groups has a role here. Ask who runs Headgate "
                "to name one of them in api.oidc.roles."
            )
            return login_form(request, 403, wrong=wrong)
    except SignInRefused as refused:
        audit_request(services.settings, "console.login", "refused", who="console",
                      detail={"by": "oidc", "said": str(refused)[:300]})  # fmt: skip
        return login_form(request, 403, wrong=f"{str(refused)[:1].upper()}{str(refused)[1:300]}.")
    services.access.people.keep(person)
    audit_request(services.settings, "console.login", "ok", who=person.name, detail=detail)
    caller = Caller(known.name, known.role, credential=known.credential)
    page = respond(request, "enter.html", page=None, next=inside(str(waits["next"])))
    return begin_session(request, sessions, caller, page)


@router.get("/oidc/end")
def end_at_provider(request: Request, services: Anybody) -> Response:
    """Send the browser to where the provider ends its own session."""
    address = _provider(services).end_url(f"{_base(request, services)}/login")
    return RedirectResponse(address or "/login", status_code=303)


def _provider(services: Services) -> Provider:
    provider = services.access.provider
    if provider is None:
        raise HTTPException(404, "no identity provider is set ([api.oidc])")
    return provider


def _waiting(services: Services) -> StateFolder:
    return StateFolder(services.settings, "sign-ins", _UNDER_WAY)


def _base(request: Request, services: Services) -> str:
    return (services.settings.api.console_url or str(request.base_url)).rstrip("/")


def _back(request: Request, services: Services) -> str:
    return f"{_base(request, services)}/oidc/back"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
