"""Findings that have no attribution yet, followed from commit to commit.

To ask the tables each minute which findings lack a row costs as much as the tables are
large; what the last commits added, a few small files, says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alerts.tables import FINDING, HEARTBEAT
from enrich.tables import ATTRIBUTION
from infra.delta.log_reader import newest_version, versions
from infra.delta.schema import Table
from infra.storage.paths import Location, to_read
from infra.streaming.lake import Lake

_FINDING = ["finding_id", "rule_id", "mode", "event_time", "received_at"]

_REACH = 600
"""Commits looked back at when a run begins: ten minutes and more of those that may still wait."""


class PendingAttributions:
    """What waits for its attribution, and how far detection has come, as the last commits say.

    It may name findings that need none, such as those from addresses outside all networks,
    and does not know what came before it was made: the tables have the last word.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._waiting: dict[str, datetime] = {}
        self._next: dict[str, int] = {}
        self.finished: datetime | None = None
        """The newest heartbeat of detection seen."""

    def follow(self) -> None:
        """Take in what was committed since the last time."""
        # Attributions first: what they speak of is then among the findings read here or before.
        uids = [
            uid
            for rows in self._added(ATTRIBUTION, ["finding_id"])
            for uid in rows.column("finding_id").to_pylist()
        ]
        for rows in self._added(FINDING, _FINDING):
            self._take(rows)
        for uid in uids:
            self._waiting.pop(uid, None)

    def _take(self, rows: pa.Table) -> None:
        beat = pc.equal(rows.column("rule_id"), HEARTBEAT)
        newest = pc.max(_instants(rows.filter(beat).column("event_time"))).as_py()
        if newest is not None:
            self.finished = newest if self.finished is None else max(self.finished, newest)
        # An import of old logs raises no live alerts, so nothing of it waits for the join.
        live = pc.and_(pc.invert(beat), pc.not_equal(rows.column("mode"), "import"))
        kept = rows.filter(live)
        arrived = _instants(kept.column("received_at")).to_pylist()
        self._waiting.update(zip(kept.column("finding_id").to_pylist(), arrived, strict=True))

    def before(self, limit: datetime) -> bool:
        """Whether a finding that arrived before `limit` still waits."""
        return any(arrived < limit for arrived in self._waiting.values())

    @property
    def oldest(self) -> datetime | None:
        """When the first of those that wait arrived."""
        return min(self._waiting.values(), default=None)

    def judged(self, limit: datetime) -> None:
        """The tables were asked about all before `limit`: none of these waits any more."""
        self._waiting = {uid: since for uid, since in self._waiting.items() if since >= limit}

    def _added(self, table: Table, columns: list[str]) -> Iterator[pa.Table]:
        """The rows of the commits since the last time. A commit or file that is gone is old."""
        folder = self._lake.folder(table)
        first = self._next.get(table.name, max(0, newest_version(folder) - _REACH))
        for version in versions(folder, first):
            self._next[table.name] = version + 1
            try:
                for file in self._lake.files_of(table, version):
                    yield _rows(file, columns)
            except FileNotFoundError:
                continue


def _instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Spark's own writer leaves nanoseconds without a zone, ours microseconds in UTC."""
    return column.cast(pa.timestamp("us", "UTC"), safe=False)


def _rows(file: Location, columns: list[str]) -> pa.Table:
    with pq.ParquetFile(to_read(file)) as result:
        return result.read(columns=columns)
