"""The result of a search job in the form that is asked for: whole, or a page that says so."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi.responses import FileResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from api.prefer import Wait
from api.services.reader import cursor_of, numbered_place, reader_cursor
from api.services.searches.job_store import result_gone
from api.services.searches.search_jobs import problem_of
from api.sql.worker import cut_rows, plain
from api.wire.jobs import SearchJob, SearchPage
from infra.process.text_output import harmless

_BATCH = 2_000
JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
FORMS = (JSON, NDJSON, CSV, ARROW, PARQUET)


def form_of(accept: str) -> str | None:
    """The first form of a header `Accept` that there is; None for none."""
    for part in accept.split(",") or ["*/*"]:
        name, _, rest = part.strip().partition(";")
        if rest.replace(" ", "") in ("q=0", "q=0.0"):
            continue
        if name in ("*/*", "application/*", ""):
            return JSON
        if name in FORMS:
            return name
    return None


def wanted_form(accept: str) -> str:
    """The same; raises 406 for none, with those that there are."""
    form = form_of(accept)
    if form is None:
        raise HTTPException(406, f"Accept {accept}: there are {', '.join(FORMS)}")
    return form


def whole(job: SearchJob, file: Path, form: str) -> Response:
    """All rows of a job that is done, in any form but JSON."""
    headers = {"Headgate-Rows": str(job.rows), "Headgate-Engine": str(job.engine)}
    # Before the answer begins: a result that has just been removed is none, and no half of one.
    content = _opened(file)
    if form == PARQUET:
        return FileResponse(file, media_type=form, filename=f"{job.id}.parquet", headers=headers)
    return StreamingResponse(lines(job, content, form), media_type=form, headers=headers)


def whole_or_later(job: SearchJob, file: Path, form: str, wait: Wait) -> Response:
    """All rows where the job is done, 202 where it goes on; raises its problem where it failed."""
    if going := later(job, wait):
        return going
    answer = whole(job, file, form)
    answer.headers.update(wait.applied(200))
    return answer


def later(job: SearchJob, wait: Wait) -> Response | None:
    """202 for a job that goes on, None for one that is done; raises its problem otherwise."""
    if going := wait.later(job, job_path(job)):
        return going
    if job.state != "done":
        raise problem_of(job)
    return None


def job_path(job: SearchJob) -> str:
    """The path of a job."""
    return f"/api/v1/search/jobs/{job.id}"


def first_rows(file: Path, most_rows: int, most_bytes: int) -> dict[str, Any]:
    """`rows` that an answer to a statement holds, and `truncated_by`: what cut it, if anything.

    Raises `NoSuchAct` where the result has just been removed; so do `whole` and `page`.
    """
    return cut_rows(_rows(_opened(file), 0), most_rows, most_bytes)


def page(job: SearchJob, file: Path, limit: int, cursor: str | None) -> SearchPage:
    """Rows from a place on; raises `Usage` for a cursor of another job."""
    question = {"job": job.id}
    place = 0 if cursor is None else numbered_place(reader_cursor(cursor, question, 1)[0])
    rows: list[list[Any]] = []
    for row in _rows(_opened(file), place):
        rows.append(row)
        if len(rows) == limit:
            break
    total, after = job.rows or 0, place + len(rows)
    following = cursor_of(question, str(after)) if after < total else None
    return SearchPage(columns=job.columns or [], rows=rows, total=total, next=following)


def lines(job: SearchJob, content: pq.ParquetFile, form: str) -> Iterator[bytes]:
    """The whole result as lines of JSON, CSV or an Arrow stream."""
    names = [column.name for column in job.columns or ()]
    if form == NDJSON:
        for row in _rows(content, 0):
            yield json.dumps(dict(zip(names, row, strict=True))).encode() + b"\n"
    elif form == CSV:
        yield _csv_line(names)
        for row in _rows(content, 0):
            yield _csv_line([harmless(value) for value in row])
    else:
        yield from _arrow(content)


def _opened(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except FileNotFoundError:
        raise result_gone() from None


def _rows(content: pq.ParquetFile, place: int) -> Iterator[list[Any]]:
    for group in range(content.num_row_groups):
        size = content.metadata.row_group(group).num_rows
        # Groups before the place are not read at all.
        if place >= size:
            place -= size
            continue
        for batch in content.iter_batches(_BATCH, row_groups=[group]):
            if place >= batch.num_rows:
                place -= batch.num_rows
                continue
            columns = [column.to_pylist() for column in batch.slice(place).columns]
            place = 0
            for values in zip(*columns, strict=True):
                yield [plain(value) for value in values]


def _csv_line(cells: list[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().encode()


def _arrow(content: pq.ParquetFile) -> Iterator[bytes]:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, content.schema_arrow) as writer:
        for batch in content.iter_batches(_BATCH):
            writer.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()
