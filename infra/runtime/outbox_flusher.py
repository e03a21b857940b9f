"""Moves the rows that wait in an outbox into their table, in one commit."""

from __future__ import annotations

import fcntl
import shutil
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.delta.log_reader import newest_first
from infra.delta.ops_tables import AUDIT
from infra.delta.parquet_writer import arrow_schema
from infra.delta.schema import Table
from infra.process.log import say
from infra.streaming.audit_chain import ChainHead, chained, head_file
from infra.streaming.lake import Lake
from infra.streaming.outbox_rows import sound_rows


def flush_outbox(lake: Lake, table: Table, folder: Path) -> int:
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
            # Only such a round may be in the table; to look for a fresh one would read the log.
            rows += _write(lake, table, unfinished, look_back=True)
        waiting = sorted(folder.glob("*.json"))
        if waiting:
            fresh = folder / f"round-{uuid.uuid4().hex}"
            fresh.mkdir()
            for file in waiting:
                # Moved, not just listed: a file left under the same name since is another round's.
                file.replace(fresh / file.name)
            rows += _write(lake, table, fresh, look_back=False)
        return rows


def _write(lake: Lake, table: Table, folder: Path, *, look_back: bool) -> int:
    files = sorted(folder.glob("*.json"))
    written = look_back and any(
        commit.user_metadata == folder.name for commit in newest_first(lake.folder(table))
    )
    rows = [] if written else sound_rows(files, arrow_schema(table))
    if rows and table.name == AUDIT.name:
        rows = _linked(lake, rows, folder.name)
    if rows:
        lake.add(table, rows, folder.name)
    shutil.rmtree(folder)
    return len(rows)


def _linked(lake: Lake, rows: list[dict[str, Any]], round_name: str) -> list[dict[str, Any]]:
    """Rows of ops.audit with their links; the end of the chain is kept before they are written."""
    ends = head_file(lake.settings.home)
    head = ends.read() or ChainHead(uuid.uuid4().hex[:12])
    linked, head = chained(rows, head, round_name)
    ends.write(head)
    return linked


class OutboxFlusher:
    """Folds the spool of some tables every few seconds while the driver lives."""

    def __init__(self, lake: Lake, tables: Mapping[str, Table], seconds: float = 10.0) -> None:
        self._lake = lake
        self._tables = tables
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self.failure: str | None = None

    def start(self) -> OutboxFlusher:
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
                flush_outbox(self._lake, table, self._lake.spool / name)
            except Exception as error:  # the files stay; the next round tries again
                failures.append(f"{table.name}: {type(error).__name__}: {error}"[:300])
        failure = "; ".join(failures) or None
        if failure and failure != self.failure:
            say(f"spool: rows wait, as they cannot be written: {failure}")
        self.failure = failure
