"""Events by time and by filters on columns: a page, how many by time, one with its raw bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from api.services.console.time_buckets import bucket_sql, bucket_start, step_of
from api.services.reader import (
    NewestFirst,
    Reader,
    ReaderRow,
    cursor_of,
    parse_instant,
    reader_cursor,
)
from infra.delta.plain_files import Span
from infra.errors import Usage
from infra.spark.sql_text import sql_text

_NEEDS = ("silver.event", "silver.events")
PAGE_EVENTS = 100
EXPORT_EVENTS = 5000
BUCKETS = 60
_AT_ONCE = 20
_MOST_VALUES = 50
"""Values of a list that an event's page shows."""
_COMMON = ("source", "class_name", "status", "src_ip", "user_name", "host_name")
_MOST_COMMON = 6
"""Columns whose most frequent values are shown beside the events, and how many of each."""

COLUMNS_OF_EVENTS: dict[str, str] = {
    "time": "time",
    "source": "source",
    "class_name": "class_name",
    "activity_name": "activity_name",
    "status": "status",
    "severity": "severity",
    "src_ip": "src_ip",
    "dst_ip": "dst_ip",
    "user_name": "user_name",
    "host_name": "host_name",
    "mac": "mac",
    "scope": "scope",
    "tenant_uid": "tenant_uid",
    "message": "message",
    "app_name": "app_name",
    "status_code": "status_code",
    "query": "query.hostname",
    "url": "http_request.url.url_string",
    "src_port": "src_endpoint.port",
    "dst_port": "dst_endpoint.port",
    "process": "process.name",
    "command": "process.cmd_line",
    "file": "file.path",
    "bytes": "traffic.bytes",
    "event_uid": "event_uid",
}
"""Columns that filters and tables name, and what they are in silver.events."""
USUAL = ("time", "source", "message", "src_ip", "dst_ip", "user_name", "host_name")
_SHOWN = {
    "message": "coalesce(message, nullif(concat_ws(' ', http_request.http_method,"
    " http_request.url.url_string, query.type, query.hostname, process.cmd_line), ''),"
    " concat_ws(' ', class_name, activity_name))"
}
"""Columns that show something else where they are empty."""

_WITH_TEXT = (
    "(contains(lower(message), lower($text)) OR src_ip = $text OR dst_ip = $text"
    " OR lower(user_name) = lower($text) OR lower(host_name) = lower($text)"
    " OR mac = lower($text) OR contains(lower(query.hostname), lower($text)))"
)
_FILTER = re.compile(r"([a-z_]+)(!=|=|~)(.*)", re.DOTALL)
# An empty column is not the value either; `<>` would leave such rows out.
_OPERATORS = {"=": "= ", "!=": "IS DISTINCT FROM ", "~": ""}


@dataclass(frozen=True)
class EventFilter:
    """`column=value`, `column!=value` or `column~part of it`."""

    column: str
    operator: str
    value: str

    @classmethod
    def of(cls, text: str) -> EventFilter:
        """Raises `Usage` for a column that there is not."""
        match = _FILTER.fullmatch(text.strip())
        if match is None or match[1] not in COLUMNS_OF_EVENTS or match[1] == "time":
            known = ", ".join(name for name in COLUMNS_OF_EVENTS if name != "time")
            raise Usage(f"f: '{text}': write column=value, != or ~ with one of {known}")
        return cls(match[1], match[2], match[3])

    def __str__(self) -> str:
        return f"{self.column}{self.operator}{self.value}"

    def sql(self, name: str) -> str:
        """The condition, its value by parameter `name`."""
        # As text: the value comes from a URL, and a port is a number in the table.
        column = f"CAST({COLUMNS_OF_EVENTS[self.column]} AS VARCHAR)"
        if self.operator == "~":
            return f"contains(lower({column}), lower(${name}))"
        return f"{column} {_OPERATORS[self.operator]}${name}"

    def spark(self) -> str:
        """The same in Spark SQL, for who goes on by hand."""
        column = COLUMNS_OF_EVENTS[self.column]
        value = sql_text(self.value)
        if self.operator == "~":
            return f"contains(lower({column}), lower({value}))"
        if self.operator == "!=":
            return f"({column} IS NULL OR {column} <> {value})"
        return f"{column} = {value}"


