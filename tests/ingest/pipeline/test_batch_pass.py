"""One pass over a batch: how it is cut, and what of a record reaches bronze."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.delta.parquet_writer import Target, arrow_schema
from ingest.parsing.arrow_parser import Parser
from ingest.parsing.source import ParseSettings, lookup
from ingest.pipeline import batch_pass
from ingest.pipeline.batch_pass import Pass, Reach, slices
from ingest.tables import EVENT, RECORD
from tests.ingest import columnar
from tests.ingest.columnar import plain

SENT = [{"key": "host", "value": b"gate-1"}]


def records(raws: list[bytes | None], headers: list[Any] | None = None) -> pa.RecordBatch:
    rows = [
        {
            "record_id": f"t:0:{number}",
            "source": "sshd",
            "mode": "live",
            "received_at": datetime(2026, 11, 21, 4, tzinfo=UTC),
            "raw": raw,
            "headers": headers[number] if headers else None,
        }
        for number, raw in enumerate(raws)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(RECORD))


@given(st.lists(st.none() | st.integers(0, 40), max_size=30), st.integers(1, 60), st.integers(1, 9))
def test_slices_hold_all_rows_in_order_and_no_more_than_they_may(
    sizes: list[int | None], most: int, rows: int
) -> None:
    batch = records([None if size is None else b"x" * size for size in sizes])
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(batch_pass, "SLICE_BYTES", most)
        limits.setattr(batch_pass, "SLICE_ROWS", rows)
        cut = [one.column("raw").to_pylist() for one in slices(iter([batch]))]
    assert [raw for one in cut for raw in one] == batch.column("raw").to_pylist()
    assert all(one for one in cut)
    for one in cut:
        assert len(one) <= rows
        assert len(one) == 1 or sum(len(raw or b"") for raw in one) <= most


@pytest.mark.parametrize("source", ["nginx", "sshd"])
def test_what_is_read_in_slices_is_what_is_read_at_once(source: str) -> None:
    line = {
        "nginx": '10.0.0.{} - - [20/Nov/2026:21:50:34 -0500] "GET /{} HTTP/1.1" 200 1 "-" "a{}"',
        "sshd": "Nov 20 21:50:34 bastion sshd[{}]: Failed password for root from 10.0.0.{} port {}",
    }[source]
    raws = [line.format(n, n, n).encode() for n in range(1, 251)]
    batch = columnar.records(source, raws)
    whole = [event for events in Parser(columnar.SETTINGS)(batch) for event in plain(events)]
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(batch_pass, "SLICE_ROWS", 100)
        cut = list(slices(iter([batch])))
    assert [len(each) for each in cut] == [100, 100, 50]
    for each in cut:
        # None of them is left to be read line by line.
        read = lookup(source).columns(each, columnar.SETTINGS)
        assert read is not None
        assert not read.left
    parser = Parser(columnar.SETTINGS)
    parts = [event for each in cut for events in parser(each) for event in plain(events)]
    assert sorted(parts, key=_uid) == sorted(whole, key=_uid)


def _uid(event: dict[str, Any]) -> str:
    return str(event["event_uid"])


def test_no_headers_are_null_in_bronze_and_others_as_they_were_sent(tmp_path: Path) -> None:
    targets = {table.name: Target.of(table, tmp_path, table.name) for table in (RECORD, EVENT)}
    batch = records([b"one", b"two", b"three"], [[], SENT, None])
    (told,) = Pass(ParseSettings(), targets, (), Reach())(iter([batch]))
    (name,) = [row["name"] for row in told.to_pylist() if row["table"] == RECORD.name]
    written = pq.read_table(tmp_path / name).column("headers")
    assert written.to_pylist() == [None, SENT, None]
