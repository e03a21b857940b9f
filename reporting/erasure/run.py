"""One erasure from its beginning to its certificate."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from alerts.cli.webhooks import delivering
from infra.config.settings import Settings
from infra.delta.log_reader import commit, commit_text, newest_version, table_id, versions
from infra.delta.schema import Table
from infra.delta.transaction import active_files
from infra.errors import Fatal, HeadgateError
from infra.kafka.client import require_broker
from infra.storage.checksums import json_lines
from infra.storage.paths import Location, delete, file_sizes
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from infra.streaming.log_retention import unread_by
from reporting.erasure.certificate import certificate_of, certificates, not_touched, write_down
from reporting.erasure.kept_results import answers_reworded, results_removed
from reporting.erasure.outside_tables import indexed, left, queued, spooled
from reporting.erasure.request import (
    ErasureProgress,
    ErasureRequest,
    digest,
    progress_file,
    progress_of,
    save,
    subject_names,
    subject_words,
)
from reporting.erasure.rewrite import (
    BLANK,
    Eraser,
    Erasure,
    Linked,
    commit_of,
    commits_of,
    tables_there,
)
from reporting.erasure.subject_match import Search
from reporting.erasure.topics import taken_back, unqueued, unsent

_JOB = "erase"
WAIT_SECONDS = 60.0
"""How long jobs that are behind are waited for, so that what they carry on is found as well."""
BROKER_SECONDS = 5.0
PASSES = 4
"""How often it goes through the tables while it still finds something."""
CLOCKS_SECONDS = 3600.0
"""The clock of the data files and that of the commits may differ a little."""

Waiting = Callable[[Lake, float, Callable[[str], None]], dict[str, list[str]]]
"""Waits for jobs that are behind; by table, those that still are."""

_Found = TypeVar("_Found", list[int], int)


def preview_erasure(
    lake: Lake, request: ErasureRequest, tell: Callable[[str], None]
) -> dict[str, Any]:
    """What an erasure would come to; nothing is changed."""
    search = Search(subject_words(request, subject_names(lake.settings, request), BLANK))
    eraser = Eraser(lake, Erasure("preview", search, not request.pseudonymise), dry=True, tell=tell)
    eraser.run()
    counts = {name: asdict(count) for name, count in eraser.counts.items() if count.files}
    return {
        "words": [word.text for word in search.words],
        "tables": counts,
        "spool": spooled(lake.settings, search, dry=True),
        "webhooks": queued(lake.settings, search, dry=True),
        "answers": answers_reworded(lake.settings, search, dry=True),
        "results": results_removed(lake.settings, dry=True),
        "indexes": indexed(lake.settings, search, dry=True),
        "files": list(left(lake.settings, search)),
    }


def erase(
    lake: Lake, request: ErasureRequest, tell: Callable[[str], None], *, vacuum: bool = False,
    wait_seconds: float = WAIT_SECONDS, wait: Waiting | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Erase, beside the jobs; the certificate, which is also written to `<home>/erasures`.

    `wait`: waits for jobs that are behind, and says who still is; none: `wait_for_jobs`.

    A run that was cut off goes on when the same is asked again. Raises `Retryable` when others
    are in the way, `Fatal` while another erasure runs.
    """
    settings = lake.settings
    lock = JobLock(settings.checkpoint_root / _JOB, _JOB)
    try:
        # Named by a digest: a file name must not hold the name of who is to be forgotten.
        file = settings.checkpoint_root / _JOB / f"{digest('', request)}.json"
        progress = progress_of(settings, file, request, _newest(lake))
        instead = progress.pseudonym if request.pseudonymise else BLANK
        search = Search(subject_words(request, progress.names, instead))
        # Asked once: topics that cannot be reached are named in the certificate, tables go on.
        away = _away(settings)
        erasure = Erasure(progress.id, search, not request.pseudonymise)
        eraser = Eraser(
            lake,
            erasure,
            dry=False,
            tell=tell,
            linked=Linked(**{kind: set(ids) for kind, ids in progress.linked.items()}),
            keep=partial(_keep, file, progress),
        )
        # Spool first: rows that wait there would be folded into the tables behind the eraser's
        # back.
        outside = {"spool": spooled(settings, search, dry=False)}
        # More than once: jobs may write down again what they had read before their input was
        # rewritten.
        settled, behind = _passes(eraser, partial(wait or wait_for_jobs, lake, wait_seconds, tell))
        outside["spool"] += spooled(settings, search, dry=False)
        certificate = certificate_of(lake, request, progress, behind, settled=settled)
        certificate["recounts"] = eraser.recounts
        # Indexes are made from the tables, so they come after them.
        certificate["indexes"] = indexed(settings, search, dry=False)
        certificate["unpublished"] = away or _unsent(lake, search, wait_seconds, tell)
        # Only now, as alerts were published meanwhile.
        done, messages = taken_back(lake, search, removes=erasure.removes, away=away)
        # And these of what went out until now.
        unread = partial(_unread_by_hooks, lake, search, wait_seconds, tell)
        certificate["undelivered"] = away if away and settings.webhooks else unread()
        outside["webhooks"] = queued(settings, search, dry=False)
        outside["spool"] += spooled(settings, search, dry=False)
        # What is asked from now on is of the tables as they are.
        outside["answers"] = answers_reworded(settings, search, dry=False)
        done["results"] = results_removed(settings, dry=False)
        certificate["outside"] = outside | done
        certificate["not_touched"] = not_touched(settings, search, away, messages)
        if vacuum:
            _delete(lake, certificate, behind, tell)
        write_down(settings, certificate)
        # Last: as long as it is there, the same command goes on with this erasure and its
        # pseudonym.
        file.unlink(missing_ok=True)
        return certificate
    finally:
        lock.release()


