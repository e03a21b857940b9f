"""Rules over history: the live matcher, and who it was as it was known then.

Transformations over Spark. Without hindsight means: of what the DHCP log said, a
finding knows what was known `wait_seconds` after it came, as in the live join.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from alerts.matching.matcher import columns_read, leaves_read, matcher_of
from alerts.rulepack.rule_pack import RulePack
from alerts.spark_rules.rule import QueryRule
from alerts.tables import FINDING
from enrich.attribution.asof_join import newest_cover, statements
from enrich.attribution.stream_join import segment_holder, split
from enrich.dhcp.sessions_job import as_segments, sessions_of
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import Settings
from infra.delta.data_files import Reading
from infra.streaming.lake import Lake
from infra.streaming.parquet_scan import files_between, over_files
from ingest.parsing.source import MODES
from ingest.tables import EVENT

DHCP_ACTIVITY = 4004
BUCKETS = 16
_APART = "\x1f"
MOST_ROUTES = 40
"""Log sources told apart before Spark hands rows over; of more rules all rows go to the matcher."""


@dataclass(frozen=True)
class EventHistory:
    """What a backtest reads: tables at a version (None: the newest)."""

    lake: Lake
    event_version: int | None = None
    segment_version: int | None = None

    def events(self, since: datetime, until: datetime) -> DataFrame:
        """Rows of silver.event whose `time` is in [since, until)."""
        time = F.col("time")
        rows = self.lake.read(EVENT, self.event_version)
        return rows.where((time >= F.lit(since)) & (time < F.lit(until)))

    def segments(self) -> DataFrame:
        """All of silver.dhcp_segment."""
        return self.lake.read(DHCP_SEGMENT, self.segment_version)

    def findings(
        self,
        since: datetime,
        until: datetime,
        store: str,
        packs: Sequence[RulePack],
        modes: Collection[str] = MODES,
    ) -> DataFrame:
        """What `matched` says of `events`; workers read the files themselves where they can."""
        files = files_between(self.lake, EVENT, "time", since, until, self.event_version)
        # Files with deletion vectors hold rows that are gone: Spark's reader knows them, ours does
        # not.
        if any(file.has_deletions for file in files):
            return matched(self.events(since, until), store, packs, modes)
        leaves = tuple(sorted({leaf for pack in packs for leaf in leaves_read(pack)}))
        reading = Reading(self.lake.folder(EVENT), leaves, "time", since, until)
        work = matchers(store, [pack.hash for pack in packs], tuple(sorted(modes)))
        return over_files(self.lake, files, reading, work, FINDING.schema)

    def queried(
        self, rule: QueryRule, since: datetime, until: datetime, modes: Collection[str] = MODES
    ) -> DataFrame:
        """Findings of a query whose `event_time` is in [since, until), each window whole."""
        # Read wider than asked, so that windows at either end have all their rows.
        beside = timedelta(seconds=rule.query.window_seconds)
        findings = rule.findings(self.events(since - beside, until + beside), modes)
        column = F.col("event_time")
        return findings.where((column >= F.lit(since)) & (column < F.lit(until)))

    def parts(
        self,
        since: datetime,
        until: datetime,
        store: str,
        packs: Sequence[RulePack],
        modes: Collection[str] = MODES,
    ) -> Iterator[tuple[str, Callable[[], DataFrame]]]:
        """All that packs find, in parts to be asked for: of the rules together, of each query.

        The rules' part has no name, a query's is its title.
        """
        if any(pack.rules for pack in packs):
            yield "", partial(self.findings, since, until, store, packs, modes)
        for pack in packs:
            for query in pack.queries:
                rule = QueryRule(query, pack.hash)
                yield query.title, partial(self.queried, rule, since, until, modes)

    def attributed(
        self, files: Sequence[Path], settings: Settings, since: datetime, until: datetime
    ) -> DataFrame:
        """Findings in files as `attributed_history` gives them.

        Those of imported events by the DHCP lines of imports in [since, until) too.
        """
        findings = self.lake.spark.read.schema(FINDING.schema).parquet(*map(str, files))
        # Reading the DHCP lines of imports is dear, and most spans hold no imported findings.
        old = findings.where(F.col("mode") == "import").limit(1).count() > 0
        imported = self.events(since, until).where(
            (F.col("mode") == "import") & (F.col("class_uid") == DHCP_ACTIVITY)
        )
        return attributed_history(findings, self, settings, imported if old else None)


def matched(
    events: DataFrame, store: str, packs: Sequence[RulePack], modes: Collection[str] = MODES
) -> DataFrame:
    """Findings of several packs among events, each with the hash of its pack, in one reading.

    The packs must be in the store. Rows of gold.finding, with the ids that the live
    job gives them.
    """
    needed = {name for pack in packs for name in columns_read(pack)}
    columns = [name for name in events.columns if name in needed]
    work = matchers(store, [pack.hash for pack in packs], tuple(sorted(modes)))
    wanted = events.where(_may_match(packs, modes)).select(columns)
    return wanted.mapInArrow(work, FINDING.schema)


def matchers(
    store: str, hashes: Sequence[str], modes: tuple[str, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: the live matcher of each pack over the same batch."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        each = [matcher_of(store, pack_hash, modes) for pack_hash in hashes]
        for batch in batches:
            # Packs in the inner loop: the events of a batch are read once for all of them.
            for matcher in each:
                yield matcher.match(batch)

    return run


def _may_match(packs: Sequence[RulePack], modes: Collection[str]) -> Column:
    """What the matcher passes over anyway, said to Spark, so that it need not be handed over."""
    seen = (
        F.col("dead_letter_reason").isNull()
        & F.col("duplicate_of").isNull()
        & F.col("mode").isin(*modes)
    )
    routes = {(rule.classes, rule.sources) for pack in packs for rule in pack.rules}
    # A rule without a log source sees every event, so there is nothing to leave out.
    if len(routes) > MOST_ROUTES or any(not classes and not names for classes, names in routes):
        return seen
    looked_at = F.lit(False)
    for classes, names in sorted(routes):
        lit = F.lit(True)
        if classes:
            lit = lit & F.col("class_uid").isin(*classes)
        if names:
            lit = lit & F.col("source").isin(*names)
        looked_at = looked_at | lit
    return seen & looked_at


def attributed_history(
    findings: DataFrame,
    history: EventHistory,
    settings: Settings,
    imported: DataFrame | None = None,
) -> DataFrame:
    """Findings with `holder`, `attr_rev`, `via` and `available_at`, when the live job had it all.

    `imported`: events among which are the imported DHCP lines; None when no finding
    is an imported event's. Such an event came when it happened, as far as a backtest
    can tell, and its address is looked up with all that is known today.
    """
    waiting, passing = split(findings, settings.scopes)
    # An imported event arrived long after it happened; "known in time" means nothing for it.
    old = F.col("mode") == "import"
    keyed = waiting.select(
        # Two packs find the same event under one id; the join below must tell them apart.
        F.concat_ws(_APART, "pack", "finding_id").alias("finding_id"),
        *[name for name in _KEYS if name != "finding_id"],
    )
    wait = settings.jobs.wait_seconds
    unionByName = known_then(keyed.where(~old), history.segments(), wait)
    if imported is not None:
        leased = as_segments(sessions_of(imported, settings.jobs))
        every = history.segments().unionByName(leased, allowMissingColumns=True)
        known_now = newest_cover(keyed.where(old), statements(every), BUCKETS)
        unionByName = unionByName.unionByName(known_now.select(*_finding_columns()))
    joined = waiting.drop("holder").join(
        unionByName.select(
            F.split("finding_id", _APART)[0].alias("pack"),
            F.split("finding_id", _APART)[1].alias("finding_id"),
            "holder",
            "attr_rev",
            F.lit("join").alias("via"),
        ),
        ["pack", "finding_id"],
    )
    columns = [*findings.columns, "attr_rev", "via"]
    return joined.select(columns).unionByName(passing.select(columns)).select(*_timed(wait))


_KEYS = ("finding_id", "rule_id", "role", "scope", "ip", "event_time", "received_at", "mode")


def _timed(wait_seconds: int) -> list[str | Column]:
    """The columns of an attributed finding, times as a backtest's clock has them."""
    imported = F.col("mode") == "import"
    arrived = F.when(imported, F.col("event_time")).otherwise(F.col("received_at"))
    waited = arrived + F.expr(f"INTERVAL {wait_seconds} SECONDS")
    # That nobody held it the live join can only say when its wait is over.
    nobody = (F.col("holder.status") == "none") & F.col("holder.known_at").isNull()
    known_at = F.greatest(arrived, F.coalesce("holder.known_at", arrived))
    available = F.when(imported | (F.col("via") != "join"), arrived).otherwise(
        F.when(nobody, waited).otherwise(known_at)
    )
    kept = [name for name in FINDING.schema.fieldNames() if name != "received_at"]
    return [*kept, arrived.alias("received_at"), "attr_rev", "via", available.alias("available_at")]