@dataclass(frozen=True)
class EventQuestion:
    """Which events are looked for."""

    since: datetime
    until: datetime
    text: str = ""
    filters: tuple[EventFilter, ...] = ()

    def sql(self) -> tuple[str, ReaderRow]:
        """Conditions and their parameters."""
        conditions = ["time >= $since", "time < $until"]
        params: ReaderRow = {"since": self.since, "until": self.until}
        if self.text:
            conditions.append(_WITH_TEXT)
            params["text"] = self.text
        for number, each in enumerate(self.filters):
            conditions.append(each.sql(f"f{number}"))
            params[f"f{number}"] = each.value
        return " AND ".join(conditions), params

    def spark(self, columns: Sequence[str]) -> str:
        """A statement in Spark SQL that asks the same."""
        selected = ", ".join(
            name if COLUMNS_OF_EVENTS[name] == name else f"{COLUMNS_OF_EVENTS[name]} AS {name}"
            for name in columns
        )
        conditions = [
            f"time >= TIMESTAMP '{self.since:%Y-%m-%d %H:%M:%S}'",
            f"time < TIMESTAMP '{self.until:%Y-%m-%d %H:%M:%S}'",
            *(each.spark() for each in self.filters),
        ]
        if self.text:
            conditions.append(_WITH_TEXT.replace("$text", sql_text(self.text)))
        return (
            f"SELECT {selected}\nFROM silver.events\nWHERE "
            + "\n  AND ".join(conditions)
            + f"\nORDER BY time DESC LIMIT {PAGE_EVENTS}"
        )


def events(
    reader: Reader, asked: EventQuestion, columns: Sequence[str], limit: int, cursor: str | None
) -> tuple[list[ReaderRow], str | None]:
    """One page, newest first, and the cursor of the next."""
    condition, params = asked.sql()
    question = {name: str(value) for name, value in params.items()}
    if cursor:
        time, uid = reader_cursor(cursor, question, 2)
        params |= {"after": parse_instant(time), "after_uid": uid}
        # By place and not by OFFSET: events that arrive meanwhile would move the pages.
        condition += " AND (time < $after OR (time = $after AND event_uid < $after_uid))"
    selected = ", ".join(
        f"{_SHOWN.get(name, COLUMNS_OF_EVENTS[name])} AS {name}" for name in columns
    )
    # One more than the page tells whether there is another.
    rows = reader.rows(
        f"SELECT {selected}, time AS at_time, event_uid AS uid FROM silver.events"
        f" WHERE {condition} ORDER BY at_time DESC, uid DESC LIMIT {limit + 1}",
        params,
        needs=_NEEDS,
        within=_within(asked, params.get("after")),
        narrow=True,
        newest=NewestFirst("silver.event", "at_time", limit + 1),
    )
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    after = cursor_of(question, last["at_time"].isoformat(), last["uid"]) if last else None
    return page, after


def every_event(
    reader: Reader, asked: EventQuestion, columns: Sequence[str]
) -> Iterator[ReaderRow]:
    """All of them, page after page."""
    cursor = None
    while True:
        page, cursor = events(reader, asked, columns, EXPORT_EVENTS, cursor)
        yield from page
        if cursor is None:
            return


@dataclass(frozen=True)
class EventSummary:
    """How many events a question has."""

    step: timedelta
    """How wide a bucket is."""
    buckets: list[datetime]
    """When each begins, empty ones too."""
    series: dict[str, list[int]]
    """Events by class in each bucket, the most frequent class first."""
    common: dict[str, list[tuple[str, int]]]
    """The values that are most frequent, by column."""


