"""Events -> hours of devices: what each did in an hour, as models judge it.

One transformation for training, backtest and the live job. An address belongs to the device that
held it in its newest event of ten minutes; without a lease the address itself is the entity, or
the host where an event has no address. `entity` is keyed as `alerts.domain.entity.entity_of` keys
it.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from alerts.compiler.model_rule_files import ROLES
from alerts.domain.step import LAST_PART, STEP_VERBS, STEPS, VARIES
from alerts.rulepack.rule_pack import ModelRule
from enrich.attribution.asof_join import newest_cover, statements
from infra.delta.schema import TS, L, S, struct

STRETCH_SECONDS = 600
"""Of so much time an address is looked up once; leases last longer."""

_SHOWN = 3
"""Largest events of an hour that are named."""

_READ = (
    *("event_uid", "class_uid", "source", "mode", "dead_letter_reason", "duplicate_of"),
    *("time", "received_at", "scope", "src_ip", "dst_ip", "host_name", "user_name"),
)
"""Columns of silver.event that are read whole; of structs only leaves are."""

VOLUMES = ("bytes_in", "bytes_out")

_CARRIED = ("mac", "hostname", "session_id", "session_start", "session_end", "known_at")

_TOP = struct(bytes=L, time=TS, event_uid=S, snippet=S).spark


def narrowed(events: DataFrame) -> DataFrame:
    """Of rows of silver.event what hours are made of."""
    return events.select(
        *_READ,
        F.col("device.ip").alias("device_ip"),
        *[F.coalesce(f"traffic.{name}", F.lit(0)).alias(name) for name in VOLUMES],
        "activity_id",
        # Linux names who started a program as its parent, Windows as the actor.
        _program("actor.process.path", "actor.process.name", "process.parent.path",
                 "process.parent.name").alias("by_program"),
        _program("process.path", "process.name").alias("program"),
    )  # fmt: skip


def _program(*columns: str) -> Column:
    """The name by which `alerts.anomaly.steps.program` counts a program; null where there is
    none."""
    path = F.lower(F.coalesce(*columns))
    name = F.regexp_replace(F.regexp_extract(path, LAST_PART, 0), VARIES, "#")
    return F.when(name != "", name)


def counted_hours(events: DataFrame, rule: ModelRule, modes: Collection[str]) -> DataFrame:
    """Those of narrowed events that the rule counts: of its log source, good, delivered first."""
    wanted = (
        F.col("dead_letter_reason").isNull()
        & F.col("duplicate_of").isNull()
        & F.col("mode").isin(*modes)
    )
    if rule.classes:
        wanted = wanted & F.col("class_uid").isin(*rule.classes)
    if rule.sources:
        wanted = wanted & F.col("source").isin(*rule.sources)
    return events.where(wanted)


def hours(
    events: DataFrame, rule: ModelRule, segments: DataFrame, *, named: bool = True
) -> DataFrame:
    """Narrowed events -> a row for each entity and hour (`hour`: its start, seconds since 1970).

    Columns entity, hour, events, bytes_out, bytes_in; with `named` also when the newest event
    happened and was received, who it was last (`last`) and the largest events (`top`).
    """
    if STEPS in rule.features:
        return _by_hour(
            _held(_stretches(_steps(events), rule, named, STEP_COLUMN), segments),
            named,
            STEP_COLUMN,
        )
    return _by_hour(_held(_stretches(events, rule, named), segments), named)


STEP_COLUMN = "step"
"""With it, hours have `steps`: what programs did to programs, each with its first event."""


def _steps(events: DataFrame) -> DataFrame:
    """Events that are steps, each with its text, as `alerts.anomaly.steps` counts it."""
    verb = F.lit(None).cast("string")
    for activity, text in STEP_VERBS.items():
        verb = F.when(F.col("activity_id") == activity, F.lit(text)).otherwise(verb)
    # Null where a part is: such an event is no step.
    step = F.concat("by_program", F.lit(" "), verb, F.lit(" "), "program")
    return events.withColumn(STEP_COLUMN, step).where(F.col(STEP_COLUMN).isNotNull())


def _address(rule: ModelRule) -> Column:
    column = ROLES[rule.role]
    return F.col("device_ip" if column == "device.ip" else column)


def _stretches(events: DataFrame, rule: ModelRule, named: bool, *more: str) -> DataFrame:
    """Sums by address, or host, and ten minutes, and by the columns `more`."""
    ip = _address(rule)
    # silver.event tells both as the source endpoint sees them.
    sent, received = VOLUMES if rule.role == "dst_endpoint" else reversed(VOLUMES)
    volume = F.col("bytes_in") + F.col("bytes_out")
    concat_ws = F.concat_ws(
        "",
        F.coalesce("src_ip", "host_name", "source"),
        F.lit(" -> "),
        F.coalesce("dst_ip", F.lit("?")),
        F.lit(": "),
        F.format_number("bytes_out", 0),
        F.lit(" bytes out, "),
        F.format_number("bytes_in", 0),
        F.lit(" in"),
    )
    largest = F.struct(volume.alias("bytes"), "time", "event_uid", concat_ws.alias("snippet"))
    extra = [
        F.max("received_at").alias("received_at"),
        F.max(largest).alias("top"),
        F.max("mode").alias("mode"),
        F.max("source").alias("source"),
        F.max("class_uid").alias("class_uid"),
    ]
    if more:
        extra.append(F.min(F.struct("time", "event_uid")).alias("first"))
    # Summed up before the join with leases: that has thousands of rows then, and not millions.
    stretch = F.floor(F.unix_seconds("time") / F.lit(STRETCH_SECONDS))
    keyed = events.withColumns(
        {
            "stretch": stretch,
            "ip": ip,
            # Null would join with nothing.
            "scope": F.coalesce("scope", F.lit("")),
            # A name only where there is no address: an address is looked up, a name is what the log
            # says.
            "host": F.when(ip.isNull(), F.col("host_name")),
        }
    ).where(F.col("ip").isNotNull() | F.col("host").isNotNull())
    return keyed.groupBy("scope", "ip", "host", "stretch", *more).agg(
        F.max("time").alias("event_time"),
        F.count(F.lit(1)).alias("events"),
        F.sum(sent).alias("bytes_out"),
        F.sum(received).alias("bytes_in"),
        *(extra if named else []),
    )


def _held(stretches: DataFrame, segments: DataFrame) -> DataFrame:
    """Each stretch with the entity it is of."""
    newest_rows = newest_cover(stretches, statements(segments), carried=_CARRIED)
    device = F.concat(F.lit("device|"), F.col("s_mac"))
    address = F.concat(F.lit("ip|"), F.col("scope"), F.lit("|"), F.col("ip"))
    return newest_rows.withColumns(
        {
            "entity": F.coalesce(device, address, F.concat(F.lit("host|"), F.col("host"))),
            "hour": F.floor(F.col("stretch") / F.lit(3600 // STRETCH_SECONDS)) * F.lit(3600),
        }
    )


def _by_hour(held: DataFrame, named: bool, *more: str) -> DataFrame:
    last = F.struct("event_time", "scope", "ip", "host", *[f"s_{name}" for name in _CARRIED])
    extra = [
        F.max("event_time").alias("event_time"),
        F.max("received_at").alias("received_at"),
        F.slice(F.sort_array(F.collect_list("top"), asc=False), 1, _SHOWN).alias("top"),
        F.max(last).alias("last"),
        *[F.max(name).alias(name) for name in ("mode", "source", "class_uid")],
    ]
    if more and named:
        extra.append(F.collect_list(F.struct("step", "first")).alias(STEPS))
    # Without names by step as well: training counts each, and needs no event of it.
    by = ("entity", "hour") if named else ("entity", "hour", *more)
    return held.groupBy(*by).agg(
        *[F.sum(name).alias(name) for name in ("events", "bytes_out", "bytes_in")],
        *(extra if named else []),
    )
