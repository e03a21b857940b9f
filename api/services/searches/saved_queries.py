"""Queries that people keep, and their schedules: a due one becomes a search job of who saved it."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from api.auth import Access, Caller
from api.services.act_store import StateFolder
from api.services.searches.search_jobs import SearchJobs
from api.services.triage import NoSuchAct
from api.sql.allowlist import Scalar
from api.wire import jobs as wire
from infra.config.settings import Settings
from infra.errors import HeadgateError, Usage
from infra.storage.state_file import InstantText, StateFile

_log = logging.getLogger("headgate.api")
QUERY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST_QUERIES = 500
_SPAN = re.compile(r"(?<![:\w]):(since|until)\b")
LOOK_SECONDS = 20.0
"""So often it is looked whether one is due."""


def span_params(sql: str, since: datetime, until: datetime) -> dict[str, Scalar]:
    """Values of `:since` and `:until`, those of them that the query has."""
    instants = {"since": since, "until": until}
    # In UTC and as Spark writes it: a literal of a statement is compared as a timestamp then.
    return {
        name: f"{instants[name].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        for name in dict.fromkeys(_SPAN.findall(sql))
    }


@dataclass(frozen=True)
class StoredQuery:
    """One query, as its file has it; times in ISO 8601."""

    sql: str
    doc: str
    every_minutes: int
    keep_days: int
    who: str
    saved_at: InstantText
    ran_at: InstantText | None = None
    not_begun: str | None = None
    """Why the run of `ran_at` could not begin; None: it did."""

    def is_due(self, now: datetime) -> bool:
        """Whether its schedule wants it run."""
        next_at = self.next_at
        return next_at is not None and now >= next_at

    @property
    def next_at(self) -> datetime | None:
        """When its schedule wants it run next; None without a schedule."""
        if not self.every_minutes:
            return None
        last = datetime.fromisoformat(self.ran_at or self.saved_at)
        return last + timedelta(minutes=self.every_minutes)


@dataclass(frozen=True)
class _Content:
    queries: dict[str, StoredQuery] = field(default_factory=dict)


class QueryStore:
    """The saved queries of a home, as a file that processes share."""

    def __init__(self, settings: Settings) -> None:
        self._file = StateFile(
            settings.home.absolute() / "queries.json",
            _Content,
            "put it back from a backup, or remove it and save the queries anew",
        )
        self._lock = StateFolder(settings, "queries", timedelta(days=1))

    def listed(self) -> list[wire.SavedQuery]:
        """All of them, by name."""
        return [_item(name, query) for name, query in sorted(self._read().items())]

    def names(self) -> set[str]:
        """What they are called."""
        return set(self._read())

    def get(self, name: str) -> wire.SavedQuery:
        """One; raises `NoSuchAct`."""
        return _item(name, self._named(name))

    def put(
        self,
        who: str,
        name: str,
        wanted: wire.QueryContent,
        allow: Callable[[wire.SavedQuery], None] = lambda _: None,
    ) -> wire.SavedQuery:
        """Save one, in the place of one of that name; `allow` is asked about that one, and raises
        where it is to stay."""
        if not QUERY_NAME.fullmatch(name):
            raise Usage(f"name '{name}': letters, digits and . _ - , at most 64")
        query = StoredQuery(
            **wanted.model_dump(), who=who, saved_at=datetime.now(UTC).isoformat(timespec="seconds")
        )
        with self._lock.alone():
            queries = self._read()
            if name in queries:
                allow(_item(name, queries[name]))
            elif len(queries) >= MOST_QUERIES:
                raise Usage(f"{MOST_QUERIES} queries are saved; remove one first")
            self._file.write(_Content(queries | {name: query}))
        return _item(name, query)

    def remove(self, name: str) -> wire.SavedQuery:
        """Forget one; results of its runs stay until their time is over."""
        with self._lock.alone():
            query = self._named(name)
            self._file.write(_Content({k: v for k, v in self._read().items() if k != name}))
        return _item(name, query)

    def _read(self) -> dict[str, StoredQuery]:
        return (self._file.read() or _Content()).queries

    def _named(self, name: str) -> StoredQuery:
        query = self._read().get(name)
        if query is None:
            raise NoSuchAct(f"no saved query '{name}'; GET /api/v1/queries lists them")
        return query


class SavedQueries(QueryStore):
    """The saved queries, which run when they are due. Each run is one process's alone."""

    def __init__(self, settings: Settings, access: Access, searches: SearchJobs) -> None:
        super().__init__(settings)
        self._access = access
        self._searches = searches
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="saved-queries", daemon=True)

    def listed(self) -> list[wire.SavedQuery]:
        """All of them, by name, each with what is wrong with its schedule."""
        queries = sorted(self._read().items())
        ends = self._searches.newest_ends() if any(q.every_minutes for _, q in queries) else {}
        return [_item(name, q, self._problem(q, ends.get((name, q.who)))) for name, q in queries]

    def failing(self) -> list[wire.SavedQuery]:
        """Those whose schedule did not bring when it was due last what it is there for."""
        return [query for query in self.listed() if query.problem]

    def _problem(self, query: StoredQuery, ended: wire.SearchJob | None) -> str | None:
        if not query.every_minutes:
            return None
        if self.asker(query.who) is None:
            return f"it runs as {query.who}, who may not ask any more"
        due = datetime.fromisoformat(query.ran_at) if query.ran_at else None
        # To the second, as its file has it.
        if query.not_begun and due and not (ended and ended.made_at >= due):
            return f"its run of {due:%Y-%m-%d %H:%M} UTC was not begun: {query.not_begun}"
        saved = datetime.fromisoformat(query.saved_at)
        # Why is its owner's to read: it may quote what others may not see. What was saved since is
        # another question.
        if ended is not None and ended.state == "failed" and ended.made_at >= saved:
            return f"its run of {ended.made_at:%Y-%m-%d %H:%M} UTC failed"
        return None

    def asker(self, who: str) -> Caller | None:
        """Whom a schedule runs as that was saved by them; None: who may not ask any more."""
        owner = self._access.named(who)
        return owner if owner is not None and owner.may("viewer") else None

    def run(self, caller: Caller, name: str, wait: float = 0.0) -> wire.SearchJob:
        """Ask one now, as a search job of the caller."""
        query = self._named(name)
        # A run by itself is of what passed since the run before, any other of the last day.
        until = datetime.now(UTC)
        since = until - timedelta(minutes=query.every_minutes or 1440)
        asked = wire.NewSearchJob(
            sql=query.sql,
            params=span_params(query.sql, since, until),
            ttl_seconds=query.keep_days * 86_400,
        )
        return self._searches.submit(caller, asked, wait=wait, query=name)

    def run_due(self, now: datetime) -> list[wire.SearchJob]:
        """Ask those that are due, each as a job of who saved it, with what they may now."""
        due = {}
        with self._lock.alone():
            queries = self._read()
            due = {name: query for name, query in queries.items() if query.is_due(now)}
            if due:
                # Noted before they run: another process must not run them as well.
                marked = {
                    name: replace(query, ran_at=now.isoformat(timespec="seconds"))
                    for name, query in due.items()
                }
                self._file.write(_Content(queries | marked))
        jobs = []
        not_begun: dict[str, str | None] = {}
        for name, query in due.items():
            caller = self.asker(query.who)
            if caller is None:
                _log.warning("query %s: '%s' may not ask any more; left out", name, query.who)
                continue
            not_begun[name] = None
            try:
                jobs.append(self.run(caller, name))
            except HeadgateError as error:
                _log.warning("query %s: not run (%s); again in due time", name, error)
                not_begun[name] = str(error)
        self._note_begun(not_begun)
        return jobs

    def _note_begun(self, not_begun: Mapping[str, str | None]) -> None:
        """Keep why runs could not begin: who reads no log has it from the query."""
        with self._lock.alone():
            queries = self._read()
            changed = {
                name: replace(queries[name], not_begun=why)
                for name, why in not_begun.items()
                if name in queries and queries[name].not_begun != why
            }
            if changed:
                self._file.write(_Content(queries | changed))

    def start(self) -> None:
        """Begin to look for due queries."""
        self._thread.start()

    def close(self) -> None:
        """End looking."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _look(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                # Without a look first, a home without queries would get a lock file.
                if any(query.is_due(datetime.now(UTC)) for query in self._read().values()):
                    self.run_due(datetime.now(UTC))
            except HeadgateError as error:
                _log.warning("saved queries: %s", error)


def _item(name: str, query: StoredQuery, problem: str | None = None) -> wire.SavedQuery:
    return wire.SavedQuery(
        name=name,
        sql=query.sql,
        doc=query.doc,
        every_minutes=query.every_minutes,
        keep_days=query.keep_days,
        who=query.who,
        saved_at=datetime.fromisoformat(query.saved_at),
        ran_at=datetime.fromisoformat(query.ran_at) if query.ran_at else None,
        next_at=query.next_at,
        problem=problem,
    )
