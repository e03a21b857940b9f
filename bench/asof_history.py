"""Events of the past and who held their address then: rows per CPU-second over whole history."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.measure import Report, cpu_by_process, cpu_since, settle
from bench.plot import bars, panel
from enrich.attribution.asof_join import as_arrow, newest_cover, newest_cover_of_few, true_spans
from infra.config.settings import load
from infra.spark.session import session

BAR = 400_000
SEED = 20261121
SECOND = 1_000_000
START = 1_793_491_200 * SECOND
"""2026-11-01, microseconds."""
SPAN = 20 * 86_400 * SECOND
"""Twenty days of history."""
FILES = 8
BUCKETS = 16
CARRIED = ("mac", "hostname", "session_id", "rev")
CORES = 2
COVERED = "e.event_time < s.seg_end"
SUMS = ("count(event_uid)", "count(s_mac)", "sum(s_rev)", "sum(length(s_hostname))")
Form = Callable[[DataFrame, DataFrame], DataFrame]


@dataclass(frozen=True)
class Shape:
    """A history: so many events of `addresses`, which had `sessions` in all.

    A tenth of the sessions ends early: a second row with a higher rev says so.
    """

    name: str
    events: int
    sessions: int
    addresses: int


def run(quick: bool = False) -> Report:
    """10M events to 1M sessions on 100,000 addresses, and to 5,000 sessions on one address."""
    report = Report("asof_history", "make bench ONLY=asof_history")
    events, sessions = (1_000_000, 100_000) if quick else (10_000_000, 1_000_000)
    shapes = (
        Shape("1M sessions" if not quick else "100k sessions", events, sessions, sessions // 10),
        Shape("5,000 sessions on one address", events, 5_000, 1),
    )
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    spark = session(load(home=home, spark={"small": False, "driver_memory": "4g"}), "asof_history")
    try:
        for shape in shapes:
            _compare(report, spark, home / str(shape.addresses), shape, 1 if quick else 3)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    if not quick:
        bars(report, {"rows a CPU-second": panel(report, "rows/CPU-s")})
    report.notes += [
        f"{events:,} events over 20 days; {shapes[0].sessions:,} sessions on "
        f"{shapes[0].addresses:,} addresses, or 5,000 on one; a tenth of the sessions was ended "
        "early by a later revision",
        f"Parquet in; out: event, time, scope, address and {', '.join(CARRIED)} of the segment, "
        "summed up; CPU of all processes, reading included, after one round to warm up",
        "every row is compared with DuckDB's before anything is measured",
        "DuckDB's ASOF join finds the newest span that began before the event, so it is given the "
        "spans as true_spans flattened them, which is not counted: the limit, not a rival",
    ]
    return report


def _compare(report: Report, spark: SparkSession, folder: Path, shape: Shape, rounds: int) -> None:
    write(folder, shape)
    _flattened(folder)
    ours = {"no shuffle": _few, "cogrouped": _cogrouped}
    for name, form in ours.items():
        _require_equal(f"{shape.name}, {name}", folder, _spark(spark, folder, form))
    forms: dict[str, Callable[[], tuple[int, ...]]] = {
        "DuckDB ASOF": lambda: _asked(_duckdb(folder))
    }
    for name, form in ours.items():
        forms[name] = partial(_sums, spark, folder, form)
    expected, limit = _asked(_duckdb(folder)), 0.0
    for name, sums in forms.items():
        rates = [shape.events / _cpu(sums, expected) for _ in range(rounds + 1)][1:]
        measure = report.add(f"{shape.name}, {name}", rates, "rows/CPU-s")
        limit = limit or measure.value or 0.0
        if name != "DuckDB ASOF" and measure.value:
            measure.bar, measure.met = f">= {BAR:,}", measure.value >= BAR
            measure.compared_with, measure.ratio = "DuckDB ASOF", measure.value / limit


def _cpu(sums: Callable[[], tuple[int, ...]], expected: tuple[int, ...]) -> float:
    settle()
    before = cpu_by_process()
    found = sums()
    used = cpu_since(before)
    if found != expected:
        raise AssertionError(f"another answer: {found}, not {expected}")
    return used


def _require_equal(name: str, folder: Path, joined: DataFrame) -> None:
    """Every row of the answer beside DuckDB's. Raises `AssertionError` when one differs."""
    out = folder / "out"
    joined.write.mode("overwrite").parquet(str(out))
    columns = ", ".join(["event_uid", *(f"s_{name}" for name in CARRIED)])
    with duckdb.connect(config={"threads": CORES}) as engine:
        engine.execute(f"CREATE VIEW ours AS SELECT {columns} FROM '{out}/*.parquet'")
        engine.execute(f"CREATE VIEW theirs AS SELECT {columns} FROM ({_duckdb(folder)})")
        counts = engine.execute(
            "SELECT count(*), count(o.s_mac), count_if(o IS DISTINCT FROM t) "
            "FROM ours o FULL JOIN theirs t USING (event_uid)"
        ).fetchone()
    if counts is None or not counts[0] or not counts[1] or counts[2]:
        raise AssertionError(f"{name}: rows, with a holder, different: {counts}")


