"""Events that Search found as a file: text as it is read, columns with the types of the view."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from api.console import event_files
from api.console.event_files import FORMS, TYPES
from api.services.console.event_search import COLUMNS_OF_EVENTS
from api.services.view_columns import empty_views
from ingest.tables import EVENT
from tests.api.plain_desk import PlainDesk
from tests.examples import examples
from tests.headgate.as_code.delta_by_hand import append_rows

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
EVENTS = 5
ASKED = "since=2026-11-20T11:00:00Z&until=2026-11-20T13:00:00Z"
MEDIA = {"arrows": "vnd.apache.arrow.stream", "parquet": "vnd.apache.parquet", "ndjson": "x-ndjson"}


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    desk = PlainDesk(tmp_path_factory.mktemp("event-files"), devices=1)
    desk.all_tables()
    events = [
        {
            "event_uid": f"e{number}", "time": NOON + timedelta(seconds=number),
            "received_at": NOON, "source": "sshd", "message": "=1+1 é",
            "src_endpoint": {"ip": "10.0.0.9", "port": 40_000 + number},
        }
        for number in range(EVENTS)
    ]  # fmt: skip
    append_rows(desk.settings.lake_root, EVENT, events)
    return desk.browser("ann", "read")


def read(content: bytes, form: str) -> list[dict[str, Any]]:
    """The rows of a file; of CSV all are text."""
    if form == "csv":
        return list(csv.DictReader(io.StringIO(content.decode())))
    if form == "ndjson":
        return [json.loads(line) for line in content.splitlines()]
    if form == "arrows":
        table = pa.ipc.open_stream(content).read_all()
    else:
        table = pq.read_table(io.BytesIO(content))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@pytest.mark.parametrize("form", list(FORMS))
def test_what_is_filtered_comes_whole_in_each_form_that_the_page_offers(
    ann: TestClient, form: str
) -> None:
    page = ann.get(f"/search?{ASKED}&f=src_port!=40003").text
    assert f'href="/search/export.{form}?' in page
    assert f">{FORMS[form].label}</a>" in page
    answered = ann.get(
        f"/search/export.{form}?{ASKED}&f=src_port!=40003&cols=time,src_port,message"
    )
    assert answered.status_code == 200, answered.text
    assert MEDIA.get(form, "csv") in answered.headers["content-type"]
    assert answered.headers["content-disposition"] == f'attachment; filename="events.{form}"'
    rows = read(answered.content, form)
    assert [int(row["src_port"]) for row in rows] == [40_004, 40_002, 40_001, 40_000]
    newest = NOON + timedelta(seconds=4)
    columns = form in ("arrows", "parquet")
    assert rows[0]["time"] == (newest if columns else newest.isoformat())
    # A spreadsheet would run it; what programs read is as it came.
    assert rows[0]["message"] == ("'=1+1 é" if form == "csv" else "=1+1 é")


def test_a_form_that_there_is_not_is_told_with_those_that_there_are(ann: TestClient) -> None:
    answered = ann.get("/search/export.xls")
    assert answered.status_code == 404
    assert "csv, ndjson, arrows, parquet" in answered.text


def test_a_column_named_twice_comes_once(ann: TestClient) -> None:
    content = ann.get(f"/search/export.parquet?{ASKED}&cols=time,source,time").content
    assert pq.read_table(io.BytesIO(content)).column_names == ["time", "source"]


def test_columns_have_the_types_of_the_view() -> None:
    with duckdb.connect(":memory:") as engine:
        engine.execute("SET TimeZone = 'UTC'")
        empty_views(engine, Path("/"))
        asked = ", ".join(f"{column} AS {name}" for name, column in COLUMNS_OF_EVENTS.items())
        table = engine.execute(f"SELECT {asked} FROM silver.events").fetch_arrow_table()
    assert {
        field.name: field.type for field in table.schema if not pa.types.is_string(field.type)
    } == TYPES


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "time": st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)).map(
                lambda time: time.replace(tzinfo=UTC)
            ),
            "message": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
            "bytes": st.none() | st.integers(-(2**63), 2**63 - 1),
        }
    ),
    max_size=9,
)


@given(ROWS, st.sampled_from(["arrows", "parquet"]))
@examples(60)
def test_any_rows_are_read_as_they_were_also_over_several_pieces(
    rows: list[dict[str, Any]], form: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_files, "_ARROW_ROWS", 2)
        patch.setattr(event_files, "_PARQUET_ROWS", 2)
        pieces = [*FORMS[form].pieces(iter(rows), ["time", "message", "bytes"])]
    assert len(pieces) == -(-len(rows) // 2) + 1
    assert read(b"".join(pieces), form) == rows
