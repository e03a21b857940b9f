"""The rows that lists ask are those of gold.alert, whatever was committed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alerts.lifecycle.risk_score import INCIDENT
from alerts.tables import ALERT
from api.services.alert_index import INDEX, KINDS, AlertIndex
from infra.delta.parquet_writer import arrow_schema
from tests.api.story import Row, alert


class Log:
    """A table by its files and its log, and an engine that sees it as gold.alert."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "gold" / "alert"
        (self.folder / "_delta_log").mkdir(parents=True)
        self.files: list[str] = []
        self.version = -1

    def commit(
        self, rows: Sequence[Row] = (), removed: Sequence[str] = (), *, changes: bool = True
    ) -> None:
        self.version += 1
        actions: list[dict[str, Any]] = [{"metaData": {"id": "t"}}] if self.version == 0 else []
        if rows:
            name = f"{self.version}.parquet"
            table = pa.Table.from_pylist(list(rows), schema=arrow_schema(ALERT))
            pq.write_table(table, self.folder / name)
            self.files.append(name)
            actions.append({"add": {"path": name, "dataChange": changes}})
        for name in removed:
            self.files.remove(name)
            actions.append({"remove": {"path": name, "dataChange": changes}})
        text = "\n".join(json.dumps(action) for action in actions)
        (self.folder / "_delta_log" / f"{self.version:020d}.json").write_text(text)

    def rows(self, index: AlertIndex, engine: duckdb.DuckDBPyConnection) -> list[Any]:
        named = ", ".join(f"'{self.folder / name}'" for name in self.files)
        engine.execute("CREATE SCHEMA IF NOT EXISTS gold")
        engine.execute(
            f"CREATE OR REPLACE VIEW gold.alert AS SELECT * FROM read_parquet([{named}])"
        )
        index.renew(engine)
        return engine.execute(
            f"SELECT a.*, k.* EXCLUDE (kind) FROM {INDEX} a JOIN {KINDS} k USING (kind)"
            " ORDER BY alert_id"
        ).fetchall()


def test_an_alert_whose_body_cannot_be_read_is_there_by_its_columns(tmp_path: Path) -> None:
    log = Log(tmp_path)
    index, engine = AlertIndex(tmp_path), duckdb.connect()
    odd = {"b1": "no JSON", "b2": "", "b3": "[1]", "b4": '{"detected_at": "soon", "mode": "live"}'}
    log.commit([alert("a1", "12:01"), *(alert(n, "12:02") | {"body": t} for n, t in odd.items())])
    assert len(log.rows(index, engine)) == 5, "made anew"
    log.commit([alert("a1", "12:03", revision=2) | {"body": "{"}, alert("a2", "12:04")])
    assert len(log.rows(index, engine)) == 6
    asked = f"SELECT alert_id, revision, lifecycle, title, tags FROM {INDEX} ORDER BY ALL"
    title = "SSH password guessing: laptop-a"
    expected = [("a1", 2), ("a2", 1), *((name, 1) for name in odd)]
    rows = engine.execute(asked).fetchall()
    assert [row[:4] for row in rows] == [(*pair, "new", title) for pair in expected]


def test_an_incident_names_no_alert_of_another_tenant_or_site(tmp_path: Path) -> None:
    log = Log(tmp_path)
    index, engine = AlertIndex(tmp_path), duckdb.connect()

    def of(name: str, tenant: str | None, key: str | None = None, **more: Any) -> Row:
        row = alert(name, "12:05", tenant_uid=tenant, **more)
        body = json.loads(row["body"]) | ({"group_key": key} if key else {})
        return row | {"body": json.dumps(body)}

    log.commit([of("a1", "acme"), of("g1", "globex"), of("n1", None), of("s1", "acme", "site-1")])
    log.commit([of("made", "acme", rule_id=INCIDENT)])
    log.commit([of("site", None, "site-2", rule_id=INCIDENT), of("s2", None, "site-2")])
    log.rows(index, engine)
    named = dict(engine.execute(f"SELECT alert_id, incident_id FROM {INDEX}").fetchall())
    assert {name: incident for name, incident in named.items() if incident} == {
        "a1": "made",
        "s2": "site",
    }


def test_the_rows_follow_batches_compactions_and_deletions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int | None] = []
    added = AlertIndex._added

    def counted(self: AlertIndex, versions: Sequence[int]) -> list[str] | None:
        files = added(self, versions)
        read.append(None if files is None else len(files))
        return files

    monkeypatch.setattr(AlertIndex, "_added", counted)
    log = Log(tmp_path)
    index, engine = AlertIndex(tmp_path), duckdb.connect()

    def follow(number: int) -> None:
        rows = log.rows(index, engine)
        assert rows == log.rows(AlertIndex(tmp_path), duckdb.connect()), "as if made anew"
        assert len(rows) == number

    log.commit([alert(f"a{n}", f"12:0{n}") for n in range(4)])
    follow(4)
    log.commit([alert("a1", "12:30", revision=2), alert("a7", "12:31")])
    follow(5)
    log.commit([alert("a1", "12:40", revision=3)])
    log.commit([alert("a8", "12:41")])
    follow(6)
    compacted = pq.read_table(log.folder / "2.parquet").to_pylist()
    log.commit(compacted, ["2.parquet"], changes=False)
    follow(6)
    assert read == [1, 2, 0], "only what was added is read"
    log.commit(removed=["1.parquet"])
    follow(5)
    assert read[-1] is None
    log.commit([alert("a9", "12:50")])
    follow(6)
    assert read[-1] == 1
