"""What is known of a feed, its indicators and how far it was read: a SQLite file of its own.

A page and the place behind it are one transaction, so a crash neither loses nor doubles an object.
Times are microseconds since 1970, UTC.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from alerts.rulepack.indicator_file_format import IndicatorEntry

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TABLES = """
CREATE TABLE IF NOT EXISTS object (
  id TEXT PRIMARY KEY, modified INTEGER NOT NULL, refused TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entry (
  object TEXT, kind TEXT, value TEXT, label TEXT, score INTEGER, valid_until INTEGER);
CREATE INDEX IF NOT EXISTS entries_of_object ON entry (object);
CREATE TABLE IF NOT EXISTS place (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class FeedObject:
    """An indicator as a feed gives it: what it adds to the list, or why it adds nothing.

    Without entries and reason it was revoked, which is kept: an older version may come later.
    """

    id: str
    modified: datetime
    entries: tuple[IndicatorEntry, ...] = ()
    refused: str | None = field(default=None)


class FeedStore:
    """The file of one feed. `origin` says what was read and how: another one begins anew."""

    def __init__(self, file: Path, origin: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Without an isolation level the module begins no transactions of its own: `page` does.
        self._db = sqlite3.connect(file, isolation_level=None, timeout=30)
        self._db.executescript(_TABLES)
        self._origin = origin
        self._objects: int | None = None
        if self.place("origin") != origin:
            with self.page():
                self.clear()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @contextmanager
    def page(self) -> Iterator[None]:
        """One transaction: all that is put in it is kept, or nothing."""
        # Locked for writing at once: one that reads first and then writes is refused, without any
        # waiting, where another wrote in between.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            self._objects = None
            raise
        self._db.execute("COMMIT")

    def place(self, name: str) -> str | None:
        """What was set under that name."""
        row = self._db.execute("SELECT value FROM place WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def set_place(self, name: str, value: str) -> None:
        """Set how far the feed was read."""
        self._db.execute("INSERT OR REPLACE INTO place VALUES (?, ?)", (name, value))

    def places(self, prefix: str) -> dict[str, str]:
        """What was set under names that begin so."""
        rows = self._db.execute(
            "SELECT name, value FROM place WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)
        )
        return dict(rows.fetchall())

    def forget_place(self, name: str) -> None:
        """Forget what was set under that name."""
        self._db.execute("DELETE FROM place WHERE name = ?", (name,))

    def forget(self, prefix: str) -> None:
        """Forget the objects whose ids begin so, and their entries."""
        # Bounds and not LIKE, which would look at every row.
        bounds = (prefix, prefix + "\U0010ffff")
        self._db.execute("DELETE FROM entry WHERE object >= ? AND object < ?", bounds)
        gone = self._db.execute("DELETE FROM object WHERE id >= ? AND id < ?", bounds).rowcount
        if self._objects is not None:
            self._objects -= gone

    def clear(self) -> None:
        """Forget all, in the transaction that is under way."""
        for table in ("object", "entry", "place"):
            self._db.execute(f"DELETE FROM {table}")
        self._objects = None
        self.set_place("origin", self._origin)

    def put(self, objects: Iterable[FeedObject]) -> None:
        """Take objects over, each only where it is not older than what is there."""
        for feed_object in objects:
            feed_object = _storable(feed_object)
            modified = _micros(feed_object.modified)
            known = self._db.execute(
                "SELECT modified FROM object WHERE id = ?", (feed_object.id,)
            ).fetchone()
            if known is not None and known[0] > modified:
                continue
            self._db.execute(
                "INSERT OR REPLACE INTO object VALUES (?, ?, ?)",
                (feed_object.id, modified, feed_object.refused),
            )
            if known is None and self._objects is not None:
                self._objects += 1
            self._db.execute("DELETE FROM entry WHERE object = ?", (feed_object.id,))
            self._db.executemany(
                "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)",
                [_row(feed_object.id, entry) for entry in feed_object.entries],
            )

    def forget_ended(self, before: datetime) -> None:
        """Let entries go that ended before an instant: no event that still comes is so old."""
        self._db.execute("DELETE FROM entry WHERE valid_until < ?", (_micros(before),))

    def objects(self) -> int:
        """How many objects are known, with revoked and refused ones."""
        if self._objects is None:
            # Counted once and then along: each event of a feed asks, and the file has all of them.
            self._objects = int(self._db.execute("SELECT count(*) FROM object").fetchone()[0])
        return self._objects

    def refused(self) -> dict[str, int]:
        """How many objects were refused, by reason, the most frequent first."""
        rows = self._db.execute(
            "SELECT refused, count(*) AS n FROM object WHERE refused IS NOT NULL "
            "GROUP BY refused ORDER BY n DESC, refused"
        )
        return dict(rows.fetchall())

    def entries(self, feed: str) -> Iterator[IndicatorEntry]:
        """All entries, in one order; their source names the feed and the object."""
        with closing(
            self._db.execute(
                "SELECT kind, value, label, valid_until, score, object FROM entry "
                "ORDER BY object, kind, value"
            )
        ) as rows:
            for kind, value, label, until, score, object_id in rows:
                end = None if until is None else _EPOCH + timedelta(microseconds=until)
                yield IndicatorEntry(kind, value, label, end, score, f"{feed}:{object_id}")


def _storable(given: FeedObject) -> FeedObject:
    """With texts that a file can hold: JSON may escape half a surrogate pair, and one such object
    would keep all others out."""
    entries = tuple(
        entry._replace(
            value=_whole(entry.value), label=None if entry.label is None else _whole(entry.label)
        )
        for entry in given.entries
    )
    refused = None if given.refused is None else _whole(given.refused)
    return FeedObject(_whole(given.id), given.modified, entries, refused)


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _row(object_id: str, entry: IndicatorEntry) -> tuple[str | int | None, ...]:
    until = None if entry.valid_until is None else _micros(entry.valid_until)
    return (object_id, entry.kind, entry.value, entry.label, entry.score, until)


def _micros(instant: datetime) -> int:
    # Not by `timestamp()`: a float of today has no room for all microseconds of later centuries.
    return (instant - _EPOCH) // timedelta(microseconds=1)
