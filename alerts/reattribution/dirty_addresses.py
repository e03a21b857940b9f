"""Which addresses the repair of history looks at, and from which instant on.

By itself it takes what job `sessions` cannot have taken: lines that were too late for it, DHCP
events that others than the live jobs wrote (an import, a reparse), and addresses that were repaired
in the last week, of which the stream may have spoken again since. A person may name a span, whose
addresses are then all looked at, or an address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from enrich.attribution.scopes import set_by_hand
from enrich.attribution.segment_corrections import REPAIR
from enrich.dhcp.sessions_job import every_line
from enrich.tables import DHCP_SEGMENT
from infra.delta.log_reader import commit, versions
from infra.storage.paths import Location
from infra.storage.state_file import StateFile
from infra.streaming.lake import Lake
from ingest.tables import EVENT

ScopedAddress = tuple[str, str]
"""Scope and address."""

LIVE_JOBS = ("ingest", "files")
AGAIN = timedelta(days=7)
"""How long an address that was repaired is looked at again."""
_FILES_AT_ONCE = 500


@dataclass(frozen=True)
class Mark:
    """How far an earlier run has looked: version of silver.event, and how far job `sessions` was,
    microseconds of stream time. What it says later is known later. `said_us`: what was known before
    has reached every attributed event that it concerns."""

    event: int
    known_us: int
    said_us: int = 0


def doubts_mark_file(folder: Path) -> StateFile[Mark]:
    """Where a run leaves how far it has looked."""
    remedy = "remove it, and all addresses in doubt are looked at again"
    return StateFile(folder / "mark.json", Mark, remedy)


class Doubts:
    """Addresses in doubt, each with the first doubtful instant, microseconds since 1970."""

    def __init__(self, lake: Lake, folder: Path, known_us: int, said_us: int) -> None:
        self._lake = lake
        self._file = doubts_mark_file(folder)
        # Taken before anything is read: what comes meanwhile is for the next run.
        self.mark = Mark(lake.version(EVENT), known_us, min(known_us, said_us))

    def asked(
        self, since: datetime | None, until: datetime | None, ip: str | None
    ) -> dict[ScopedAddress, int]:
        """Every address with a DHCP line, or with the begin of a span, in `[since, until)`."""
        lines = every_line(self._lake.read(EVENT), self._lake.settings.jobs)
        spans = self._segments().where("kind NOT IN ('heartbeat', 'too_late')")
        unionByName = lines.select("scope", "ip", "time_us").unionByName(
            spans.select("scope", "ip", F.unix_micros("seg_start").alias("time_us"))
        )
        if since is not None:
            unionByName = unionByName.where(F.col("time_us") >= F.unix_micros(F.lit(since)))
        if until is not None:
            unionByName = unionByName.where(F.col("time_us") < F.unix_micros(F.lit(until)))
        if ip is not None:
            unionByName = unionByName.where(F.col("ip") == ip)
        return _earliest([unionByName])

    def since_last(self, now: datetime) -> dict[ScopedAddress, int]:
        """What came to be in doubt since the run whose mark is kept, or at all for the first."""
        before = self.earlier()
        late = (F.col("kind") == "too_late") & (F.unix_micros("known_at") >= before.known_us)
        # The stream knows nothing of a repair and may speak of the old lease for days.
        repaired = (F.col("kind") == REPAIR) & (F.col("learned_at") > F.lit(now - AGAIN))
        parts = [
            self._segments()
            .where(late | repaired)
            .select("scope", "ip", F.unix_micros("seg_start").alias("time_us"))
        ]
        for rows in self._written_by_others(before.event):
            lines = every_line(rows, self._lake.settings.jobs)
            parts.append(lines.select("scope", "ip", "time_us"))
        return _earliest(parts)

    def given_away(self) -> dict[ScopedAddress, int]:
        """Addresses that are set by hand, and were leased all the same since the last run.

        Findings about them pass by the join: what speaks against them is found from here.
        """
        since = F.timestamp_micros(F.lit(self.earlier().known_us))
        scopes = self._lake.settings.scopes
        leased = F.col("mac").isNotNull() & (F.col("seg_end") > since)
        by_hand = set_by_hand(F.col("scope"), F.col("ip"), scopes)
        begun = F.unix_micros("session_start").alias("time_us")
        return _earliest([self._segments().where(leased & by_hand).select("scope", "ip", begun)])

    def done(self) -> None:
        """All of it is through: the next run looks from here on."""
        self._file.write(self.mark)

    def earlier(self) -> Mark:
        """How far the last run has looked; nowhere before the first."""
        return self._file.read() or Mark(-1, 0)

    def _segments(self) -> DataFrame:
        return self._lake.read(DHCP_SEGMENT)

    def _written_by_others(self, after: int) -> Iterator[DataFrame]:
        """Rows of silver.event in files that other than the live jobs added after a version."""
        folder = self._lake.folder(EVENT)
        names: list[Location] = []
        for version in versions(folder, after + 1):
            if version > self.mark.event:
                break
            table_commit = commit(folder, version)
            if (
                table_commit.changes_data
                # Our marker in Delta's commit says who wrote it (decision 0001).
                and (table_commit.marker or {}).get("job") not in LIVE_JOBS
            ):
                names += [folder / name for name in table_commit.adds]
        # A file may be gone: compaction puts its rows elsewhere, and VACUUM takes it.
        here = [str(name) for name in names if name.exists()]
        # Spark lists and plans each path it is given; too many in one read stall the driver.
        for index in range(0, len(here), _FILES_AT_ONCE):
            files = here[index : index + _FILES_AT_ONCE]
            yield self._lake.spark.read.schema(EVENT.schema).parquet(*files)


def _earliest(parts: Iterable[DataFrame]) -> dict[ScopedAddress, int]:
    results: dict[ScopedAddress, int] = {}
    for part in parts:
        addresses = part.where("scope IS NOT NULL AND ip IS NOT NULL").groupBy("scope", "ip")
        for scope, ip, time_us in addresses.agg(F.min("time_us")).collect():
            # Summed up on the driver: addresses are few beside the lines they come from.
            results[scope, ip] = min(time_us, results.get((scope, ip), time_us))
    return results