def known_then(findings: DataFrame, segments: DataFrame, wait_seconds: int) -> DataFrame:
    """Who held each finding's address, as was known `wait_seconds` after it came.

    Columns finding_id, holder, attr_rev. What is known now serves most findings: the
    highest `rev` that covers an instant, known in time, is the highest of those known in
    time. The few that another statement covers now are asked again, each among what it
    could know.
    """
    segment_rows = statements(segments)
    deadline = F.col("received_at") + F.expr(f"INTERVAL {wait_seconds} SECONDS")
    # Used twice: for those known in time and for those to be asked again.
    now = newest_cover(findings, segment_rows, BUCKETS).persist()
    # No statement covers it: nobody held it, which is an answer in time as well.
    in_time = F.coalesce(F.col("s_known_at") <= deadline, F.lit(True))
    again = F.broadcast(now.where(~in_time).select(*findings.columns))
    finding_columns = {
        name: F.col(name).alias(f"f_{name}") for name in ("finding_id", "ip", "event_time")
    }
    could = (
        again.select(
            *finding_columns.values(), F.col("scope").alias("f_scope"), deadline.alias("f_deadline")
        )
        .join(segment_rows, (F.col("scope") == F.col("f_scope")) & (F.col("ip") == F.col("f_ip")))
        .where("f_event_time >= seg_start AND f_event_time < seg_end AND known_at <= f_deadline")
    )
    # Each finding is a site of its own, so that it sees what it could know and nothing else.
    own = [
        F.col("f_finding_id").alias("scope") if n == "scope" else n for n in segment_rows.columns
    ]
    apart = again.select("*", F.col("scope").alias("site")).withColumn("scope", F.col("finding_id"))
    then = newest_cover(apart, could.select(*own), BUCKETS)
    return (
        now.where(in_time)
        .select(*_finding_columns())
        .unionByName(then.withColumn("scope", F.col("site")).select(*_finding_columns()))
    )


def _finding_columns() -> list[Column]:
    """Rows of `newest_cover` as who held the address: columns finding_id, holder, attr_rev."""
    rev = F.coalesce("s_rev", F.lit(-1).cast("long"))
    return [F.col("finding_id"), segment_holder().alias("holder"), rev.alias("attr_rev")]
