"""A rule that Spark runs: the same object in a notebook, a backtest and the live job.

`QueryRule.findings` is a transformation: events in, rows of gold.finding out. It says the same
of a micro-batch as of all history that holds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from types import ModuleType
from typing import cast
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from alerts.compiler.sigma_to_predicate import Untranslatable
from alerts.compiler.spark_rule_files import FUNCTION, RULE
from alerts.compiler.sql_check import VIEW
from alerts.domain.finding import (
    DIGEST_CHARS,
    FIELD_CHARS,
    NAME_CHARS,
    SNIPPET_CHARS,
    SUBJECTS,
)
from alerts.rulepack.rule_pack import Query
from alerts.spark_rules.plan import failure_sentence, refuse_unfit, seen_by
from alerts.tables import FINDING
from ingest.parsing.source import MODES
from ingest.tables import EVENT, HEARTBEAT

SHOWN_ELSEWHERE = ("window", "time", "received_at", "evidence", "event_uid")
"""Columns of a query that have a place of their own in a finding; the others are its fields."""

ADDRESSES = {"src_endpoint": "src_ip", "dst_endpoint": "dst_ip", "device": "device_ip"}
"""Where a window's row has the address of a role, unless it has a column `ip`."""

_Rule = Callable[[DataFrame], DataFrame]


