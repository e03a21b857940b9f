"""Bounded Spark SQL, and the tables it may read."""

from __future__ import annotations

import asyncio
import threading
import time
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
from api.prefer import Wait, later_answer, waits
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
from api.sql.runner import Answer, LeftToSpark
from api.sql.worker_line import HungUp
from api.wire import jobs
from infra.delta.catalog import catalog, views
from infra.delta.log_reader import newest_version
from infra.delta.schema import Table
from infra.errors import Usage
from infra.storage.paths import Location

router = APIRouter(prefix="/api/v1", tags=["statements"])
T = TypeVar("T")


USUAL_WAIT, USUAL_WAIT_WHOLE = 10.0, 20.0
"""Seconds for which an answer in JSON is waited for, and one in another form: nobody who types a
question looks at nothing for longer, and a file is rather had at once than fetched."""


@router.post(
    "/statements",
    summary="Ask in Spark SQL",
    response_model=models.StatementAnswer,
    responses={
        200: WHOLE,
        202: later_answer(
            jobs.SearchJob, "it takes longer and goes on as a search job; `Location` says where"
        ),
        **responses(406, 413, 422, 429, 503),
    },
    dependencies=[Depends(wants("viewer"))],
)
async def _statement(
    services: Here,
    who: Who,
    asked: models.Statement,
    request: Request,
    response: Response,
    wait: Annotated[Wait, waits("10 s, another form than JSON 20 s")],
    accept: Accepted = JSON,
) -> Any:
    """One SELECT over the tables, bounded in rows, bytes, time and memory.

    DuckDB answers what it can exactly as Spark would, and a Spark of the API's own the
    rest, unless `engine` says otherwise. Every statement is noted in ops.audit. What is not
    done within the time to wait goes on as a search job, whose bounds are wider (202); so do,
    from the beginning, what Spark answers and what is wanted in another form than JSON. Before
    it is answered, it ends when the caller hangs up.
    """
    form = wanted_form(accept)
    if form != JSON and asked.max_rows is not None:
        raise Usage(f"max_rows: {form} is the whole result; say LIMIT {asked.max_rows} in sql")
    limits = services.settings.api
    quota = services.quotas.statement(
        who.name, limits.statements_at_once, limits.statement_seconds_per_hour
    )
    seconds = wait.within(USUAL_WAIT if form == JSON else USUAL_WAIT_WHOLE)
    until = time.monotonic() + seconds
    with quota:
        if form == JSON and seconds > 0:
            inline = partial(_answered, services, who, asked, seconds)
            if (run := await _while_there(request, inline)) is not None:
                response.headers.update(wait.applied(200))
                return _answer_of(run)
        left = max(0.0, until - time.monotonic())
        return await _while_there(request, partial(_as_job, services, who, asked, left, form, wait))


def _answer_of(run: Answer) -> models.StatementAnswer:
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
    seconds: float,
    form: str,
    wait: Wait,
    gone: threading.Event,
) -> Response:
    wanted = jobs.NewSearchJob.model_validate(asked.model_dump(exclude={"max_rows"}))
    job = services.searches.submit(who, wanted, wait=seconds, gone=gone)
    file = services.searches.file(job.id)
    if form != JSON:
        return whole_or_later(job, file, form, wait)
    if going := later(job, wait):
        return going
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
    headers = {"Location": job_path(job)} | wait.applied(200)
    return JSONResponse(answer.model_dump(mode="json"), headers=headers)


class _Waited:
    """Whether a statement is not to be waited for any more: its caller left, or its time is up."""

    def __init__(self, gone: threading.Event, seconds: float) -> None:
        self._gone = gone
        self._until = time.monotonic() + seconds

    def is_set(self) -> bool:
        """As an Event says it."""
        return self._gone.is_set() or self.over

    @property
    def over(self) -> bool:
        """Whether the caller still waits, and has to be told to come again."""
        return not self._gone.is_set() and time.monotonic() >= self._until


def _answered(
    services: Services,
    who: Caller,
    asked: models.Statement,
    seconds: float,
    gone: threading.Event,
) -> Answer | None:
    """The answer where it is there within so many seconds; None: it wants to be a search job."""
    detail: dict[str, Any] = {"sql": asked.sql, "params": asked.params}
    if asked.as_of is not None:
        detail["as_of"] = asked.as_of.isoformat()
    # What stops a statement is then a job's bound, never that of statements.
    waited = _Waited(gone, min(seconds, services.settings.api.statement_seconds))
    with noted_statement(services.settings, detail, who.name) as act:
        try:
            answer = services.statements.run(
                asked.sql,
                asked.params,
                asked.max_rows,
                asked.as_of,
                waited,
                readable_tables(who),
                row_limits(who),
                who.name,
                asked.engine,
                # Its start takes seconds and is lost where it is not waited for to the end.
                spark=False,
            )
        except LeftToSpark:
            act.outcome, act.detail["said"] = "ok", "Spark answers it, as a search job"
            return None
        except HungUp:
            if not waited.over:
                raise
            act.outcome, act.detail["said"] = "ok", "it goes on as a search job"
            return None
        act.outcome, act.detail["rows"] = "ok", len(answer.rows)
        return answer


async def _hung_up(request: Request) -> None:
    """Returns when the caller is gone; its whole request was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@router.get("/tables", summary="List tables and views")
def _tables(
    services: Here,
    who: Who,
    columns: Annotated[bool, Query(description="whether to list the columns too")] = True,
    versions: Annotated[bool, Query(description="whether to look up the newest versions")] = False,
) -> models.Catalog:
    """Every table and view the caller's statements may read, with its columns and their meaning."""
    readable = readable_tables(who)
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
    shown = [each for each in listing if readable is None or each.name in readable]
    return models.Catalog(tables=sorted(shown, key=lambda table: table.name))


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
