"""What consumers had of alerts before the lake was restored from a backup.

A broker that went on after the backup was taken has revisions that the lake does not know of, and
tells again as its jobs read what Kafka still has. The topic `alerts.state` has the newest revision
of each alert, so a revision up to that was heard, whatever the lake says in it now, and a later
one was not. What the lake has to say beyond that gets a number behind it
(`alerts.lifecycle.alert_fold`). Kept on disk, and only of alerts of which the broker had heard more
than the lake had told: it is made when the restore is noticed, and anew whenever it is missing.
"""

from __future__ import annotations

import hashlib
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infra.config.settings import Settings
from infra.errors import Fatal

if TYPE_CHECKING:
    from confluent_kafka import Message

_AT_ONCE = 10_000
REPUBLISH_DECISION = "heard"
"""Decision of a batch of job `alert`: the name of the file that it asks; null: no restore."""
_KEPT = 2
"""Files: a batch that is tried again asks the one that it asked first."""

_MADE = """
CREATE TABLE heard (
  alert TEXT PRIMARY KEY, revision INTEGER NOT NULL, findings INTEGER NOT NULL,
  entity TEXT NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE waiting (alert TEXT PRIMARY KEY) WITHOUT ROWID;
"""
# The newest of an alert counts: a compacted topic keeps former revisions for a while.
_NOTE_PUBLISHED = (
    "INSERT INTO heard VALUES (?, ?, ?, ?) ON CONFLICT (alert) DO UPDATE "
    "SET revision = excluded.revision, findings = excluded.findings, entity = excluded.entity "
    "WHERE excluded.revision >= revision"
)
_FORGET_KNOWN = (
    "DELETE FROM heard WHERE alert = ? AND revision <= ? "
    "AND NOT EXISTS (SELECT 1 FROM waiting w WHERE w.alert = heard.alert)"
)


class Newest(NamedTuple):
    """What consumers had of an alert: the number of the newest revision, and what it said."""

    revision: int
    findings: int
    entity: str
    """Whom it was about (`about`)."""

    def says(self, findings: int, entity: str) -> bool:
        """Whether they had so many findings of it already, about the same."""
        return findings <= self.findings and entity == self.entity


RepublishQuestion = Callable[[str], Newest | None]
"""What consumers had of an alert before a restore; None: no more than the lake has told."""


def guard_key(alert_id: str, kind: str | None, value: str | None) -> str:
    """Whom an alert is about, as `Newest` has it: a digest, since no erasure comes here."""
    message = f"{alert_id}|{kind}|{value}"
    return hashlib.blake2b(message.encode(), digest_size=8).hexdigest()


def nothing_published(alert_id: str) -> None:
    """There was no restore."""


def guard_file(settings: Settings) -> Path:
    """The newest of them, or where the first one will be: with the checkpoint that goes on from
    the backup."""
    there = _files(settings)
    return there[-1] if there else _named(settings, 1)


def _files(settings: Settings) -> list[Path]:
    return sorted((settings.checkpoint_root / "alert").glob("heard-*.sqlite"))


def _named(settings: Settings, number: int) -> Path:
    """None has the name of another one, also of one that was removed."""
    return settings.checkpoint_root / "alert" / f"heard-{number:06}-{uuid.uuid4().hex[:8]}.sqlite"


def note_published(settings: Settings, states: Iterable[Message], waiting: Iterable[str]) -> int:
    """Write down what was heard beyond the lake; of how many alerts.

    `states`: what the topic of states holds. `waiting`: alerts of which gold.alert has revisions
    that are yet to be compared; the others in it were told.
    """
    before = _files(settings)
    last = int(before[-1].name.split("-")[1]) if before else 0
    whole = _named(settings, last + 1)
    # Written beside and renamed when whole: a crash never leaves half a file under its name.
    whole.parent.mkdir(parents=True, exist_ok=True)
    made = whole.with_name(".heard.sqlite")
    made.unlink(missing_ok=True)
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        db.executescript(_MADE)
        # One transaction: a commit for each row would sync the disk as many times.
        db.execute("BEGIN")
        db.executemany("INSERT OR IGNORE INTO waiting VALUES (?)", ((name,) for name in waiting))
        db.executemany(_NOTE_PUBLISHED, _newest(states))
        for message in _lake_revisions(settings):
            db.executemany(_FORGET_KNOWN, message)
        db.execute("COMMIT")
        count = int(db.execute("SELECT count(*) FROM heard").fetchone()[0])
    made.replace(whole)
    # The last one stays, since a batch that is tried again may still name it.
    for former in before[: 1 - _KEPT]:
        former.unlink(missing_ok=True)
    return count


def _newest(states: Iterable[Message]) -> Iterator[tuple[str, int, int, str]]:
    """What the topic says of each alert, also where a later message took that back."""
    import msgspec

    for message in states:
        if message.value() is not None:
            body = msgspec.json.decode(message.value() or b"{}")
            alert, of = body["alert_id"], body.get("entity") or {}
            whom = guard_key(alert, of.get("type"), of.get("value"))
            yield alert, int(body["revision"]), int(body.get("count") or 0), whom


def _lake_revisions(settings: Settings) -> Iterator[list[tuple[str, int]]]:
    """The revisions that gold.alert has."""
    # The workers, too, import this module; they need no engine.
    from infra.delta.duckdb_views import connect

    # DuckDB, not Spark: only two columns are wanted, in batches that fit into memory.
    with closing(connect(settings.lake_root, needs=("gold.alert",), only=())) as lake:
        answer = lake.execute("SELECT alert_id, revision FROM gold.alert")
        for batch in answer.fetch_record_batch(_AT_ONCE):
            alerts, revisions = (batch.column(index).to_pylist() for index in range(2))
            yield list(zip(alerts, revisions, strict=True))


class PublishedRevision:
    """Answers what was heard of an alert; the file must be there."""

    def __init__(self, file: Path) -> None:
        # Batches come in threads of Spark's choice, one at a time. A file is never changed.
        there = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            self._db = sqlite3.connect(there, uri=True, check_same_thread=False)
            self._db.execute("SELECT revision FROM heard LIMIT 1").fetchall()
        except sqlite3.DatabaseError as error:
            raise Fatal(f"{file} is damaged ({error}); remove it, it is made anew") from None

    def newest(self, alert_id: str) -> Newest | None:
        """What consumers had of it; None: no more than the lake has told."""
        asked = "SELECT revision, findings, entity FROM heard WHERE alert = ?"
        row = self._db.execute(asked, (alert_id,)).fetchone()
        return None if row is None else Newest(*row)

    def has(self, alert_id: str, revision: int) -> bool:
        """Whether consumers had this revision, or a later one."""
        newest = self.newest(alert_id)
        return newest is not None and revision <= newest.revision

    @property
    def count(self) -> int:
        """Of how many alerts something is remembered."""
        return int(self._db.execute("SELECT count(*) FROM heard").fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


def asked_of(settings: Settings, name: str | None) -> RepublishQuestion:
    """Answers from the file that a batch was told to ask; where that is gone, from the newest."""
    if name is None:
        return nothing_published
    file = settings.checkpoint_root / "alert" / name
    return _opened(file if file.exists() else guard_file(settings)).newest


@lru_cache(maxsize=2)
def _opened(file: Path) -> PublishedRevision:
    return PublishedRevision(file)