class QueryRule:
    """A query of a rule pack, ready to run. `pack`: hash of the pack it is of."""

    def __init__(self, query: Query, pack: str = "") -> None:
        self.query = query
        self.pack = pack

    def rows(self, events: DataFrame) -> DataFrame:
        """What the query itself gives over rows of silver.event.

        Raises whatever Spark, or the function, says of a query that it cannot understand.
        """
        if self.query.type == FUNCTION:
            return function_of(self.query.text)(events)
        spark, name = events.sparkSession, f"headgate_{uuid4().hex}"
        events.createOrReplaceTempView(name)
        try:
            # The name is this call's own: rules and notebooks share a session.
            return spark.sql(
                f"WITH {VIEW} AS (SELECT * FROM {name}) SELECT * FROM (\n{self.query.text}\n)"
            )
        finally:
            # The plan is analysed by then and needs the name no more.
            spark.catalog.dropTempView(name)

    def check(self, spark: SparkSession) -> None:
        """Raise `Untranslatable`, with the reason in a sentence, unless the rule may go live."""
        refuse_unfit(self.query, self._of_nothing(spark))

    def sees(self, spark: SparkSession) -> list[str]:
        """What it asks of events, as SELECTs; raises as `check` does."""
        return seen_by(self._of_nothing(spark))

    def _of_nothing(self, spark: SparkSession) -> DataFrame:
        """What the query makes of no events; `Untranslatable` where it makes nothing of them."""
        try:
            # No rows: Spark analyses the query without running it.
            rows = self.rows(spark.createDataFrame([], EVENT.schema))
            if not isinstance(rows, DataFrame):
                raise Untranslatable(f"{RULE} gives {type(rows).__name__}", "return a DataFrame")
        except Untranslatable:
            raise
        except Exception as error:  # a person's function may raise anything
            raise Untranslatable(failure_sentence(error), "correct the query") from None
        return rows

    def findings(self, events: DataFrame, modes: Collection[str] = MODES) -> DataFrame:
        """Rows of gold.finding among rows of silver.event whose mode is one of `modes`.

        Of a rule with windows the events must hold each window whole that matters.
        """
        seen = events.where(
            F.col("dead_letter_reason").isNull()
            & F.col("duplicate_of").isNull()
            & (F.col("source") != HEARTBEAT)
            & F.col("mode").isin(*modes)
        )
        rows = self.rows(seen)
        columns = self._windows(rows) if self.query.window_seconds else None
        if columns is None:
            rows, columns = self._events(rows, seen)
        columns = self._same() | columns
        columns |= {name: _named(columns[name]) for name in ("host_name", "user_name")}
        return rows.select(
            *[
                columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
                for field in FINDING.schema
            ]
        )

    def _same(self) -> dict[str, Column]:
        """Columns that all findings of the rule share."""
        query = self.query
        return {
            "rule_id": F.lit(query.id),
            "rule_version": F.lit(query.version),
            "rule_title": F.lit(query.title),
            "level": F.lit(query.level),
            "kind": F.lit("event"),
            "pack": F.lit(self.pack),
            "feeds": F.array(*[F.lit(feed) for feed in query.feeds]),
            "alerting": F.lit(query.alerting),
        }

    def _events(self, rows: DataFrame, seen: DataFrame) -> tuple[DataFrame, dict[str, Column]]:
        """Rows with the event that each is about, and the columns of a finding about it."""
        names = [name for name in rows.columns if name not in SHOWN_ELSEWHERE]
        if set(EVENT.schema.fieldNames()) <= set(rows.columns):  # SELECT *: what it adds is shown
            names = [name for name in names if name not in EVENT.schema.fieldNames()]
        texts = [_text(name).alias(name) for name in names]
        select = rows.select("event_uid", F.struct(F.lit("").alias("_"), *texts).alias("_said"))
        # A query may give several rows for an event; `min` takes the same one on each run.
        once = select.groupBy("event_uid").agg(F.min("_said").alias("_said"))
        carried = {path: _at(path, seen.schema) for path in self.query.carry if path not in names}
        facts = seen.select(
            "event_uid", "time", "received_at", "class_uid", "source", "mode", "scope",
            "user_name", "dst_ip", "message", "src_ip",
            _or(F.col("host_name"), F.col("device.hostname")).alias("host_name"),
            *[F.col(f"{role}.ip").alias(f"_{role}") for role in self.query.roles],
            F.array_compact(F.array(*map(F.col, SUBJECTS))).alias("_about"),
            F.struct(F.lit("").alias("_"), *[a.alias(p) for p, a in carried.items()]).alias("_of"),
        )  # fmt: skip
        joined = once.join(facts, "event_uid")
        field_columns = {name: F.col("_said")[name] for name in names}
        field_columns |= {path: F.col("_of")[path] for path in carried}
        data_frames = [
            _name_and_value(name)
            for name in ("source", "src_ip", "dst_ip", "user_name", "host_name")
        ]
        return joined, {
            **{name: F.col(name) for name in _TAKEN},
            "finding_id": identity_of(F.lit(self.query.id), F.col("event_uid")),
            "event_time": F.col("time"),
            **self._role([F.col(f"_{role}") for role in self.query.roles]),
            "fields": _fields(field_columns),
            "snippet": _about(_or(F.col("message"), F.concat_ws(" ", *data_frames))),
        }

    def _role(self, addresses: list[Column]) -> dict[str, Column]:
        """The first endpoint that has an address, else the first: as in
        `alerts.matching.matcher`."""
        roles = self.query.roles
        named = zip(roles, addresses, strict=True)
        first = F.coalesce(*[F.when(ip != "", F.lit(role)) for role, ip in named])
        ip = F.coalesce(*[F.when(ip != "", ip) for ip in addresses])
        return {"role": F.coalesce(first, F.lit(roles[0])), "ip": ip}

    def _windows(self, rows: DataFrame) -> dict[str, Column]:
        """The columns of a finding about a window and a group."""
        query, names = self.query, rows.columns
        start, end = F.col("window.start"), F.col("window.end")
        micros, slide = query.window_seconds * 1_000_000, query.slide_seconds * 1_000_000
        fits = (F.unix_micros(end) - F.unix_micros(start) == micros) & (
            F.unix_micros(start) % slide == 0
        )
        other = f"its windows are not of {query.window_seconds} s, every {query.slide_seconds} s"
        # Other windows than declared would be looked at in parts; the query fails rather than
        # miscount.
        begins = F.when(fits, start).otherwise(F.raise_error(F.lit(other)).cast("timestamp"))
        time = F.coalesce(_col("time", names), start)
        # Kept inside the window, whose end belongs to the next one.
        greatest = F.greatest(start, F.least(time, end - F.expr("INTERVAL 1 MICROSECOND")))
        group = F.to_json(
            F.array(*[_text(name) for name in query.group_by]),
            # Left out, a null would make two different groups look the same.
            {"ignoreNullFields": "false"},
        )
        identity = identity_of(F.lit(query.id), F.unix_micros(start).cast("string"), group)
        field_columns = {name: _text(name) for name in names if name not in SHOWN_ELSEWHERE}
        ips = [_col("ip" if "ip" in names else ADDRESSES[role], names) for role in query.roles]
        evidence = _evidence(rows.schema) if "evidence" in names else F.lit(None)
        return {
            **{name: _col(name, names) for name in ("scope", "user_name", "host_name", "dst_ip")},
            "finding_id": identity,
            "event_uid": identity,
            "event_time": greatest,
            "received_at": F.coalesce(_col("received_at", names), end),
            "window_start": begins,
            "class_uid": _col("class_uid", names),
            "source": F.coalesce(_col("source", names), F.lit(query.type)),
            "mode": F.coalesce(_col("mode", names), F.lit("live")),
            **self._role([ip.cast("string") for ip in ips]),
            "fields": _fields(field_columns),
            "snippet": _line(
                F.concat_ws(" ", F.lit(f"{query.title}:"), *map(_name_and_value, field_columns))
            ),
            "evidence": evidence,
            "evidence_total": F.size(F.col("evidence")) if "evidence" in names else F.lit(1),
        }


