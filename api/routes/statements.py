"""Bounded Spark SQL, and the tables it may read."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from api import models
from api.observability.audit_log import audit_request
from api.problems import responses
from api.routes.access import Here, Who, wants
from api.sql.runner import Refused
from infra.delta.schema import catalog, views
from infra.errors import HeadgateError

router = APIRouter(prefix="/api/v1", tags=["statements"])


@router.post(
    "/statements",
    summary="Ask in Spark SQL",
    responses=responses(413, 422, 503),
    dependencies=[Depends(wants("viewer"))],
)
def _statement(services: Here, who: Who, asked: models.Statement) -> models.StatementAnswer:
    """One SELECT over the tables, bounded in rows, bytes, time and memory.

    What this engine cannot answer exactly as Spark would is refused with a
    sentence. Every statement is noted in ops.audit.
    """
    detail: dict[str, Any] = {"sql": asked.sql, "params": asked.params}
    if asked.as_of is not None:
        detail["as_of"] = asked.as_of.isoformat()
    try:
        run = services.statements.run(asked.sql, asked.params, asked.max_rows, asked.as_of)
    except HeadgateError as error:
        outcome = "refused" if isinstance(error, Refused) else "failed"
        alert_rows = detail | {"said": str(error)}
        audit_request(services.settings, "statement", outcome, who=who.name, detail=alert_rows)
        raise
    rows = detail | {"rows": len(run.rows)}
    audit_request(services.settings, "statement", "ok", who=who.name, detail=rows)
    return models.StatementAnswer(
        columns=[models.ResultColumn(**column) for column in run.columns],
        rows=run.rows,
        truncated=run.truncated,
        truncated_by=run.truncated_by,
        elapsed_ms=run.elapsed_ms,
        engine=run.engine,
        versions=run.versions,
    )


@router.get("/tables", summary="List tables and views")
def _tables() -> models.Catalog:
    """Every table and view a statement may read, with its columns and their meaning."""
    listing = [
        models.CatalogTable(
            name=table.name,
            kind="table",
            doc=table.doc,
            event_time=table.event_time,
            key=list(table.key),
            columns=[
                models.TableColumn(
                    name=column.name,
                    type=column.type.simpleString(),
                    doc=column.doc,
                    required=column.required,
                )
                for column in table.columns
            ],
        )
        for table in catalog().values()
    ]
    listing += [
        models.CatalogTable(name=view.name, kind="view", doc=view.doc) for view in views().values()
    ]
    return models.Catalog(tables=sorted(listing, key=lambda table: table.name))
