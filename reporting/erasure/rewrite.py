"""Taking a person or a device out of all tables, beside the jobs that run.

Each table's files are read, those that name the subject are written anew without the rows, or
with other words in them, and put in the place of the old ones in commits that streams pass
over. A commit names the erasure, so what was done is read from the tables' logs: a run that
was cut off goes on where it was, and one that is through finds nothing the second time.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.delta.catalog import catalog
from infra.delta.data_files import ActiveFile
from infra.delta.log_reader import commit, commit_text, newest_version, versions
from infra.delta.parquet_writer import DataFile, FileWriter, Target, whole_schema
from infra.delta.schema import Table
from infra.delta.transaction import Moved, active_files, as_old
from infra.errors import Fatal, Retryable
from infra.storage.paths import Location, beginning, delete, to_read
from infra.streaming.lake import Lake
from ingest.reparse.recount import AHEAD, Recounts
from reporting.erasure.subject_match import Search, Word

_ROWS = 20_000
_FILES_AT_ONCE = 50
"""Files of one commit: what a crash does again."""
_TRIES = 5
BLANK = "[erased]"
_EVENT, _RECORD, _FINDING = "silver.event", "bronze.record", "gold.finding"
_ATTRIBUTION, _ATTRIBUTED = "gold.attribution", "gold.attributed_event"
IDS = {
    _RECORD: ("record_id",),
    _FINDING: ("finding_id", "event_uid"),
    _ATTRIBUTED: ("event_uid",),
    _ATTRIBUTION: ("finding_id",),
}
"""Tables with rows that belong to the subject by an id, and the columns that tell it."""

_Tell = Callable[[str], None]


def keeps_rows(table: Table) -> bool:
    """Whether a row stays in any case, and only its words go.

    Alerts, so that their counts stay; what people did, since it is the proof of it; and what the
    platform says of itself, which is about no person.
    """
    return table.name in ("gold.alert", "gold.alert_action") or table.name.startswith("ops.")


@dataclass(frozen=True)
class Erasure:
    """What is to be done: whose words, and whether rows go or only the words in them."""

    id: str
    search: Search
    removes: bool


@dataclass
class _Counts:
    """What one table came to."""

    removed: int = 0
    replaced: int = 0
    files: int = 0


@dataclass
class Linked:
    """What belongs to the subject by its id, where it may not be named itself."""

    events: set[str] = field(default_factory=set)
    records: set[str] = field(default_factory=set)
    findings: set[str] = field(default_factory=set)

    @property
    def size(self) -> int:
        """How many ids there are."""
        return len(self.events) + len(self.records) + len(self.findings)

    def known(self, table: str) -> int:
        """How many ids there are that rows of a table may have."""
        if table == _RECORD:
            return len(self.records)
        if table in (_FINDING, _ATTRIBUTED):
            return len(self.events)
        return len(self.findings) if table == _ATTRIBUTION else 0

    def rows(self, table: str, batch: pa.RecordBatch) -> pa.Array | None:
        """Which rows of a batch these are; None where the table has no such ids."""
        if table == _RECORD:
            return _among(batch, "record_id", self.records)
        if table in (_FINDING, _ATTRIBUTED):
            return _among(batch, "event_uid", self.events)
        if table == _ATTRIBUTION:
            return _among(batch, "finding_id", self.findings)
        return None

    def learn(self, table: str, batch: pa.RecordBatch) -> None:
        """Take the ids from rows that name the subject."""
        if table == _EVENT:
            self.events.update(batch.column("event_uid").to_pylist())
            self.records.update(pc.list_flatten(batch.column("record_ids")).to_pylist())
        elif table == _FINDING:
            self.findings.update(batch.column("finding_id").to_pylist())


class Eraser:
    """Goes through the tables; what it found clean it reads again only for ids learnt since."""

    def __init__(
        self,
        lake: Lake,
        erasure: Erasure,
        *,
        dry: bool,
        tell: _Tell,
        linked: Linked | None = None,
        keep: Callable[[Linked], None] = lambda linked: None,
    ) -> None:
        """`linked`: ids that an earlier run learnt. `keep`: keeps them for a later one."""
        self._lake = lake
        self._erasure = erasure
        self._dry = dry
        self._tell = tell
        self._clean: dict[str, dict[str, int]] = {}
        """By table, files in which nothing was found, and how many ids were looked for in each."""
        self._looked: dict[str, tuple[int, int]] = {}
        """Of each table the version in which nothing was found any more, and for how many ids."""
        self._linked = linked or Linked()
        self._keep = keep
        self._kept = self._linked.size
        # By these words a row is known as reworded; found again by its id, it needs nothing more.
        self._done = Search([Word(word.instead, "") for word in erasure.search.words])
        self._changed: set[tuple[datetime, datetime]] = set()
        """Hours in which events that go arrived, and those in which they count."""
        self._recounts = Recounts(lake, "erase")
        self.counts: dict[str, _Counts] = {}

    @property
    def recounts(self) -> int:
        """Hours whose counts were asked for anew, as events of them are gone."""
        return len(self._recounts.hours)

    def run(self) -> bool:
        """Go through all tables; whether there was anything to do.

        Raises `Retryable` when others keep replacing the same files.
        """
        before = sum(counts.files for counts in self.counts.values())
        by_name = {table.name: table for table in tables_there(self._lake)}
        # Ids are learnt before anything goes, and kept before the rows go that tell them. Bronze
        # goes before silver, so that no record is left that no event accounts for.
        for name in (_EVENT, _FINDING):
            if name in by_name:
                self._look(by_name[name])
        # Findings and events last: ids of other tables are learnt from them.
        last = [name for name in (_FINDING, _EVENT) if name in by_name]
        others = [name for name in by_name if name not in (_RECORD, *last)]
        for name in (*(name for name in (_RECORD,) if name in by_name), *others, *last):
            self._tell(name)
            self._through(by_name[name])
        return sum(counts.files for counts in self.counts.values()) > before

    def _look(self, table: Table) -> None:
        """Learn which ids are the subject's."""
        for file in self._unseen(table):
            for batch, result in self._judged(table, file):
                self._linked.learn(table.name, batch.filter(result))

    def _through(self, table: Table) -> None:
        last: Moved | None = None
        for _ in range(_TRIES):
            version = newest_version(self._lake.folder(table))
            if self._looked.get(table.name) == (version, self._known(table)):
                return
            try:
                while files := self._holding(table):
                    self._count(table, self._rewrite(table, files))
                    if self._dry:
                        return
                    version = newest_version(self._lake.folder(table))
                self._looked[table.name] = version, self._known(table)
                return
            except Moved as moved:
                last = moved
        raise Retryable(f"{table.name}: {last} was replaced by others {_TRIES} times; go on later")

    def _count(self, table: Table, done: _Counts) -> None:
        counts = self.counts.setdefault(table.name, _Counts())
        counts.removed += done.removed
        counts.replaced += done.replaced
        counts.files += done.files

    def _unseen(self, table: Table) -> list[ActiveFile]:
        """Files to look into: those that are new, and clean ones once there are more ids."""
        clean, known = self._clean.setdefault(table.name, {}), self._known(table)
        folder = self._lake.folder(table)
        if newest_version(folder) == 0 and not commit(folder, 0).adds:
            return []  # made, and never written to
        files = active_files(self._lake.spark, self._lake.path(table))
        cut = [file.name for file in files if file.has_deletions]
        if cut:
            raise Fatal(
                f"{table.name}: rows of {cut[0]} were deleted by another program and are still in "
                "the file; run REORG TABLE ... APPLY (PURGE) with it first"
            )
        return [file for file in files if clean.get(file.name, -1) < known]

    def _holding(self, table: Table) -> list[ActiveFile]:
        """Files that have to be written anew, at most as many as one commit takes."""
        active_files: list[ActiveFile] = []
        for file in self._unseen(table):
            if any(pc.any(rows).as_py() for _, rows in self._judged(table, file)):
                active_files.append(file)
                if len(active_files) == _FILES_AT_ONCE and not self._dry:
                    break
            else:
                self._clean[table.name][file.name] = self._known(table)
        return active_files

    def _known(self, table: Table) -> int:
        """How many ids are looked for in a table."""
        return self._linked.known(table.name) if self._by_id(table) else 0

    def _judged(self, table: Table, file: ActiveFile) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """A file's rows, and which are the subject's: by the columns that can name somebody.

        Where these were found clean already, by ids alone.
        """
        clean = file.name in self._clean.get(table.name, {})
        with pq.ParquetFile(to_read(self._lake.folder(table) / file.name)) as held:
            names = [field.name for field in held.schema_arrow if _can_name(field.type)]
            if clean and (self._erasure.removes or table.name != _RECORD):
                names = list(IDS[table.name])
            for batch in held.iter_batches(_ROWS, columns=names):
                yield batch, self._owned(table, batch) if clean else self._rows_naming(table, batch)

    def _rows_naming(self, table: Table, batch: pa.RecordBatch) -> pa.Array:
        """Which rows name the subject, or belong to it by an id."""
        array = pa.array([False] * batch.num_rows, pa.bool_())
        for column in batch.columns:
            array = pc.or_(array, self._erasure.search.rows(column))
        return pc.or_(array, self._owned(table, batch))

    def _owned(self, table: Table, batch: pa.RecordBatch) -> pa.Array:
        """Which rows belong to the subject by an id, and were not reworded already."""
        linked = self._linked.rows(table.name, batch) if self._by_id(table) else None
        if linked is None:
            return pa.array([False] * batch.num_rows, pa.bool_())
        if self._erasure.removes or not pc.any(linked).as_py():
            return linked
        raw = batch.column("raw")
        blank = pc.fill_null(pc.equal(raw, pa.scalar(BLANK.encode(), pa.binary())), False)
        return pc.and_(linked, pc.invert(pc.or_(blank, self._done.rows(raw))))

    def _by_id(self, table: Table) -> bool:
        """Rows that only an id ties to the subject go with it; words they have none to replace.

        A raw record is the exception: it may say the name in a form that nobody can search.
        """
        return self._erasure.removes or table.name == _RECORD

    def _rewrite(self, table: Table, files: Sequence[ActiveFile]) -> _Counts:
        folder, counts, added = self._lake.folder(table), _Counts(files=len(files)), []
        prefix = f"erase-{self._erasure.id}-{uuid.uuid4().hex[:8]}-"
        try:
            for file in files:
                made = self._anew(table, file, prefix, counts)
                added += [made] if made else []
            if not self._dry:
                self._keep_ids()
        except BaseException:
            delete(beginning(folder, prefix))
            raise
        if not self._dry:
            self._commit(table, files, added, counts)
        return counts

    def _keep_ids(self) -> None:
        """Keep what was learnt before the rows go that it was learnt from."""
        if self._linked.size != self._kept:
            self._keep(self._linked)
            self._kept = self._linked.size

    def _commit(
        self,
        table: Table,
        files: Sequence[ActiveFile],
        added: Sequence[DataFile],
        counts: _Counts,
    ) -> None:
        lines = {"removed": counts.removed, "replaced": counts.replaced}
        if table.name == _EVENT:
            # Before the commit: killed in between, hours are counted once too often, which changes
            # nothing.
            self._recounts.ask(self._changed)
        try:
            self._lake.replace(table, files, added, json.dumps({"erase": self._erasure.id} | lines))
        except Moved:
            # The only end that says that nothing was committed. After any other the new files may
            # be part of the table; where they are not, maintenance takes them.
            delete(self._lake.folder(table) / file.name for file in added)
            raise
        self._clean[table.name].update((file.name, self._known(table)) for file in added)

    def _anew(
        self, table: Table, file: ActiveFile, prefix: str, counts: _Counts
    ) -> DataFile | None:
        folder = self._lake.folder(table)
        removes = self._erasure.removes and not keeps_rows(table)
        # File by file with Arrow and not with Spark: a row must stay as it is but for the words.
        with pq.ParquetFile(to_read(folder / file.name)) as held:
            target = replace(
                Target.of(table, folder, prefix), schema=whole_schema(table, [held.schema_arrow])
            )
            writer = FileWriter(target)
            for batch in held.iter_batches(_ROWS):
                result = self._rows_naming(table, batch)
                self._linked.learn(table.name, batch.filter(result))
                # Arrow's sum of no rows is null.
                hits = int(pc.sum(result).as_py() or 0)
                if removes:
                    counts.removed += hits
                    if hits and table.name == _EVENT:
                        self._changed.update(_hours(batch.filter(result)))
                else:
                    counts.replaced += hits
                if not self._dry:
                    kept = batch.filter(pc.invert(result)) if removes else batch
                    writer.write(kept if removes or not hits else self._other_words(table, batch))
            made = writer.close()
            return made and as_old(made, [file])

    def _other_words(self, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [self._erasure.search.replaced(column) for column in batch.columns]
        made = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        if table.name != _RECORD:
            return made
        linked = self._owned(table, batch)
        # What belongs to the subject and does not name it in plain text cannot be reworded.
        field_index = made.schema.get_field_index("raw")
        unnamed = pc.and_(linked, pc.invert(self._erasure.search.rows(batch.column("raw"))))
        raw = pc.if_else(unnamed, pa.scalar(BLANK.encode(), pa.binary()), made.column(field_index))
        return made.set_column(field_index, made.schema.field(field_index), raw)


def _among(batch: pa.RecordBatch, column: str, ids: set[str]) -> pa.Array:
    # `is_in` lets a null among the wanted values match every null of the column.
    wanted = pa.array(sorted(name for name in ids if name is not None), pa.string())
    return pc.fill_null(pc.is_in(batch.column(column), value_set=wanted), False)


def _hours(events: pa.RecordBatch) -> Iterator[tuple[datetime, datetime]]:
    """When events arrived, and when they count as having happened, in whole hours."""
    times = zip(*(events.column(name).to_pylist() for name in ("received_at", "time")), strict=True)
    for arrived, happened in times:
        if arrived is not None and happened is not None:
            yield _whole(arrived), _whole(min(happened, arrived + AHEAD))


def _whole(at: datetime) -> datetime:
    """The beginning of its hour."""
    return at.replace(minute=0, second=0, microsecond=0)


def _can_name(kind: pa.DataType) -> bool:
    """Whether there is text or bytes anywhere in a column."""
    if pa.types.is_struct(kind):
        return any(_can_name(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _can_name(kind.value_type)
    if pa.types.is_map(kind):
        return _can_name(kind.key_type) or _can_name(kind.item_type)
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def tables_there(lake: Lake) -> list[Table]:
    """The tables that the lake has."""
    return [table for table in catalog().values() if newest_version(lake.folder(table)) >= 0]


def commits_of(
    lake: Lake, table: Table, erasure: str | None = None, since: int = 0
) -> list[dict[str, Any]]:
    """What an erasure, or any, did to a table, by the table's log: a commit each, oldest first.

    `since`: the first version that is looked at. A log with its archive can be long.
    """
    folder = lake.folder(table)
    commits = (commit_of(folder, version, erasure) for version in versions(folder, since))
    return [commit for commit in commits if commit is not None]


def commit_of(folder: Location, version: int, erasure: str | None = None) -> dict[str, Any] | None:
    """What an erasure, or any, did in one commit; None where it was not its."""
    written = commit_text(folder, version)
    # A look at the raw text first: most commits are not ours, and parsing each is what takes time.
    if (erasure or "erase") not in written:
        return None
    info: dict[str, Any] = {}
    removed = []
    for line in written.splitlines():
        action = json.loads(line)
        # A commit has one such line, anywhere among the others.
        info = action.get("commitInfo", info)
        if "remove" in action:
            removed.append(action["remove"]["path"])
    message = _user_metadata(info.get("userMetadata"))
    if "erase" not in message or erasure not in (None, message["erase"]):
        return None
    return {**message, "version": version, "at": info["timestamp"], "files": removed}


def _user_metadata(metadata: str | None) -> dict[str, Any]:
    """What a commit says of itself, where that is ours."""
    try:
        decoded = json.loads(metadata or "{}")
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}
