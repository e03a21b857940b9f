"""`headgate reparse`: history read again with today's parsers, while the jobs run.

The records of a source that were received in a span are parsed again from bronze, and
silver's rows of them replaced, slice by slice (`ingest.reparse.slice_rewrite`), as far as ingest
says that all it received is in. Streams pass over these commits, so nothing downstream is computed
again: findings, alerts and sessions stay as they are. Counts are asked for anew
(`ingest.reparse.recount`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from infra.config.time_args import instant
from infra.delta.duckdb_views import connect, require_lake
from infra.delta.log_reader import newest_first
from infra.delta.transaction import Moved
from infra.errors import Fatal, Retryable, Usage
from infra.process.os_user import acting_user
from infra.process.priority import stand_back
from infra.storage.paths import beginning, delete
from infra.storage.state_file import InstantText, StateFile
from infra.streaming.job_lock import JobLock
from infra.streaming.outbox import put_row
from ingest.parsing.source import ParseSettings, lookup
from ingest.quality.silence_rules import OURS, finished
from ingest.reparse.recount import Recounts, of_counts
from ingest.reparse.slice_rewrite import Counts, RewriteSpan, Slice
from ingest.tables import EVENT

if TYPE_CHECKING:
    import duckdb

    from infra.config.settings import Settings
    from infra.streaming.lake import Lake

REPARSE_JOB = "reparse"
# It shares the machine with the live jobs, which go first.
_NICE = 10
_SLICE_ROWS = 20_000
"""Rows of one commit: what is held in memory, and what a crash does again."""
_TRIES = 5

_OF_SOURCE = "(source = $source OR starts_with(source, $source || ':'))"
_DAYS = f"""
SELECT DISTINCT source, time_bucket(INTERVAL 1 DAY, received_at) AS day FROM silver.event
WHERE {_OF_SOURCE} AND received_at >= $since AND received_at < $until
ORDER BY source, day
"""
_TIMES = """
SELECT received_at, count(*) FROM silver.event
WHERE source = $source AND received_at >= $since AND received_at < $until
GROUP BY received_at ORDER BY received_at
"""


@dataclass
class ReparseProgress:
    """How far a run has got, beside the checkpoints: the same command goes on from there."""

    asked: str
    run_id: str
    until: InstantText
    """The end of the span, as ingest had got when the run began."""
    done: dict[str, InstantText] = field(default_factory=dict)
    """By source, up to where its rows are done."""
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True)
class Reparsed:
    """What a run came to, and the span it looked at."""

    counts: Counts
    since: datetime
    until: datetime
    run_id: str
    hours: tuple[datetime, ...] = ()
    """Hours of arrival whose counts were asked for anew."""


def reparse(
    lake: Lake,
    source: str,
    since: datetime,
    until: datetime | None = None,
    *,
    dry: bool = False,
    tell: Callable[[str], None] = lambda sentence: None,
    slice_rows: int = _SLICE_ROWS,
) -> Reparsed:
    """Read the records of `source`, or of a family's sources, received in `[since, until)` again.

    `until` None: all that is in. A run that was cut off goes on when the same is asked again.
    Raises `Fatal` when ingest has never said how far it is or nothing of the span is
    complete, and when another reparse runs.
    """
    folder = lake.settings.checkpoint_root / REPARSE_JOB
    lock = JobLock(folder, REPARSE_JOB)
    try:
        connection = connect(
            lake.settings.lake_root,
            needs=("bronze.record", "silver.event"),
            memory=lake.settings.api.statement_memory,
        )
        try:
            end = _complete(connection, since, until, tell)
            request = f"{source} {since.isoformat()} {until.isoformat() if until else 'all'}"
            run = _Run(lake, folder, request, end, dry)
            spans = _spans(connection, source, since, run, slice_rows)
            _through(lake, spans, run, tell)
        finally:
            connection.close()
        hours = tuple(run.recounts.hours)
        return Reparsed(run.counts, since, run.until, run.progress.run_id, hours)
    finally:
        lock.release()


def _complete(
    connection: duckdb.DuckDBPyConnection,
    since: datetime,
    until: datetime | None,
    tell: Callable[[str], None],
) -> datetime:
    """The end of the part of a span that is complete."""
    reached = finished(connection)
    if reached is None:
        raise Fatal("ingest has not said yet how far it is (no heartbeat in silver.event); run it")
    if reached <= since:
        raise Fatal(f"ingest is complete up to {reached.isoformat()} only; nothing to do before it")
    if until is None:
        return reached
    if reached < until:
        tell(f"complete up to {reached.isoformat()} only; what came later is left as it is")
    return min(until, reached)


def reparse_progress_file(folder: Path) -> StateFile[ReparseProgress]:
    """Where a reparse keeps how far it is."""
    remedy = "remove it: the same command then begins anew, and takes nothing twice"
    return StateFile(folder / "progress.json", ReparseProgress, remedy)


class _Run:
    """One run: its progress, and the files of attempts that came to nothing."""

    def __init__(self, lake: Lake, folder: Path, request: str, until: datetime, dry: bool) -> None:
        self.dry = dry
        self._file = reparse_progress_file(folder)
        fresh = ReparseProgress(request, uuid.uuid4().hex[:12], until.isoformat())
        self.progress = fresh if dry else self._earlier(request) or fresh
        # As it was when the run began: a run that goes on must end where it said.
        self.until = datetime.fromisoformat(self.progress.until)
        self.counts = self.progress.counts
        self.folder = folder / "parsed"
        # What a killed run parsed is of no use: its slice is read again.
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.prefix = f"{REPARSE_JOB}-{self.progress.run_id}-"
        # By this in the log a later start tells its own commits from those of others.
        self.note = json.dumps({REPARSE_JOB: self.progress.run_id})
        self.recounts = Recounts(lake, REPARSE_JOB)
        if not dry:
            self._clear(lake)
            self._save()

    def _earlier(self, request: str) -> ReparseProgress | None:
        before = self._file.read()
        return before if before is not None and before.asked == request else None

    def _save(self) -> None:
        self._file.write(self.progress)

    def _clear(self, lake: Lake) -> None:
        """Take away files of this run that no commit named."""
        table = lake.folder(EVENT)
        left = {path.name: path for path in beginning(table, self.prefix)}
        if not left:
            return
        for commit in newest_first(table):
            # A crash may come after the commit: such files are part of the table.
            if commit.user_metadata == self.note:
                for name in commit.adds:
                    left.pop(name, None)
        delete(left.values())

    def done(self, span: RewriteSpan, counts: Counts) -> None:
        """A slice is through."""
        self.counts.add(counts)
        self.progress.done[span.source] = span.until.isoformat()
        if not self.dry:
            self._save()

    def begin(self, source: str, since: datetime) -> datetime:
        """Where the rows of a source are still to be done."""
        done = self.progress.done.get(source)
        return since if done is None else max(since, datetime.fromisoformat(done))

    def end(self) -> None:
        """All is through: the same command begins anew."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if not self.dry:
            self._file.remove()


