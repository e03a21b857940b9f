"""The ledger of a large site: slice by slice, in little memory, the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.delta.duckdb_views import connect, open_engine, spill
from infra.errors import Fatal
from infra.streaming.lake import Lake
from ingest.tables import EVENT, RECORD
from reporting.ledger.completeness import LedgerSlice, completeness, hourly, time_slices
from tests.api.story import DAY, DEAD, event, insert, record

NEXT = DAY + timedelta(days=1)
BEAT = event("beat", "23:00", source="_heartbeat", **DEAD)
MINUTE = timedelta(minutes=1)


@given(
    minutes=st.dictionaries(st.integers(0, 1439), st.integers(1, 40), max_size=60),
    late=st.integers(0, 59),
    most=st.integers(1, 50),
)
def test_slices_follow_each_other_and_hold_no_more_than_they_may(
    minutes: dict[int, int], late: int, most: int
) -> None:
    since = DAY + timedelta(seconds=late)
    weights = [(DAY + at * MINUTE, rows) for at, rows in sorted(minutes.items())]
    found = list(time_slices(weights, since, NEXT, most))
    assert [one.until for one in found[:-1]] == [one.since for one in found[1:]]
    assert (found[0].since, found[-1].until) == (since, NEXT)
    held: Counter[LedgerSlice] = Counter()
    for at, rows in weights:
        (inside,) = [one for one in found if one.since <= max(at, since) < one.until]
        held[inside] += rows
    for one, rows in held.items():
        assert rows <= most * one.parts
        assert one.parts == 1 or one.until - one.since <= timedelta(days=1)


@given(
    rows=st.lists(st.integers(0, 50), min_size=1, max_size=300),
    step=st.sampled_from((timedelta(seconds=1), MINUTE)),
)
def test_whatever_the_rate_a_row_is_read_a_few_times(rows: list[int], step: timedelta) -> None:
    most = 50
    weights = [(DAY + at * step, many) for at, many in enumerate(rows) if many]
    until = DAY + len(rows) * step
    read = 0
    for one in time_slices(weights, DAY, until, most):
        begin, end = one.beside
        assert begin <= one.since < one.until <= end
        assert one.parts == 1
        inside = sum(many for at, many in weights if one.since <= at < one.until)
        beside = sum(many for at, many in weights if at + step > begin and at < end)
        assert beside <= inside + most
        read += beside
    assert read <= 3 * sum(rows) + most


@pytest.mark.full
def test_slices_come_to_what_the_whole_does(lake: Lake) -> None:
    """Many in one minute, an event of lines that came hours apart, a row twice, one lost."""
    crowd = [f"c{number}" for number in range(40)]
    spread = [f"{hour:02d}:10" for hour in range(24)]
    insert(
        lake,
        RECORD,
        [
            *(record(uid, "12:00") for uid in crowd),
            *(record(f"s{clock}", clock, "zeek:dns") for clock in spread),
            *(record(uid, clock) for uid, clock in (("l1", "03:00"), ("l2", "09:30"))),
            *(record(uid, clock) for uid, clock in (("n1", "03:02"), ("n2", "03:05"))),
            record("lost", "15:30"),
            record("new", "23:30"),
        ],
    )
    insert(
        lake,
        EVENT,
        [
            *(event(uid, "12:00") for uid in crowd),
            *(event(f"s{clock}", clock, source="zeek:dns") for clock in spread),
            event("s04:10", "04:10", source="zeek:dns"),
            event("l1", "03:00", record_ids=["l1", "l2"]),
            event("n1", "03:02", record_ids=["n1", "n2"]),
            BEAT,
        ],
    )
    connection = connect(lake.settings.lake_root)
    whole = completeness(connection, DAY, NEXT)
    assert [(one.source, one.received, one.parsed, one.events) for one in whole] == [
        ("sshd", 46, 44, 42),
        ("zeek:dns", 24, 24, 24),
    ]
    assert [(one.unaccounted, one.unfinished, one.duplicated) for one in whole] == [
        (1, 1, 0),
        (0, 0, 1),
    ]
    for most in (7, 15, 50):
        assert completeness(connection, DAY, NEXT, most=most) == whole
        assert hourly(connection, DAY, NEXT, most=most) == hourly(connection, DAY, NEXT)


RECORDS = 500_000


@pytest.fixture
def large(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A day of half a million, one lost and one in a hundred dead, views in an engine with little
    memory."""
    connection = open_engine(memory="110MB", threads=2)
    for name in ("bronze", "silver", "gold", "ops"):
        connection.execute(f"CREATE SCHEMA {name}")
    step = timedelta(days=1) / RECORDS
    at = f"TIMESTAMPTZ '{DAY.isoformat()}' + i * INTERVAL {step.microseconds} MICROSECOND"
    connection.execute(
        "CREATE VIEW bronze.record AS SELECT 'AbCdEfGhIjKlMnOpQrStUv:0:' || i AS record_id, "
        f"'sshd' AS source, {at} AS received_at FROM range({RECORDS}) AS one(i)"
    )
    connection.execute(
        "CREATE VIEW silver.event AS SELECT record_id || '#0' AS event_uid, "
        "[record_id] AS record_ids, source, received_at, received_at AS time, "
        "CASE WHEN record_id LIKE '%00' THEN 'bad' END AS dead_letter_reason "
        "FROM bronze.record WHERE record_id NOT LIKE '%:377777'"
    )
    columns = {
        "gold.finding": "finding_id TEXT, rule_id TEXT, kind TEXT, source TEXT, event_uid TEXT, "
        "pack TEXT, ip TEXT, received_at TIMESTAMPTZ",
        "gold.attribution": "finding_id TEXT, via TEXT",
        "ops.ledger": "job TEXT, query_id TEXT, batch_id BIGINT, pack TEXT, decisions TEXT, "
        "started_at TIMESTAMPTZ, finished_at TIMESTAMPTZ",
    }
    for name, declared in columns.items():
        connection.execute(f"CREATE TABLE {name} ({declared})")
    yield connection
    connection.close()


