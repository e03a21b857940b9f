"""Fields that are new are named once; ten thousand of them fill no table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ingest.quality.self_events import NAMED, of_drift
from ingest.quality.unmapped_fields import (
    MOST_FIELDS,
    NONE,
    OPEN,
    OTHERS,
    Field,
    known_fields,
    learn,
    write_fields,
)
from ingest.tables import EVENT
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, rows

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
LINE = {"ts": 1795176000.5, "uid": "C1", "id.orig_h": "10.0.0.9", "id.resp_h": "10.0.0.1"}


class Silver:
    """silver.event and ops.drift, as far as drift reads them."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        self.engine = duckdb.connect(":memory:")
        for sql in (
            "SET TimeZone = 'UTC'",
            "CREATE SCHEMA silver",
            "CREATE SCHEMA ops",
            "CREATE TABLE silver.event (source TEXT, received_at TIMESTAMPTZ, event_uid TEXT, "
            "unmapped TEXT, dead_letter_reason TEXT)",
            "CREATE TABLE ops.drift (source TEXT, field TEXT)",
        ):
            self.engine.execute(sql)
        self._hour = 0

    def learn(self, events: Iterable[tuple[str, Any]]) -> list[Field]:
        """An hour with these events (source, unmapped), and the run after it."""
        since = AT + timedelta(hours=self._hour)
        self._hour += 1
        added = [
            (source, since, f"e{self._hour}.{n}", None if found is None else json.dumps(found))
            for n, (source, found) in enumerate(events)
        ]
        self.engine.executemany("INSERT INTO silver.event VALUES (?, ?, ?, ?, NULL)", added)
        known = known_fields(self.engine, self.spool)
        fields = learn(self.engine, known, since, since + timedelta(hours=1))
        write_fields(self.spool, fields)
        return fields

    def fold(self) -> int:
        """What the driver does with the spool; how many rows ops.drift then has."""
        for file in self.spool.glob("*.json"):
            row = json.loads(file.read_text())
            values = [row["source"], row["field"]]
            self.engine.execute("INSERT INTO ops.drift VALUES (?, ?)", values)
            file.unlink()
        row = self.engine.execute("SELECT count(*) FROM ops.drift").fetchone()
        return int(row[0]) if row else 0


def names(fields: Sequence[Field]) -> list[str]:
    return sorted(one.field for one in fields)


def test_the_first_look_is_the_baseline_and_only_what_comes_later_is_new(tmp_path: Path) -> None:
    silver = Silver(tmp_path)
    first = silver.learn([("zeek:dns", {"AA": 1}), ("zeek:dns", {"AA": 2, "Z": {"a": 1}})])
    assert names(first) == ["AA", "Z", "Z.a"]
    assert all(one.baseline for one in first)
    assert {one.field: one.rows for one in first} == {"AA": 2, "Z": 1, "Z.a": 1}
    assert silver.learn([("zeek:dns", {"AA": 1})]) == []
    (new,) = silver.learn([("zeek:dns", {"AA": 1, "added": 7}), ("zeek:dns", {"added": 8})])
    assert (new.field, new.rows, new.baseline, new.event_uid) == ("added", 2, False, "e3.0")
    assert new.first_seen == AT + timedelta(hours=2)
    assert silver.learn([("zeek:dns", {"added": 9})]) == []


def test_what_is_known_is_known_folded_or_waiting(tmp_path: Path) -> None:
    silver = Silver(tmp_path)
    silver.learn([("okta", {"a": 1})])
    assert silver.fold() == 1
    assert silver.learn([("okta", {"a": 1})]) == []
    assert names(silver.learn([("okta", {"b": 1})])) == ["b"]
    assert silver.learn([("okta", {"a": 1, "b": 1})]) == []
    assert silver.fold() == 2


def test_a_source_without_any_such_field_has_a_baseline_too(tmp_path: Path) -> None:
    silver = Silver(tmp_path)
    assert names(silver.learn([("sshd", None)])) == [NONE]
    assert silver.learn([("sshd", None)]) == []
    (new,) = silver.learn([("sshd", {"grown": 1})])
    assert (new.field, new.baseline) == ("grown", False)


def test_fields_below_others_are_found_to_a_depth_also_in_lists(tmp_path: Path) -> None:
    silver = Silver(tmp_path)
    silver.learn([("okta", {"a": {"b": 1}})])
    found = silver.learn([("okta", {"a": {"c": {"d": {"e": 1}}}, "l": [{"m": 1}, {"n": 2}, 3]})])
    assert names(found) == ["a.c", "a.c.d", "l", "l.m", "l.n"]


def test_a_place_with_very_many_keys_is_one_field(tmp_path: Path) -> None:
    silver = Silver(tmp_path)
    first = silver.learn([("aws", {"tags": {f"k{n}": {"v": 1} for n in range(OPEN + 1)}})])
    assert names(first) == ["tags", "tags.*"]
    assert silver.learn([("aws", {"tags": {"quite new": 1}})]) == []


@pytest.mark.full
def test_ten_thousand_keys_fill_neither_the_table_nor_the_schema(tmp_path: Path) -> None:
    silver = Silver(tmp_path)
    columns = len(EVENT.columns)
    silver.learn([("json", {"known": 1})])
    hostile = [("json", {f"k{n}": 1, "known": 1}) for n in range(10_000)]
    found = silver.learn(hostile)
    assert len(found) == MOST_FIELDS
    (others,) = (one for one in found if one.field == OTHERS)
    assert others.rows == 10_000 - (MOST_FIELDS - 1)
    assert silver.learn([("json", {f"x{n}": 1}) for n in range(10_000)]) == []
    assert silver.fold() == MOST_FIELDS + 1
    (one,) = of_drift(found, AT)
    assert len(one["fields"]) == NAMED
    assert one["field_count"] == MOST_FIELDS

    raw = json.dumps(LINE | {f"k{n}": n for n in range(10_000)}).encode()
    (row,) = rows("zeek:dns", raw)
    assert row.get("dead_letter_reason") is None
    assert len(json.loads(row["unmapped"])) == 10_000
    assert misfits(row) == []
    assert len(EVENT.columns) == columns


def test_a_key_of_any_length_is_cut(tmp_path: Path) -> None:
    silver = Silver(tmp_path)
    (one,) = silver.learn([("json", {"k" * 100_000: 1})])
    assert len(one.field) == 120


def test_a_record_names_the_new_fields_of_one_source_and_none_of_a_baseline() -> None:
    fields = [
        Field("zeek:dns", "b", AT, 1, "e1"),
        Field("zeek:dns", "a", AT, 9, "e2"),
        Field("okta", "c", AT, 1, "e3"),
        Field("sshd", "d", AT, 1, "e4", baseline=True),
    ]
    told = list(of_drift(fields, AT))
    assert [one["drifting_source"] for one in told] == ["zeek:dns", "okta"]
    row = good("headgate", json.dumps(told[0]))
    assert row["metadata"]["event_code"] == "field_drift"
    assert row["message"] == "zeek:dns: fields not seen before: b, a"
    assert faults(row) == []
    assert misfits(row) == []
    assert [one["uid"] for one in of_drift(fields, AT + timedelta(days=1))] == [
        one["uid"] for one in told
    ]


def test_a_field_that_a_product_renames_is_found_in_unmapped() -> None:
    row = good("zeek:dns", json.dumps(LINE | {"querystring": "example.com"}))
    assert json.loads(row["unmapped"])["querystring"] == "example.com"
