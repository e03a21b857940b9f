"""How much a batch of a job takes from Delta tables: whole commits, as many as memory allows.

Spark asks each source before each batch for what is new, up to a limit, and waits for its trigger
in between. Both are fixed when a query starts; here both are set while it runs, between two
batches, so that no restart is needed (decision 0022). While the job keeps up, a batch takes
what is there; when more waits than a small batch takes, batches follow each other without a pause,
each as large as time and memory allow.

A limit in files or bytes of Delta's own ends in the middle of a commit, and then what is in its
other files comes after the heartbeat, or later than the watermark that the first file moved. So
files are counted here, commit by commit, over all tables in the order in which they were written.
"""

from __future__ import annotations

import heapq
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

from infra.checkpoint.offset_log import numbers, offset_lines
from infra.config.settings import Settings
from infra.delta.log_archive import LOG, from_on, single
from infra.delta.log_reader import commit, table_id
from infra.errors import Fatal, HeadgateError, Retryable
from infra.process.log import News
from infra.spark.internals import QueryControl
from infra.storage.checksums import Damaged
from infra.storage.paths import Location
from infra.streaming.progress import Pulse
from infra.streaming.rate_controller import BatchSeen, Learned, Pace, RateLimits, RateLine, caps
from infra.streaming.rate_estimates import read_estimates, write_estimates

ALL = 1000
"""Files a batch may take of a table that is not held back: Delta's own default."""

MOST_VERSIONS = 1000
"""So many commits of a table are looked at; more are for later batches."""

LONG = 10.0
"""Seconds of a pause in which so much can come that it is looked at meanwhile."""

GUESS = Learned(
    seconds=RateLine(guess=1 / 5_000),
    bytes=RateLine(guess=100.0),  # of Parquet, by row
    memory=RateLine(
        guess=20.0
    ),  # an event in memory, by byte of Parquet (`infra.maintenance.maintenance.weight`)
)


@dataclass(frozen=True)
class TableOffset:
    """How far a table was read: up to a commit, or into it, up to its file `index`."""

    version: int
    index: int = -1


_Places = list[tuple[str, TableOffset] | None]
"""Of each input of a job the table's id and the place in it; None for one that is not held back."""


@dataclass(frozen=True)
class CommitPiece:
    """A commit, or what is left of it, as a stream gets it."""

    version: int
    files: int
    rows: int
    bytes: int
    at: float = 0.0
    """When it was made."""


def place(line: str) -> tuple[str, TableOffset] | None:
    """The table's id and the place in it, as a line of an offsets file has them.

    None for what is no Delta table, and while a stream reads what was there before it began.
    """
    decoded = json.loads(line) if line.startswith("{") else {}
    if "reservoirId" not in decoded or decoded.get("isStartingVersion"):
        return None
    # Delta has several negative indexes, all of them in front of a commit's first file.
    index = TableOffset(int(decoded["reservoirVersion"]), max(-1, int(decoded.get("index", -1))))
    return str(decoded["reservoirId"]), index


# `identity` is there for the cache's key: a table made anew in the same folder has other
# commits under the same versions.
@lru_cache(maxsize=20_000)
def _sizes(folder: Location, identity: str, version: int) -> CommitPiece:
    """A commit of a table. Jobs read the same ones, and none ever changes."""
    table_commit = commit(folder, version)
    # Streams pass over rewrites (`skipChangeCommits`): these files cost a batch nothing.
    if not table_commit.appends:
        return CommitPiece(version, 0, 0, 0, table_commit.at)
    return CommitPiece(
        version, len(table_commit.adds), table_commit.rows, table_commit.bytes, table_commit.at
    )


def commit_pieces(folder: Location, identity: str, since: TableOffset) -> Iterator[CommitPiece]:
    """What a stream at a place has yet to take, commit by commit."""
    for version in _there(folder / LOG, since.version):
        whole = _sizes(folder, identity, version)
        taken = since.index + 1 if version == since.version else 0
        left = max(0, whole.files - taken)
        if taken and whole.files:
            # The rest of a commit is taken in proportion to its files: only a guess at its size.
            rows, size = whole.rows * left // whole.files, whole.bytes * left // whole.files
            whole = replace(whole, files=left, rows=rows, bytes=size)
        yield whole