@pytest.mark.full
def test_a_day_is_counted_in_less_memory_than_it_takes(
    large: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    spill(large, tmp_path)
    (found,) = completeness(large, DAY, NEXT, most=200_000)
    dead = RECORDS // 100 - 1
    assert (found.received, found.dead, found.unaccounted) == (RECORDS, dead, 1)
    assert (found.events, found.duplicated) == (RECORDS - dead - 1, 0)


def test_a_busy_minute_is_counted_second_by_second(large: duckdb.DuckDBPyConnection) -> None:
    large.execute(
        "CREATE OR REPLACE VIEW bronze.record AS SELECT 'id:0:' || i AS record_id, "
        "CASE WHEN i % 3 = 0 THEN 'sshd' ELSE 'zeek:dns' END AS source, TIMESTAMPTZ "
        f"'{DAY.isoformat()}' + (i - 377000) * INTERVAL 5 MILLISECOND AS received_at "
        "FROM range(377000, 401000) AS one(i)"
    )
    whole = completeness(large, DAY, NEXT)
    assert [(one.received, one.unaccounted, one.events, one.duplicated) for one in whole] == [
        (8000, 0, 7920, 0),
        (16000, 1, 15839, 0),
    ]
    assert completeness(large, DAY, NEXT, most=3000) == whole, "a minute holds 24,000 rows"


def test_what_finds_no_room_is_told_in_a_sentence(large: duckdb.DuckDBPyConnection) -> None:
    large.execute("SET memory_limit = '40MB'")
    with pytest.raises(Fatal, match=r"finds no room .* raise api.statement_memory"):
        completeness(large, DAY, NEXT, most=RECORDS * 2)
