"""What consumers had of alerts before the lake was restored from a backup.

A broker that went on after the backup was taken has revisions that the lake does not know of, and
tells again as its jobs read what Kafka still has. The topic `alerts.state` has the newest revision
of each alert, so a revision up to that was heard, whatever the lake says in it now, and a later
one was not. Kept on disk, and only of alerts of which the broker had heard more than the lake had
told: it is made when the restore is noticed, and anew whenever it is missing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from confluent_kafka import Message

from infra.duck import connect
from infra.errors import Fatal
from infra.settings import Settings

AT_ONCE = 10_000

_MADE = """
CREATE TABLE heard (alert TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE waiting (alert TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_HEARD = (
    "INSERT INTO heard VALUES (?, ?) "
    "ON CONFLICT (alert) DO UPDATE SET revision = max(revision, excluded.revision)"
)
_KNOWN = (
    "DELETE FROM heard WHERE alert = ? AND revision <= ? "
    "AND NOT EXISTS (SELECT 1 FROM waiting w WHERE w.alert = heard.alert)"
)

Revision = tuple[str, int]
"""An alert and the number of a revision."""


def file_of(settings: Settings) -> Path:
    """Where it lies: with the checkpoint that goes on from the backup."""
    return settings.checkpoint_root / "alert" / "heard.sqlite"


def note(settings: Settings, states: Iterable[Message], waiting: Iterable[str]) -> int:
    """Write down what was heard beyond the lake; of how many alerts.

    `states`: what the topic of states holds. `waiting`: alerts of which gold.alert has revisions
    that are yet to be compared; the others in it were told.
    """
    whole = file_of(settings)
    whole.parent.mkdir(parents=True, exist_ok=True)
    made = whole.with_name(f".{whole.name}")
    made.unlink(missing_ok=True)
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        db.executescript(_MADE)
        db.execute("BEGIN")
        db.executemany("INSERT OR IGNORE INTO waiting VALUES (?)", ((one,) for one in waiting))
        db.executemany(_HEARD, _newest(states))
        for told in _told(settings):
            db.executemany(_KNOWN, told)
        db.execute("COMMIT")
        count = int(db.execute("SELECT count(*) FROM heard").fetchone()[0])
    made.replace(whole)
    return count


def _newest(states: Iterable[Message]) -> Iterator[Revision]:
    """What the topic says of each alert, also where a later message took that back."""
    import msgspec

    for message in states:
        if message.value() is not None:
            body = msgspec.json.decode(message.value() or b"{}")
            yield body["alert_id"], int(body["revision"])


def _told(settings: Settings) -> Iterator[list[Revision]]:
    """The revisions that gold.alert has."""
    with closing(connect(settings.lake_root, needs=("gold.alert",))) as lake:
        answer = lake.execute("SELECT alert_id, revision FROM gold.alert")
        for batch in answer.fetch_record_batch(AT_ONCE):
            alerts, revisions = (batch.column(at).to_pylist() for at in range(2))
            yield list(zip(alerts, revisions, strict=True))


class Heard:
    """Answers whether a revision was heard; the file must be there."""

    def __init__(self, settings: Settings) -> None:
        file = file_of(settings)
        # Batches come in threads of Spark's choice, one at a time.
        there = f"{file.absolute().as_uri()}?mode=ro"
        self._db = sqlite3.connect(there, uri=True, check_same_thread=False)
        try:
            self._db.execute("SELECT revision FROM heard LIMIT 1").fetchall()
        except sqlite3.DatabaseError as error:
            raise Fatal(f"{file} is damaged ({error}); remove it, it is made anew") from None

    def has(self, alert_id: str, revision: int) -> bool:
        """Whether consumers had this revision, or a later one."""
        asked = "SELECT revision FROM heard WHERE alert = ?"
        found = self._db.execute(asked, (alert_id,)).fetchone()
        return found is not None and revision <= found[0]

    @property
    def count(self) -> int:
        """Of how many alerts something is remembered."""
        return int(self._db.execute("SELECT count(*) FROM heard").fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
