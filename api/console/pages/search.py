"""Search: events by time and filters, or by SQL; each row down to its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException

from api.asking import current_request
from api.console.downloads import download
from api.console.event_files import FORMS as EVENT_FORMS
from api.console.page import Page, console_router
from api.console.raw_bytes import hex_dump, raw_text
from api.console.render import respond, time_span
from api.console.request import Here, Signed
from api.console.time_words import earliest
from api.key_limits import readable_tables, row_limits
from api.observability.noted_statements import noted_statement
from api.query_parameters import reads_own_query
from api.routes.access import Services
from api.services.console import event_search
from api.services.console.event_search import COLUMNS_OF_EVENTS, USUAL, EventFilter, EventQuestion
from api.services.searches.saved_queries import span_params
from infra.errors import HeadgateError, Usage

router = console_router()
PAGE = Page("search", "Search", router, "/search", "search", 30, "s", group="look")
_SPANS = (("-15m", "15 minutes"), ("-1h", "1 hour"), ("-6h", "6 hours"), ("-24h", "24 hours"),
         ("-7d", "7 days"), ("-30d", "30 days"))  # fmt: skip
_KNOWN = ("q", "f", "add", "since", "until", "cols", "cursor", "sql", "query")
SHORTEST = timedelta(seconds=1)
SCHEDULES = ((0, "only when asked"), (60, "hourly"), (1440, "daily"), (10_080, "weekly"))
"""Minutes between runs of a saved query, as the page offers them."""


def schedules_with(minutes: int) -> list[tuple[int, str]]:
    """What the page offers, and so many minutes, which REST may have set."""
    known = dict(SCHEDULES)
    known.setdefault(minutes, f"every {time_span(minutes * 60)}")
    return sorted(known.items())


@dataclass(frozen=True)
class SearchAddress:
    """The state of the page, as its address has it."""

    params: dict[str, Any]
    question: EventQuestion
    columns: tuple[str, ...]

    @classmethod
    def of(cls, query: QueryParams, now: datetime) -> SearchAddress:
        """Raises `Usage` that names the parameter which is wrong."""
        if unknown := sorted(set(query) - set(_KNOWN)):
            raise Usage(f"unknown parameter '{unknown[0]}'; the page has {', '.join(_KNOWN)}")
        since = earliest("since", query.get("since") or "-24h", now) or now
        until = earliest("until", query.get("until", ""), now) or now
        if until - since < SHORTEST:
            raise Usage(f"until ({until:%Y-%m-%d %H:%M:%S}) is not after since ({since:%H:%M:%S})")
        # `add` is a filter typed into the box; it becomes one of `f` in the next address.
        texts = [text for text in [*query.getlist("f"), query.get("add", "")] if text.strip()]
        filters = tuple(dict.fromkeys(EventFilter.of(text) for text in texts))
        named = (name for name in query.get("cols", "").split(",") if name)
        columns = tuple(dict.fromkeys(named)) or USUAL
        if wrong := [name for name in columns if name not in COLUMNS_OF_EVENTS]:
            raise Usage(f"cols: no column '{wrong[0]}'; there are {', '.join(COLUMNS_OF_EVENTS)}")
        params: dict[str, Any] = {
            name: query[name] for name in _KNOWN if query.get(name) and name != "add"
        }
        params |= {"f": [str(each) for each in filters]}
        question = EventQuestion(since, until, query.get("q", "").strip(), filters)
        return cls(params, question, columns)

    def but(self, **changes: Any) -> dict[str, Any]:
        """The state with changes, from its first page on."""
        kept = {
            name: value
            for name, value in self.params.items()
            if name not in ("cursor", "sql", "query")
        }
        return kept | changes

    def without(self, text: str) -> dict[str, Any]:
        """The state without a filter."""
        return self.but(f=[each for each in self.params["f"] if each != text])

    def with_filter(self, text: str) -> dict[str, Any]:
        """The state with one more filter."""
        return self.but(f=[*self.params["f"], text])


@router.get("/search")
@reads_own_query
def search(request: Request, services: Here, session: Signed) -> Response:
    """The page: events that fit, or the answer to a statement."""
    address = SearchAddress.of(request.query_params, datetime.now(UTC))
    statement = address.params.get("sql", "")
    context: dict[str, Any] = {
        "page": PAGE,
        "asked": address,
        "spans": _SPANS,
        "known_columns": list(COLUMNS_OF_EVENTS),
        "forms": {form: each.label for form, each in EVENT_FORMS.items()},
        "spark": address.question.spark(address.columns),
        "statement": statement,
        "may_write": services.reader.tenants is None and session.caller.may("engineer"),
        "answer": None,
        "problem": None,
    }
    if statement:
        saved = services.queries.listed() if services.reader.tenants is None else []
        # The saved query that is being changed; one that is gone meanwhile is saved as a new one.
        edited = next((each for each in saved if each.name == address.params.get("query")), None)
        context |= {
            # Everybody's: who is limited has none.
            "saved": saved,
            "edited": edited,
            "schedules": schedules_with(edited.every_minutes if edited else 0),
            **_asked(services, session, statement, address.question),
        }
        return respond(request, "search_sql.html", **context)
    rows, after = event_search.events(
        services.reader,
        address.question,
        address.columns,
        event_search.PAGE_EVENTS,
        address.params.get("cursor"),
    )
    counted = event_search.event_summary(services.reader, address.question)
    series = dict(counted.series)
    names = list(series)
    # More series than colours that can be told apart.
    if len(names) > 6:
        rest = [series.pop(name) for name in names[5:]]
        series["others"] = [sum(values) for values in zip(*rest, strict=True)]
    return respond(
        request,
        "search.html",
        rows=rows,
        after=after,
        total=sum(map(sum, series.values())),
        chart={
            "times": [int(bucket.timestamp()) for bucket in counted.buckets],
            "step": int(counted.step.total_seconds()),
            "series": [{"name": name, "values": values} for name, values in series.items()],
        },
        common=counted.common,
        **context,
    )


@router.get("/search/export.{form}")
@reads_own_query
def export(request: Request, services: Here, session: Signed, form: str) -> Response:
    """All events that fit, as CSV, lines of JSON, an Arrow stream or Parquet; nothing is cut."""
    asked = SearchAddress.of(request.query_params, datetime.now(UTC))
    wanted = EVENT_FORMS.get(form)
    if wanted is None:
        raise HTTPException(404, f"no export '{form}'; there are {', '.join(EVENT_FORMS)}")
    rows = event_search.every_event(services.reader, asked.question, asked.columns)
    return download(wanted.pieces(rows, asked.columns), wanted.media_type, f"events.{form}")


@router.get("/events/{uid:path}")
def event(
    request: Request, services: Here, session: Signed, uid: str, time: str = "", row: bool = False
) -> Response:
    """One event: the bytes as they came, and the fields that were read from them, side by side."""
    known = event_search.one_event(services.reader, uid, earliest("time", time, datetime.now(UTC)))
    # A correlation's finding stands where other findings have an event's id.
    finding = None if known else event_search.finding_behind(services.reader, uid)
    if known is None and finding is None:
        raise HTTPException(404, f"no event '{uid}'; it may be older than silver.event keeps")
    return respond(
        request,
        "event_row.html" if row else "event.html",
        page=PAGE,
        uid=uid,
        event=known,
        may_write=services.reader.tenants is None and session.caller.may("engineer"),
        finding=finding,
        fields=[] if known is None else list(event_search.filled(known)),
        records=[
            record | {"text": raw_text(record["raw"]), "hex": hex_dump(bytes(record["raw"] or b""))}
            for record in (event_search.raw_records(services.reader, known) if known else [])
        ],
    )


def _asked(
    services: Services, session: Any, statement: str, question: EventQuestion
) -> dict[str, Any]:
    """The answer to a statement, or why there is none; `:since` and `:until` are the page's."""
    if not session.caller.may("viewer"):
        raise HTTPException(403, f"'{session.caller.name}' may not run statements (role viewer)")
    who = session.caller.name
    try:
        with noted_statement(services.settings, {"sql": statement}, who) as act:
            answer = services.statements.run(
                statement,
                span_params(statement, question.since, question.until),
                cancelled=current_request().gone,
                tables=readable_tables(session.caller),
                rows=row_limits(session.caller),
                who=who,
                engine="auto",
            )
            act.outcome, act.detail["rows"] = "ok", len(answer.rows)
    except HeadgateError as error:
        return {"problem": str(error)}
    return {"answer": answer}
