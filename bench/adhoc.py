"""Eleven questions people ask of a week of events, beside DuckDB and ClickHouse by themselves.

Each is asked for the first time, with a number in its condition that was not there before, and then
as a dashboard asks it: again, and some events came since.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from api.sql.runner import Statements
from api.sql.worker_line import Busy
from bench.clickhouse import SQL as CLICKHOUSE
from bench.clickhouse import ClickHouse, installed
from bench.event_slice import append_rows
from bench.measure import Report, cut
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.delta.transaction import active_files
from infra.maintenance.maintenance import merge_small_files
from infra.spark.session import session
from infra.streaming.lake import Lake
from ingest.tables import EVENT

SEED = 20261125
PIECE = 1_000_000
BEGAN = datetime(2026, 11, 16, tzinfo=UTC)  # a Monday
WEEK = 7 * 86_400
ADDRESSES, USERS, ASKED, AT_ONCE = 50_000, 5_000, 5, 16
CLASSES = (("Network Activity", 4001), ("DNS Activity", 4003), ("HTTP Activity", 4002),
           ("Authentication", 3002), ("Process Activity", 1007))  # fmt: skip
SOURCES = ("zeek:conn", "zeek:dns", "zeek:http", "sshd", "windows")

DAY = "time >= TIMESTAMP'2026-11-18 00:00:00Z' AND time < TIMESTAMP'2026-11-19 00:00:00Z'"
NOWHERE = "an address in no file, and a day"
NEW = "class_uid > {number}"
"""A condition that all events fulfil, so that what was kept of another statement does not help."""
CAME = 1_000
"""Events that came since a question was asked."""
SEEN = "time >= TIMESTAMP'2026-11-16 00:00:00Z'"


def _of_address(address: str) -> tuple[str, str, float]:
    # DuckDB's cast rounds a part of a second, Spark cuts it off.
    return (
        "SELECT unix_timestamp(time) AS t, class_uid, dst_ip FROM silver.event "
        f"WHERE src_ip = '{address}' AND {DAY} ORDER BY 1, 2, 3",
        "SELECT floor(epoch(time))::BIGINT AS t, class_uid, dst_ip FROM event "
        f"WHERE src_ip = '{address}' AND time >= TIMESTAMPTZ '2026-11-18 00:00:00Z' "
        "AND time < TIMESTAMPTZ '2026-11-19 00:00:00Z' ORDER BY 1, 2, 3",
        0.3,
    )


QUESTIONS: dict[str, tuple[str, str, float]] = {
    "an address and a day": _of_address("10.0.7.9"),
    NOWHERE: _of_address("10.1.7.9"),
    "a user and a day": (
        "SELECT class_uid, status_id, count(*) AS n FROM silver.event "
        f"WHERE user_name = 'user-77' AND {DAY} GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT class_uid, status_id, count(*) AS n FROM event "
        "WHERE user_name = 'user-77' AND time >= TIMESTAMPTZ '2026-11-18 00:00:00Z' "
        "AND time < TIMESTAMPTZ '2026-11-19 00:00:00Z' GROUP BY 1, 2 ORDER BY 1, 2",
        0.3,
    ),
    "events a day": (
        "SELECT CAST(to_date(time) AS STRING) AS d, count(*) AS n FROM silver.event "
        f"WHERE {SEEN} GROUP BY 1 ORDER BY 1",
        "SELECT time::DATE::VARCHAR AS d, count(*) AS n FROM event GROUP BY 1 ORDER BY 1",
        1.0,
    ),
    "hourly histogram of the week": (
        "SELECT unix_timestamp(date_trunc('HOUR', time)) AS h, count(*) AS n FROM silver.event "
        f"WHERE {SEEN} GROUP BY 1 ORDER BY 1",
        "SELECT epoch(date_trunc('hour', time))::BIGINT AS h, count(*) AS n FROM event "
        "GROUP BY 1 ORDER BY 1",
        1.0,
    ),
    "hourly histogram by class": (
        "SELECT unix_timestamp(date_trunc('HOUR', time)) AS h, class_name, count(*) AS n "
        f"FROM silver.event WHERE {SEEN} GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT epoch(date_trunc('hour', time))::BIGINT AS h, class_name, count(*) AS n "
        "FROM event GROUP BY 1, 2 ORDER BY 1, 2",
        1.0,
    ),
    "distinct addresses a day": (
        "SELECT CAST(to_date(time) AS STRING) AS d, count(DISTINCT src_ip) AS n "
        f"FROM silver.event WHERE {SEEN} GROUP BY 1 ORDER BY 1",
        "SELECT time::DATE::VARCHAR AS d, count(DISTINCT src_ip) AS n FROM event "
        "GROUP BY 1 ORDER BY 1",
        1.0,
    ),
    "the 20 busiest addresses": (
        "SELECT src_ip, count(*) AS n FROM silver.event GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
        "SELECT src_ip, count(*) AS n FROM event GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
        1.0,
    ),
    "failures by user": (
        "SELECT user_name, count(*) AS n FROM silver.event "
        "WHERE class_uid = 3002 AND status_id = 2 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
        "SELECT user_name, count(*) AS n FROM event "
        "WHERE class_uid = 3002 AND status_id = 2 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
        1.0,
    ),
    "where addresses were first seen": (
        "SELECT src_ip, unix_timestamp(min(time)) AS t FROM silver.event GROUP BY 1 "
        "ORDER BY 2 DESC, 1 LIMIT 20",
        "SELECT src_ip, floor(epoch(min(time)))::BIGINT AS t FROM event GROUP BY 1 "
        "ORDER BY 2 DESC, 1 LIMIT 20",
        1.0,
    ),
    "a text anywhere": (
        "SELECT source, count(*) AS n FROM silver.event WHERE message LIKE '%needle%' "
        "GROUP BY 1 ORDER BY 1",
        "SELECT source, count(*) AS n FROM event WHERE contains(message, 'needle') "
        "GROUP BY 1 ORDER BY 1",
        1.0,
    ),
}
"""By name: Spark SQL as people send it, the same as DuckDB has it by itself, and the bar."""


def run(quick: bool = False) -> Report:
    """Each question checked equal first, then timed in turn; then by many at once."""
    report = Report("adhoc", "make bench ONLY=adhoc")
    events = 2_000_000 if quick else 100_000_000
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    settings = load(home=home, api={"statement_seconds": 300, "statement_memory": "4GB"})
    try:
        files = _write(settings, events)
        _ask(report, settings, files, events)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    report.notes += [
        f"{events:,} made events of seven days in silver.event, {ADDRESSES:,} addresses, "
        f"{USERS:,} users, in {len(files):,} files as compaction leaves them; {ASKED} askings in "
        "turn after one to warm up, equal answers first",
        "asked first: with a number in the condition that was in none before; asked again: the "
        f"same as before, {CAME:,} events in a file of their own came since",
        "all read the same Parquet files; Headgate's side begins with Spark SQL "
        "and ends with JSON values, in a worker process",
    ]
    return report


def _write(settings: Settings, events: int) -> list[Path]:
    """Fill the lake; the files that the table then has."""
    spark = session(settings, "adhoc")
    try:
        lake = Lake(spark, settings).ensure()
        for begin in range(0, events, PIECE):
            append_rows(lake, EVENT, _events(begin, min(PIECE, events - begin), events))
        # As `headgate compact` leaves it.
        merge_small_files(lake, EVENT)
        folder = Path(lake.path(EVENT))
        return [folder / file.name for file in active_files(spark, lake.path(EVENT))]
    finally:
        spark.stop()


def _events(begin: int, many: int, events: int) -> pa.Table:
    """Events `begin` and on, as they come: each piece is of its own part of the week."""
    chance = np.random.default_rng(SEED + begin)
    first = int(BEGAN.timestamp() * 1_000_000)
    number = np.arange(begin, begin + many)
    at = first + number * (WEEK * 1_000_000 // events)
    kind = chance.integers(0, len(CLASSES), many)
    # A few addresses and users are behind most events, as anywhere.
    address = (ADDRESSES * chance.random(many) ** 3).astype(int)
    user = (USERS * chance.random(many) ** 2).astype(int)
    times = pa.array(at, pa.timestamp("us", tz="UTC"))
    return pa.table(
        {
            "event_uid": [f"logs.bench-0-{n}-0" for n in number],
            "source": pa.array(SOURCES).take(pa.array(kind)),
            "mode": pa.array(["live"]).take(pa.array(np.zeros(many, int))),
            "time": times,
            "received_at": times,
            "src_ip": [f"10.{a >> 16}.{(a >> 8) & 255}.{a & 255}" for a in address],
            "dst_ip": [f"192.0.2.{a & 255}" for a in user],
            "user_name": [f"user-{u}" for u in user],
            "class_name": pa.array([name for name, _ in CLASSES]).take(pa.array(kind)),
            "class_uid": pa.array([uid for _, uid in CLASSES], pa.int32()).take(pa.array(kind)),
            "status_id": pa.array(1 + (chance.random(many) < 0.1), pa.int32()),
            "message": [
                f"request {n % 9973} {'needle' if n % 99_991 == 0 else ''}" for n in number
            ],
        }
    )


def _ask(report: Report, settings: Settings, files: Sequence[Path], events: int) -> None:
    statements = Statements(settings, workers=2)
    bare = connect(settings.lake_root)
    table = settings.lake_root / "silver" / "event"
    bare.execute(f"CREATE VIEW event AS SELECT * FROM delta_scan('{table}')")
    try:
        with _clickhouse(report, files) as clickhouse:
            for name, (asked, by_itself, bar) in QUESTIONS.items():
                others = {"DuckDB": _rows(bare, by_itself)}
                if clickhouse is not None:
                    others["ClickHouse"] = partial(clickhouse.rows, CLICKHOUSE[name])
                _compare(report, name, _first(statements, asked), others, bar)
        _at_once(report, statements, "asked first", _new)
        # One worker, so that each question was asked of it before.
        statements.close()
        statements = Statements(settings, workers=1)
        _again(report, settings, statements, bare, events)
        statements.close()
        statements = Statements(settings, workers=2)
        for asked, _, _ in [*QUESTIONS.values(), *QUESTIONS.values()]:
            statements.run(asked)
        _at_once(report, statements, "asked again", lambda sql: sql)
    finally:
        statements.close()
        bare.close()


_NUMBERS = count(1)


def _new(sql: str) -> str:
    """A question that nobody asked before, and that has the same answer."""
    condition = NEW.format(number=next(_NUMBERS))
    if " WHERE " in sql:
        return sql.replace(" WHERE ", f" WHERE {condition} AND ", 1)
    return sql.replace("silver.event", f"silver.event WHERE {condition}", 1)


def _first(statements: Statements, sql: str) -> Callable[[], list[list[Any]]]:
    return lambda: statements.run(_new(sql)).rows


def _rows(bare: duckdb.DuckDBPyConnection, sql: str) -> Callable[[], list[list[Any]]]:
    return lambda: [list(row) for row in bare.execute(sql).fetchall()]


@contextmanager
def _clickhouse(report: Report, files: Sequence[Path]) -> Iterator[ClickHouse | None]:
    """ClickHouse over these files, where it is installed."""
    if not installed():
        report.notes.append("ClickHouse is not beside it: pip install chdb-core")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        clickhouse = ClickHouse(files, Path(folder))
        report.notes.append(f"ClickHouse {clickhouse.version}, in process, on the same files")
        try:
            yield clickhouse
        finally:
            clickhouse.close()


def _compare(
    report: Report,
    name: str,
    ours: Callable[[], list[list[Any]]],
    others: Mapping[str, Callable[[], list[list[Any]]]],
    bar: float,
) -> None:
    rows = ours()
    for other, ask in others.items():
        assert rows == ask(), f"'{name}' is answered otherwise by {other}"
    # Where no row is, statistics of files answer: quick, and another question.
    assert bool(rows) != (name == NOWHERE), f"'{name}' has {len(rows)} rows"
    seconds: dict[str, list[float]] = {side: [] for side in ("ours", *others)}
    for _ in range(ASKED):
        for side, ask in {"ours": ours, **others}.items():
            began = time.monotonic()
            ask()
            seconds[side].append(time.monotonic() - began)
    value = cut(seconds["ours"], 50)
    report.add(f"{name}: asked first", seconds["ours"], "s", bar=f"<= {bar} s", met=value <= bar)
    for other in others:
        known = report.add(f"{name}: {other} by itself", seconds[other], "s")
        known.compared_with, known.ratio = "ours, asked first", round((known.value or 0) / value, 2)


def _again(
    report: Report,
    settings: Settings,
    statements: Statements,
    bare: duckdb.DuckDBPyConnection,
    events: int,
) -> None:
    """Each question again, each time with some events more."""
    seconds: dict[str, list[float]] = {name: [] for name in QUESTIONS}
    for asked, _, _ in QUESTIONS.values():
        statements.run(asked)
    spark = session(settings, "adhoc")
    try:
        lake = Lake(spark, settings).ensure()
        for turn in range(ASKED):
            append_rows(lake, EVENT, _events(events - CAME * (turn + 1), CAME, events))
            for name, (asked, _, _) in QUESTIONS.items():
                began = time.monotonic()
                rows = statements.run(asked).rows
                seconds[name].append(time.monotonic() - began)
                if turn == ASKED - 1:
                    by_itself = _rows(bare, QUESTIONS[name][1])()
                    assert rows == by_itself, f"'{name}' is answered otherwise when asked again"
    finally:
        spark.stop()
    for name, (_, _, bar) in QUESTIONS.items():
        value = cut(seconds[name], 50)
        report.add(f"{name}: asked again", seconds[name], "s", bar=f"<= {bar} s", met=value <= bar)


def _at_once(report: Report, statements: Statements, what: str, put: Callable[[str], str]) -> None:
    """All questions by many people at once, over the API's two workers."""

    def ask(number: int) -> float:
        sql, _, _ = list(QUESTIONS.values())[number % len(QUESTIONS)]
        began = time.monotonic()
        # Two run at once, who comes then is told to come again: the wait is theirs, so it counts.
        while True:
            try:
                statements.run(put(sql))
                return time.monotonic() - began
            except Busy:
                time.sleep(0.1)

    with ThreadPoolExecutor(AT_ONCE) as people:
        seconds = sorted(people.map(ask, range(AT_ONCE * 5)))
    for percent in (50, 95):
        report.add(
            f"any question, {what}, {AT_ONCE} people at once, p{percent}",
            [cut(seconds, percent)],
            "s",
        )
