"""Committing files to a Delta table that Spark did not write.

What replaces files goes through Delta's own transaction, and so does now and then what appends.
Most appends write the log's next entry themselves (decision 0034). Source of its form: the Delta
transaction log protocol, "Delta Log Entries" and "Version Checksum File".
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace as replace_fields
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pyspark.sql import SparkSession

from infra.delta.data_files import ActiveFile
from infra.delta.log_archive import LOG, single
from infra.delta.log_reader import newest_version
from infra.delta.parquet_writer import DataFile
from infra.process.log import say
from infra.process.wake_signal import COMMITTED
from infra.spark.internals import DeltaTransaction, checkpoint_table, files_at
from infra.spark.sql_text import sql_text
from infra.storage.checksums import Damaged, json_object, read_checked, sums_beside, sums_file
from infra.storage.paths import delete, location

_SUMMED = frozenset(
    {
        "txnId",
        "tableSizeBytes",
        "numFiles",
        "numMetadata",
        "numProtocol",
        "setTransactions",
        "domainMetadata",
        "metadata",
        "protocol",
        "fileSizeHistogram",
    }
)
"""What Delta says of a version of our tables; more or less means that another kind of entry is
wanted than ours."""

_FEATURES = frozenset({"appendOnly", "invariants", "domainMetadata", "clustering"})
"""Features of a table that ask nothing of who appends files with statistics."""


DESCRIBED_VERSIONS = 20
"""So many of the newest versions keep what was said of them: who goes on from one reads that of the
newest, and each file more makes each listing of the log longer."""


class Moved(Exception):
    """A file that was to be replaced is no longer part of the table as it was read."""


def as_old(file: DataFile, others: Sequence[ActiveFile]) -> DataFile:
    """A file with rows of others only, as old as the newest of these.

    Where a table tells no arrival, retention goes by that; nothing else of Delta's does: VACUUM
    goes by the files' own times and by when they left, time travel by the commits'.
    """
    written = max(int(other.entry["modificationTime"]) for other in others)
    return replace_fields(file, written_at=written)


def active_files(spark: SparkSession, path: str, version: int | None = None) -> list[ActiveFile]:
    """The files of the table's newest version, or of an older one."""
    if version is None:
        return _active(DeltaTransaction(spark, path).active_files())
    return _active(files_at(spark, path, version))


def replace(
    spark: SparkSession,
    path: str,
    removed: Sequence[ActiveFile],
    added: Sequence[DataFile],
    user_metadata: str,
    *,
    data_change: bool = True,
) -> int:
    """Take files out of a table and put others in, in one commit; its version.

    `data_change`: False where the rows stay the same, as when small files become a large one.
    Streams with `skipChangeCommits` pass over it. Raises `Moved`, and changes nothing, when
    one of `removed` is not in the newest version as it was read; what others appended
    since then stays. The caller is alone with the table (`Lake.alone`).
    """
    transaction = DeltaTransaction(spark, path)
    # These alone: all files of a large table would come as JSON out of the JVM.
    there = transaction.active_files(_among(file.entry["path"] for file in removed))
    # By identity, not by path: a file that lost rows since then keeps its path.
    now = {file.identity for file in _active(there)}
    gone = [file.name for file in removed if file.identity not in now]
    if gone:
        # To go on would bring back rows that were deleted after they were read.
        raise Moved(gone[0])
    actions = [file.removal(data_change=data_change) for file in removed]
    actions += [file.action(data_change=data_change) for file in added]
    return transaction.commit(actions, user_metadata, overwrite=True)


def _active(entries: Iterable[str]) -> list[ActiveFile]:
    return [ActiveFile(json.loads(text)) for text in entries]


def _among(paths: Iterable[str]) -> str:
    # Paths become a text of SQL, where both characters would end or change it.
    quoted = ", ".join(map(sql_text, paths))
    return f"path IN ({quoted})" if quoted else "false"


def commit_files(
    spark: SparkSession, path: str, files: Sequence[DataFile], user_metadata: str
) -> int:
    """Append `files` to the table at `path` in one commit; its version.

    The caller is alone with the table (`Lake.alone`). Delta itself commits where the lake is in a
    bucket, where the table's newest version is not described as we know it, and where a checkpoint
    is due that nobody writes aside (`CHECKPOINTS`).
    """
    version = _appended(path, files, user_metadata)
    if version is None:
        actions = [file.action() for file in files]
        version = DeltaTransaction(spark, path).commit(actions, user_metadata, overwrite=False)
    # After the commit only: whoever is woken looks at once for what is new.
    COMMITTED.set()
    return version


