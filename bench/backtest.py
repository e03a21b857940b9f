"""A week of history through `headgate rules backtest`: a correlation with attribution.

The events are logins and connections of 200 devices on DHCP, in the lake as job `ingest`
writes it. Before anything is measured, a count in plain Python over what was made says how
many alerts there must be.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from alerts.backtest.result import summarise
from alerts.backtest.rule_selection import select_rules
from alerts.backtest.run import Backtest, BacktestRequest, begin_backtest
from alerts.domain.finding import event_schema
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from bench.measure import Report, cpu_by_process, cpu_since
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import load
from infra.delta.parquet_writer import FileWriter, Target, arrow_schema
from infra.delta.schema import Table
from infra.delta.transaction import commit_files
from infra.spark.session import session
from infra.streaming.lake import Lake
from ingest.tables import EVENT

RULE = "ssh_password_guessing"
START = datetime(2026, 11, 2, tzinfo=UTC)
DAYS = 7
DEVICES = 200
GUESSING = 5_000
"""In so many events one device guesses: five refused logins in a row."""

BAR_MINUTES = 10
FILE_ROWS = 250_000


def run(quick: bool = False) -> Report:
    """The whole command's work, from the tables to the result, in events a CPU second."""
    events = 500_000 if quick else 20_000_000
    report = Report("backtest", "make bench ONLY=backtest")
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    settings = load(home=home, spark={"small": False})
    spark = session(settings, "backtest")
    try:
        lake = Lake(spark, settings).ensure()
        expected = _make(lake, events)
        until = START + timedelta(days=DAYS)
        wish = BacktestRequest((RULE,), select_rules(settings, [RULE]), START, until)
        began, before = time.monotonic(), cpu_by_process()
        work = Backtest(settings, lambda: lake, begin_backtest(settings, wish), small=0)
        result = summarise(work, work.through(lambda _: None), PackStore(store_folder(settings)))
        seconds, spent = time.monotonic() - began, cpu_since(before)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    found = result["sides"]["new"]["alerts"]
    if found != expected:
        raise RuntimeError(f"{found} alerts, but the history was made with {expected}")
    report.notes.append(
        f"{events:,} events in {DAYS} days, {5 * events // GUESSING:,} findings, {found:,} alerts "
        f"of a correlation by device, {DEVICES} devices with a lease a day"
    )
    report.add("a week of history", [seconds / 60], "minutes", bar=f"<= {BAR_MINUTES} min",
               met=seconds <= BAR_MINUTES * 60)  # fmt: skip
    report.add("events", [events / spent], "events/CPU-s")
    return report


def _make(lake: Lake, events: int) -> int:
    """Fill the lake; how many alerts there must be: one for each device's guessing."""
    step = timedelta(days=DAYS) / events
    alerts: dict[tuple[str, int], None] = {}
    # A device's alerts within an hour of the first fold into one.
    last: dict[str, datetime] = {}
    for n in range(0, events, GUESSING):
        mac, at = _mac(n), START + n * step
        if mac not in last or at - last[mac] > timedelta(hours=1):
            last[mac], alerts[mac, n] = at, None
    block = pa.RecordBatch.from_pylist([_event(n) for n in range(GUESSING)], event_schema())
    for first in range(0, events, FILE_ROWS):
        numbers = range(first, min(first + FILE_ROWS, events), GUESSING)
        _add(lake, EVENT, [_moved(block, n, START + n * step, step) for n in numbers])
    _add(lake, DHCP_SEGMENT, [_segments()])
    return len(alerts)


def _device(n: int) -> int:
    return n // GUESSING % DEVICES


def _mac(n: int) -> str:
    return f"02:00:00:00:00:{_device(n):02x}"


def _moved(block: pa.RecordBatch, first: int, at: datetime, step: timedelta) -> pa.RecordBatch:
    """The block as the events from `first` on, which are another device's."""
    ip = f"10.0.0.{_device(first)}"
    times = [at + n * step for n in range(GUESSING)]
    columns: dict[str, list[Any]] = {
        "event_uid": [f"bench:{first + n}" for n in range(GUESSING)],
        "time": times,
        "received_at": [time + timedelta(seconds=1) for time in times],
        "src_ip": [ip] * GUESSING,
        "src_endpoint": [{"ip": ip}] * GUESSING,
    }
    for name, values in columns.items():
        field = block.schema.field(name)
        at_column = block.schema.get_field_index(name)
        block = block.set_column(at_column, field, pa.array(values, field.type))
    return block


def _event(n: int) -> dict[str, Any]:
    """One of a block; what differs from block to block is filled in later."""
    refused = n < 5
    return {
        "event_uid": "",
        "record_ids": ["bench"],
        "source": "sshd" if refused or n % 20 == 0 else "zeek:conn",
        "mode": "live",
        "time": START,
        "received_at": START,
        "scope": "default",
        "category_uid": 3 if refused else 4,
        "class_uid": 3002 if refused or n % 20 == 0 else 4001,
        "class_name": "Authentication" if refused else "Network Activity",
        "activity_id": 1,
        "type_uid": 300201,
        "severity_id": 1,
        "status_id": 2 if refused else 1,
        "service": {"name": "sshd"},
        "message": f"connection {n}",
        "user_name": "root",
        "user": {"name": "root"},
        "host_name": "gate",
    }


def _segments() -> pa.RecordBatch:
    """A lease a day for each device."""
    rows = [
        {
            "scope": "default",
            "ip": f"10.0.0.{device}",
            "seg_start": start,
            "seg_end": start + timedelta(days=1),
            "mac": f"02:00:00:00:00:{device:02x}",
            "session_id": f"{device}-{day}",
            "session_start": start,
            "session_end": start + timedelta(days=1),
            "known_at": start,
            "learned_at": start,
            "rev": day + 1,
            "kind": "lease",
        }
        for device, day, start in _leases()
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(DHCP_SEGMENT))


def _leases() -> Iterator[tuple[int, int, datetime]]:
    for device in range(DEVICES):
        for day in range(DAYS):
            yield device, day, START + timedelta(days=day)


def _add(lake: Lake, table: Table, batches: Sequence[pa.RecordBatch]) -> None:
    writer = FileWriter(Target.of(table, lake.folder(table), "bench-"))
    for batch in batches:
        writer.write(batch)
    file = writer.close()
    commit_files(lake.spark, lake.path(table), [file] if file else [], "bench")
