"""Bounded Spark SQL, and the tables it may read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from api import models
from api.auth import Caller
from api.key_limits import readable_tables, row_limits
from api.observability.noted_statements import noted_statement
from api.problems import responses
from api.routes.access import Here, Services, Who, wants
from api.routes.searches import WHOLE, Accepted
from api.services.searches.search_results import (
    JSON,
    first_rows,
    job_path,
    later,
    wanted_form,
    whole_or_later,
)
from api.services.view_columns import view_columns
from api.sql.runner import Answer
from api.wire import jobs
from infra.delta.catalog import catalog, views
from infra.delta.log_reader import newest_version
from infra.delta.schema import Table
from infra.errors import Usage
from infra.storage.paths import Location

router = APIRouter(prefix="/api/v1", tags=["statements"])
T = TypeVar("T")


@router.post(
    "/statements",
    summary="Ask in Spark SQL",
    response_model=models.StatementAnswer,
    responses={
        200: WHOLE,
        202: {
            "model": jobs.SearchJob,
            "description": "with `wait_seconds`, or another `Accept` than JSON: not done yet; "
            "`Location` says where",
        },
        **responses(406, 413, 422, 429, 503),
    },
    dependencies=[Depends(wants("viewer"))],
)
async def _statement(
    services: Here,
    who: Who,
    asked: models.Statement,
    request: Request,
    wait_seconds: Annotated[
        float | None,
        Query(
            ge=0,
            le=20,
            description="for so long it is waited for; not done by then, it goes on as a search "
            "job (202). Without it JSON is waited for to the end, other forms for 20 s",
        ),
    ] = None,
    accept: Accepted = JSON,
) -> Any:
    """One SELECT over the tables, bounded in rows, bytes, time and memory.

    DuckDB answers what it can exactly as Spark would, and a Spark of the API's own the
    rest, unless `engine` says otherwise. Every statement is noted in ops.audit. With
    `wait_seconds`, or another `Accept` than JSON, it is asked as a search job, whose bounds
    are wider: 202 says where it is when it takes longer. Before it is answered, it ends when
    the caller hangs up.
    """
    form = wanted_form(accept)
    if form != JSON and asked.max_rows is not None:
        raise Usage(f"max_rows: {form} is the whole result; say LIMIT {asked.max_rows} in sql")
    limits = services.settings.api
    quota = services.quotas.statement(
        who.name, limits.statements_at_once, limits.statement_seconds_per_hour
    )
    with quota:
        if form != JSON or wait_seconds is not None:
            wait = 20.0 if wait_seconds is None else wait_seconds
            as_job = partial(_as_job, services, who, asked, wait, form)
            return await _while_there(request, as_job)
        run = await _while_there(request, partial(_answered, services, who, asked))
    return models.StatementAnswer(
        columns=[models.ResultColumn(**column) for column in run.columns],
        rows=run.rows,
        truncated=run.truncated,
        truncated_by=run.truncated_by,
        elapsed_ms=run.elapsed_ms,
        engine=run.engine,
        engine_reason=run.engine_reason,
        versions=run.versions,
    )


async def _while_there(request: Request, ask: Callable[[threading.Event], T]) -> T:
    """What `ask` gives; the event that it is handed says that the caller hung up."""
    # An event and not a task's cancel: the statement runs in a thread, which cannot be cancelled.
    cancelled = threading.Event()
    asking = asyncio.ensure_future(run_in_threadpool(ask, cancelled))
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        # Whichever comes first: a caller that left must not hold one of the few workers.
        await asyncio.wait({asking, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        cancelled.set()  # also where this task itself is cancelled, as the API ends
        gone.cancel()
    return await asking


def _as_job(
    services: Services,
    who: Caller,
    asked: models.Statement,
    wait: float,
    form: str,
    gone: threading.Event,
) -> Response:
    wanted = jobs.NewSearchJob.model_validate(asked.model_dump(exclude={"max_rows"}))
    job = services.searches.submit(who, wanted, wait=wait, gone=gone)
    file = services.searches.file(job.id)
    if form != JSON:
        return whole_or_later(job, file, form)
    if goes_on := later(job):
        return goes_on
    limits = services.settings.api
    # Bounded as a statement is; what is cut here lies whole where `Location` says.
    most = min(asked.max_rows or limits.statement_rows, limits.statement_rows)
    first = first_rows(file, most, limits.statement_bytes)
    answer = models.StatementAnswer(
        columns=job.columns or [],
        **first,
        truncated=first["truncated_by"] is not None,
        elapsed_ms=job.elapsed_ms or 0.0,
        engine=job.engine or "duckdb",
        engine_reason=job.engine_reason or "",
        versions=job.versions,
    )
    return JSONResponse(answer.model_dump(mode="json"), headers={"Location": job_path(job)})


def _answered(
    services: Services, who: Caller, asked: models.Statement, cancelled: threading.Event
) -> Answer:
    detail: dict[str, Any] = {"sql": asked.sql, "params": asked.params}
    if asked.as_of is not None:
        detail["as_of"] = asked.as_of.isoformat()
    with noted_statement(services.settings, detail, who.name) as act:
        answer = services.statements.run(
            asked.sql,
            asked.params,
            asked.max_rows,
            asked.as_of,
            cancelled,
            readable_tables(who),
            row_limits(who),
            who.name,
            asked.engine,
        )
        act.outcome, act.detail["rows"] = "ok", len(answer.rows)
        return answer


async def _hung_up(request: Request) -> None:
    """Returns when the caller is gone; its whole request was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@router.get("/tables", summary="List tables and views")
def _tables(
    services: Here,
    columns: Annotated[bool, Query(description="whether to list the columns too")] = True,
    versions: Annotated[bool, Query(description="whether to look up the newest versions")] = False,
) -> models.Catalog:
    """Every table and view a statement may read, with its columns and their meaning."""
    root = services.settings.lake_root
    listing = [
        models.CatalogTable(
            name=table.name,
            kind="table",
            doc=table.doc,
            event_time=table.event_time,
            key=list(table.key),
            # A look into each table's log, which most who list them do not ask for.
            version=_version(root / table.path) if versions else None,
            columns=_columns(table) if columns else [],
        )
        for table in catalog().values()
    ]
    listing += [
        models.CatalogTable(
            name=view.name,
            kind="view",
            doc=view.doc,
            columns=[
                models.TableColumn(name=name, type=kind, doc=doc, required=False)
                for name, kind, doc in (view_columns()[view.name] if columns else ())
            ],
        )
        for view in views().values()
    ]
    return models.Catalog(tables=sorted(listing, key=lambda table: table.name))


def _columns(table: Table) -> list[models.TableColumn]:
    return [
        models.TableColumn(
            name=column.name,
            type=column.type.simpleString(),
            doc=column.doc,
            required=column.required,
        )
        for column in table.columns
    ]


def _version(table: Location) -> int | None:
    number = newest_version(table)
    return number if number >= 0 else None
