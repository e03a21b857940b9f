"""What names a person or a device outside of the tables: the spool, webhooks, indexes, files.

Topics are in `erase_topics`.
"""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alerts.anomaly.store import BASELINES
from alerts.delivery.webhook_queue import queue_file
from alerts.rulepack.locations import MODELS, store_folder
from enrich.assets.index_store import end_former, index_files, renew_index
from infra.config.settings import Settings
from infra.storage.atomic_files import write_whole
from reporting.erasure.kept_results import ANSWERS, RESULTS
from reporting.erasure.subject_match import Search

_ROWS = 20_000


def spooled(settings: Settings, search: Search, *, dry: bool) -> int:
    """Replace words in rows that wait to be folded into tables; how many rows had some."""
    done = 0
    root = settings.home.absolute() / "spool"
    # Folder by folder, each under the lock that its folding takes.
    for folder in sorted({file.relative_to(root).parts[0] for file in root.glob("*/**/*.json")}):
        # Nobody folds meanwhile: a row that was moved away and written again would be there twice.
        with (root / folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for file in (root / folder).glob("**/*.json"):
                # A row that was folded between the listing and the read is in its table by now.
                with suppress(FileNotFoundError):
                    text_value = file.read_text("utf-8")
                    if search.has(text_value):
                        done += 1
                        if not dry:
                            write_whole(file, search.text(text_value))
    return done


def queued(settings: Settings, search: Search, *, dry: bool) -> int:
    """Replace words in alerts that wait for webhooks; how many had some."""
    file = queue_file(settings)
    if not file.exists():
        return 0
    done = 0
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as queue:
        # SQLite leaves old contents in free pages otherwise, where anybody could read them.
        queue.execute("PRAGMA secure_delete = ON")
        # The write lock before the read: a hook must not send the old words meanwhile.
        queue.execute("BEGIN IMMEDIATE")
        rows = queue.execute("SELECT rowid, title, body, problem FROM delivery").fetchall()
        for row, title, body, problem in rows:
            texts = [title or "", bytes(body).decode("utf-8"), problem or ""]
            if any(search.has(text) for text in texts):
                done += 1
                title, text, problem = (search.text(text) for text in texts)
                queue.execute(
                    "UPDATE delivery SET title = ?, body = ?, problem = ? WHERE rowid = ?",
                    (title, text.encode(), problem, row),
                )
        queue.execute("ROLLBACK" if dry else "COMMIT")
        if not dry:
            # The write-ahead log still has the old pages until it is emptied.
            queue.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return done


def indexed(settings: Settings, search: Search, *, dry: bool) -> list[str]:
    """Take away indexes of the inventories that name the subject; their names.

    To be asked once the tables are done: what is made of them from then on does not name it.
    """
    if not dry:
        # First, as one that is being made now is not among the files yet.
        end_former(settings)
    files = [file for file in index_files(settings) if _is_in(file, search)]
    if files and not dry:
        renew_index(settings, files)
    return [file.name for file in files]


def _is_in(index: Path, search: Search) -> bool:
    """Whether an index names the subject. One that cannot be read does: it is made again."""
    try:
        with closing(sqlite3.connect(f"{index.as_uri()}?mode=ro&immutable=1", uri=True)) as held:
            for sql in ("SELECT body FROM said", "SELECT key FROM entry"):
                rows = held.execute(sql)
                while some := rows.fetchmany(_ROWS):
                    if pc.any(
                        search.rows(pa.array([value for (value,) in some], pa.string()))
                    ).as_py():
                        return True
    except sqlite3.Error:
        # Taken away by others meanwhile is as good as clean; damaged is not.
        return index.exists()
    return False


# -- what cannot be taken back ---------------------------------------------------------------------


def left(settings: Settings, search: Search) -> Sequence[str]:
    """Files beside the tables that name the subject and are not touched, and that a person must."""
    home = settings.home.absolute()
    gone = {home / "api" / name for name in (ANSWERS, *RESULTS)}
    results: list[str] = []
    # Of the API: saved queries and views, proposals, acts that can be undone.
    for folder in ("backtests", "status", "reports", "api"):
        results += [
            str(file.relative_to(home))
            for file in sorted((home / folder).rglob("*"))
            if file.is_file() and gone.isdisjoint(file.parents) and _names(file, search)
        ]
    return results


def judging_models(settings: Settings, search: Search) -> list[str]:
    """Models that judge the subject by what it did, or cannot be read: their folders."""
    side = settings.lake_side.absolute()
    files = (store_folder(settings).absolute() / MODELS).glob(f"[!.]*/{BASELINES}")
    return [str(file.parent.relative_to(side)) for file in sorted(files) if _judges(file, search)]


def _judges(file: Path, search: Search) -> bool:
    try:
        with pa.OSFile(str(file)) as source:
            entities = pa.ipc.open_file(source).read_all().column("entity").combine_chunks()
    # What cannot be read may name it, so a person is told.
    except (OSError, KeyError, pa.ArrowInvalid):
        return True
    return bool(pc.any(search.rows(entities)).as_py())


def _names(file: Path, search: Search) -> bool:
    if file.suffix == ".parquet":
        with pq.ParquetFile(file) as held:
            return any(
                any(search.rows(column).to_pylist())
                for batch in held.iter_batches(_ROWS)
                for column in batch.columns
            )
    if file.suffix in (".json", ".ndjson", ".html", ".txt", ".csv", ".log"):
        # Undecodable bytes are replaced: a name elsewhere in the file is found all the same.
        return search.has(file.read_text("utf-8", "replace"))
    return False
