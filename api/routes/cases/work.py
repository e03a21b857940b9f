"""Cases: open, change, link alerts, note, merge, and share."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi import Path as PathPart

from api.problems import responses
from api.routes.access import Here, Who, wants
from api.services.alert_snapshot import whole_alert_id
from api.services.cases import case_detail, case_item
from api.services.triage import ANY_REVISION
from api.wire import cases as wire
from api.wire.stix import StixResponse, stix_responses

router = APIRouter(prefix="/api/v1/cases", tags=["cases"])

_WRITES = [Depends(wants("analyst"))]
CaseId = Annotated[
    str, PathPart(description="case_id, or its first characters where they are unique")
]


@router.get("", summary="List cases", responses=responses(404, 422, 503))
def list_cases(
    services: Here,
    status: Annotated[
        Literal["open", "closed", "merged"] | None, Query(description="where it stands")
    ] = None,
    alert_id: Annotated[str | None, Query(description="cases that this alert is in")] = None,
) -> wire.CaseList:
    """That changed last first."""
    whole = None if alert_id is None else whole_alert_id(services.reader, alert_id)
    return wire.CaseList(items=[case_item(case) for case in services.cases.listed(status, whole)])


@router.post(
    "",
    status_code=201,
    summary="Open a case",
    responses=responses(404, 422, 503),
    dependencies=_WRITES,
)
def open_case(services: Here, who: Who, new: wire.NewCase, response: Response) -> wire.CaseDetail:
    """It is there at once, with the alerts that it begins with."""
    case = services.cases.open(who.name, new)
    response.headers["ETag"] = case.etag
    return case_detail(case)


@router.get("/{case_id}", summary="One case", responses=responses(404, 422, 503))
def one_case(services: Here, case_id: CaseId, response: Response) -> wire.CaseDetail:
    """With its notes and the ids of its alerts. The ETag: If-Match of PATCH and merge."""
    case = services.cases.get(case_id)
    response.headers["ETag"] = case.etag
    return case_detail(case)


@router.patch(
    "/{case_id}",
    summary="Change a case",
    responses=responses(404, 409, 412, 422, 428, 503),
    dependencies=_WRITES,
)
def change_case(
    services: Here,
    who: Who,
    case_id: CaseId,
    asked: wire.CaseChange,
    response: Response,
    if_match: Annotated[
        str, Header(description="ETag of the case as it was looked at; *: whatever it is now")
    ],
) -> wire.CaseDetail:
    """Title, assignee, status, outcome and a note. 412 where somebody changed it since."""
    case = services.cases.change(who.name, case_id, asked, if_match)
    response.headers["ETag"] = case.etag
    return case_detail(case)


@router.post(
    "/{case_id}/alerts",
    summary="Link alerts to a case",
    responses=responses(404, 409, 422, 503),
    dependencies=_WRITES,
)
def link_alerts(services: Here, who: Who, case_id: CaseId, new: wire.CaseAlerts) -> wire.CaseDetail:
    """An alert may be in several cases; linking it twice changes nothing."""
    return case_detail(services.cases.link(who.name, case_id, new.alerts))


@router.delete(
    "/{case_id}/alerts/{alert_id}",
    summary="Take an alert out of a case",
    responses=responses(404, 409, 422, 503),
    dependencies=_WRITES,
)
def unlink_alert(
    services: Here,
    who: Who,
    case_id: CaseId,
    alert_id: Annotated[str, PathPart(description="alert_id, or its first characters")],
) -> wire.CaseDetail:
    """The alert itself stays as it is."""
    return case_detail(services.cases.unlink(who.name, case_id, alert_id))


@router.post(
    "/{case_id}/notes",
    status_code=201,
    summary="Note something on a case",
    responses=responses(404, 409, 422, 503),
    dependencies=_WRITES,
)
def note_on_case(
    services: Here, who: Who, case_id: CaseId, new: wire.CaseNoteText
) -> wire.CaseDetail:
    """A note overwrites nothing, so it needs no If-Match."""
    return case_detail(services.cases.note(who.name, case_id, new.text))


@router.post(
    "/{case_id}/merge",
    summary="Merge a case into another",
    responses=responses(404, 409, 412, 422, 503),
    dependencies=_WRITES,
)
def merge_case(
    services: Here,
    who: Who,
    case_id: CaseId,
    wanted: wire.CaseMerge,
    response: Response,
    if_match: Annotated[
        str, Header(description="ETag of this case as it was looked at; *: whatever it is now")
    ] = ANY_REVISION,
) -> wire.CaseDetail:
    """Alerts and notes go to that one, which is answered with its ETag; this one points there from
    now on. 412 where somebody changed it since it was looked at."""
    case = services.cases.merge(who.name, case_id, wanted.into, if_match)
    response.headers["ETag"] = case.etag
    return case_detail(case)


@router.get(
    "/{case_id}/stix",
    summary="A case as STIX 2.1",
    response_class=StixResponse,
    responses=stix_responses("a bundle: incident, groupings, sightings, what was observed"),
    dependencies=_WRITES,
)
def case_stix(services: Here, who: Who, case_id: CaseId) -> Response:
    """To share: marked and named by `[intelligence.stix]`. Alerts that were judged no attack are
    not in it."""
    return StixResponse(services.cases.stix(who.name, case_id))
