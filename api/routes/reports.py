"""Reports that were made: listed and fetched."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as InPath
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from api.problems import responses
from api.routes.access import Here
from api.services.reports import kept_reports
from api.wire.reports import ReportFile, ReportFiles

router = APIRouter(prefix="/api/v1/reports", tags=["reports"])
_CONTENT = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in
            ("text/html", "application/pdf", "application/json", "application/zip")}  # fmt: skip


@router.get("", summary="Reports that are kept")
def reports(services: Here) -> ReportFiles:
    """Each file that `headgate report` made and retention has left, the newest first."""
    return ReportFiles(
        items=[
            ReportFile.model_validate(
                {
                    "name": file.name,
                    "report": file.stem,
                    "form": file.form,
                    "size": file.size,
                    "made_at": file.made_at,
                }
            )
            for file in kept_reports(services.settings)
        ]
    )


@router.get(
    "/{name}",
    summary="One file of a report",
    response_class=Response,
    responses={
        200: {"description": "the file as it was made", "content": _CONTENT},
        **responses(404),
    },
)
def report_file(
    services: Here,
    name: Annotated[str, InPath(description="the file's name, as the list has it")],
) -> Response:
    """The bytes of the file. HTML is given as an attachment: it is not part of the console."""
    file = next((file for file in kept_reports(services.settings) if file.name == name), None)
    if file is None:
        raise HTTPException(404, f"no report '{name}'")
    headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
    return Response(file.path.read_bytes(), media_type=file.media_type, headers=headers)
