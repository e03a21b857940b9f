"""The history of a small lake without Spark: the live matcher over its files, in this process.

What it says equals what `alerts.backtest.history_match` says. A session of Spark takes longer to
start than a million events to match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from alerts.backtest.plain_attribution import attribute_files
from alerts.matching.matcher import leaves_read, matcher_of
from alerts.rulepack.rule_pack import RulePack
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import Settings
from infra.delta.data_files import ActiveFile, Reading, listed_files
from infra.delta.duckdb_views import open_engine, reach
from infra.delta.parquet_writer import DataFile, Target, writing
from infra.delta.schema import Table
from infra.storage.paths import Location
from ingest.parsing.source import MODES
from ingest.tables import EVENT

SMALL_ROWS = 1_000_000
"""Events of a chunk, or statements of leases, above which Spark's cores are worth their start."""

_BATCH_ROWS = 10_000
_DHCP_ACTIVITY = 4004

_IMPORTED_LEASES = """
SELECT count(*) FROM (
    SELECT 1 FROM delta_scan($folder, version => $version)
    WHERE mode = 'import' AND class_uid = $dhcp AND time >= $since AND time < $until LIMIT 1
)
"""


class PlainHistory:
    """Tables at a version each, as this process reads them; `most` rows of each at once."""

    def __init__(
        self,
        settings: Settings,
        event_version: int,
        segment_version: int,
        most: int = SMALL_ROWS,
    ) -> None:
        self._settings = settings
        self._versions = {EVENT.name: event_version, DHCP_SEGMENT.name: segment_version}
        self._most = most

    def can_match(self, since: datetime, until: datetime, packs: Sequence[RulePack]) -> bool:
        """Whether `findings` takes them on: few events, whose files hold all their rows, and no
        query, which only Spark can run."""
        return not any(pack.queries for pack in packs) and self._small(self._between(since, until))

    def findings(
        self,
        since: datetime,
        until: datetime,
        store: str,
        packs: Sequence[RulePack],
        target: Target,
    ) -> list[DataFile]:
        """What the packs, which are in the store, find among events of [since, until), as files."""
        leaves = tuple(sorted({leaf for pack in packs for leaf in leaves_read(pack)}))
        reading = Reading(self._folder(EVENT), leaves, "time", since, until)
        matchers = [matcher_of(store, pack.hash, MODES) for pack in packs if pack.rules]
        files = self._between(since, until) or ()
        events = (batch for file in files for batch in reading.batches(file.name))
        with writing({target.table: target}) as writers:
            writer = writers[target.table]
            for batch in _larger(events):
                for matcher in matchers:
                    writer.write(matcher.match(batch))
            written = writer.close()
        return [written] if written else []

    def can_attribute(self, files: Sequence[Path], since: datetime, until: datetime) -> bool:
        """Whether `attributed` takes on findings in files: few leases, and for imported events
        none that only imported lines of [since, until) tell of; Spark makes sessions of these."""
        return self._small(self._segments) and not self.asks_imported_leases(files, since, until)

    def asks_imported_leases(self, files: Sequence[Path], since: datetime, until: datetime) -> bool:
        """Whether findings in files are imported events', and imported lines tell of leases."""
        modes = {
            mode
            for file in files
            for mode in pq.read_table(file, columns=["mode"])["mode"].unique().to_pylist()
        }
        return "import" in modes and self._imported_leases(since, until)

    def attributed(self, files: Sequence[Path], target: Target) -> list[DataFile]:
        """Findings in files with who held their address, as was known then; as files."""
        version = self._versions[DHCP_SEGMENT.name]
        return attribute_files(files, self._folder(DHCP_SEGMENT), version, self._settings, target)

    def _folder(self, table: Table) -> Location:
        return self._settings.lake_root / table.path

    def _small(self, files: Sequence[ActiveFile] | None) -> bool:
        """Whether files are known, whole, and have few rows."""
        if files is None or any(file.has_deletions for file in files):
            return False
        # A file without statistics may hold any number of rows.
        counts = [file.rows for file in files]
        return all(counts) and sum(counts) <= self._most

    def _between(self, since: datetime, until: datetime) -> list[ActiveFile] | None:
        files = self._events
        return files and [file for file in files if file.may_hold("time", since, until)]

    @cached_property
    def _events(self) -> list[ActiveFile] | None:
        return self._listed(EVENT)

    @cached_property
    def _segments(self) -> list[ActiveFile] | None:
        # No job has written a lease yet.
        return [] if self._versions[DHCP_SEGMENT.name] < 0 else self._listed(DHCP_SEGMENT)

    def _listed(self, table: Table) -> list[ActiveFile] | None:
        """The files of a table's version; None where its log does not tell them any more."""
        try:
            return listed_files(self._folder(table), self._versions[table.name])
        except FileNotFoundError:
            return None

    def _imported_leases(self, since: datetime, until: datetime) -> bool:
        table = {"folder": str(self._folder(EVENT)), "version": self._versions[EVENT.name]}
        asked = table | {"since": since, "until": until, "dhcp": _DHCP_ACTIVITY}
        with closing(open_engine(memory="512MB", threads=1)) as engine:
            reach(engine, self._folder(EVENT))
            row = engine.execute(_IMPORTED_LEASES, asked).fetchone()
        return row is not None and row[0] > 0


def _larger(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: a batch of few costs the matcher almost as much."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        # A file of an earlier release may lack a column.
        if waiting and (rows + batch.num_rows > _BATCH_ROWS or batch.schema != waiting[0].schema):
            yield from _joined(waiting)
            waiting, rows = [], 0
        waiting.append(batch)
        rows += batch.num_rows
    if waiting:
        yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    table: pa.Table = pa.Table.from_batches(batches)
    return list(table.combine_chunks().to_batches())
