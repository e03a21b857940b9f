"""What an event takes on disk, and a device in the state: the figures that sizing is computed from.

Events go through the same code as in job `ingest`, in this process; files are as a batch leaves
them, and as maintenance merges them, which is how nearly all of a lake is kept.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

from bench.measure import Report
from bench.mixes import MIXES, Mix
from bench.records import store
from enrich.dhcp.lease_rules import ACK, SECOND_US, LeaseEvent
from enrich.dhcp.sessions_job import tracker_limits
from enrich.dhcp.state_encoding import encode_bucket
from enrich.dhcp.tracker_state import TrackerBucket
from infra.config.settings import JobSettings, load
from infra.delta.parquet_writer import Target
from infra.maintenance.maintenance import write_merged
from ingest.parsing.source import ParseSettings
from ingest.pipeline.batch_pass import Pass, Reach
from ingest.tables import EVENT, RECORD

DEVICES = 50_000
LEASE_SECONDS = 86_400
START_US = 1_800_000_000 * SECOND_US
RENEWED = 20
"""One device in so many has renewed within the time that lines may be late."""


def run(quick: bool = False) -> Report:
    """All mixes, then the state."""
    report = Report("footprint", "make bench ONLY=footprint")
    for mix in MIXES:
        _volume(report, mix, min(20_000, mix.records) if quick else mix.records)
    _state(report, 5_000 if quick else DEVICES)
    return report


def _volume(report: Report, mix: Mix, count: int) -> None:
    """Bytes of both tables for each byte of raw data."""
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    try:
        stored = store(home / "raw", mix.families(), count)
        targets = {
            table.name: Target.of(table, home, f"{table.name}-") for table in (RECORD, EVENT)
        }
        work = Pass(ParseSettings.of(load(home=home)), targets, (), Reach())
        batches = (
            batch
            for part in sorted((home / "raw").glob("*.parquet"))
            for batch in pq.ParquetFile(part).iter_batches(10_000)
        )
        written = [row for told in work(batches) for row in told.to_pylist()]
        kept = next(row["rows"] for row in written if row["table"] == RECORD.name)
        if kept != count:
            raise AssertionError(f"{mix.name}: {kept} of {count} records in bronze")
        report.add(f"{mix.name}: raw", [stored.raw_bytes / count], "bytes/event")
        for row in written:
            table = RECORD if row["table"] == RECORD.name else EVENT
            rows = pq.read_table(home / row["name"])
            merged = write_merged(rows, table, targets[table.name])
            if merged is None or merged.rows != rows.num_rows:
                raise AssertionError(f"{mix.name}: merged {table.name} has other rows")
            for label, size in (("", row["size"]), (", merged", merged.size)):
                share = size / stored.raw_bytes
                report.add(f"{mix.name}: {table.name}{label}", [share], "bytes/raw byte")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _state(report: Report, devices: int) -> None:
    """Bytes of job `sessions`' state for each device that holds a lease."""
    state = TrackerBucket(tracker_limits(JobSettings()))
    state.advance([_lease(device, 0) for device in range(devices)])
    # Well past the time in which lines may be late, and of a few a renewal since.
    later = 3_600
    state.advance(
        [_lease(device, later) for device in range(0, devices, RENEWED)],
        [START_US + later * SECOND_US],
    )
    if len(state.addresses) != devices:
        raise AssertionError(f"the state knows {len(state.addresses)} of {devices} addresses")
    report.add("state of job sessions", [len(encode_bucket(state)) / devices], "bytes/device")


def _lease(device: int, after_seconds: int) -> LeaseEvent:
    at = START_US + after_seconds * SECOND_US + device
    high, low = divmod(device, 250)
    # Neither ids nor hardware addresses are alike, and the state is compressed.
    chance = Random(device * 10_000 + after_seconds)
    return LeaseEvent(
        event_uid=f"{chance.getrandbits(104):026x}",
        scope="default",
        ip=f"10.{high // 250}.{high % 250}.{low}",
        mac=f"02:{Random(device).randbytes(5).hex(':')}",
        hostname=f"host-{device}",
        activity=ACK,
        time_us=at,
        received_us=at,
        lease_seconds=LEASE_SECONDS,
        server="dhcp1",
    )