def _there(log: Location, first: int) -> Iterator[int]:
    """Versions of a log from one on, at most `MOST`; the archive, which is long, is not asked."""
    if not isinstance(log, Path):  # one request tells all
        yield from (version for version, _ in from_on(log, first)[:MOST_VERSIONS])
        return
    # A look at each name instead of a listing: a log is long, and what waits is short.
    for version in range(first, first + MOST_VERSIONS):
        if not single(log, version).exists():
            return
        yield version


@dataclass(frozen=True)
class AdmissionBudget:
    """What a batch may take."""

    rows: int
    bytes: int

    def allows(self, rows: int, size: int) -> bool:
        """Whether a batch of so much is within it."""
        return rows <= self.rows and size <= self.bytes


def commits_ahead(
    waiting: Iterator[CommitPiece], budget: AdmissionBudget
) -> tuple[list[CommitPiece], bool]:
    """The commits of a table up to the first that is beyond a budget, and whether these are all.

    Without those that have nothing for a stream, as when files were merged.
    """
    pieces: list[CommitPiece] = []
    looked = rows = size = 0
    for piece in waiting:
        looked += 1
        if not piece.files:
            continue
        pieces.append(piece)
        rows, size = rows + piece.rows, size + piece.bytes
        if not budget.allows(rows, size):
            return pieces, False
    return pieces, looked < MOST_VERSIONS


def together(tables: Sequence[Sequence[CommitPiece]], budget: AdmissionBudget) -> list[int]:
    """How many commits of each table a batch takes: the oldest of all, whole, within a budget.

    At least the oldest one; and one of each table that has any, so that none is ever held up.
    """
    # One of each even beyond the budget: a commit is never divided, so one larger than all of it
    # could else never be taken.
    counts = [min(1, len(table)) for table in tables]
    ordered = [_in_time(number, table) for number, table in enumerate(tables)]
    rows = size = 0
    # Without the piece in the key: commits of one instant have no order of their own.
    for _, number, count, piece in heapq.merge(*ordered, key=lambda one: one[:3]):
        rows, size = rows + piece.rows, size + piece.bytes
        if not budget.allows(rows, size):
            break
        counts[number] = max(counts[number], count)
    return counts


def _in_time(
    number: int, table: Sequence[CommitPiece]
) -> Iterator[tuple[float, int, int, CommitPiece]]:
    """A table's commits with the time of each; a clock that was set back changes no order."""
    # `heapq.merge` needs each table ascending in time, but a log is ascending in version only.
    latest = 0.0
    for count, piece in enumerate(table, 1):
        latest = max(latest, piece.at)
        yield latest, number, count, piece


def files_of(commits: Sequence[CommitPiece], count: int, whole: bool) -> int:
    """The limit in files for the first `count` commits of those found; `whole`: there are no more.

    Where a batch takes all there is, so it does with what comes meanwhile, as far as `ALL` would
    not cut a commit of those.
    """
    files = sum(piece.files for piece in commits[:count])
    return ALL if whole and count == len(commits) and files <= ALL // 2 else files


def insisting(step: Callable[[], None], tries: int = 3, pause: float = 1.0) -> None:
    """Do it, and again after `pause` seconds where a file system or a store fails for a moment."""
    for left in reversed(range(tries)):
        try:
            step()
            break
        except (OSError, Retryable):
            if not left:
                raise
            time.sleep(pause)


