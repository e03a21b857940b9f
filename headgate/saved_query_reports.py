"""Asks a saved query for its report: as who saved it, with what they may now, and audited."""

from __future__ import annotations

from api.auth import Access
from api.key_limits import readable_tables, row_limits
from api.observability.audit_log import audited_act
from api.services.searches.saved_queries import QueryStore, span_params
from api.sql.runner import Statements
from infra.config.settings import Settings
from infra.errors import HeadgateError, Usage
from reporting.document.saved_query import SavedAnswer
from reporting.interval import Interval


def answer_saved_query(settings: Settings, name: str, interval: Interval) -> SavedAnswer:
    """The answer over an interval; raises `Usage` where nobody may ask it any more."""
    query = QueryStore(settings).get(name)
    caller = Access(settings).named(query.who)
    if caller is None or not caller.may("viewer"):
        raise Usage(
            f"query {name}: '{query.who}', who saved it, may not ask any more; save it anew"
        )
    params = span_params(query.sql, interval.start, interval.end)
    detail = {"sql": query.sql, "params": params, "query": name}
    statements = Statements(settings, workers=1)
    try:
        with audited_act(settings, "report.query", detail, who=query.who) as act:
            try:
                answer = statements.run(
                    query.sql,
                    params,
                    tables=readable_tables(caller),
                    rows=row_limits(caller),
                    engine="auto",
                )
            except HeadgateError as error:
                act.detail["said"] = str(error)
                raise
            act.outcome, act.detail["rows"] = "ok", len(answer.rows)
    finally:
        statements.close()
    return SavedAnswer(
        sql=query.sql,
        doc=query.doc,
        who=query.who,
        columns=[(column["name"], column["type"]) for column in answer.columns],
        rows=answer.rows,
        truncated_by=answer.truncated_by,
        bounded=bool(params),
        versions=answer.versions,
    )
