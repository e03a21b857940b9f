"""The alerts as a list to work through, with one of them beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args
from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from fastapi.responses import Response
from starlette.datastructures import QueryParams

from alerts.delivery.action_request import waiting_requests
from alerts.delivery.triage_request import TRIAGE_ACTIONS, in_words
from api.console.downloads import download
from api.console.page import Page, console_router
from api.console.render import respond
from api.console.request import Here, Signed
from api.console.time_words import earliest
from api.query_parameters import reads_own_query
from api.routes.alerts import stream_alerts
from api.services.console import alert_list
from api.services.console.alert_list import FACETS, GroupBy, ListFilter
from api.services.console.saved_views import SavedViews
from infra.errors import Usage
from infra.process.text_output import harmless

router = console_router()
PAGE = Page("alerts", "Alerts", router, "/alerts", "alerts", 20, "a")

_SPANS = (("", "all time"), ("-1h", "last hour"), ("-24h", "last 24 h"), ("-7d", "last 7 days"),
         ("-30d", "last 30 days"))  # fmt: skip
GROUPINGS = (("", "list"), ("entity", "device"), ("rule", "rule"), ("incident", "incident"))
TITLES = {"level": "Level", "lifecycle": "Alert status", "attribution": "Proof of who",
          "verdict": "Verdict", "assignee": "Taken by", "rule_id": "Rule",
          "tenant_uid": "Tenant"}  # fmt: skip
_COLUMNS = ("alert_id", "revision", "level", "lifecycle", "verdict", "assignee", "rule_id",
           "rule_name", "title", "entity_type", "entity_value", "previous_entity", "hostname",
           "src_ip", "attribution", "certainty", "count", "risk_score", "first_event_time",
           "event_time", "incident_id", "suppressed_by", "tenant_uid")  # fmt: skip
_WORDS = {"lifecycle": "alert_status", "attribution": "attribution_status"}
"""Columns that the API and the topic call otherwise."""
_LISTED = ("level", "lifecycle", "tenant_uid", "attribution", "rule_id", "assignee", "verdict")
"""The facets in the order in which the page has them."""
OPEN = ("new", "triaged")
"""Without a choice what is closed is left out: the list is there to be worked through."""
_FEW, _MANY = 8, 200
"""Values of a facet that are shown at once, and that are listed at all."""
_KNOWN = {"q", "entity", "incident", "since", "until", "muted", "group", "cursor", "open", "page"}


@dataclass(frozen=True)
class AlertsAddress:
    """The state of the page, as its address has it."""

    params: dict[str, Any]

    @classmethod
    def of(cls, query: QueryParams) -> AlertsAddress:
        """Raises `Usage` for a parameter that the page does not have."""
        if unknown := sorted(set(query) - _KNOWN - set(FACETS)):
            raise Usage(f"unknown parameter '{unknown[0]}'; the page has {sorted(_KNOWN)}")
        if query.get("group", "") not in get_args(GroupBy):
            raise Usage(f"group: '{query['group']}' is none of entity, rule, incident")
        if not query.get("page", "0").isdigit():
            raise Usage(f"page: '{query['page']}' is not a number")
        facets = {name: query.getlist(name) for name in FACETS if name in query}
        return cls({name: query[name] for name in _KNOWN if query.get(name)} | facets)

    def wanted(self, now: datetime) -> ListFilter:
        """The filter that this means."""
        given = self.params
        facets = {name: self.chosen(name) for name in FACETS if self.chosen(name)}
        return ListFilter(
            text=given.get("q", "").strip(),
            facets=facets,
            entity=given.get("entity", ""),
            incident=given.get("incident", ""),
            since=earliest("since", given.get("since", ""), now),
            until=earliest("until", given.get("until", ""), now),
            muted=bool(given.get("muted")),
        )

    def chosen(self, facet: str) -> tuple[str, ...]:
        """The values of a facet that the list is limited to; () for none."""
        unsaid = OPEN if facet == "lifecycle" else ()
        return tuple(self.params.get(facet, unsaid))

    def but(self, **changes: Any) -> dict[str, Any]:
        """The state with changes; another page or order is begun with them."""
        kept = {k: v for k, v in self.params.items() if k not in ("cursor", "page", "open")}
        return {name: value for name, value in (kept | changes).items() if value not in ("", None)}

    def rest_query(self) -> str | None:
        """The same list over REST; None where that has no parameter for what is chosen."""
        if "tenant_uid" in self.params:
            return None
        states = frozenset(self.chosen("lifecycle"))
        status = {frozenset({"new", "triaged"}): "open", frozenset({"closed"}): "closed"}
        # REST has one status; a choice of some open states alone has no parameter there.
        if states not in status and states != {"new", "triaged", "closed"}:
            return None
        params: dict[str, Any] = {"status": status.get(states), "level": self.params.get("level")}
        for name in ("attribution", "verdict", "assignee", "rule_id"):
            values = self.params.get(name, [])
            if len(values) > 1:
                return None
            # Nobody and nothing have a word there.
            params[name] = (values[0] or "none") if values else None
        params |= {name: self.params.get(name) for name in ("q", "entity", "since", "until")}
        params |= {"incident_id": self.params.get("incident"), "muted": self.params.get("muted")}
        given = {name: value for name, value in params.items() if value}
        return urlencode(given, doseq=True)

    def toggled(self, facet: str, value: str) -> dict[str, Any]:
        """The state with a value of a facet chosen, or left out if it was."""
        now = self.chosen(facet)
        values = [v for v in now if v != value] if value in now else [*now, value]
        # The same list has one address.
        unsaid = facet == "lifecycle" and set(values) == set(OPEN)
        return self.but(**{facet: [] if unsaid else values})

    def opened(self, alert_id: str | None) -> dict[str, Any]:
        """The state with an alert beside the list."""
        return {k: v for k, v in self.params.items() if k != "open"} | (
            {"open": alert_id} if alert_id else {}
        )


@router.get("/alerts")
@reads_own_query
def alerts_page(request: Request, services: Here, session: Signed) -> Response:
    """The list, or, where the page renews itself, the part of it that can change."""
    address = AlertsAddress.of(request.query_params)
    wanted = address.wanted(datetime.now(UTC))
    group: GroupBy = address.params.get("group", "")
    context: dict[str, Any] = {
        "page": PAGE,
        "asked": address,
        "group": group,
        "counts": alert_list.facet_counts(services.reader, wanted),
        "spans": _SPANS,
        "groupings": GROUPINGS,
        "titles": TITLES,
        "listed": _LISTED,
        "few": _FEW,
        "many": _MANY,
        "groups": [],
        "group_total": 0,
        "number": int(address.params.get("page", 0)),
        "groups_a_page": alert_list.GROUPS,
        "rows": [],
        "next": None,
    }
    views = SavedViews(services.settings).views_of(session.caller.name)
    context["views"] = [(name, query, _same(query, address.but())) for name, query in views.items()]
    context["rest_query"] = address.rest_query()
    context["query_now"] = urlencode(address.but(), doseq=True)
    if group:
        context["groups"], context["group_total"] = alert_list.grouped(
            services.reader, wanted, group, context["number"]
        )
    else:
        listing = alert_list.alert_rows(
            services.reader, wanted, alert_list.PAGE_ROWS, address.params.get("cursor")
        )
        context |= {"rows": listing.rows, "next": listing.next}
    shown = {row["alert_id"] for row in context["rows"]}
    shown |= {row["alert_id"] for each in context["groups"] for row in each.rows}
    context["waiting"] = {
        asked_for["alert_id"]: in_words(asked_for)
        for asked_for in waiting_requests(services.settings)
        if asked_for["action"] in TRIAGE_ACTIONS and asked_for["alert_id"] in shown
    }
    return respond(request, "alerts.html", **context)


def _same(query: str, shown: dict[str, Any]) -> bool:
    """Whether a kept address is the one that is shown, in whatever order."""
    return sorted(parse_qsl(query)) == sorted(parse_qsl(urlencode(shown, doseq=True)))


@router.get("/alerts/live")
async def live(request: Request, services: Here, session: Signed) -> Response:
    """Server-sent events: each new revision, so that the list renews itself at once."""
    return await stream_alerts(request, services, None, request.headers.get("last-event-id"))


@router.get("/alerts.csv")
@reads_own_query
def alerts_csv(request: Request, services: Here, session: Signed) -> Response:
    """The whole list as CSV: just what is filtered, all pages of it."""
    wanted = AlertsAddress.of(request.query_params).wanted(datetime.now(UTC))
    return download(_lines(alert_list.every(services.reader, wanted)), "text/csv", "alerts.csv")


def _lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(_WORDS.get(name, name) for name in _COLUMNS)
    for row in rows:
        # A spreadsheet runs a cell that begins with `=`, and log text is a stranger's.
        writer.writerow([harmless(_cell(row[name])) for name in _COLUMNS])
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def _cell(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
