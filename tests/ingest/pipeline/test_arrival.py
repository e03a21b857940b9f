"""When a record arrived: what the broker says, unless it is from after the record was read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infra.delta.parquet_writer import arrow_schema
from infra.kafka.range_reader import moment_of
from ingest.pipeline.batch_pass import dated
from ingest.pipeline.ingest_job import clock_behind
from ingest.tables import RECORD

READ_AT = datetime(2026, 11, 22, 12, tzinfo=UTC)


def arrived(times: list[datetime | None]) -> pa.RecordBatch:
    rows = [{"record_id": f"t:0:{n}", "received_at": at} for n, at in enumerate(times)]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(RECORD))


@given(st.lists(st.none() | st.integers(-(10**7), 10**7), max_size=20))
def test_no_record_arrived_after_it_was_read_beyond_what_clocks_differ_by(
    seconds: list[int | None],
) -> None:
    times = [None if s is None else READ_AT + timedelta(seconds=s) for s in seconds]
    found = dated(arrived(times), READ_AT)
    wanted = [READ_AT if at and at > READ_AT + timedelta(minutes=1) else at for at in times]
    assert found.column("received_at").to_pylist() == wanted
    assert found.column("record_id").to_pylist() == [f"t:0:{n}" for n in range(len(times))]
    assert found.schema == arrived(times).schema


@pytest.mark.parametrize("millis", [-1, -62_135_596_800_001, -(10**15)])
def test_what_is_dated_before_1970_arrived_when_it_was_read(millis: int) -> None:
    records = arrived([READ_AT])
    place, kind = records.schema.get_field_index("received_at"), records.column("received_at").type
    old = pa.array([millis * 1000], pa.int64()).cast(kind)
    right = dated(records.set_column(place, records.schema.field(place), old), READ_AT)
    assert right.column("received_at").to_pylist() == [READ_AT]


@given(st.integers(-(2**63), 2**63 - 1))
@example(2**63 - 1)
@example(-(2**63))
def test_any_number_a_message_may_have_as_its_time_is_a_time(millis: int) -> None:
    moment = moment_of(millis)
    assert datetime(1969, 12, 31, tzinfo=UTC) < moment <= datetime.max.replace(tzinfo=UTC)
    if 0 <= millis < 2**42:
        assert round(moment.timestamp() * 1000) == millis


def test_records_of_files_are_dated_already() -> None:
    batch = arrived([READ_AT + timedelta(days=1)])
    assert dated(batch, None) is batch


@pytest.mark.parametrize(
    ("hours", "said"), [(24, "24.0 hours ahead of the clock"), (0, ""), (-24, "")]
)
def test_a_job_that_begins_says_that_its_last_batch_is_from_the_future(
    tmp_path: Path, hours: int, said: str
) -> None:
    assert clock_behind(tmp_path, READ_AT) == ""
    (tmp_path / "batches").mkdir()
    reached = READ_AT + timedelta(hours=hours)
    for number, at in ((8, READ_AT), (9, reached)):
        text = json.dumps({"finished": at.isoformat()})
        (tmp_path / "batches" / f"{number}.json").write_text(text)
    told = clock_behind(tmp_path, READ_AT)
    assert said in told
    assert bool(told) is bool(said)