def paced(before: Pace, left: int, learned: Learned, limits: RateLimits) -> Pace:
    """The pace where so many rows wait. Changing it costs nothing, so it follows at once.

    What a batch costs whatever it takes is not counted: it would leave nothing for rows.
    """
    fixed = learned.seconds.fixed
    more = replace(
        limits,
        steady_seconds=limits.steady_seconds + fixed,
        behind_seconds=limits.behind_seconds + fixed,
    )
    small, large = caps(learned, more)
    # Two marks, or a backlog near a single one would change the regime with each batch.
    behind = left > (small // 2 if before.regime == "behind" else small)
    return Pace("behind", large) if behind else Pace("steady", small)


@dataclass
class Intake:
    """What the batches of one job take, from its start to its end."""

    job: str
    settings: Settings
    pace: Pace = field(default_factory=lambda: Pace("steady", 1))
    learned: Learned = GUESS
    _folders: dict[str, Location] = field(default_factory=dict)
    _taken: _Places | None = None
    """Where the newest batch of this run ended."""
    _began: _Places | None = None
    """Where the newest batch before this run ended."""
    _query: _Query | None = None
    _attached: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pulse: Pulse = field(default_factory=Pulse)
    _pause: float | None = None
    _looked: float = 0.0
    _news: News = field(default_factory=News)

    def __post_init__(self) -> None:
        """Begin with what was learned before."""
        self.learned = read_estimates(self._folder, GUESS)

    @property
    def _folder(self) -> Path:
        return self.settings.checkpoint_root / self.job

    def limits(self) -> RateLimits:
        """What the settings allow; a job that rests for long may work for half of that."""
        jobs = self.settings.jobs
        return RateLimits(
            most=jobs.max_offsets_per_batch,
            least=min(jobs.least_offsets_per_batch, jobs.max_offsets_per_batch),
            steady_seconds=max(jobs.steady_batch_seconds, (self._pause or 0.0) / 2),
            behind_seconds=jobs.behind_batch_seconds,
            memory=jobs.batch_memory_mb * 2**20,
        )

    def budget(self, rows: int) -> AdmissionBudget:
        """So many rows, and no more bytes than memory allows, whatever the rows are like."""
        return AdmissionBudget(rows, int(self.limits().memory / self.learned.memory.slope))

    def first(self, folder: Location) -> int:
        """How many files of a table the first batch takes; to be asked before the query starts."""
        identity = table_id(folder)
        self._folders[identity] = folder
        spark = self._folder / "spark" / "offsets"
        newest = max(numbers(spark), default=None)
        if newest is None:
            return ALL
        try:
            self._began = [place(line) for line in offset_lines(spark / str(newest))]
            positions = dict(filter(None, self._began))
            # A new input, or one whose first snapshot is still read: it has no place in commits.
            if identity not in positions:
                return ALL
            before, (most,) = self.pace, self._plan([(identity, positions[identity])])
        except (Damaged, Fatal, OSError, ValueError):
            return ALL  # what is damaged is named where the job starts
        # `_plan` sees one table here, and an empty one would end the catch-up of another.
        if before.regime == "behind":  # by another of its tables
            self.pace = before
        return most

    def start(self, pause: float | None) -> float | None:
        """The trigger to start with: none to wait for while behind."""
        self._pause = pause
        return 0.0 if pause is not None and self.pace.regime == "behind" else pause

    def attach(self, control: QueryControl, pulse: Pulse) -> None:
        """The query runs."""
        rests = self._pause if self.pace.regime == "steady" else 0.0
        self._query, self._pulse = _Query(control, rests), pulse
        self._attached.set()

    def after(self, offsets: str, seconds: float) -> None:
        """A batch is in, and the next one not planned: say how much that takes."""
        # Spark runs batches in a thread of its own: the first may be in before `attach` was called.
        if not self._attached.wait(10.0):
            return
        with self._lock:
            try:
                before, self._taken = self._taken, _places(offsets)
                # The first batch also loads and compiles: it teaches nothing.
                if before is not None:
                    insisting(partial(self._learn, before, self._taken, seconds))
                insisting(partial(self._steer, self._taken))
            except Exception as error:
                self._give_way(error)

    def look(self) -> None:
        """While the job rests for long: bound the next batch by what has come meanwhile."""
        pause = self._pause or 0.0
        # Spark asks for the limits while it plans a batch, so they are set between two only.
        if pause < LONG or self._pulse.under_way or not self._attached.is_set():
            return
        if time.monotonic() - self._looked < pause / 10:
            return
        with self._lock:
            self._looked = time.monotonic()
            taken = self._taken or self._began
            try:
                # Once more: a batch may have begun while this thread waited for the lock.
                if taken is not None and not self._pulse.under_way:
                    self._steer(taken)
            except (OSError, HeadgateError):
                return  # what was set when the last batch was in holds on
            except Exception as error:
                self._give_way(error)

    def _give_way(self, error: Exception) -> None:
        """Without limits that fit, all that is there is taken, as Delta would."""
        self._news.tell(f"job {self.job}: how much a batch takes cannot be set: {error}")
        if self._query is not None and self._taken is not None:
            with suppress(Exception):  # it may be what cannot be done
                self._query.limit([ALL] * len(self._taken))

    def _learn(self, before: _Places, now: _Places, seconds: float) -> None:
        rows = size = 0
        for old, new in zip(before, now, strict=True):
            if old is None or new is None or new[0] not in self._folders:
                continue
            for piece in commit_pieces(self._folders[new[0]], *old):
                # A negative index is in front of its version: the batch ended with the one before.
                if piece.version > new[1].version - (new[1].index < 0):
                    break
                rows, size = rows + piece.rows, size + piece.bytes
        self.learned = self.learned.seen(BatchSeen(rows, size, seconds, memory=0, left=0))

    def _steer(self, taken: _Places) -> None:
        assert self._query is not None
        before = self.pace
        self._query.limit(self._plan(taken))
        if self._pause is not None:
            self._query.rest(self._pause if self.pace.regime == "steady" else 0.0)
        self._pulse.cap, self._pulse.regime = self.pace.cap, self.pace.regime
        # Also while it runs: a driver that is killed keeps most of what was learned.
        if before.regime != self.pace.regime:
            write_estimates(self._folder, self.learned)

    def _plan(self, taken: _Places) -> list[int]:
        """Files of each input that the next batch takes; the pace is then that of what waits."""
        # As far as the largest batch that is ever taken: what lies beyond says nothing of the next
        # one.
        reach = self.budget(self.limits().most)
        looked = [
            commits_ahead(commit_pieces(self._folders[piece_row[0]], *piece_row), reach)
            if piece_row is not None and piece_row[0] in self._folders
            else ([], True)
            for piece_row in taken
        ]
        waiting = [result for result, _ in looked]
        left = sum(piece.rows for result in waiting for piece in result)
        if not all(whole for _, whole in looked):
            left = max(left, self.limits().most + 1)  # more than was looked at
        self.pace = paced(self.pace, left, self.learned, self.limits())
        budget = self.budget(self.pace.cap)
        counts = together(waiting, budget)
        return [
            files_of(result, count, whole)
            for count, (result, whole) in zip(counts, looked, strict=True)
        ]

    def stop(self) -> None:
        """Keep what was learned."""
        if self._taken is not None:
            write_estimates(self._folder, self.learned)


def _places(offsets: str) -> _Places:
    # Spark's offset log: a version, a line of metadata, then a line for each source.
    return [place(line) for line in offsets.splitlines()[2:]]


class _Query:
    """The two things of a running query that are set from here, each only when it changes."""

    def __init__(self, control: QueryControl, rests: float | None) -> None:
        self._control = control
        self._rests = rests
        self._limits: list[int] | None = None

    def limit(self, files: Sequence[int]) -> None:
        """The most files of each source, in their order, that a batch takes from now on."""
        if files == self._limits:
            return
        self._control.limit_files(files)
        self._limits = list(files)

    def rest(self, seconds: float) -> None:
        """How far apart batches begin from the next one on; 0: one follows the other."""
        if not seconds:
            self._control.leave_out(())  # nobody wakes it, who would know what is new
        if seconds == self._rests:
            return
        self._control.space_batches(seconds)
        self._rests = seconds
