"""The tests that a rule in SQL or Python brings, and its preview: both run it on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from alerts.compiler.sigma_to_predicate import Untranslatable
from alerts.matching.event_rows import event_batch
from alerts.rulepack.rule_pack import Query
from alerts.spark_rules.plan import failure_sentence
from alerts.spark_rules.rule import QueryRule
from alerts.tables import FINDING
from infra.config.settings import Settings
from infra.errors import Fatal, Usage
from infra.spark.session import session
from infra.streaming.lake import Lake
from ingest.tables import EVENT

_Row = dict[str, Any]


@contextmanager
def running(settings: Settings) -> Iterator[SparkSession]:
    """A Spark session, which is ended if it was not there before."""
    before = SparkSession.getActiveSession()
    spark = session(settings, "headgate rules")
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def require_fit(spark: SparkSession, queries: Sequence[Query]) -> None:
    """Raise `Usage`, naming the rule, for a query that may not go live."""
    for query in queries:
        try:
            QueryRule(query).check(spark)
        except Untranslatable as error:
            raise Usage(f"rule '{query.title}' is refused: {error}; {error.remedy}") from None


def query_matches(spark: SparkSession, query: Query, events: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the query finds anything among events in the shape of silver.event.

    Raises `Fatal` for a query that may not go live or fails, and for a name that silver.event
    does not have.
    """
    _require_fit(spark, query)
    rows = spark.createDataFrame(event_batch(events).to_pylist(), EVENT.schema)
    try:
        return bool(QueryRule(query).findings(rows).take(1))
    except Exception as error:  # a person's query may raise anything
        raise Fatal(failure_sentence(error)) from None


@lru_cache(maxsize=64)
def _require_fit(spark: SparkSession, query: Query) -> None:
    """As `QueryRule.check`, which takes Spark a while: once for all tests of a rule."""
    QueryRule(query).check(spark)


def preview_query(
    settings: Settings, query: Query, since: datetime, limit: int
) -> tuple[list[_Row], int, int]:
    """The oldest `limit` findings, how many there are in all, and how many events were looked
    at."""
    with running(settings) as spark:
        require_fit(spark, [query])
        lake = Lake(spark, settings).ensure(EVENT, FINDING)
        events = lake.read(EVENT).where(F.col("time") >= F.lit(since))
        findings = QueryRule(query).findings(events)
        oldest = findings.orderBy("event_time", "finding_id").limit(limit)
        try:
            rows = [row.asDict(recursive=True) for row in oldest.collect()]
            total = findings.count() if len(rows) == limit else len(rows)
        except Exception as error:  # a person's query may raise anything
            raise Usage(f"rule '{query.title}': {failure_sentence(error)}") from None
        for row in rows:
            row["event_time"] = row["event_time"].astimezone(UTC)
        return rows, total, events.count()