_TAKEN = (
    "event_uid", "received_at", "class_uid", "source", "mode", "scope", "host_name", "user_name",
    "dst_ip",
)  # fmt: skip


def identity_of(*parts: Column) -> Column:
    """`alerts.domain.finding.identity` of columns of text."""
    framed = [
        F.concat(F.unhex(F.lpad(F.hex(F.octet_length(part)), 16, "0")), F.encode(part, "utf-8"))
        for part in parts
    ]
    return F.substring(F.sha2(F.concat(*framed), 256), 1, 32)


@lru_cache(maxsize=64)
def function_of(source: str) -> _Rule:
    """The function of a rule's Python source, which is run once a process.

    The module is in no `sys.modules`: so what of it goes to Spark's workers goes with its code.
    """
    name = f"headgate_rule_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    module = ModuleType(name)
    # `dont_inherit`: this module's `from __future__` imports must not change a person's code.
    exec(compile(source, f"<{name}>", "exec", dont_inherit=True), module.__dict__)
    return cast(_Rule, getattr(module, RULE))


def _col(name: str, names: Collection[str]) -> Column:
    return F.col(name) if name in names else F.lit(None)


def _text(name: str) -> Column:
    """A column of any name, as text."""
    return F.col("`" + name.replace("`", "``") + "`").cast("string")


def _or(*texts: Column) -> Column:
    """The first that is neither null nor empty."""
    return F.coalesce(*[F.when(text != "", text) for text in texts])


def _name_and_value(name: str) -> Column:
    value = _text(name)
    return F.when(value != "", F.concat(F.lit(f"{name}="), value))


def _line(text: Column) -> Column:
    """At most `SNIPPET_CHARS` characters on one line."""
    return F.substring(F.regexp_replace(text, r"\p{Cntrl}+", " "), 1, SNIPPET_CHARS)


def _about(text: Column) -> Column:
    """A line with what its event is about, where the line does not name it already."""
    line = F.coalesce(_line(text), F.lit(""))
    missing = F.filter("_about", lambda subject: ~F.contains(line, subject))
    about = _or(F.substring(_line(F.array_join(missing, " ")), 1, FIELD_CHARS))
    short = F.substring(line, F.lit(1), F.lit(SNIPPET_CHARS - 2) - F.length(about))
    return F.coalesce(F.concat(short, F.lit(": "), about), line)


def _named(text: Column) -> Column:
    """`alerts.domain.finding.named` of a column."""
    text = text.cast("string")
    digest = F.substring(F.sha2(F.encode(text, "utf-8"), 256), 1, DIGEST_CHARS)
    begins = F.substring(text, 1, NAME_CHARS - DIGEST_CHARS - 1)
    return F.when(F.length(text) <= NAME_CHARS, text).otherwise(
        F.concat(begins, F.lit("…"), digest)
    )


def _fields(shown: Mapping[str, Column]) -> Column:
    """Texts by name, those that are there."""
    if not shown:
        return F.create_map().cast("map<string,string>")
    pairs = [
        each
        for name, value in shown.items()
        for each in (F.lit(name), F.substring(value, 1, FIELD_CHARS))
    ]
    return F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())


def _at(path: str, schema: T.StructType) -> Column:
    """A path of silver.event, or a key of `unmapped`, as text; null where there is none."""
    place, _, key = path.partition(":")
    if key:
        return F.get_json_object("unmapped" if place == "unmapped" else "more", f"$.{key}")
    kind: T.DataType = schema
    for step in path.split("."):
        if not isinstance(kind, T.StructType) or step not in kind.fieldNames():
            return F.lit(None).cast("string")
        kind = kind[step].dataType
    return F.col(path).cast("string")


def _evidence(schema: T.StructType) -> Column:
    """The events that a window's row shows, at most ten, oldest first."""
    kind = schema["evidence"].dataType
    item = kind.elementType if isinstance(kind, T.ArrayType) else None
    names = item.fieldNames() if isinstance(item, T.StructType) else []
    if not {"event_uid", "time"} <= set(names):
        raise Untranslatable(
            "its `evidence` is no list of events",
            "slice(collect_list(struct(event_uid, time, message)), 1, 10) AS evidence",
        )

    def shown(one: Column) -> Column:
        text = one["message"] if "message" in names else F.lit(None)
        return F.struct(
            one["time"].alias("time"),
            one["event_uid"].alias("event_uid"),
            _line(text.cast("string")).alias("snippet"),
        )

    ordered = F.slice(F.array_sort(F.transform("evidence", shown)), 1, 10)
    return F.transform(ordered, lambda one: F.struct(one["event_uid"], one["time"], one["snippet"]))