def _spans(
    connection: duckdb.DuckDBPyConnection, source: str, since: datetime, run: _Run, most: int
) -> Iterator[RewriteSpan]:
    """The span in slices of about `most` rows; rows received at one instant stay together."""
    bounds = {"source": source, "since": since, "until": run.until}
    for name, day in connection.execute(_DAYS, bounds).fetchall():
        if name in OURS:
            continue
        begin = run.begin(name, max(since, day))
        end = min(run.until, day + timedelta(days=1))
        if begin >= end:
            continue
        start, rows = begin, 0
        times = connection.execute(_TIMES, {"source": name, "since": begin, "until": end})
        for hour, count in times.fetchall():
            # Cut only between instants, so that the next slice can begin exactly where this one
            # ends.
            if rows and rows + count > most:
                yield RewriteSpan(name, start, hour)
                start, rows = hour, 0
            rows += count
        if rows:
            yield RewriteSpan(name, start, end)


def _through(
    lake: Lake, spans: Iterator[RewriteSpan], run: _Run, tell: Callable[[str], None]
) -> None:
    parsing = ParseSettings.of(lake.settings)
    for span in spans:
        counts = _again(lake, parsing, span, run)
        run.done(span, counts)
        tell(
            f"{span.source} up to {span.until:%Y-%m-%d %H:%M:%S}: {run.counts.records:,} records, "
            f"{run.counts.changed + run.counts.added:,} rows new or changed"
        )
    run.end()