def _newest(lake: Lake) -> dict[str, int]:
    return {table.name: newest_version(lake.folder(table)) for table in tables_there(lake)}


def _keep(file: Path, progress: ErasureProgress, linked: Linked) -> None:
    # Nulls are no ids: kept, they would make rows of others belong to the subject.
    results = {kind: sorted(filter(None, ids)) for kind, ids in vars(linked).items()}
    save(file, replace(progress, linked=results))


def _passes(
    eraser: Eraser, wait: Callable[[], dict[str, list[str]]]
) -> tuple[bool, dict[str, list[str]]]:
    """Go through the tables until nothing is found; whether it came to that, and who is behind.

    What jobs had read before, or had yet to read of the old files, they carry on meanwhile. Also
    what a later pass replaced may be unread, so who is behind is asked after each that did.
    """
    eraser.run()
    behind = wait()
    for _ in range(PASSES - 1):
        if not eraser.run():
            return True, behind
        behind = wait()
    return False, behind


# -- jobs that are behind --------------------------------------------------------------------------


def wait_for_jobs(lake: Lake, seconds: float, tell: Callable[[str], None]) -> dict[str, list[str]]:
    """By table, jobs that still have to read rows from before it was rewritten, by any erasure.

    An earlier one may have been this person's: a second run must not call that done.
    """
    end, message = time.monotonic() + seconds, False
    while True:
        behind = _behind(lake)
        running = {job for job in _names(behind) if _runs(lake.settings, job)}
        if not running or time.monotonic() >= end:
            return behind
        if not message:
            tell(f"waiting for jobs that are behind: {', '.join(sorted(running))}")
            message = True
        time.sleep(1)


def _runs(settings: Settings, job: str) -> bool:
    try:
        JobLock(settings.checkpoint_root / job, job).release()
    except Fatal:
        return True
    return False


def _names(behind: Mapping[str, Sequence[str]]) -> set[str]:
    return {job for jobs in behind.values() for job in jobs}


def _behind(lake: Lake) -> dict[str, list[str]]:
    results: dict[str, list[str]] = {}
    # Certificates spare reading whole logs: a check of each commit ever made would take minutes.
    since, written = _since(lake.settings), certificates(lake.settings)
    for table in tables_there(lake):
        folder = lake.folder(table)
        last = _last(lake, table, since.get(table.name, 0), written)
        jobs = {
            job
            for job, version in unread_by(lake.settings, table_id(folder))
            if any(_appended(folder, part) for part in versions(folder, version) if part < last)
        }
        if jobs:
            results[table.name] = sorted(jobs)
    return results


def _since(settings: Settings) -> dict[str, int]:
    """From which version of each table on an erasure that has no certificate may have written."""
    files = (settings.checkpoint_root / _JOB).glob("*.json")
    results = [progress.since for file in files if (progress := progress_file(file).read())]
    names = {name for since in results for name in since}
    return {name: min(since.get(name, 0) for since in results) for name in names}


def _last(lake: Lake, table: Table, since: int, written: Sequence[Mapping[str, Any]]) -> int:
    """The newest version of a table that an erasure made, -1 when there is none.

    From `since` on by the log, before it by the certificates, as far as the log bears them out:
    the lake may have been made anew.
    """
    done = commits_of(lake, table, since=since)
    if done:
        return int(done[-1]["version"])
    certified = [
        (version, certificate["id"])
        for certificate in written
        for version in certificate["tables"].get(table.name, {}).get("versions", ())
    ]
    # A restored lake may have other commits under these numbers, so the log is asked as well.
    for version, erasure in sorted(certified, reverse=True):
        with suppress(FileNotFoundError):
            if commit_of(lake.folder(table), version, erasure):
                return int(version)
    return -1


