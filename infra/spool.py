"""Rows that wait, as small files, for the one writer that folds them into a table.

A ledger row a batch would cost a commit a batch, and the API has no Spark: both
put a JSON file into `<home>/spool/<table>/`, and the driver folds what lies
there every few seconds, each file once, through any crash.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from infra.commits import newest_first
from infra.damage import Damaged, parsed
from infra.log import say
from infra.parquet import arrow_schema
from infra.person import person
from infra.tables import Table

if TYPE_CHECKING:
    from infra.lake import Lake


def put(folder: Path, name: str, row: Mapping[str, Any]) -> None:
    """Leave one row, whole or not at all; the same name again replaces it."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{name}.{os.getpid()}"
    temporary.write_text(json.dumps(row), "utf-8")
    temporary.replace(folder / f"{name}.json")


def note(
    spool: Path, act: str, target: str, detail: Mapping[str, Any], outcome: str = "ok"
) -> None:
    """Leave a row for ops.audit: what the person who runs this process did, or had done."""
    at = datetime.now(UTC)
    put(
        spool / "audit",
        f"{act}-{at:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex[:8]}",
        {
            "at": at.isoformat(),
            "who": person(),
            "act": act,
            "target": target,
            "detail": json.dumps(detail, ensure_ascii=False),
            "outcome": outcome,
        },
    )


def fold(lake: Lake, table: Table, folder: Path) -> int:
    """Append what waits in `folder` to `table`, once; returns how many rows.

    The files of one round move into a folder named by the round before they are
    written, and the commit carries that name: after a crash the round is looked
    up in the table's log, and written only if it is not there.
    """
    if not folder.is_dir():
        return 0
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # another driver of this lake folds: its round is not an unfinished one
        rows = 0
        for unfinished in sorted(folder.glob("round-*")):
            rows += _write(lake, table, unfinished, look_back=True)
        waiting = sorted(folder.glob("*.json"))
        if waiting:
            fresh = folder / f"round-{uuid.uuid4().hex}"
            fresh.mkdir()
            for file in waiting:
                file.replace(fresh / file.name)
            rows += _write(lake, table, fresh, look_back=False)
        return rows


def _write(lake: Lake, table: Table, folder: Path, *, look_back: bool) -> int:
    files = sorted(folder.glob("*.json"))
    known = look_back and any(
        commit.user_metadata == folder.name for commit in newest_first(lake.folder(table))
    )
    rows = [] if known else _sound(files, arrow_schema(table))
    if rows:
        lake.add(table, rows, folder.name)
    shutil.rmtree(folder)
    return len(rows)


_UNSOUND = (Damaged, PermissionError, ValueError, TypeError, AttributeError, pa.ArrowException)


def _sound(files: Sequence[Path], schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows of a round, typed. One that a power cut left empty, that is another account's or
    that fits no table must not hold up all that follow."""
    rows = []
    for file in files:
        try:
            row = _typed(parsed(file.read_text("utf-8", "replace")), schema)
            pa.RecordBatch.from_pylist([row], schema)
            rows.append(row)
        except _UNSOUND as error:
            aside = file.parent.parent / "damaged" / file.name
            aside.parent.mkdir(exist_ok=True)
            file.replace(aside)
            why = str(error).partition("\n")[0][:200]
            say(f"spool: {aside} is damaged ({why}) and was set aside; its row is in no table")
    return rows


def _typed(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """A row as it was left, with its times as times and its maps as pairs."""
    return {field.name: _value(row.get(field.name), field.type) for field in schema}


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_map(kind):
        return [(_plain(key), _plain(item)) for key, item in value.items()]
    return _plain(value)


def _plain(value: Any) -> Any:
    """A text that tables can hold: half a surrogate, which JSON may name, as its escape."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "backslashreplace").decode()
    return value


class Folder:
    """Folds the spool of some tables every few seconds while the driver lives."""

    def __init__(self, lake: Lake, tables: Mapping[str, Table], seconds: float = 10.0) -> None:
        self._lake = lake
        self._tables = tables
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self.failure: str | None = None

    def start(self) -> Folder:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Fold what is left and end."""
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self._fold()
        self._fold()

    def _fold(self) -> None:
        failures = []
        for name, table in self._tables.items():
            try:
                fold(self._lake, table, self._lake.spool / name)
            except Exception as error:  # the files stay; the next round tries again
                failures.append(f"{table.name}: {type(error).__name__}: {error}"[:300])
        failure = "; ".join(failures) or None
        if failure and failure != self.failure:
            say(f"spool: rows wait, as they cannot be written: {failure}")
        self.failure = failure
