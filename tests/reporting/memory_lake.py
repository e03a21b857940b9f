"""Tables and views of the catalogue in an in-memory DuckDB: reports are tested without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

import headgate.packages  # noqa: F401  makes the tables known
from infra.config.settings import load
from infra.delta.duckdb_views import bare_engine, definitions
from reporting.document.request import ReportRequest
from reporting.interval import Interval, parse_interval
from tests.api import story

MADE = datetime(2026, 11, 21, 6, tzinfo=UTC)


class MemoryLake:
    """Every table, empty, and every view over them."""

    def __init__(self, memory: str = "512MB") -> None:
        self.connection: duckdb.DuckDBPyConnection = bare_engine(memory=memory, threads=1)
        self.columns: dict[str, list[tuple[str, str]]] = {}
        for definition in definitions(Path("/nowhere")):
            layer = definition.name.partition(".")[0]
            self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {layer}")
            if definition.folder is None:
                self.connection.execute(f"CREATE VIEW {definition.name} AS {definition.sql}")
                continue
            self.columns[definition.name] = list(definition.columns)
            columns = ", ".join(f'"{name}" {kind}' for name, kind in definition.columns)
            self.connection.execute(f"CREATE TABLE {definition.name} ({columns})")

    def add(self, table: str, rows: Iterable[Mapping[str, Any]]) -> MemoryLake:
        """Append rows; columns that they lack are null."""
        kinds = dict(self.columns[table])
        whole = [dict(row) for row in rows]
        for names in sorted({tuple(sorted(row)) for row in whole}):
            assert not set(names) - kinds.keys(), f"{table}: no column {set(names) - kinds.keys()}"
            alike = [row for row in whole if tuple(sorted(row)) == names]
            quoted = ", ".join(f'"{name}"' for name in names)
            into = f"INSERT INTO {table} ({quoted})"
            if any("(" in kinds[name] or kinds[name].endswith("[]") for name in names):
                marks = ", ".join(f"CAST(? AS {kinds[name]})" for name in names)
                for row in alike:
                    values = [_plain(row[name]) for name in names]
                    self.connection.execute(f"{into} VALUES ({marks})", values)
                continue
            # A thousand rows one by one take seconds.
            casts = ", ".join(f"CAST(r ->> '$.\"{name}\"' AS {kinds[name]})" for name in names)
            self.connection.execute(
                f"{into} SELECT {casts} FROM (SELECT unnest(CAST(? AS JSON[])) AS r)",
                [json.dumps(alike, default=_plain)],
            )
        return self

    def request(
        self, home: Path, interval: Interval | str = "2026-11-20", subject: str = "", **more: Any
    ) -> ReportRequest:
        """A request for a report over these tables, the settings of an own home."""
        if isinstance(interval, str):
            interval = parse_interval(interval)
        return ReportRequest(load(home=home, **more), self.connection, interval, MADE, subject)


def story_in_memory() -> MemoryLake:
    """The day of `tests.api.story`."""
    lake = MemoryLake()
    for table, rows in (
        ("bronze.record", story.RECORDS),
        ("silver.event", story.EVENTS),
        ("silver.dhcp_segment", story.SEGMENTS),
        ("gold.finding", story.FINDINGS),
        ("gold.attribution", story.ATTRIBUTIONS),
        ("gold.alert", story.ALERTS),
        ("ops.ledger", [story.batch("ingest", 0, "13:05"), story.batch("sessions", 0, "13:06")]),
    ):
        lake.add(table, rows)
    return lake


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.decode() if isinstance(value, bytes) else value
