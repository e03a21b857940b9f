"""Comparing what a source reads many records at once with what it reads one by one."""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from infra.delta.parquet_writer import arrow_schema
from ingest.parsing.arrow_parser import records_of, to_arrow
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, lookup
from ingest.tables import RECORD

SETTINGS = ParseSettings(scopes=(("north", ("sensor-1",)), ("default", ())))
RECORD_ARROW = arrow_schema(RECORD)


def records(source: str, raws: list[bytes], headers: Any = None) -> pa.RecordBatch:
    """Rows of bronze.record, a raw record each."""
    when = datetime(2026, 11, 21, 4, tzinfo=UTC)
    return pa.RecordBatch.from_pylist(
        [
            {
                "record_id": f"t:0:{number}",
                "source": source,
                "mode": "live",
                "received_at": when,
                "raw": raw,
                "headers": headers,
            }
            for number, raw in enumerate(raws)
        ],
        schema=RECORD_ARROW,
    )


def plain(rows: pa.RecordBatch, *, by_key: bool = True) -> list[dict[str, Any]]:
    """Rows as Python has them; their order says nothing, nor, `by_key`, that of keys in
    `unmapped`."""
    result = sorted(rows.to_pylist(), key=lambda row: row["event_uid"])
    for row in result if by_key else ():
        row["unmapped"] = json.loads(row["unmapped"]) if row["unmapped"] else None
    return result


def agree(
    source: str, raws: list[bytes], settings: ParseSettings = SETTINGS, *, by_key: bool = True
) -> int:
    """How many were read at once; fails where one of them differs, `by_key` in more than the order
    of keys in `unmapped`."""
    # Part of a longer batch, as most are that a worker gets.
    batch = records(source, [b"before", *raws]).slice(1)
    at_once = lookup(source).columns(batch, settings)
    assert at_once is not None
    left = set(at_once.left)
    others = [each for number, each in enumerate(records_of(batch)) if number not in left]
    if at_once.events is None:
        assert not others
        return 0
    at_once.events.validate(full=True)
    one_by_one = to_arrow(event_rows(others, settings))
    assert plain(at_once.events, by_key=by_key) == plain(one_by_one, by_key=by_key)
    return len(others)


def texts_in(*modules: ModuleType) -> set[str]:
    """The texts of several words in modules of tests, whatever they stand for."""
    return {
        node.value
        for module in modules
        for node in ast.walk(ast.parse(Path(module.__file__ or "").read_text()))
        if isinstance(node, ast.Constant) and type(node.value) is str and " " in node.value
    }
