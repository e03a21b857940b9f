"""One alert: why it is there, whom it names and why, who held the address, what is like it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from alerts.delivery.triage_request import in_words
from alerts.domain.alert_body import UNREADABLE, damage
from alerts.explain.explain import explain
from api.console.lanes import Lane, Picture, Scale, picture
from api.console.page import Page, console_router
from api.console.render import iso_time, respond
from api.console.request import Here, Signed
from api.routes.access import Services
from api.services.alert_snapshot import alerts_now
from api.services.console import alert_detail
from api.services.console.lease_spans import LeaseSpan
from api.wire.evidence import EvidenceJob

router = console_router()
PAGE = Page("alert", "Alert", router)

REASONS = {
    "first": "the rule matched",
    "count": "it matched again",
    "attribution": "a DHCP line that came later says who held the address",
    "superseded": "its findings belong to another alert now",
    "closed": "a person closed it",
    "assigned": "a person took it",
    "verdict": "a person judged it",
    "reopened": "a person opened it again",
}
WIDTH = 640
_MOST_CLIENTS = 8
"""Clients that the lease lane has room for."""


@router.get("/alerts/{alert_id}")
def alert_page(
    request: Request,
    services: Here,
    session: Signed,
    alert_id: str,
    beside: bool = False,
    seen: int | None = None,
) -> Response:
    """The page, or the same beside the list; `seen`: the revision that it showed before."""
    revisions = alert_detail.revisions(services.reader, alert_id)
    if not revisions:
        raise HTTPException(
            404, f"no alert '{alert_id}'; the list under Alerts shows what there is"
        )
    newest = revisions[-1]
    now_state = alerts_now(services.reader, services.settings, [alert_id])[alert_id]
    body = newest["body"]
    explained = explain(services.reader.rows, services.settings, alert_id,
                        limited=services.reader.tenants is not None) or {}  # fmt: skip
    if sentence := damage(body, alert_id, newest["revision"]):
        return respond(
            request, "alert_damaged.html", page=PAGE, beside=beside, alert=newest,
            damage=sentence, revisions=revisions[::-1], reasons=REASONS, explained=explained,
            actions=_actions(services, alert_id), raw=str(body[UNREADABLE]),
            search=f"/search?{_span(newest['window_start'], newest['window_end'])}",
            bundle=_bundle(services, session, alert_id),
        )  # fmt: skip
    since, until, spans, cut = alert_detail.leases_around(services.reader, body)
    lane = [_change_row(row, before) for before, row in _pairs(revisions)][::-1]
    return respond(
        request,
        "alert_beside.html" if beside else "alert.html",
        page=PAGE,
        beside=beside,
        alert=newest,
        body=body,
        reasons=REASONS,
        revisions=lane,
        came=[row for row in lane if seen is not None and row["revision"] > seen],
        explained=explained,
        condition=_condition(explained),
        lease_picture=_leases(body, spans, since, until),
        clients_more=max(0, len({span.mac for span in spans}) - _MOST_CLIENTS),
        leases_until=cut,
        similar=alert_detail.similar(
            services.reader, alert_id, body["rule"]["id"], newest["entity_value"]
        ),
        verdicts=alert_detail.verdicts(services.reader, alert_id, body["rule"]["id"]),
        now_state=now_state,
        bundle=_bundle(services, session, alert_id),
        waiting=[in_words(dict(asked_for)) for asked_for in now_state.waiting],
        actions=_actions(services, alert_id),
        search=f"/search?{_search(body)}",
        raw=json.dumps(body, indent=1, ensure_ascii=True),
    )


def _condition(explained: dict[str, Any]) -> str:
    """What the rule asks, with the rules that it counts called by their titles."""
    text = str((explained.get("rule") or {}).get("condition") or "")
    for match in explained.get("matched") or ():
        text = text.replace(str(match["rule_id"]), f"“{match['rule_title']}”")
    return text


def _pairs(revisions: list[dict[str, Any]]) -> list[tuple[dict[str, Any] | None, dict[str, Any]]]:
    # `strict` off: the first list has one more, the revision behind which none comes.
    return list(zip([None, *revisions], revisions, strict=False))


def _change_row(row: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """A revision as the lane tells it: what changed, and what it rests on."""
    body = row["body"]
    proof = body.get("attribution") or {}
    was = (
        before["entity_value"] if before and before["entity_value"] != row["entity_value"] else None
    )
    previous = proof.get("previous") or {}
    return row | {
        "hostname": proof.get("hostname"),
        "certainty": proof.get("certainty") or "",
        "confidence": proof.get("confidence"),
        "basis": "its body is damaged" if UNREADABLE in body else proof.get("reason") or "",
        "was": was,
        "was_name": previous.get("hostname") if was else None,
        "detected_at": _told_at(row),
        "counted": before is not None and row["count"] != before["count"] and row["count"],
    }


def _told_at(row: dict[str, Any]) -> datetime:
    # What a damaged body says is lost; the column is as old to a second.
    instant = row["body"].get("detected_at")
    return alert_detail.body_time(instant) if instant else row["received_at"]


def _leases(
    body: dict[str, Any], spans: list[LeaseSpan], since: datetime, until: datetime
) -> Picture | None:
    """The lease lane: a row for each client that held the address, the alert's events across."""
    if not spans:
        return None
    proof = body.get("attribution") or {}
    holder = proof.get("mac")
    previous = (proof.get("previous") or {}).get("mac")
    scale = Scale(since, until, WIDTH)
    by_client: dict[str, list[LeaseSpan]] = {}
    for span in spans:
        by_client.setdefault(span.mac, []).append(span)
    # The holder and who was named before come first: not all are drawn.
    first = sorted(
        by_client, key=lambda mac: (mac != holder, mac != previous, by_client[mac][0].start)
    )
    lanes = []
    for mac in first[:_MOST_CLIENTS]:
        name = next((s.hostname for s in reversed(by_client[mac]) if s.hostname), None)
        colour = 1 if mac == holder else 2 if mac == previous else 5
        role = "holder" if mac == holder else "named before" if mac == previous else ""
        bars = [
            scale.bar(
                s.start, s.end, role or (name or ""),
                f"{name or mac} held {s.ip} from {s.start:%Y-%m-%d %H:%M:%S} to "
                f"{s.end:%Y-%m-%d %H:%M:%S} UTC",
                colour, f"/entity/mac/{mac}",
            )
            for s in by_client[mac]
        ]  # fmt: skip
        lanes.append(Lane(name or mac, mac if name else "", bars, strong=mac == holder))
    events = [
        (alert_detail.body_time(evidence["time"]), f"{evidence['time']} {evidence['snippet']}")
        for evidence in (body.get("evidence") or [])[:10]
        if evidence.get("time")
    ]
    return picture(scale, lanes, [line for line in events if since <= line[0] <= until])


def _actions(services: Services, alert_id: str) -> list[dict[str, Any]]:
    return alert_detail.actions(services.reader, alert_id)


def _bundle(services: Services, session: Signed, alert_id: str) -> EvidenceJob | bool:
    """The evidence bundle that who looks asked for; False: there is none."""
    return services.evidence.newest(session.caller, "alerts", alert_id) or False


def _span(start: datetime, end: datetime, **more: str) -> str:
    """A search of the time around an alert, as a query."""
    around = timedelta(minutes=5)
    asked = {"since": iso_time(start - around), "until": iso_time(end + around)}
    return urlencode(asked | more)


def _search(body: dict[str, Any]) -> str:
    start, end = (
        alert_detail.body_time(body["window_start"]),
        alert_detail.body_time(body["window_end"]),
    )
    asked: dict[str, str] = {}
    address = (body.get("attribution") or {}).get("ip")
    named = next((e for e in body.get("entities") or () if e["type"] in ("user", "host")), None)
    if address:
        asked["f"] = f"src_ip={address}"
    elif named:
        asked["f"] = f"{named['type']}_name={named['value']}"
    return _span(start, end, **asked)
