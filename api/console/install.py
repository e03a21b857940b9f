"""Puts the console into the app: its pages, its files, its sessions."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Depends, FastAPI

from api.auth import Caller
from api.console import assets
from api.console.page import Page, pages
from api.console.request import FOR_TENANTS
from api.console.session import Sessions
from api.query_parameters import refuse_unknown


@dataclass(frozen=True)
class Console:
    """What all pages share."""

    pages: list[Page]
    sessions: Sessions
    sign_on: str | None = None
    """What the identity provider is called; None: there is none."""

    def navigation(self, caller: Caller) -> list[Page]:
        """The pages with a place in the navigation that open for a caller."""
        limited = caller.limits is not None
        return [
            page
            for page in self.pages
            if page.path and caller.may(page.role) and (page.path in FOR_TENANTS or not limited)
        ]


def install_console(app: FastAPI) -> None:
    """Serve the console at `/`."""
    services = app.state.services
    oidc = services.settings.api.oidc
    sign_on = None if oidc is None else oidc.label
    console = Console(pages(), Sessions(services.settings, services.access), sign_on)
    app.state.console = console
    known = [Depends(refuse_unknown)]
    app.include_router(assets.router, dependencies=known)
    for page in console.pages:
        app.include_router(page.router, dependencies=known)
