"""What waits for webhooks: a SQLite file beside the platform, with a place of its own.

A consumer of the topic puts each revision in, in the same transaction as its place
(`alerts.delivery.consumer`), and a thread a hook takes it out when the hook has answered 2xx. So a
slow hook delays neither the topic nor another hook, and a crash loses nothing.
A hook may get a revision twice, after a crash between its answer and our note.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.config.settings import Settings, WebhookSettings
from infra.errors import Usage

DAY = 24 * 3600
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 3600.0

_TABLE = """
CREATE TABLE IF NOT EXISTS delivery (
  hook TEXT, alert_id TEXT, revision INTEGER, title TEXT, body BLOB, queued_at REAL,
  attempts INTEGER DEFAULT 0, next_at REAL, gave_up_at REAL, problem TEXT,
  PRIMARY KEY (hook, alert_id, revision));
DROP INDEX IF EXISTS due;
CREATE INDEX IF NOT EXISTS in_turn ON delivery (hook, next_at, alert_id, revision)
  WHERE gave_up_at IS NULL;
CREATE TABLE IF NOT EXISTS made (
  hook TEXT, alert_id TEXT, PRIMARY KEY (hook, alert_id)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class WaitingWebhook:
    """A revision that a hook has not taken yet. Times are seconds since 1970."""

    hook: str
    alert_id: str
    revision: int
    title: str
    body: bytes
    queued_at: float
    attempts: int

    @property
    def key(self) -> str:
        """What tells a receiver that it had this one already."""
        return f"{self.alert_id}:{self.revision}"


class NoSuchWebhook(Usage):
    """The settings have no webhook of that name."""


def queue_file(settings: Settings) -> Path:
    """The file with what waits."""
    return settings.home.absolute() / "webhooks.sqlite"


def hook_named(settings: Settings, name: str) -> WebhookSettings:
    """A webhook of the settings; raises `NoSuchWebhook`."""
    for hook in settings.webhooks:
        if hook.name == name:
            return hook
    raise NoSuchWebhook(f"no webhook '{name}' in the settings")


class Queue:
    """One connection to the file; each thread opens its own."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Each hook has a thread of its own: a writer waits for the others and does not fail.
        self._db = sqlite3.connect(file, isolation_level=None, timeout=30)
        # Those who list what waits then never wait for the threads that deliver.
        self._db.execute("PRAGMA journal_mode = WAL")
        # What was delivered leaves nothing behind that an erasure would have to look for.
        self._db.execute("PRAGMA secure_delete = ON")
        self._db.executescript(_TABLE)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def due(self, hook: str, now: float) -> WaitingWebhook | None:
        """The revision that is to be tried next: of an alert always the oldest that waits."""
        # Later than the longest pause was said by a clock that was ahead.
        ahead = now + 2 * LONGEST_PAUSE
        return self._first(hook, "next_at <= ?", now) or self._first(hook, "next_at > ?", ahead)

    def _first(self, hook: str, when: str, instant: float) -> WaitingWebhook | None:
        # Two questions, not one with OR: each goes along the index and stops at the first row,
        # where one question would sort all that waits, bodies and all.
        row = self._db.execute(
            f"""SELECT hook, alert_id, revision, title, body, queued_at, attempts FROM delivery d
            WHERE hook = ? AND gave_up_at IS NULL AND {when} AND NOT EXISTS (
              SELECT 1 FROM delivery o WHERE o.hook = d.hook AND o.alert_id = d.alert_id
              AND o.gave_up_at IS NULL AND o.revision < d.revision)
            ORDER BY next_at, alert_id, revision LIMIT 1""",
            (hook, instant),
        ).fetchone()
        return WaitingWebhook(*row) if row else None

    def batch(self, hook: str, now: float, most: int) -> list[WaitingWebhook]:
        """Revisions that are to be tried now, oldest first, at most so many: for one mail."""
        rows = self._db.execute(
            "SELECT hook, alert_id, revision, title, body, queued_at, attempts FROM delivery "
            "WHERE hook = ? AND gave_up_at IS NULL AND (next_at <= ? OR next_at > ?) "
            "ORDER BY queued_at, alert_id, revision LIMIT ?",
            (hook, now, now + 2 * LONGEST_PAUSE, most),
        )
        return [WaitingWebhook(*row) for row in rows]

    def done(self, one: WaitingWebhook) -> None:
        """The hook took it."""
        self._db.execute(
            "DELETE FROM delivery WHERE hook = ? AND alert_id = ? AND revision = ?",
            (one.hook, one.alert_id, one.revision),
        )

    def failed(self, one: WaitingWebhook, problem: str, now: float) -> bool:
        """Try again later, or give up a day after it came; True when given up."""
        over = now - one.queued_at >= DAY
        # A bit of chance, so that hooks that failed together do not come back together.
        next_at = now + pause(one.attempts, random.random())
        self._db.execute(
            "UPDATE delivery SET attempts = attempts + 1, problem = ?, next_at = ?, gave_up_at = ? "
            "WHERE hook = ? AND alert_id = ? AND revision = ?",
            (
                problem[:300],
                next_at,
                now if over else None,
                one.hook,
                one.alert_id,
                one.revision,
            ),
        )
        if not over:
            # The alert's later revisions wait for it. Were they due before it, each look at what is
            # due would pass all of them.
            self._db.execute(
                "UPDATE delivery SET next_at = max(next_at, ?) WHERE hook = ? AND alert_id = ? "
                "AND gave_up_at IS NULL AND revision > ?",
                (next_at, one.hook, one.alert_id, one.revision),
            )
        # A dead letter stays in the file until a person sends it again.
        return over

    def again(self, hook: str | None, now: float) -> int:
        """Give dead letters (of one hook) another day; returns how many."""
        return self._db.execute(
            "UPDATE delivery SET gave_up_at = NULL, next_at = ?, queued_at = ?, attempts = 0 "
            "WHERE gave_up_at IS NOT NULL AND (? IS NULL OR hook = ?)",
            (now, now, hook, hook),
        ).rowcount

    def listed(self) -> list[dict[str, Any]]:
        """What waits and what was given up, oldest first."""
        answer = self._db.execute(
            "SELECT hook, CASE WHEN gave_up_at IS NULL THEN 'waiting' ELSE 'dead' END AS state, "
            "alert_id, revision, attempts, queued_at, next_at, problem, title "
            "FROM delivery ORDER BY queued_at, hook, alert_id, revision"
        )
        names = [column[0] for column in answer.description]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def enqueue(
    db: sqlite3.Connection, hooks: Iterable[str], key: tuple[str, int], title: str, body: bytes,
    now: float,
) -> None:  # fmt: skip
    """Let a revision wait for some hooks, in the transaction that `db` is in."""
    for hook in hooks:
        db.execute(
            # The consumer may see a revision again after a crash; it waits only once.
            "INSERT OR IGNORE INTO delivery "
            "(hook, alert_id, revision, title, body, queued_at, next_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (hook, *key, title, body, now, now),
        )


def is_new(db: sqlite3.Connection, hook: str, alert_id: str) -> bool:
    """Whether the hook never had this alert; from now on it had. In the transaction of `enqueue`.

    For hooks that make an issue of each body: it is 32 bytes an alert, and kept.
    """
    statement = "INSERT OR IGNORE INTO made (hook, alert_id) VALUES (?, ?)"
    return db.execute(statement, (hook, alert_id)).rowcount == 1


def pause(attempts: int, chance: float) -> float:
    """Seconds until the next attempt: doubling from five seconds to an hour, a fifth by chance."""
    # The exponent is bounded, since a power of thousands is no float any more.
    grown: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(attempts, 20))
    return grown * (0.9 + 0.2 * chance)