def _again(lake: Lake, parsing: ParseSettings, span: RewriteSpan, run: _Run) -> Counts:
    """A slice, tried again where somebody else replaced the same files meanwhile."""
    for _ in range(_TRIES):
        piece = Slice(lake, parsing, span, run.folder, run.recounts)
        try:
            return piece.rewrite(run.prefix, run.note, dry=run.dry)
        # Compaction or an erasure came first; the slice is read again from the table as it is then.
        except Moved as moved:
            last = moved
        finally:
            for file in run.folder.glob("*.parquet"):
                file.unlink(missing_ok=True)
    raise Retryable(f"silver.event: {last} was replaced by others {_TRIES} times; try again later")


# -- command -----------------------------------------------------------------------------------


def build(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `reparse` to the command."""
    parser = subparsers.add_parser(
        "reparse",
        help="read history again with today's parsers, while the jobs run",
        description="Parses the records of a source again from bronze and replaces their rows in "
        "silver, as far as ingest is complete. Streams pass over it: findings and alerts stay "
        "as they are. Killed or interrupted, the same command goes on where it was.",
    )
    parser.add_argument("--from", dest="since", required=True, help="received since (an instant)")
    parser.add_argument("--to", dest="until", help="received before (default: all that is in)")
    parser.add_argument("--source", required=True, help="zeek:conn, sshd, ...; zeek: all of it")
    parser.add_argument("--dry-run", action="store_true", help="only say what would change")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.set_defaults(run=reparse_command)


def reparse_command(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate reparse`: 0 when all of the span that is complete has been read again."""
    from infra.spark.session import session
    from infra.streaming.lake import Lake

    lookup(args.source)
    since = instant("--from", args.since).astimezone(UTC)
    until = instant("--to", args.until).astimezone(UTC) if args.until else None
    if until is not None and since >= until:
        raise Usage(f"--from {args.since}: not before --to {args.until}")
    require_lake(settings.lake_root)
    # Before Spark starts, whose processes inherit it.
    stand_back(_NICE)
    spark = session(settings, "headgate reparse")
    request: dict[str, object] = {"source": args.source, "from": since.isoformat()}
    request["to"] = until.isoformat() if until else None
    try:
        lake = Lake(spark, settings)
        done = reparse(lake, args.source, since, until, dry=args.dry_run, tell=_say)
    except Exception as error:
        if not args.dry_run:
            _note(settings, request | {"said": str(error)[:500]}, "failed")
        raise
    finally:
        spark.stop()
    counts = asdict(done.counts)
    if not args.dry_run:
        message = {"until": done.until.isoformat(), "run": done.run_id, **counts}
        _note(settings, request | message, "ok")
    if args.output == "json":
        message = {"to": done.until.isoformat(), "dry": args.dry_run, "recounts": len(done.hours)}
        print(json.dumps({**request, **message, **counts}))
    else:
        lines = [*_sentences(done.counts, dry=args.dry_run), *of_counts(settings, done.hours)]
        print("\n".join(lines))
    return 0


def _note(settings: Settings, detail: dict[str, object], outcome: str) -> None:
    """Leave a row for ops.audit."""
    instant = datetime.now(UTC)
    put_row(
        settings.home.absolute() / "spool" / "audit",
        f"reparse-{instant:%Y%m%dT%H%M%S%f}",
        {
            "at": instant.isoformat(),
            "who": acting_user(),
            "act": REPARSE_JOB,
            "target": f"silver.event {detail['source']}",
            "detail": json.dumps(detail),
            "outcome": outcome,
        },
    )


def _sentences(counts: Counts, *, dry: bool) -> Iterator[str]:
    would = "would be " if dry else ""
    yield f"{counts.records:,} records read again"
    yield (
        f"{counts.same:,} rows stay as they are, {counts.changed:,} {would}changed, "
        f"{counts.added:,} {would}added, {counts.removed:,} {would}removed"
    )
    yield f"dead letters: {counts.dead_before:,} before, {counts.dead_after:,} after"
    if counts.missing:
        yield f"{counts.missing:,} records are in bronze no more; their rows stay as they are"
    if not dry:
        yield f"{counts.commits} commits; findings and alerts are not raised again"


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
