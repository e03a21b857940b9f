"""Who held a finding's address when its event happened.

As a stream (`attribute`, then `correct` for what became known later) and over history
(`attribution_as_of`). All three give the same answer: of the segments that cover the instant, the
one with the highest `rev`; none, or one that says the address was free, means status `none`.

**Two clocks.** Whether a lease covers an event is asked in event time. How long to wait, and how
far the DHCP log is known, is asked in arrival time (`received_at` of the finding, `known_at` of
the segment): so a source that delivers a quarter of an hour late is not late for the join, and a
clock that is ahead cannot move its watermark.

**Watermarks** take the slower of both inputs, and segments never run ahead of what ingest has
finished, so no finding is older than the watermark when it arrives. Rows without an address or a
span must still reach the watermark: Spark infers `IS NOT NULL` from a join's condition and pushes
it below `withWatermark`, which would throw heartbeats away and stall both streams. Hence keys
that are never null before it, and, after it, filters that name the watermark's column, which
Spark leaves where they are.

**State.** What both sides of a join remember is their keys and times, and all else as one JSON
text. Spark reads rows from a checkpoint only in the columns they were written with; so a column
more in gold.finding or in a segment is one more field of that text, and changes no checkpoint.
The finding leaves `attribute` as the text it came in, and the segment as its own: who reads them
decodes them once, in Python (decision 0041).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from enrich.attribution.asof_join import SEGMENT, newest_cover, statements
from enrich.attribution.confidence_spark import with_claims, with_confidence
from enrich.attribution.joined_row import LINE_END, PASSED
from enrich.attribution.scopes import in_networks, set_by_hand
from enrich.attribution.server_liveness import ServerLiveness
from enrich.tables import ATTRIBUTION, DHCP_SEGMENT, HOLDER
from infra.config.settings import JobSettings, ScopeSettings
from infra.delta.column_types import StructOf, spark_type
from ingest.tables import HEARTBEAT

SLACK_SECONDS = 1
"""How much longer the segments' watermark waits than the findings'."""

# By default Spark writes times into JSON with milliseconds only.
_MICROSECONDS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

_NAMED = ("finding_id", "role", "scope", "ip", "event_time", "received_at")
"""What of a finding is said in gold.attribution beside its whole."""

ROUTED = ("rule_id", "kind", "feeds", "scope", "ip", "host_name", "user_name")
"""What of a finding is a column beside its text behind `attribute`: who is to get it, and why."""

_ROUTING = T.StructType(
    [
        T.StructField(name, T.ArrayType(T.StringType()) if name == "feeds" else T.StringType())
        for name in (*ROUTED, *PASSED)
    ]
)

_STATED = tuple(
    T.StructField(column.name, spark_type(column.type))
    for column in DHCP_SEGMENT.columns
    if column.name in SEGMENT and column.name != "known_at"
)
"""What of a segment is remembered beside keys and times."""

_NO_KEY = ""  # equal to no address and no site; a finding's heartbeat has another (below)


def split(findings: DataFrame, scopes: Sequence[ScopeSettings]) -> tuple[DataFrame, DataFrame]:
    """Findings that need the join, and those that wait for nobody.

    The first has those whose address lies in a DHCP network of its scope, and heartbeats. The
    second has `holder`, `attr_rev` -1 and `via` filled: status `outside` for an address in none
    of these networks (IPv6 counts as outside for now), `static` for one that is set by hand,
    `unknown` for no address, or the holder the finding brought along (a correlation's).
    """
    joins, status = _ways(scopes)
    past = findings.where(~joins).withColumns(
        {
            "holder": F.coalesce(
                "holder", _holder(scope=F.col("scope"), ip=F.col("ip"), status=status)
            ),
            # Below every `rev`: whatever a segment says of it later is the newer word.
            "attr_rev": F.lit(-1).cast("long"),
            "via": F.lit("outside"),
        }
    )
    return findings.where(joins), past


def attribute(
    findings: DataFrame,
    segments: DataFrame,
    jobs: JobSettings,
    scopes: Sequence[ScopeSettings],
    others: Sequence[DataFrame] = (),
) -> DataFrame:
    """Streams of gold.finding and silver.dhcp_segment joined: who held the address then.

    Columns: `finding`, its JSON, and behind it a line with its routing; `said`, the join's word on
    it; `mac`, the holder's; and `ROUTED`. `joined_row.attribution_of` reads the first two. A
    finding comes at once for each segment known so far that covers it, again for each that becomes
    known within `wait_seconds`, and once with status `none` if there was no segment by then:
    readers take the highest `attr_rev`. One that waits for nobody (`split`) comes at once.
    Heartbeats of findings come out as well, once all before is out.
    `others`: streams of `joining_rows` that share the join and its state.

    The holder's `complete_up_to` is in arrival time. For `none` it is the finding's plus
    `wait_seconds`: a row without a match leaves the join only when the watermark, which no
    line that ingest still has to finish can be behind, has passed that.
    """
    # Each stream has a watermark of its own, moved by its own heartbeats, and the slowest counts:
    # what one stream has not given yet is never late because another one is ahead.
    left = reduce(
        DataFrame.unionByName,
        (
            stream.withWatermark("_arrived", f"{jobs.watermark_seconds} seconds")
            for stream in (_joining_findings(findings, scopes), *others)
        ),
    )
    right = _segments(segments, jobs)
    # Both bounds are in time of arrival: a source that is late by nature is not late for the join.
    wait = F.expr(f"INTERVAL {jobs.wait_seconds} SECONDS")
    kept = F.expr(f"INTERVAL {_kept_seconds(jobs)} SECONDS")
    near = (F.col("_arrived") >= F.col("s_known_at") - wait) & (
        F.col("_arrived") < F.col("s_known_at") + kept
    )
    # Asks of the left side alone: Spark gives rows that fail it at once, and keeps none of them.
    waits = F.col("_happened").isNotNull()
    both = left.join(right, waits & _covers() & near, "leftOuter")
    # Of what waits from a release without routing the last line is the whole text: so it is read
    # there, at its price.
    route = F.from_json(F.substring_index("_finding", LINE_END, -1), _ROUTING)
    words = F.concat_ws(
        LINE_END, F.unix_micros("_arrived"), F.unix_micros("s_known_at"), "_segment"
    )
    return both.select("_finding", "_segment", words.alias("said"), route.alias("_f")).select(
        F.col("_finding").alias("finding"),
        "said",
        F.coalesce(F.col(f"_f.{PASSED[1]}"), F.get_json_object("_segment", "$.mac")).alias("mac"),
        *[F.col(f"_f.{name}") for name in ROUTED],
    )


def _joining_findings(findings: DataFrame, scopes: Sequence[ScopeSettings]) -> DataFrame:
    """Findings as the join's left side takes them.

    One that waits for nobody has no instant to be held against a lease, and no arrival, by which
    it could be late.
    """
    beat, waits = F.col("rule_id") == HEARTBEAT, F.col("_waits")
    leased = F.col("holder.status") == "leased"
    passed = (F.coalesce("holder.status", "_status"), F.when(leased, F.col("holder.mac")))
    words = zip(PASSED, (F.when(~waits, word) for word in passed), strict=True)
    arrived = F.when(beat, F.col("event_time")).otherwise(F.coalesce("received_at", "event_time"))
    must_wait, status = _ways(scopes)
    return joining_rows(
        findings.select("*", must_wait.alias("_waits"), status.alias("_status")),
        F.when(beat, HEARTBEAT).otherwise(F.col("scope")),
        F.col("ip"),
        F.when(waits, F.coalesce("event_time", "received_at")),
        F.when(waits, arrived),
        with_routing({name: F.col(name) for name in findings.columns}, dict(words)),
    )


def joining_rows(
    rows: DataFrame, scope: Column, ip: Column, happened: Column, arrived: Column, text: Column
) -> DataFrame:
    """The join's left side: keys that are never null, when it happened, null where the row waits
    for nobody, its arrival, which moves the watermark, and its text.

    A heartbeat's key is one that no segment has, so it is compared with nothing.
    """
    # Never null, or Spark infers IS NOT NULL from the join and drops the heartbeats before the
    # watermark sees them (decision 0004). JSON, for a checkpoint fixes the columns of the state.
    return rows.select(
        F.coalesce(scope, F.lit(_NO_KEY)).alias("_scope"),
        F.coalesce(ip, F.lit(_NO_KEY)).alias("_ip"),
        happened.alias("_happened"),
        arrived.alias("_arrived"),
        text.alias("_finding"),
    )


def with_routing(columns: Mapping[str, Column], more: Mapping[str, Column] | None = None) -> Column:
    """A row as JSON, and behind it `ROUTED` once more, as far as it has them, with `more`.

    The routing is short; to cut it out of the whole text would be to decode that.
    """
    routed = {name: columns[name] for name in ROUTED if name in columns} | dict(more or {})
    # Behind, not before: a release that knows no routing reads the first object and no further.
    return F.concat(_text(columns), F.lit(LINE_END), _text(routed))


def _text(columns: Mapping[str, Column]) -> Column:
    return _as_json([column.alias(name) for name, column in columns.items()])


def _ways(scopes: Sequence[ScopeSettings]) -> tuple[Column, Column]:
    """Whether a finding needs the join; and the status of the holder of one that does not."""
    beat = F.col("rule_id") == HEARTBEAT
    # Never null: `~` of a null would drop a finding from both results.
    inside = F.coalesce(in_networks(F.col("scope"), F.col("ip"), scopes), F.lit(False))
    static = set_by_hand(F.col("scope"), F.col("ip"), scopes)
    # Who is outside every DHCP network would wait `wait_seconds` for a lease that cannot come.
    joins = beat | (inside & ~static & F.col("holder").isNull())
    status = F.when(F.col("ip").isNull(), "unknown").when(static, "static").otherwise("outside")
    return joins, status


def fields_of(finding: str | Column, schema: T.StructType, names: Sequence[str]) -> Column:
    """Some fields of a finding's JSON, as a struct; `schema` is gold.finding's."""
    return F.from_json(finding, T.StructType([schema[name] for name in names]), _MICROSECONDS)


def correct(
    findings: DataFrame,
    segments: DataFrame,
    jobs: JobSettings,
    scopes: Sequence[ScopeSettings] = (),
) -> DataFrame:
    """Streams of gold.finding and silver.dhcp_segment joined: what became known too late.

    Rows of gold.attribution, `via` correction, with the finding as JSON: for findings and
    segments that `attribute` did not bring together since the segment was known after its wait,
    up to `correct_seconds`. Give it the findings that `attribute` gets. Holders are judged.
    """
    # Not `~beat` alone: Spark would push that below `withWatermark`, and both streams would stand
    # still. A filter that names the watermark's column stays where it is.
    unaware = ~F.col("_beat") | F.col("_arrived").isNull()
    left = _findings(findings, jobs, _as_json(findings.columns)).where(unaware)
    right = _segments(segments, jobs)
    wait = F.expr(f"INTERVAL {jobs.wait_seconds} SECONDS")
    kept = F.expr(f"INTERVAL {jobs.correct_seconds} SECONDS")
    after = (F.col("_arrived") < F.col("s_known_at") - wait) & (
        F.col("_arrived") >= F.col("s_known_at") - kept
    )
    joined = left.join(right, _covers() & after, "inner").withColumnRenamed("_finding", "finding")
    select = _unpacked(joined, fields_of("finding", findings.schema, _NAMED), _NAMED).select(
        *_attribution(segment_holder(), "correction", F.col("s_known_at")), "received_at"
    )
    return with_confidence(select, scopes)


def attribution_as_of(
    findings: DataFrame,
    segments: DataFrame,
    at: datetime | None = None,
    *,
    via: str = "late",
    complete_up_to: datetime | None = None,
    buckets: int = 16,
    scopes: Sequence[ScopeSettings] = (),
    liveness: ServerLiveness | None = None,
) -> DataFrame:
    """Findings with an address, attributed from history: rows of gold.attribution. Batch only.

    With the finding as JSON, since job `alert` does not know these rows.

    `at`: as it was known then (segments both learned and known by that time); none: as it is
    known now. `complete_up_to`: how far the DHCP log is known, for `none`; `at` unless given.
    `attributed_at` is `at`, else when the segment was known, else the finding's arrival.
    `liveness`: when the DHCP servers were. Holders are judged, with all rivals in the tables.
    """
    segments_known = statements(segments, at, whole=True)
    addressed = findings.where((F.col("rule_id") != HEARTBEAT) & F.col("ip").isNotNull()).select(
        "finding_id",
        "role",
        "scope",
        "ip",
        "event_time",
        "received_at",
        _as_json(findings.columns).alias("finding"),
    )
    joined = newest_cover(with_claims(addressed, segments_known), segments_known, buckets)
    holder = covering_holder(scopes, F.lit(complete_up_to or at).cast("timestamp"))
    coalesce = F.coalesce(F.lit(at).cast("timestamp"), F.col("s_known_at"), F.col("received_at"))
    rows = joined.select(*_attribution(holder, via, coalesce), "claims", "received_at")
    return with_confidence(rows, scopes, liveness, complete_up_to or at)


def _as_json(columns: Sequence[str | Column]) -> Column:
    """A row as JSON that `from_json` reads back; times keep their microseconds."""
    return F.to_json(F.struct(*columns), _MICROSECONDS)


def _kept_seconds(jobs: JobSettings) -> int:
    """How long a segment is kept for findings: its span reaches at most `max_lease_seconds` and
    `allowed_lateness_seconds` beyond `known_at` (see `enrich.dhcp.tracker_state`), and a finding
    may arrive late."""
    return jobs.max_lease_seconds + jobs.allowed_lateness_seconds + jobs.correct_seconds


def _findings(findings: DataFrame, jobs: JobSettings, text: Column) -> DataFrame:
    """The join's left side: keys that are never null, the arrival time as watermark, and `text`,
    the finding as JSON.

    A heartbeat's key is one that no segment has, so it is compared with nothing.
    """
    beat = F.col("rule_id") == HEARTBEAT
    arrived = F.when(beat, F.col("event_time")).otherwise(F.coalesce("received_at", "event_time"))
    scope = F.when(beat, HEARTBEAT).otherwise(F.coalesce("scope", F.lit(_NO_KEY)))
    # Never null, or Spark infers IS NOT NULL from the join and drops the heartbeats before the
    # watermark sees them (decision 0004). JSON, for a checkpoint fixes the columns of the state.
    return findings.select(
        F.coalesce(beat, F.lit(False)).alias("_beat"),
        scope.alias("_scope"),
        F.coalesce("ip", F.lit(_NO_KEY)).alias("_ip"),
        F.coalesce("event_time", "received_at").alias("_happened"),
        arrived.alias("_arrived"),
        text.alias("_finding"),
    ).withWatermark("_arrived", f"{jobs.watermark_seconds} seconds")


def _segments(segments: DataFrame, jobs: JobSettings) -> DataFrame:
    """The join's right side, prefixed; rows that cover nothing only move its watermark."""
    column_read = F.col("known_at")
    named = segments.select(
        F.coalesce("scope", F.lit(_NO_KEY)).alias("s_scope"),
        F.coalesce("ip", F.lit(_NO_KEY)).alias("s_ip"),
        F.coalesce(F.col("seg_start"), column_read).alias("s_start"),
        F.coalesce(F.col("seg_end"), column_read).alias("s_end"),
        column_read.alias("s_known_at"),
        _as_json([column.name for column in _STATED]).alias("_segment"),
    ).withWatermark("s_known_at", f"{jobs.watermark_seconds + SLACK_SECONDS} seconds")
    # Behind the watermark and naming its column, so that Spark does not move it before.
    return named.where((F.col("s_end") > F.col("s_start")) | F.col("s_known_at").isNull())


def _unpacked(joined: DataFrame, finding: Column, names: Sequence[str]) -> DataFrame:
    """Joined rows with columns of their finding (a struct), and those of the segment as `s_...`."""
    both = joined.select(
        "*",
        finding.alias("_f"),
        F.from_json("_segment", T.StructType(list(_STATED)), _MICROSECONDS).alias("_s"),
    )
    return both.select(
        *joined.columns,
        *[F.col(f"_f.{name}").alias(name) for name in names],
        *[F.col(f"_s.{stated.name}").alias(f"s_{stated.name}") for stated in _STATED],
    )


def _covers() -> Column:
    return (
        (F.col("_scope") == F.col("s_scope"))
        & (F.col("_ip") == F.col("s_ip"))
        & (F.col("_happened") >= F.col("s_start"))
        & (F.col("_happened") < F.col("s_end"))
    )


def covering_holder(
    scopes: Sequence[ScopeSettings] = (), complete_up_to: Column | None = None
) -> Column:
    """The holder by the segment that covers a row's instant (`s_...`), or none.

    An address that is set by hand has no holder that a lease could name, also where DHCP gave it
    away: then its session stays, as the mark of what speaks against it.
    """
    where = {"scope": F.col("scope"), "ip": F.col("ip")}
    static = set_by_hand(where["scope"], where["ip"], scopes)
    upto = F.lit(None) if complete_up_to is None else complete_up_to
    nobody = F.lit(None).cast("string")
    by_hand = segment_holder(status=F.lit("static"), mac=nobody, hostname=nobody)
    return (
        F.when(static, by_hand)
        .when(F.col("s_rev").isNotNull(), segment_holder())
        .otherwise(_holder(**where, status=F.lit("none"), complete_up_to=upto))
    )


def segment_holder(kind: StructOf = HOLDER, **otherwise: Column) -> Column:
    """The holder a segment (`s_...`) names; one without a MAC says that nobody held the address.

    `kind`: some of the fields of `HOLDER`. `otherwise`: those that are not taken from the segment.
    """
    # A row that frees an address still names the lease that it was part of.
    leased = F.col("s_mac").isNotNull()
    leaves = {
        "scope": F.col("scope"),
        "ip": F.col("ip"),
        "mac": F.col("s_mac"),
        "hostname": F.when(leased, F.col("s_hostname")),
        "session_id": F.when(leased, F.col("s_session_id")),
        "lease_start": F.when(leased, F.col("s_session_start")),
        "lease_end": F.when(leased, F.col("s_session_end")),
        "known_at": F.col("s_known_at"),
        "status": F.when(leased, "leased").otherwise("none"),
        "complete_up_to": F.col("s_known_at"),
        "evidence": F.col("s_evidence.event_uids"),
        "ended": F.when(leased, F.col("s_evidence.ended")),
    }
    return _struct(kind, leaves | otherwise)


def _holder(**leaves: Column) -> Column:
    return _struct(HOLDER, leaves)


def _struct(kind: StructOf, leaves: Mapping[str, Column]) -> Column:
    """The fields of `kind`, null where nothing is known."""
    fields = [
        leaves.get(field.name, F.lit(None)).cast(spark_type(field.type)).alias(field.name)
        for field in kind.fields
    ]
    return F.struct(*fields)


def _attribution(holder: Column, via: str, attributed_at: Column) -> list[Column]:
    columns = {
        "rev": F.coalesce("s_rev", F.lit(-1).cast(T.LongType())),
        "holder": holder,
        "via": F.lit(via),
        "attributed_at": attributed_at,
    }
    return [
        columns.get(column.name, F.col(column.name)).alias(column.name)
        for column in ATTRIBUTION.columns
    ]