def _appended(folder: Location, version: int) -> bool:
    """Whether a stream gets rows from a commit."""
    return commit(folder, version).appends


# -- topics ----------------------------------------------------------------------------------------


def _away(settings: Settings) -> str | None:
    """Why the broker cannot be asked, None when it answers."""
    try:
        require_broker(settings.kafka, BROKER_SECONDS)
    except HeadgateError as error:
        return str(error)
    return None


def _unsent(
    lake: Lake, search: Search, seconds: float, tell: Callable[[str], None]
) -> list[int] | str:
    """Versions of gold.alert that have yet to go out and name the subject, once job `alert` had a
    while for it where it runs; a sentence where it cannot be told."""
    ask, runs = partial(unsent, lake, search), partial(_runs, lake.settings, "alert")
    waits = "waiting for job alert to publish what it has committed"
    return _outstanding(ask, runs, seconds, lambda: tell(waits))


def _unread_by_hooks(
    lake: Lake, search: Search, seconds: float, tell: Callable[[str], None]
) -> int | str:
    """How many messages that name the subject webhooks have yet to read, once they had a while
    for it where they are delivered; a sentence where it cannot be told."""
    ask, runs = partial(unqueued, lake.settings, search), partial(delivering, lake.settings)
    waits = "waiting for webhooks to read what was published"
    return _outstanding(ask, runs, seconds, lambda: tell(waits))


def _outstanding(
    ask: Callable[[], _Found], runs: Callable[[], bool], seconds: float, tell: Callable[[], None]
) -> _Found | str:
    """What somebody still has to do, once there was a while for it where it `runs`."""
    end, message = time.monotonic() + seconds, False
    while True:
        try:
            rows = ask()
        except Exception as error:  # the broker's own kinds too: an erasure of the tables goes on
            return str(error)
        if not rows or time.monotonic() >= end or not runs():
            return rows
        if not message:
            tell()
            message = True
        time.sleep(1)


# -- former versions -------------------------------------------------------------------------------


def _delete(
    lake: Lake,
    certificate: dict[str, Any],
    behind: Mapping[str, list[str]],
    tell: Callable[[str], None],
) -> None:
    """Delete the files that left the rewritten tables, which ends looking back in them."""
    for table in tables_there(lake):
        tables = certificate["tables"].get(table.name)
        if tables is None:
            continue
        if table.name in behind or table.name == "gold.alert":
            why = "jobs have yet to read them" if table.name in behind else "not published for sure"
            tell(f"{table.name}: former versions stay until maintenance takes them ({why})")
            continue
        folder = lake.folder(table)
        gone = _left_it(lake, table)
        # Asked last: until then a job reads further, and needs fewer of them.
        delete(folder / name for name in gone - _unread(lake, table))
        tables["former_versions_until"] = None


def _left_it(lake: Lake, table: Table) -> set[str]:
    """Names of files that are still there and were part of the table once, by its log.

    Read from its end, as far as the oldest of them may have left.
    """
    folder = lake.folder(table)
    waiting = _former(lake, table)
    gone: set[str] = set()
    for version in reversed(versions(folder)):
        made = math.inf
        for line in json_lines(commit_text(folder, version)):
            action = json.loads(line)
            made = action.get("commitInfo", {}).get("timestamp", made)
            name = unquote(action.get("remove", {}).get("path", ""))
            if waiting.pop(name, None) is not None:
                gone.add(name)
        if made / 1000 < min(waiting.values(), default=math.inf) - CLOCKS_SECONDS:
            break
    return gone


def _former(lake: Lake, table: Table) -> dict[str, float]:
    """Files in a table's folder that are no part of it now, and when each was written.

    Also those that jobs are writing: only the log tells them apart.
    """
    folder, result = lake.folder(table), {}
    names = file_sizes(folder, ".parquet").keys()
    for name in names - {file.name for file in active_files(lake.spark, lake.path(table))}:
        with suppress(FileNotFoundError):
            result[name] = (folder / name).stat().st_mtime
    return result


def _unread(lake: Lake, table: Table) -> set[str]:
    """Names of files that jobs have yet to read, though maintenance may have replaced them."""
    folder = lake.folder(table)
    first = [version for _, version in unread_by(lake.settings, table_id(folder))]
    commits = (
        commit(folder, table_commit)
        for table_commit in (versions(folder, min(first)) if first else ())
    )
    return {name for table_commit in commits if table_commit.appends for name in table_commit.adds}
