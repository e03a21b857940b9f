"""Job `files`: files that land in folders, into bronze, silver and the steps, as job `ingest` does.

A scanner decides about each file and writes it to ops.file (see `ingest.pipeline.file_scanner`);
the job streams that table, and its workers read the files it names.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, Any, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from infra.delta.parquet_writer import arrow_schema
from infra.errors import Usage
from infra.process.clock import clock
from infra.process.log import News, say
from infra.runtime.restart_policy import reason
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from ingest.decoding.decoding import REFUSED, WRITTEN
from ingest.parsing.record_reader import TooLong, pieces, whole
from ingest.parsing.source import ParseSettings, lookup
from ingest.parsing.strict_json import FILE_BYTES
from ingest.pipeline.batch_pass import Reach
from ingest.pipeline.file_scanner import Scanner, escaped_path, is_local
from ingest.pipeline.inflight import in_flight
from ingest.pipeline.ingest_job import Step, through, with_accounts
from ingest.pipeline.unreadable_files import instead, refusals, take_back
from ingest.tables import RECORD
from ingest.tables_quality import LANDED

OUT_BYTES = 4 * 1024 * 1024
OUT_ROWS = 2_000
"""Records travel from one worker to the next in batches of at most this."""

_Batches = Iterator[pa.RecordBatch]
FileEntry = Mapping[str, Any]
"""A row of ops.file."""


class Refusals(NamedTuple):
    """Files of a batch that were refused: how many, and those that nothing was read of."""

    files: int
    unread: Sequence[FileEntry]


def files(lake: Lake, steps: Sequence[Step] = (), *, once: bool = False) -> Job:
    """Files of the configured folders -> bronze.record, silver.event and the steps.

    Runs beside `ingest`, with a checkpoint of its own, however many folders there are.
    """
    settings = lake.settings
    if not settings.folders:
        raise Usage("no folder is configured: job files reads the [folders.NAME] of the settings")
    scanner = Scanner(lake, "files", settings.folders, lambda line: say(f"job files: {line}"))

    def done(run: Batch, entries: Sequence[FileEntry], refused: Refusals) -> None:
        scanner.look_again(refused.unread)

    pause = settings.jobs.files_trigger_seconds
    if once:
        # Long enough for a file that was just copied to come to rest, and no longer.
        patience = 1.0 + max(folder.min_file_age_seconds for folder in settings.folders.values())
        end = time.monotonic() + patience
        while scanner.look().waiting and time.monotonic() < end:
            time.sleep(min(1.0, patience / 4))
        return flow(lake, "files", steps, trigger_seconds=None, done=done)
    job = flow(lake, "files", steps, trigger_seconds=min(1.0, pause), done=done)
    threading.Thread(target=_watch, args=(scanner, job, pause), name="files", daemon=True).start()
    return job


def _watch(scanner: Scanner, job: Job, pause: float) -> None:
    """Look into the folders while the job runs; where nothing lands, rest nine tenths of it."""
    news = News()
    while job.query.isActive:
        began, result = time.monotonic(), False
        try:
            look = scanner.look()
            result = look.taken + look.known + look.refused > 0
            news.over()
        except Exception as error:  # a folder that is away now may be back at the next look
            if job.query.isActive:
                news.tell(f"job files: the folders cannot be looked at: {reason(str(error))}")
        # A folder of a million files takes long to look through; the look must not fill a core.
        time.sleep(pause if result else max(pause, 9 * (time.monotonic() - began)))


def flow(
    lake: Lake,
    job: str,
    steps: Sequence[Step] = (),
    *,
    trigger_seconds: float | None,
    done: Callable[[Batch, Sequence[FileEntry], Refusals], None] = lambda run, entries, refused: (
        None
    ),
) -> Job:
    """The files that ops.file names for `job`, one commit of it a batch.

    `done` hears of each batch, its files and those that were refused when it is in.
    """
    parsing = ParseSettings.of(lake.settings)

    def batch(arrived: DataFrame, run: Batch) -> None:
        entries = [row.asDict() for row in arrived.collect()]
        if not entries:
            return
        # Decided once and kept: a retry must give its records the same time of arrival.
        with run.at_once():
            arrival = run.decide("received_at", lambda: clock.now().isoformat())
            owned = with_accounts(parsing, run)
        instant = datetime.fromisoformat(arrival)
        live = any(entry["mode"] != "import" for entry in entries)
        # An import raises no alerts, so nobody's time waits for it.
        with in_flight(lake.spool / "open", job, instant) if live else nullcontext():
            records = _records(lake, arrived, entries, _Reading(instant, owned), run)
            through(lake, records, owned, Reach(), [step(run) for step in steps], run)
        why = refusals(lake, run)
        done(run, entries, Refusals(len(why), take_back(lake, entries, why)))

    named = (F.col("job") == job) & F.col("state").isin("taken", "refused")
    # One commit of the scanner is one batch, so its bounds on files and bytes bound the batch too.
    rows = lake.stream(LANDED, files_per_batch=1).where(named)
    return lake.each_batch(job, rows, batch, trigger_seconds=trigger_seconds)


def _records(
    lake: Lake, arrived: DataFrame, entries: Sequence[FileEntry], how: _Reading, run: Batch
) -> DataFrame | None:
    """The records of the batch's files; of a batch that bronze has already, those it has.

    So a retry never needs a file that was moved away meanwhile, and silver is made
    from the very bytes that are in bronze.
    """
    if lake.has(RECORD, run):
        had = [str(path) for path in lake.files_of(RECORD, run.versions[RECORD.name])]
        return lake.spark.read.schema(RECORD.schema).parquet(*had) if had else None
    near = [entry for entry in entries if is_local(entry["path"]) or entry["state"] == "refused"]
    far = [entry for entry in entries if entry not in near]
    parts = []
    if near:
        tasks = min(lake.spark.sparkContext.defaultParallelism, len(near))
        chosen = arrived.where(F.col("path").isin([entry["path"] for entry in near]))
        parts.append(chosen.repartition(tasks).mapInArrow(how.local, RECORD.schema))
    if far:
        content = lake.spark.read.format("binaryFile").load(
            [escaped_path(entry_row["path"]) for entry_row in far]
        )
        # Broadcast, or a shuffle would send the bytes of all files to other workers.
        named = content.select("path", "content").join(F.broadcast(arrived), "path")
        parts.append(named.mapInArrow(how.content, RECORD.schema))
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


# -- in the workers ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reading:
    """What `mapInArrow` takes to read files. Pickles."""

    at: datetime
    parsing: ParseSettings

    def local(self, batches: _Batches) -> _Batches:
        """Rows of ops.file in, the records of their files out."""
        return _packed(_local(entry, self) for batch in batches for entry in batch.to_pylist())

    def content(self, batches: _Batches) -> _Batches:
        """The same for rows that carry their file's `content`, as from an object store."""
        return _packed(
            _pieces(entry, io.BytesIO(entry["content"]), self)
            for batch in batches
            for entry in batch.to_pylist()
        )