def write(folder: Path, shape: Shape) -> None:
    """Events and segments as files, the same each time."""
    folder.mkdir()
    chance = np.random.default_rng(SEED)
    pq.write_table(_segments(shape, chance), folder / "segments.parquet")
    (folder / "events").mkdir()
    each = shape.events // FILES
    for part in range(FILES):
        who = chance.integers(0, shape.addresses, each)
        when = np.sort(START + SPAN // FILES * part + chance.integers(0, SPAN // FILES, each))
        numbers = pa.array(np.arange(each * part, each * (part + 1)))
        events = pa.table(
            {
                "event_uid": pa.array(numbers).cast(pa.string()),
                "event_time": pa.array(when).cast(pa.timestamp("us", "UTC")),
                "scope": pa.repeat("default", each),
                "ip": _addresses(who),
            }
        )
        pq.write_table(events, folder / "events" / f"{part}.parquet")


def _segments(shape: Shape, chance: np.random.Generator) -> pa.Table:
    each = shape.sessions // shape.addresses
    slot = SPAN // each
    number = np.arange(shape.sessions)
    who = np.repeat(np.arange(shape.addresses), each)
    start = START + np.tile(np.arange(each), shape.addresses) * slot
    end = start + chance.integers(slot // 2, slot, shape.sessions)
    cut = np.flatnonzero(chance.random(shape.sessions) < 0.1)
    freed = np.arange(shape.sessions + len(cut)) >= shape.sessions
    who, number, end = (np.concatenate([all_, all_[cut]]) for all_ in (who, number, end))
    start = np.concatenate([start, start[cut] + slot // 4])
    # A device has one address in every other session, and the next address in between.
    device = (who + number % each % 2) % shape.addresses
    macs = pa.array([mac_of(one) for one in range(shape.addresses)]).take(pa.array(device))
    hosts = pc.binary_join_element_wise("host", pa.array(device).cast(pa.string()), "-")
    names = pa.array(number).cast(pa.string())
    nobody = pa.array(freed)
    return pa.table(
        {
            "scope": pa.repeat("default", len(who)),
            "ip": _addresses(who),
            "seg_start": pa.array(start).cast(pa.timestamp("us", "UTC")),
            "seg_end": pa.array(end).cast(pa.timestamp("us", "UTC")),
            "mac": pc.if_else(nobody, None, macs),
            "hostname": pc.if_else(nobody, None, hosts),
            "session_id": pc.binary_join_element_wise("session", names, "-"),
            "rev": pa.array(np.arange(len(who)) + 1),
        }
    )


def mac_of(device: int) -> str:
    """Hardware address of a device."""
    return ":".join(["02", "00", *(f"{device >> shift & 255:02x}" for shift in (24, 16, 8, 0))])


def _addresses(who: npt.NDArray[np.int64]) -> pa.Array:
    octets = [pa.array(who // 256**place % 256).cast(pa.string()) for place in (2, 1, 0)]
    return pc.binary_join_element_wise("10", *octets, ".")


def _spark(spark: SparkSession, folder: Path, form: Form) -> DataFrame:
    events = spark.read.parquet(str(folder / "events"))
    return form(events, spark.read.parquet(str(folder / "segments.parquet")))


def _sums(spark: SparkSession, folder: Path, form: Form) -> tuple[int, ...]:
    """Every row used, as a report does: counted, its holder counted, its revision added up."""
    row = _spark(spark, folder, form).agg(*[F.expr(text) for text in SUMS]).first()
    return tuple(int(value) for value in row) if row else ()


def _cogrouped(events: DataFrame, segments: DataFrame) -> DataFrame:
    return newest_cover(events, segments, BUCKETS, CARRIED)


def _few(events: DataFrame, segments: DataFrame) -> DataFrame:
    return newest_cover_of_few(events, as_arrow(segments, CARRIED))


def _flattened(folder: Path) -> None:
    """The spans that are true, as a file for DuckDB."""
    table = pq.read_table(folder / "segments.parquet")
    address = table.column("ip").combine_chunks().dictionary_encode()
    start, end = (
        table.column(name).cast(pa.int64()).to_numpy() for name in ("seg_start", "seg_end")
    )
    codes = address.indices.to_numpy().astype(np.int64)
    _, starts, ends, owners = true_spans(codes, start, end, table.column("rev").to_numpy())
    said = table.take(pa.array(owners)).drop_columns(["seg_start", "seg_end"])
    for name, column in (("seg_start", starts), ("seg_end", ends)):
        said = said.append_column(name, pa.array(column).cast(pa.timestamp("us", "UTC")))
    pq.write_table(said, folder / "spans.parquet")


def _duckdb(folder: Path) -> str:
    said = ", ".join(f"CASE WHEN {COVERED} THEN s.{name} END AS s_{name}" for name in CARRIED)
    return (
        f"SELECT e.*, {said} FROM '{folder}/events/*.parquet' e "
        f"ASOF LEFT JOIN '{folder}/spans.parquet' s ON e.scope = s.scope AND e.ip = s.ip "
        "AND e.event_time >= s.seg_start"
    )


def _asked(sql: str) -> tuple[int, ...]:
    with duckdb.connect(config={"threads": CORES}) as engine:
        row = engine.execute(f"SELECT {', '.join(SUMS)} FROM ({sql})").fetchone()
    return tuple(int(value) for value in row or ())
