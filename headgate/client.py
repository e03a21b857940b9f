"""`Headgate`: a lake as notebooks and scripts see it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import headgate.packages  # noqa: F401  makes the tables known
from headgate.homes import require_lake
from headgate.lake_tables import LakeTables
from headgate.result import QueryResult, result_of
from infra.config.settings import Settings, load
from infra.config.time_args import instant
from infra.errors import Usage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from api.models import AddressHolder, Witnesses
    from api.services.reader import Reader
    from api.sql.allowlist import Scalar
    from headgate.duck_queries import DuckQueries
    from headgate.models import ModelBook
    from headgate.rules import BacktestReport, RuleBook, RuleDraft
    from infra.streaming.lake import Lake

Time = datetime | str
"""An instant: aware, or as text with its zone, such as `2026-11-20T14:05:07Z`."""

MOST_ROWS = 100_000
PAGE = 500


def open_client(
    home: str | Path | None, config: str | Path | None, spark: SparkSession | None
) -> Headgate:
    """As `headgate.open`."""
    overrides = {} if home is None else {"home": Path(home)}
    settings = load(None if config is None else Path(config), **overrides)
    # A home that was misspelt is refused here; looking must not make an empty lake.
    require_lake(settings)
    return Headgate(settings, spark)


class Headgate:
    """One lake. Made by `headgate.open`; used in a `with`, it lets go of its engines at the end."""

    def __init__(self, settings: Settings, spark: SparkSession | None) -> None:
        self._settings = settings
        self._given = spark
        self._own: SparkSession | None = None

    @property
    def home(self) -> Path:
        """The home's folder."""
        return self._settings.home.absolute()

    @cached_property
    def tables(self) -> LakeTables:
        """The tables by name, each with its doc, columns and rows."""
        # Imports stand inside: `import headgate` in a notebook must not wait for Spark and DuckDB.
        from infra.delta.catalog import catalog

        return LakeTables(self, catalog())

    @cached_property
    def views(self) -> LakeTables:
        """The views by name: questions that are asked often."""
        from infra.delta.catalog import views

        return LakeTables(self, views())

    @cached_property
    def rules(self) -> RuleBook:
        """The rules: list, test, preview, draft, switch on and off."""
        from headgate.rules import RuleBook

        return RuleBook(self._settings, lambda: self.spark)

    @cached_property
    def models(self) -> ModelBook:
        """The anomaly models of rules: train, judge days, put one in force."""
        from headgate.models import ModelBook

        return ModelBook(self._settings, lambda: self._lake)

    @property
    def spark(self) -> SparkSession:
        """A Spark session that knows tables and views by name; started when first asked for."""
        return self._lake.spark

    def sql(
        self,
        text: str,
        *,
        engine: Literal["duckdb", "spark"] = "duckdb",
        as_of: Time | None = None,
        params: Mapping[str, Scalar] | None = None,
        max_rows: int = MOST_ROWS,
    ) -> QueryResult:
        """One SELECT in Spark SQL; `:name` stands for a value of `params`.

        `engine`: DuckDB answers in this process at once; Spark knows all of Spark SQL. `as_of`:
        over the tables as they were then, by DuckDB. A result cut at `max_rows` says so.
        """
        if engine not in ("duckdb", "spark"):
            raise Usage(f"engine '{engine}': take 'duckdb' or 'spark'")
        if max_rows < 1:
            raise Usage(f"max_rows {max_rows}: must be at least 1")
        moment = None if as_of is None else _instant("as_of", as_of)
        if engine == "duckdb":
            result = self._duck.ask(text, params or {}, max_rows, moment)
        elif moment is not None:
            raise Usage("as_of goes with engine='duckdb'; Spark reads a table's newest version")
        else:
            # One row more than asked tells a cut answer from a whole one.
            table = self.spark.sql(text, dict(params or {})).limit(max_rows + 1).toArrow()
            result = QueryResult(table.slice(0, max_rows), truncated=table.num_rows > max_rows)
        if result.truncated:
            # `stacklevel` points at the caller's cell and not at this file.
            warnings.warn(f"cut after {max_rows:,} rows; raise max_rows for more", stacklevel=2)
        return result

    def lease(
        self, ip: str, at: Time, *, scope: str | None = None, known_by: Time | None = None
    ) -> AddressHolder:
        """Who held an address at an instant, with the lease that proves it and how sure that is.

        `scope`: the site, where several use the same address. `known_by`: as it was known then.
        """
        from api.services.entities.leases import holder

        return holder(
            self._reader,
            self._settings.scopes,
            _address(ip),
            _instant("at", at),
            scope,
            None if known_by is None else _instant("known_by", known_by),
        )

    def who(self, value: str, at: Time, *, scope: str | None = None) -> Witnesses:
        """Users of an address, MAC address or host at an instant, by VPN, Kerberos, logons, SSH."""
        from api.services.entities.user_evidence import witnesses
        from api.who_cli import _kind_of

        moment = _instant("at", at)
        return witnesses(self._reader, self._settings, _kind_of(value), value, moment, scope)

    def parse(
        self,
        raw: str | bytes,
        source: str,
        *,
        received_at: Time | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> list[dict[str, Any]]:
        """The events of one raw record, as ingest would make them; nothing is kept.

        What cannot be read is one event with `dead_letter_reason`. Raises `Usage` for a source
        that does not exist.
        """
        from ingest.parsing.event_rows import event_rows
        from ingest.parsing.source import ParseSettings, Record, lookup

        # Before anything is parsed: an unknown source would otherwise end as a dead letter.
        lookup(source)
        received = _instant("received_at", received_at or datetime.now(UTC))
        # Bronze keeps bytes, and a parser reads bytes.
        data = raw.encode() if isinstance(raw, str) else raw
        record = Record("parse:0:0", source, "live", received, data, dict(headers or {}))
        return event_rows([record], ParseSettings.of(self._settings))

    def read_kafka(self, *sources: str) -> DataFrame:
        """Events of these sources from Kafka as a stream, parsed as ingest parses them.

        A streaming DataFrame in the shape of `silver.event`, from the topics' beginning; join it,
        and write it with `writeStream`. Raises `Usage` for a source without a topic.
        """
        from headgate.kafka_stream import parsed_stream

        return parsed_stream(self.spark, self._settings, sources)

    def alerts(
        self,
        *,
        level: str | None = None,
        rule: str | None = None,
        entity: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        muted: bool = False,
        limit: int = 1_000,
    ) -> QueryResult:
        """Alerts in their newest revision, the newest first event first.

        `rule`: id; `entity`: MAC address, address, host or user. `muted`: also what a suppression
        or a budget kept from the topic.
        """
        from api.services.alert_filter import AlertFilter
        from api.services.alerts import alerts

        wanted = AlertFilter(
            levels=(level,) if level else (),
            rule_id=rule,
            entity=entity,
            since=None if since is None else _instant("since", since),
            until=None if until is None else _instant("until", until),
            muted=muted,
        )
        return _paged(lambda many, cursor: alerts(self._reader, wanted, many, cursor), limit)

    def kafka_alerts(self, *, limit: int = 10_000) -> QueryResult:
        """Alerts as programs get them: revisions on Kafka's topic, oldest first, up to its end.

        Raises `Retryable` where the broker or the topic is not there.
        """
        from headgate.kafka_alerts import topic_alerts

        if limit < 1:
            raise Usage(f"limit {limit}: must be at least 1")
        result = topic_alerts(self._settings, limit)
        if result.truncated:
            warnings.warn(f"cut after {limit:,} rows; raise limit for more", stacklevel=2)
        return result

    def timeline(
        self,
        value: str,
        since: Time,
        until: Time,
        *,
        kind: Literal["ip", "mac", "user", "host", "domain"] | None = None,
        limit: int = 1_000,
    ) -> QueryResult:
        """Events, findings, alerts and leases of one entity in [since, until), newest first.

        `kind`: what the value is; none: an address or a MAC address by its form, else a host.
        """
        from api.services.entities.timeline import timeline
        from api.who_cli import _kind_of

        about: Any = kind or _kind_of(value)
        begin, end = _instant("since", since), _instant("until", until)
        return _paged(
            lambda many, cursor: timeline(self._reader, about, value, begin, end, many, cursor),
            limit,
        )

    def backtest(
        self,
        rule: str | RuleDraft,
        since: Time,
        until: Time | None = None,
        *,
        against: str | RuleDraft | None = None,
        progress: bool = False,
    ) -> BacktestReport:
        """What a rule would have raised over [since, until), as the jobs would have.

        The same matcher and state, attribution as it was known then. `rule`: id, name, or a draft.
        `against`: another rule or draft, or `current`; the report then has what is gained and lost.
        `progress`: print how far it is.
        """
        begin = _instant("since", since)
        end = datetime.now(UTC) if until is None else _instant("until", until)
        return self.rules.run_backtest(lambda: self._lake, rule, begin, end, against, progress)

    def close(self) -> None:
        """End what was started here: the engines, and Spark where it was not given."""
        for name in ("_duck", "_reader"):
            # What was never asked for is not started only to be closed.
            if name in self.__dict__:
                self.__dict__.pop(name).close()
        self.__dict__.pop("_lake", None)
        # A session that was given belongs to whoever gave it.
        if self._own is not None:
            self._own.stop()
            self._own = None

    def __enter__(self) -> Headgate:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Headgate on {self._settings.lake_root}"

    @cached_property
    def _duck(self) -> DuckQueries:
        from headgate.duck_queries import DuckQueries

        return DuckQueries(self._settings)

    @cached_property
    def _reader(self) -> Reader:
        from api.services.reader import Reader

        return Reader(self._settings)

    @cached_property
    def _lake(self) -> Lake:
        from infra.spark.session import session
        from infra.streaming.lake import Lake

        running = self._given
        if running is None:
            running = self._own = session(self._settings, "headgate notebook")
        # `register` makes tables and views known by name, which a path-based lake does not by
        # itself.
        return Lake(running, self._settings).register()


def _instant(name: str, value: Time) -> datetime:
    if isinstance(value, str):
        return instant(name, value)
    # A naive time would be read in the zone of whoever's machine this is.
    if value.tzinfo is None:
        raise Usage(f"{name} {value}: name the zone, such as datetime(..., tzinfo=UTC)")
    return value


def _address(value: str) -> str:
    try:
        return str(ip_address(value))
    except ValueError:
        raise Usage(f"'{value}' is not an IP address") from None


def _paged(page_of: Any, limit: int) -> QueryResult:
    """Rows of all pages up to a limit, what lies in an entity as columns of its own."""
    if limit < 1:
        raise Usage(f"limit {limit}: must be at least 1")
    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        # In pages, as the API serves them: one code path for both.
        page = page_of(min(PAGE, limit - len(rows)), cursor)
        rows += [_flat(item) for item in page.items]
        cursor = page.next
        if cursor is None or len(rows) >= limit:
            break
    result = result_of(rows)
    if cursor is not None:
        warnings.warn(f"cut after {limit:,} rows; raise limit for more", stacklevel=3)
    return QueryResult(result.arrow(), truncated=cursor is not None)


def _flat(item: Any) -> dict[str, Any]:
    row: dict[str, Any] = item.model_dump()
    entity = row.pop("entity", None)
    if entity is not None:
        row |= {"entity_type": entity["type"], "entity": entity["value"]}
    return row