def event_summary(reader: Reader, question: EventQuestion) -> EventSummary:
    """The events counted in one look at them, by time and class and by their usual columns."""
    condition, params = question.sql()
    seconds = max(1, round((question.until - question.since).total_seconds() / BUCKETS))
    # Round widths, which a person can read off an axis.
    # Beyond the longest whole weeks.
    longer = -(-seconds // _STEPS[-1]) * _STEPS[-1]
    step = timedelta(seconds=next((s for s in _STEPS if s >= seconds), longer))
    counted = ", ".join(f"CAST({COLUMNS_OF_EVENTS[name]} AS VARCHAR) AS {name}" for name in _COMMON)
    sets = ", ".join(f"({name})" for name in _COMMON)
    which = " ".join(f"WHEN GROUPING({name}) = 0 THEN '{name}'" for name in _COMMON)
    rows = reader.rows(
        f"WITH counts AS (SELECT bucket, class_name, CASE WHEN GROUPING(bucket) = 0 THEN ''"
        f" {which} END AS name, coalesce({', '.join(_COMMON)}) AS value, count(*) AS n"
        f" FROM (SELECT {bucket_sql('time')} AS bucket, {counted} FROM silver.events"
        f" WHERE {condition}) GROUP BY GROUPING SETS ((bucket, class_name), {sets}))"
        " SELECT * FROM counts WHERE name = '' OR value IS NOT NULL QUALIFY name = ''"
        f" OR row_number() OVER (PARTITION BY name ORDER BY n DESC, value) <= {_MOST_COMMON}"
        " ORDER BY name, n DESC, value",
        params | {"step": step_of(step)},
        needs=_NEEDS,
        within=_within(question),
        narrow=True,
    )
    first = bucket_start(question.since, step)
    buckets = [first + n * step for n in range(int((question.until - first) / step) + 1)]
    place = {bucket: number for number, bucket in enumerate(buckets)}
    series: dict[str, list[int]] = {}
    common: dict[str, list[tuple[str, int]]] = {name: [] for name in _COMMON}
    for row in rows:
        if row["name"]:
            common[row["name"]].append((row["value"], row["n"]))
            continue
        values = series.setdefault(row["class_name"] or "?", [0] * len(buckets))
        if row["bucket"] in place:
            values[place[row["bucket"]]] += row["n"]
    return EventSummary(
        step,
        buckets,
        dict(sorted(series.items(), key=lambda item: -sum(item[1]))),
        {name: counts for name, counts in common.items() if counts},
    )


_STEPS = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800)


def _within(asked: EventQuestion, after: datetime | None = None) -> dict[str, Span]:
    return {"silver.event": ("time", asked.since, after or asked.until)}


def one_event(reader: Reader, uid: str, near: datetime | None) -> ReaderRow | None:
    """An event with all its fields; `near`: its time, which spares looking through all files."""
    window = " AND time >= $low AND time <= $high" if near else ""
    params: ReaderRow = {"uid": uid}
    if near:
        params |= {"low": near - timedelta(seconds=2), "high": near + timedelta(seconds=2)}
    rows = reader.rows(
        f"SELECT * FROM silver.event WHERE event_uid = $uid{window} LIMIT 1",
        params,
        needs=("silver.event",),
        within={"silver.event": ("time", params["low"], params["high"])} if near else None,
    )
    return rows[0] if rows else None


def raw_records(reader: Reader, event: ReaderRow) -> list[ReaderRow]:
    """The bytes that an event was read from."""
    received = event["received_at"]
    return reader.rows(
        'SELECT record_id, source, received_at, topic, partition, "offset", raw'
        " FROM bronze.record WHERE list_contains($ids, record_id)"
        # Bounds on arrival let DuckDB pass over the files of other days.
        " AND received_at >= $low AND received_at <= $high LIMIT $most",
        {
            "ids": list(event["record_ids"] or ())[:_AT_ONCE],
            "low": received - timedelta(hours=1),
            "high": received + timedelta(hours=1),
            "most": _AT_ONCE,
        },
        needs=("bronze.record",),
        within={
            "bronze.record": (
                "received_at",
                received - timedelta(hours=1),
                received + timedelta(hours=1),
            )
        },
    )


def finding_behind(reader: Reader, uid: str) -> ReaderRow | None:
    """The finding of a correlation: its id stands where others have an event's."""
    rows = reader.rows(
        "SELECT rule_title, event_time, snippet, evidence FROM gold.finding"
        " WHERE event_uid = $uid LIMIT 1",
        {"uid": uid},
        needs=("gold.finding",),
    )
    return rows[0] if rows else None


def filled(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of an event that have a value, by their path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from filled(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        # A page cannot show thousands of values of one list.
        for number, inner in enumerate(value[:_MOST_VALUES]):
            yield from filled(inner, f"{path}[{number}]")
        if len(value) > _MOST_VALUES:
            yield f"{path}[{_MOST_VALUES}...]", f"and {len(value) - _MOST_VALUES:,} more"
    elif value is not None:
        yield path, value
