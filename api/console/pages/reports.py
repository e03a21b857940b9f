"""Reports that were made: listed, looked at in a frame that may do nothing, and downloaded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fastapi import Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from api.console.page import Page, console_router
from api.console.render import respond
from api.console.request import Signed
from api.routes.access import Here, Services

router = console_router()
PAGE = Page("reports", "Reports", router, "/reports", "reports", 60, "p", group="run")
FRAME_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
"""A report is a page of its own with its own styles; it gets no script and no way out."""


@router.get("/reports")
def reports(request: Request, services: Here, session: Signed, show: str = "") -> Response:
    """The list, and one of them."""
    files = sorted(_folder(services).glob("*.html"), key=lambda file: -file.stat().st_mtime)
    if show and show not in [file.name for file in files]:
        raise HTTPException(404, f"no report '{show}'")
    return respond(
        request,
        "reports.html",
        page=PAGE,
        show=show,
        files=[
            {
                "name": file.name,
                "size": file.stat().st_size,
                "made_at": datetime.fromtimestamp(file.stat().st_mtime, UTC),
            }
            for file in files
        ],
    )


@router.get("/reports/file/{name}")
def report_file(services: Here, session: Signed, name: str, download: bool = False) -> Response:
    """A report as it was made."""
    known = {file.name: file for file in _folder(services).glob("*.html")}
    if name not in known:
        raise HTTPException(404, f"no report '{name}'")
    headers = {"Content-Security-Policy": FRAME_POLICY + "; frame-ancestors 'self'"}
    if download:
        headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return Response(known[name].read_bytes(), media_type="text/html", headers=headers)


def _folder(services: Services) -> Path:
    return services.settings.home.absolute() / "reports"
