"""Puts the console into the app: its pages, its files, its sessions."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Depends, FastAPI

from api.console import assets
from api.console.page import Page, pages
from api.console.session import Sessions
from api.query_parameters import refuse_unknown


@dataclass(frozen=True)
class Console:
    """What all pages share."""

    pages: list[Page]
    sessions: Sessions


def install_console(app: FastAPI) -> None:
    """Serve the console at `/`."""
    services = app.state.services
    console = Console(pages(), Sessions(services.settings, services.access))
    app.state.console = console
    known = [Depends(refuse_unknown)]
    app.include_router(assets.router, dependencies=known)
    for page in console.pages:
        app.include_router(page.router, dependencies=known)
