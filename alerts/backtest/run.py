"""A backtest as something that takes a while: in chunks, kept, and taken up where it was left.

Layout under `<home>/backtests/<id>/`: `run.json` says what was asked, on which
versions of the tables, and which chunks are through; `findings/` and
`attributed/` hold Parquet files; `result.json` and `alerts-*.json` what it came to.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from alerts.backtest.fold import Refold
from alerts.backtest.plain_history import SMALL_ROWS, PlainHistory
from alerts.backtest.rule_selection import Chosen, warm_up_seconds
from alerts.compiler.enrichment_predicates import inventories
from alerts.domain.finding import finding_schema
from alerts.matching.arrow_values import row_dictionaries
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, RulePack
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import Settings
from infra.delta.duckdb_views import open_engine, reach
from infra.delta.parquet_writer import DataFile, Target, collected, write_parquet
from infra.delta.table_locations import TableLocations
from infra.delta.time_travel import require_files
from infra.errors import Fatal
from infra.process.log import say
from infra.storage.paths import location
from infra.storage.state_file import InstantText, JsonLayout, StateFile
from infra.streaming.job_lock import JobLock
from ingest.tables import EVENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from alerts.backtest.history_match import EventHistory
    from infra.streaming.lake import Lake

CHUNKS = tuple(timedelta(hours=hours) for hours in (1, 6, 24, 7 * 24, 28 * 24))
MOST_CHUNKS = 30
"""A chunk is what an interruption does again; each costs Spark a second or so by itself."""

READ_ROWS = 5_000

RESUMED = timedelta(days=1)
"""A run left for longer begins anew: what it was asked about lies too far back."""

KEEP = 30
"""Results kept; older ones go when a new backtest ends."""

_Tell = Callable[[str], None]


@dataclass
class Run:
    """What was asked, on what it runs, and how far it is; kept in `run.json`."""

    id: str
    asked: str
    rules: list[str]
    against: str | None
    since: InstantText
    until: InstantText
    warm_since: InstantText
    chunk_seconds: int
    packs: dict[str, str]
    ids: dict[str, list[str]]
    versions: dict[str, int]
    began: InstantText
    chunks: dict[str, list[str]] = field(default_factory=dict)
    """Files of findings, by the chunk's number."""
    attributed: list[str] | None = None
    finished: InstantText | None = None

    def span(self) -> tuple[datetime, datetime]:
        """[since, until)."""
        return datetime.fromisoformat(self.since), datetime.fromisoformat(self.until)

    def pieces(self) -> list[tuple[str, datetime, datetime]]:
        """The chunks, the time before the span included, by number."""
        begin, end = datetime.fromisoformat(self.warm_since), self.span()[1]
        step = timedelta(seconds=self.chunk_seconds)
        # Rounded up: the last chunk may be shorter, and must not be left out.
        many = range(-(-(end - begin) // step))
        return [(str(n), begin + n * step, min(begin + (n + 1) * step, end)) for n in many]


@dataclass(frozen=True)
class BacktestRequest:
    """What to run: rules, perhaps against others, over events in [since, until)."""

    names: tuple[str, ...]
    rules: Chosen
    since: datetime
    until: datetime
    against: Chosen | None = None
    against_name: str | None = None
    span: str = ""
    """The span as it was written: 7d, asked again, means the span it meant when the run began."""

    def sides(self) -> dict[str, Chosen]:
        """`new`, and `old` where there is one."""
        return {"new": self.rules} | ({"old": self.against} if self.against else {})


def backtest_folder(settings: Settings) -> Path:
    """Where backtests are kept."""
    return settings.home.absolute() / "backtests"


def stored_backtests(settings: Settings) -> list[Run]:
    """All backtests that are kept, the newest first."""
    runs = []
    for path in backtest_folder(settings).glob("*/run.json"):
        if (run := _file(path).read_or(None, say)) is not None:
            runs.append(run)
    return sorted(runs, key=lambda run: run.began, reverse=True)


def forget_backtest(settings: Settings) -> None:
    """Take away the oldest results beyond `KEEP`, and what was left unfinished for too long."""
    runs = stored_backtests(settings)
    stale = [run for run in runs if run.finished is None and not _fresh(run)]
    for run in [*[run for run in runs if run.finished][KEEP:], *stale]:
        folder = backtest_folder(settings) / run.id
        with suppress(Fatal):  # it is still being worked on
            lock = JobLock(folder, f"backtest {run.id}")
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


def _fresh(run: Run) -> bool:
    return datetime.now(UTC) - datetime.fromisoformat(run.began) < RESUMED


def require_fit_queries(request: BacktestRequest, lake: Callable[[], Lake]) -> None:
    """Refuse a query that may not go live before an hour of history is read.

    Raises `Usage` with the reason; where no rule is a query, `lake` is not asked for.
    """
    queries = [query for side in request.sides().values() for query in side.pack.queries]
    if queries:
        from alerts.spark_rules.rule_tests import require_fit

        require_fit(lake().spark, queries)


def begin_backtest(settings: Settings, request: BacktestRequest) -> Run:
    """The run for a wish: the one that was left unfinished, or a new one on the newest versions."""
    asked, places = _request_digest(settings, request), TableLocations(settings)
    for run in stored_backtests(settings):
        # Only on the versions it began with: half of a result must not be of other events.
        if run.asked == asked and _fresh(run) and run.finished is None and _readable(places, run):
            return run
    store = PackStore(store_folder(settings))
    warm = max(
        warm_up_seconds(side.pack, settings.alerts.dedup_seconds)
        for side in request.sides().values()
    )
    # Windows and open alerts that reach into the span began before it.
    warm_since = request.since - timedelta(seconds=warm)
    run = Run(
        id=f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}",
        asked=asked,
        rules=list(request.names),
        against=request.against_name,
        since=request.since.isoformat(),
        until=request.until.isoformat(),
        warm_since=warm_since.isoformat(),
        chunk_seconds=int(chunk(request.until - warm_since).total_seconds()),
        # Workers read packs from the store, so those that were never live go there, too.
        packs={side: store.put(chosen.pack) for side, chosen in request.sides().items()},
        ids={side: list(chosen.ids) for side, chosen in request.sides().items()},
        versions={table.name: places.version(table) for table in (EVENT, DHCP_SEGMENT)},
        began=datetime.now(UTC).isoformat(),
    )
    _save(settings, run)
    return run


def _request_digest(settings: Settings, request: BacktestRequest) -> str:
    """What makes two wishes the same: the content of the rules, not what they are called by."""
    what: list[Any] = [request.span or f"{request.since.isoformat()} {request.until.isoformat()}"]
    what += [(side, chosen.ids, chosen.pack.hash) for side, chosen in request.sides().items()]
    # Settings that change the answer make another wish, though the rules are the same.
    what += [settings.jobs.wait_seconds, settings.alerts.dedup_seconds]
    what += [scope.model_dump(mode="json") for scope in settings.scopes]
    return sha256(json.dumps(what, default=str).encode()).hexdigest()[:16]


def chunk(span: timedelta) -> timedelta:
    """How much of a span is matched at once."""
    # The smallest that keeps their number bounded: short spans then lose little when interrupted.
    return next((c for c in CHUNKS if span / c <= MOST_CHUNKS), CHUNKS[-1])


def _readable(places: TableLocations, run: Run) -> bool:
    """Whether the versions a run began on can still be read: their log, and each of their files."""
    with open_engine(memory="256MB", threads=1) as engine:
        try:
            for table in (EVENT, DHCP_SEGMENT):
                reach(engine, places.folder(table))
                version = run.versions[table.name]
                folder = location(places.path_at(table, version))
                began = datetime.fromisoformat(run.began)
                # The log alone is not enough: VACUUM may have taken files of an old version.
                require_files(engine, table.name, folder, version, began)
        except Exception:  # whatever is said of a version that is gone: the run begins anew
            return False
    return True


def _save(settings: Settings, run: Run) -> None:
    _file(backtest_folder(settings) / run.id / "run.json").write(run)


def _file(path: Path) -> StateFile[Run]:
    remedy = f"remove {path.parent}; the backtest can be run again"
    return StateFile(path, Run, remedy, layout=JsonLayout.INDENTED)


class Backtest:
    """One run's work: match chunk by chunk, attribute, fold."""

    def __init__(
        self, settings: Settings, lake: Callable[[], Lake], run: Run, *, small: int = SMALL_ROWS
    ) -> None:
        self.settings = settings
        self.run = run
        self.folder = backtest_folder(settings) / run.id
        self._store = PackStore(store_folder(settings))
        self._lake = lake
        versions = (run.versions[EVENT.name], run.versions[DHCP_SEGMENT.name])
        self._plain = PlainHistory(settings, *versions, small)

    def through(self, tell: _Tell) -> dict[str, Refold]:
        """Do what is left to do; what each side tells. Raises `Fatal` while another does it."""
        lock = JobLock(self.folder, f"backtest {self.run.id}")
        try:
            self._match(tell)
            if self.run.attributed is None:
                tell("attribution, as it was known then")
                self._attribute()
            return {side: self._fold(side, tell) for side in self.run.packs}
        finally:
            lock.release()

    def finding_files(self) -> list[Path]:
        """Files of findings without attribution."""
        return [self.folder / "findings" / f for names in self.run.chunks.values() for f in names]

    def finish(self) -> None:
        """All is through and kept: the same wish begins anew; what only led to it is taken away."""
        self.run.finished = datetime.now(UTC).isoformat()
        _save(self.settings, self.run)
        shutil.rmtree(self.folder / "findings", ignore_errors=True)
        shutil.rmtree(self.folder / "attributed", ignore_errors=True)

    def _match(self, tell: _Tell) -> None:
        packs = [self._store.get(pack) for pack in dict.fromkeys(self.run.packs.values())]
        pieces = self.run.pieces()
        for number, since, until in pieces:
            # Matched before an interruption; its files are there.
            if number in self.run.chunks:
                continue
            files = self._matched_files(number, since, until, packs)
            # Noted once the files are whole: a chunk that was cut off is matched again.
            self.run.chunks[number] = [file.name for file in files]
            _save(self.settings, self.run)
            so_far = sum(len(names) for names in self.run.chunks.values())
            tell(
                f"events up to {until:%Y-%m-%d %H:%M}: {int(number) + 1} of {len(pieces)} chunks, "
                f"{sum(file.rows for file in files):,} findings in this one, {so_far} files"
            )

    def _matched_files(
        self, number: str, since: datetime, until: datetime, packs: Sequence[RulePack]
    ) -> list[DataFile]:
        """What the packs find in a chunk, as files."""
        folder = self.folder / "findings"
        if not self._plain.can_match(since, until, packs):
            parts = self._history.parts(since, until, str(self._store.folder), packs)
            return write_parts(parts, folder, number)
        target = fresh_target(folder, f"{number}-", finding_schema())
        return self._plain.findings(since, until, str(self._store.folder), packs, target)

    def _attribute(self) -> None:
        files = self.finding_files()
        self.run.attributed = []
        if files:
            first, last = datetime.fromisoformat(self.run.warm_since), self.run.span()[1]
            # A lease that began before the span may still run within it.
            first -= timedelta(seconds=self.settings.jobs.max_lease_seconds)
            folder, schema = self.folder / "attributed", attributed_schema()
            if self._plain.can_attribute(files, first, last):
                written = self._plain.attributed(files, fresh_target(folder, "all-", schema))
            else:
                rows = self._history.attributed(files, self.settings, first, last)
                written = write_rows(rows, folder, "all-", schema)
            self.run.attributed = [file.name for file in written]
        _save(self.settings, self.run)

    @cached_property
    def _history(self) -> EventHistory:
        """The same over Spark, which is started where this process alone does not do."""
        from alerts.backtest.history_match import EventHistory

        versions = (self.run.versions[EVENT.name], self.run.versions[DHCP_SEGMENT.name])
        return EventHistory(self._lake(), *versions)

    def _fold(self, side: str, tell: _Tell) -> Refold:
        pack = self._store.get(self.run.packs[side])
        wanted = [*self.run.ids[side], *(c.id for c in pack.correlations)]
        refold = Refold(self._store.get, self.settings, wanted, index=inventories(self.settings))

        def heard(taken: int, now: int) -> None:
            instant = datetime.fromtimestamp(now / 1e6, UTC)
            tell(f"folding ({side}): {taken:,} findings, up to {instant:%Y-%m-%d %H:%M}")

        refold.run(self._rows(pack.hash), heard)
        return refold

    def _rows(self, pack: str) -> Iterator[dict[str, Any]]:
        files = [self.folder / "attributed" / name for name in self.run.attributed or ()]
        memory = self.settings.api.statement_memory
        return findings_in_order(files, self.folder / "sorting", memory, pack)


def write_rows(rows: DataFrame, folder: Path, prefix: str, schema: pa.Schema) -> list[DataFile]:
    """Rows as Parquet files in a folder, in the place of what an earlier attempt left there."""
    target = fresh_target(folder, prefix, schema)
    return collected(rows.select(*schema.names), partial(write_parquet, target=target))


def fresh_target(folder: Path, prefix: str, schema: pa.Schema) -> Target:
    """Where such files are written; what an earlier attempt left there is taken away."""
    folder.mkdir(parents=True, exist_ok=True)
    # An attempt that was killed may have left files, and the reader takes all there are.
    for leftover in folder.glob(f"{prefix}*"):
        leftover.unlink(missing_ok=True)
    return Target(folder.name, folder, prefix, schema, ())


def write_parts(
    parts: Iterator[tuple[str, Callable[[], DataFrame]]],
    folder: Path,
    number: str | int,
    passed_over: _Tell | None = None,
) -> list[DataFile]:
    """Findings of `History.parts` as files of a folder.

    Raises `Fatal` naming a query that fails; with `passed_over` that is told, and the others count.
    """
    from alerts.spark_rules.plan import failure_sentence

    files: list[DataFile] = []
    for part, (title, made) in enumerate(parts):
        try:
            files += write_rows(made(), folder, f"{number}-{part}-", finding_schema())
        except Exception as error:  # a person's query may raise anything
            if not title:
                raise
            message = f"{title}: {failure_sentence(error)}; correct the rule"
            if passed_over is None:
                raise Fatal(message) from None
            passed_over(message)
    return files


def findings_in_order(
    files: Sequence[Path], sorting: Path, memory: str, pack: str | None = None
) -> Iterator[dict[str, Any]]:
    """Attributed findings in files, of one pack or of all, as they became available.

    `sorting`: a folder for what finds no room in `memory`. Raises `Fatal` when even so it is
    too much.
    """
    if not files:
        return
    connection = open_engine(memory=memory, threads=2)
    try:
        # Quotes are doubled, as the path stands in the text of the statement.
        connection.execute(f"SET temp_directory = '{str(sorting).replace(chr(39), chr(39) * 2)}'")
        answer = connection.execute(
            "SELECT * FROM read_parquet($files) WHERE $pack IS NULL OR pack = $pack "
            # A total order: the fold must see equal times in the same order on each run.
            "ORDER BY available_at, event_time, finding_id",
            {"files": [str(file) for file in files], "pack": pack},
        )
        for batch in answer.fetch_record_batch(READ_ROWS):
            yield from row_dictionaries(batch)
    except duckdb.OutOfMemoryException as error:
        raise Fatal(
            f"{len(files)} files of findings are too many for api.statement_memory = "
            f"{memory}: raise it, or take a shorter span ({str(error).splitlines()[0]})"
        ) from None
    finally:
        connection.close()


def attributed_schema() -> pa.Schema:
    """Findings as `alerts.backtest.history_match.attributed` gives them."""
    return pa.schema([*finding_schema(), *_MORE])


_MORE: Sequence[pa.Field] = (
    pa.field("attr_rev", pa.int64()),
    pa.field("via", pa.string()),
    pa.field("available_at", pa.timestamp("us", "UTC")),
)
