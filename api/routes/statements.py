"""Bounded Spark SQL, and the tables it may read."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from api import models
from api.observability.audit_log import note
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
def statement(services: Here, who: Who, asked: models.Statement) -> models.StatementAnswer:
    """One SELECT over the tables, bounded in rows, bytes, time and memory.

    What this engine cannot answer exactly as Spark would is refused with a
    sentence. Every statement is noted in ops.audit.
    """
    detail: dict[str, Any] = {"sql": asked.sql, "params": asked.params}
    if asked.as_of is not None:
        detail["as_of"] = asked.as_of.isoformat()
    try:
        found = services.statements.run(asked.sql, asked.params, asked.max_rows, asked.as_of)
    except HeadgateError as error:
        outcome = "refused" if isinstance(error, Refused) else "failed"
        said = detail | {"said": str(error)}
        note(services.settings, "statement", outcome, who=who.name, detail=said)
        raise
    rows = detail | {"rows": len(found.rows)}
    note(services.settings, "statement", "ok", who=who.name, detail=rows)
    return models.StatementAnswer(
        columns=[models.ResultColumn(**column) for column in found.columns],
        rows=found.rows,
        truncated=found.truncated,
        truncated_by=found.truncated_by,
        elapsed_ms=found.elapsed_ms,
        engine=found.engine,
        versions=found.versions,
    )


@router.get("/tables", summary="List tables and views")
def tables() -> models.Catalog:
    """Every table and view a statement may read, with its columns and their meaning."""
    found = [
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
    found += [
        models.CatalogTable(name=view.name, kind="view", doc=view.doc) for view in views().values()
    ]
    return models.Catalog(tables=sorted(found, key=lambda table: table.name))