def _local(entry: FileEntry, how: _Reading) -> Iterator[dict[str, Any]]:
    """The records of a local file, or the one that says why it was refused."""
    if entry["state"] == "refused":
        yield _refused(entry, entry["reason"], how.at, entry["hash"])
        return
    try:
        file = open(entry["path"], "rb")  # noqa: SIM115  # closed by the reader below
    except OSError as error:
        yield _refused(entry, f"cannot be read: {error.strerror}", how.at)
        return
    with _Hashed(file) as counted:
        if not _is_as_found(entry, file):
            now = os.fstat(file.fileno()).st_size
            message = (
                f"still grows: {entry['size']} bytes when it was found, {now} when it was read"
            )
            yield _refused(entry, f"{message}; nothing of it was read", how.at)
            return
        stream = cast("IO[bytes]", io.BufferedReader(counted, OUT_BYTES))
        yield from _pieces(entry, stream, how)
        # The hash alone does not tell of a file that was written to after it was read.
        if counted.hash() != entry["hash"] or not _is_as_found(entry, file):
            # What was read is in no table yet: the next attempt finds it changed and refuses it.
            raise OSError(f"{entry['path']} was written to while it was read")


def _is_as_found(entry: FileEntry, file: IO[bytes]) -> bool:
    now = os.fstat(file.fileno())
    modified = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now.st_mtime_ns // 1000)
    modified_at: datetime = entry["modified_at"]
    return now.st_size == entry["size"] and modified == modified_at.astimezone(UTC)


