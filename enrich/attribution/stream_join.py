"""Who held a finding's address when its event happened.

As a stream (`attribute`, then `correct` for what became known later) and over history
(`as_of`). All three give the same answer: of the segments that cover the instant, the one with
the highest `rev`; none, or one that says the address was free, means status `none`.

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
The finding leaves `attribute` as the text it came in: who reads it decodes it once.
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
from enrich.attribution.scopes import in_networks, set_by_hand
from enrich.attribution.server_liveness import ServerLiveness
from enrich.tables import ATTRIBUTION, DHCP_SEGMENT, HOLDER
from infra.config.settings import JobSettings, ScopeSettings
from ingest.tables import HEARTBEAT

SLACK_SECONDS = 1
"""How much longer the segments' watermark waits than the findings'."""

# By default Spark writes times into JSON with milliseconds only.
_MICROSECONDS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

_NAMED = ("finding_id", "role", "scope", "ip", "event_time", "received_at")
"""What of a finding is said in gold.attribution beside its whole."""

ROUTED = ("rule_id", "kind", "feeds", "scope", "ip", "host_name", "user_name")
"""What of a finding is a column beside its text behind `attribute`: who is to get it, and why."""

_LINE_END = "\n"
"""Parts a finding's text in the join's state from its routing; JSON has it only escaped."""

_STATED = tuple(
    T.StructField(column.name, column.type)
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
    beat = F.col("rule_id") == HEARTBEAT
    # Never null: `~` of a null would drop a finding from both results.
    inside = F.coalesce(in_networks(F.col("scope"), F.col("ip"), scopes), F.lit(False))
    static = set_by_hand(F.col("scope"), F.col("ip"), scopes)
    # Who is outside every DHCP network would wait `wait_seconds` for a lease that cannot come.
    joins = beat | (inside & ~static & F.col("holder").isNull())
    status = F.when(F.col("ip").isNull(), "unknown").when(static, "static").otherwise("outside")
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
    others: Sequence[DataFrame] = (),
) -> DataFrame:
    """Streams of gold.finding and silver.dhcp_segment joined: who held the address then.

    Columns: `finding`, its JSON; `ROUTED`; `holder`; `attr_rev`, the segment's `rev`, -1 when none
    covered it; and `via` join. A finding comes at once for each segment known so far that covers
    it, again for each that becomes known within `wait_seconds`, and once with status `none` if
    there was no segment by then: readers take the highest `attr_rev`. Heartbeats of findings come
    out as well, `via` heartbeat and without a holder, once all before is out.
    `others`: streams of the same columns, such as `enrich.attribution.attributed_events.waiting`,
    that share the join and its state.

    The holder's `complete_up_to` is in arrival time. For `none` it is the finding's plus
    `wait_seconds`: a row without a match leaves the join only when the watermark, which no
    line that ingest still has to finish can be behind, has passed that.
    """
    # Each stream has a watermark of its own, moved by its own heartbeats, and the slowest counts:
    # what one stream has not given yet is never late because another one is ahead.
    left = reduce(
        DataFrame.unionByName,
        (_findings(stream, jobs, _routed_text(stream)) for stream in (findings, *others)),
    )
    right = _segments(segments, jobs)
    # Both bounds are in time of arrival: a source that is late by nature is not late for the join.
    wait = F.expr(f"INTERVAL {jobs.wait_seconds} SECONDS")
    kept = F.expr(f"INTERVAL {_kept_seconds(jobs)} SECONDS")
    near = (F.col("_arrived") >= F.col("s_known_at") - wait) & (
        F.col("_arrived") < F.col("s_known_at") + kept
    )
    joined = _routed(left.join(right, _covers() & near, "leftOuter"), findings.schema)
    beat = F.col("rule_id") == HEARTBEAT
    # Spark gives the unmatched row only when the watermark has passed the bound, so this time is
    # true.
    none = _holder(
        scope=F.col("scope"),
        ip=F.col("ip"),
        status=F.lit("none"),
        complete_up_to=F.col("_arrived") + wait,
    )
    holder = F.when(F.col("s_rev").isNotNull(), segment_holder()).otherwise(none)
    return joined.select(
        "finding",
        *ROUTED,
        F.when(~beat, holder).alias("holder"),
        F.coalesce("s_rev", F.lit(-1).cast("long")).alias("attr_rev"),
        F.when(beat, "heartbeat").otherwise("join").alias("via"),
    )


def packed_attribution(attributed: DataFrame) -> DataFrame:
    """Findings with `holder`, `attr_rev` and `via` as columns in the shape of `attribute`'s."""
    attribution = ("holder", "attr_rev", "via")
    whole = _as_json([name for name in attributed.columns if name not in attribution])
    return attributed.select(whole.alias("finding"), *ROUTED, *attribution)


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
    heard: ServerLiveness | None = None,
) -> DataFrame:
    """Findings with an address, attributed from history: rows of gold.attribution. Batch only.

    With the finding as JSON, since job `alert` does not know these rows.

    `at`: as it was known then (segments both learned and known by that time); none: as it is
    known now. `complete_up_to`: how far the DHCP log is known, for `none`; `at` unless given.
    `attributed_at` is `at`, else when the segment was known, else the finding's arrival.
    `heard`: when the DHCP servers were. Holders are judged, with all rivals in the tables.
    """
    known = statements(segments, at, whole=True)
    wanted = findings.where((F.col("rule_id") != HEARTBEAT) & F.col("ip").isNotNull()).select(
        "finding_id",
        "role",
        "scope",
        "ip",
        "event_time",
        "received_at",
        _as_json(findings.columns).alias("finding"),
    )
    joined = newest_cover(with_claims(wanted, known), known, buckets)
    holder = covering_holder(scopes, F.lit(complete_up_to or at).cast("timestamp"))
    coalesce = F.coalesce(F.lit(at).cast("timestamp"), F.col("s_known_at"), F.col("received_at"))
    rows = joined.select(*_attribution(holder, via, coalesce), "claims", "received_at")
    return with_confidence(rows, scopes, heard, complete_up_to or at)