class Checkpoints:
    """Writes checkpoints of tables' logs beside those who commit, while it is begun.

    One of a large table takes seconds, for which a batch would wait. One that does not come about
    is made up for by the next: it only spares readers a part of the log.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[str | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def begun(self) -> bool:
        """Whether what is asked for is written."""
        return self._thread is not None

    def begin(self, spark: SparkSession) -> None:
        """From now on, in a thread of its own."""
        self._thread = threading.Thread(
            target=self._run, args=(spark,), name="checkpoints", daemon=True
        )
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        """End behind the one under way."""
        thread, self._thread = self._thread, None
        self._asked.put(None)
        if thread is not None:
            thread.join(seconds)

    def ask(self, path: str) -> None:
        """Have one written of the table's newest version."""
        self._asked.put(path)

    def _run(self, spark: SparkSession) -> None:
        while (path := self._asked.get()) is not None:
            try:
                checkpoint_table(spark, path)
            except Exception as error:  # readers do without, and the next one may be written
                say(f"{path}: no checkpoint of its log was written: {error}")


CHECKPOINTS = Checkpoints()
"""Those of this process."""


_newest: dict[Path, int] = {}
"""By table: a version that it had, from where the newest is looked for."""


def _appended(path: str, files: Sequence[DataFile], user_metadata: str) -> int | None:
    """Write the entry that appends files; its version, None where Delta has to do it."""
    folder = location(path)
    if not isinstance(folder, Path):
        return None
    log = folder / LOG
    before = _newest_version(folder)
    summary = _summed(log, before)
    if summary is None:
        return None
    version, transaction = before + 1, str(uuid.uuid4())
    interval = int(summary["metadata"]["configuration"].get("delta.checkpointInterval", 10))
    due = version % interval == 0
    if due and not CHECKPOINTS.begun:
        return None
    info = {
        "timestamp": int(time.time() * 1000),
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "readVersion": before,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {},
        "userMetadata": user_metadata,
        "engineInfo": "Headgate",
        "txnId": transaction,
    }
    lines = [json.dumps({"commitInfo": info}), *(file.action() for file in files)]
    entry = log / f"{version:020d}.json"
    try:
        if entry.exists():
            return None
        # Unlike a rename, a link takes no other's place.
        _put(entry, "".join(f"{line}\n" for line in lines), os.link)
    except OSError:
        # Somebody came first who asks for no lock, or there are no links here.
        sums_beside(entry).unlink(missing_ok=True)
        return None
    _newest[folder] = version
    # Should this fail, the next commit has nothing to go on from, and Delta makes it.
    with suppress(OSError):
        _put(
            log / f"{version:020d}.crc", json.dumps(_grown(summary, files, transaction)), os.replace
        )
        # Half of the files of a log, which Delta lists whole twice for each input of a batch.
        former = log / f"{version - DESCRIBED_VERSIONS:020d}.crc"
        delete([former, sums_beside(former)])
    if due:
        CHECKPOINTS.ask(path)
    return version


def _newest_version(folder: Path) -> int:
    version = _newest.get(folder, -1)
    if version < 0 or not single(folder / LOG, version).exists():
        return newest_version(folder)
    # Asked by name: a listing takes the longer the more the log holds.
    while single(folder / LOG, version + 1).exists():
        version += 1
    return version


def _summed(log: Path, version: int) -> dict[str, Any] | None:
    """What Delta, or we, wrote of a version; None where that is not as we know it."""
    try:
        summary = json_object(read_checked(log / f"{version:020d}.crc"))
    except (FileNotFoundError, Damaged):
        return None
    if set(summary) != _SUMMED or summary["metadata"].get("partitionColumns"):
        return None
    protocol = summary["protocol"]
    features = {*protocol.get("writerFeatures", ()), *protocol.get("readerFeatures", ())}
    # Up to 2 writers have the first two of these features, unnamed; from 7 on each is named.
    readable = protocol["minWriterVersion"] in (1, 2, 7) and features <= _FEATURES
    return summary if readable else None


def _grown(summary: dict[str, Any], files: Sequence[DataFile], transaction: str) -> dict[str, Any]:
    """What is to be said of a version with these files more."""
    sizes = summary["fileSizeHistogram"]
    counts, sums = list(sizes["fileCounts"]), list(sizes["totalBytes"])
    for file in files:
        place = bisect_right(sizes["sortedBinBoundaries"], file.size) - 1
        counts[place] += 1
        sums[place] += file.size
    return summary | {
        "txnId": transaction,
        "tableSizeBytes": summary["tableSizeBytes"] + sum(file.size for file in files),
        "numFiles": summary["numFiles"] + len(files),
        "fileSizeHistogram": sizes | {"fileCounts": counts, "totalBytes": sums},
    }


def _put(file: Path, text: str, name: Callable[[Path, Path], None]) -> None:
    """A file that is there whole or not at all, and before it its checksum as Hadoop keeps it.

    `name`: gives it its name, once it is written under another.
    """
    content = text.encode("utf-8")
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        sums_beside(file).write_bytes(sums_file(content))
        name(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