class _Hashed(io.RawIOBase):
    """A file that keeps the hash of what was read of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what io passes
        content = self._file.read(len(buffer))
        self._hash.update(content)
        buffer[: len(content)] = content
        return len(content)

    def hash(self) -> str:
        """Of all of the file: what nobody wanted is read now."""
        while chunk := self._file.read(OUT_BYTES):
            self._hash.update(chunk)
        return self._hash.hexdigest()

    def close(self) -> None:
        self._file.close()
        super().close()


def _pieces(entry: FileEntry, stream: IO[bytes], how: _Reading) -> Iterator[dict[str, Any]]:
    number, position = 0, how.at
    try:
        whole_number = (
            whole(stream, FILE_BYTES)
            if how.parsing.format(entry["source"])
            else pieces(stream, lookup(entry["source"]), b"", FILE_BYTES)
        )
        for number, raw, header, cut in whole_number:
            row = _row(entry, number, raw, position, named=entry["hash"][:16])
            if header:
                row["headers"].append({"key": "header", "value": header})
            if cut:
                message = f"a part of a line of more than {FILE_BYTES} bytes"
                row["headers"].append({"key": REFUSED, "value": message.encode()})
            yield row
    except TooLong as error:
        yield _refused(entry, str(error), position, entry["hash"])
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        message = f"its gzip is broken after {number} lines: {error}"
        yield _refused(entry, message, position, entry["hash"], number + 1)
    except OSError as error:
        message = f"could not be read beyond {number} lines: {error.strerror}"
        yield _refused(entry, message, position, entry["hash"], number + 1)


def _row(
    entry: FileEntry, number: int, raw: bytes, at: datetime, *, named: str | None
) -> dict[str, Any]:
    modified: datetime = entry["modified_at"]
    headers = {
        "sender": entry["path"],
        WRITTEN: modified.astimezone(UTC).isoformat(),
        "tz": entry["tz"],
        "host": entry["host"],
    }
    return {
        # By its contents as well: a file that is written anew under its name gives other records.
        "record_id": f"{entry['path']}:{named or instead(entry)}:{number}",
        "source": entry["source"],
        "mode": entry["mode"],
        "received_at": at,
        "raw": raw,
        "headers": [
            {"key": key, "value": value.encode()} for key, value in headers.items() if value
        ],
        "tenant_uid": entry["tenant_uid"],
    }


def _refused(
    entry: FileEntry, why: str, at: datetime, content: str | None = None, number: int = 0
) -> dict[str, Any]:
    """The record of a file that is not read, or not to its end: a dead letter names it."""
    row = _row(entry, number, b"", at, named=content and content[:16])
    row["headers"].append({"key": REFUSED, "value": f"{entry['path']}: {why}".encode()})
    return row


def _packed(rows_of_files: Iterator[Iterator[dict[str, Any]]]) -> _Batches:
    """Rows as batches of bronze.record that are never large."""
    rows: list[dict[str, Any]] = []
    size = 0
    for rows_of_one in rows_of_files:
        for row in rows_of_one:
            rows.append(row)
            size += len(row["raw"])
            if size >= OUT_BYTES or len(rows) >= OUT_ROWS:
                yield _batch(rows)
                rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    schema = arrow_schema(RECORD)
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