def _as_json(columns: Sequence[str]) -> Column:
    """A row as JSON that `from_json` reads back; times keep their microseconds."""
    return F.to_json(F.struct(*columns), _MICROSECONDS)


def _kept_seconds(jobs: JobSettings) -> int:
    """How long a segment is kept for findings: its span reaches at most `max_lease_seconds` and
    `allowed_lateness_seconds` beyond `known_at` (see `enrich.dhcp.tracker_state`), and a finding
    may arrive late."""
    return jobs.max_lease_seconds + jobs.allowed_lateness_seconds + jobs.correct_seconds


def _routed_text(findings: DataFrame) -> Column:
    """A finding as JSON, and behind it `ROUTED` once more.

    The routing is short; to cut it out of the whole text would be to decode that.
    """
    # Behind, not before: a release that knows no routing reads the first object and no further.
    routed = _as_json(ROUTED)
    return F.concat(_as_json(findings.columns), F.lit(_LINE_END), routed)


def _routed(joined: DataFrame, schema: T.StructType) -> DataFrame:
    """Joined rows with `finding`, its `ROUTED`, and what the segment says as `s_...`."""
    # Of what waits from a release without routing the last line is the whole text: so it is read
    # there, at its price.
    route = F.substring_index("_finding", _LINE_END, -1)
    unpacked = _unpacked(joined, fields_of(route, schema, ROUTED), ROUTED)
    return unpacked.withColumn("finding", F.substring_index("_finding", _LINE_END, 1))


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


def segment_holder(kind: T.StructType = HOLDER, **otherwise: Column) -> Column:
    """The holder a segment (`s_...`) names; one without a MAC says that nobody held the address.

    `kind`: some of the fields of `HOLDER`. `otherwise`: those that are not taken from the segment.
    """
    # A row that frees an address still names the lease that it was part of.
    leased = F.col("s_mac").isNotNull()
    known = {
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
    return _struct(kind, known | otherwise)


def _holder(**known: Column) -> Column:
    return _struct(HOLDER, known)


def _struct(kind: T.StructType, known: Mapping[str, Column]) -> Column:
    """The fields of `kind`, null where nothing is known."""
    fields = [
        known.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
        for field in kind.fields
    ]
    return F.struct(*fields)


def _attribution(holder: Column, via: str, said: Column) -> list[Column]:
    columns = {
        "rev": F.coalesce("s_rev", F.lit(-1).cast(T.LongType())),
        "holder": holder,
        "via": F.lit(via),
        "attributed_at": said,
    }
    return [
        columns.get(column.name, F.col(column.name)).alias(column.name)
        for column in ATTRIBUTION.columns
    ]
