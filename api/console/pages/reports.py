"""Reports that were made: listed, looked at in a frame that may do nothing, and downloaded."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from api.console.page import Page, console_router
from api.console.render import respond
from api.console.request import Signed
from api.routes.access import Here
from api.services.reports import StoredReport, stored_reports

router = console_router()
PAGE = Page("reports", "Reports", router, "/reports", "reports", 60, "p", group="run")
FRAME_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
"""A report is a page of its own with its own styles; it gets no script and no way out."""


@router.get("/reports")
def reports(request: Request, services: Here, session: Signed, show: str = "") -> Response:
    """The list, each report once with its forms, and one of the pages."""
    kept = stored_reports(services.settings)
    if show and show not in [file.name for file in kept if file.form == "html"]:
        raise HTTPException(404, f"no report '{show}'")
    forms: dict[str, list[StoredReport]] = {}
    for file in kept:
        forms.setdefault(file.stem, []).append(file)
    return respond(
        request,
        "reports.html",
        page=PAGE,
        show=show,
        reports=[
            {
                "stem": stem,
                "page": next((file.name for file in files if file.form == "html"), None),
                "files": sorted(files, key=lambda file: file.form),
                "made_at": files[0].made_at,
            }
            for stem, files in forms.items()
        ],
    )


@router.get("/reports/file/{name}")
def report_file(services: Here, session: Signed, name: str, download: bool = False) -> Response:
    """A report's file as it was made; only a page is shown, the other forms are downloaded."""
    file = next((file for file in stored_reports(services.settings) if file.name == name), None)
    if file is None:
        raise HTTPException(404, f"no report '{name}'")
    headers = {"Content-Security-Policy": FRAME_POLICY + "; frame-ancestors 'self'"}
    if download or file.form != "html":
        headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return Response(file.path.read_bytes(), media_type=file.media_type, headers=headers)
