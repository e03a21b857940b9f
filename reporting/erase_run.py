"""One erasure from its beginning to its certificate."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from alerts.publish import read_all
from infra.commits import commit, table_id, text, versions
from infra.errors import Fatal, HeadgateError, Retryable
from infra.jobs import Lock
from infra.kafka import require_broker
from infra.lake import Lake
from infra.location import Location, delete
from infra.retire import unread_by
from infra.settings import Settings
from infra.tables import Table
from reporting.erase import BLANK, Eraser, Erasure, commits_of, there
from reporting.erase_certificate import certificate_of, not_touched, write_down
from reporting.erase_outside import left, naming, queued, restated, spooled
from reporting.erase_wish import Wish, digest, names_of, progress_of, words_of
from reporting.erase_words import Search

JOB = "erase"
WAIT_SECONDS = 60.0
"""How long jobs that are behind are waited for, so that what they carry on is found as well."""
BROKER_SECONDS = 5.0


def preview(lake: Lake, wish: Wish, tell: Callable[[str], None]) -> dict[str, Any]:
    """What an erasure would come to; nothing is changed."""
    search = Search(words_of(wish, names_of(lake.settings, wish), BLANK))
    eraser = Eraser(lake, Erasure("preview", search, not wish.pseudonymise), dry=True, tell=tell)
    eraser.run()
    counts = {name: asdict(one) for name, one in eraser.counts.items() if one.files}
    return {
        "words": [word.text for word in search.words],
        "tables": counts,
        "spool": spooled(lake.settings, search, dry=True),
        "webhooks": queued(lake.settings, search, dry=True),
        "files": list(left(lake.settings, search)),
    }


def erase(
    lake: Lake, wish: Wish, tell: Callable[[str], None], *, vacuum: bool = False,
    wait_seconds: float = WAIT_SECONDS,
) -> dict[str, Any]:  # fmt: skip
    """Erase, beside the jobs; the certificate, which is also written to `<home>/erasures`.

    A run that was cut off goes on when the same is asked again. Raises `Retryable` when others
    are in the way, `Fatal` while another erasure runs.
    """
    settings = lake.settings
    lock = Lock(settings.checkpoint_root / JOB, JOB)
    try:
        file = settings.checkpoint_root / JOB / f"{digest('', wish)}.json"
        progress = progress_of(settings, file, wish)
        instead = progress.pseudonym if wish.pseudonymise else BLANK
        search = Search(words_of(wish, progress.names, instead))
        away = _away(settings)
        topic = away or _topic(settings, search)
        erasure = Erasure(progress.id, search, not wish.pseudonymise)
        eraser = Eraser(lake, erasure, dry=False, tell=tell)
        outside = {"spool": spooled(settings, search, dry=False)}
        eraser.run()
        # What jobs had read before, or had yet to read of the old files, they carry on now.
        behind = _wait(lake, wait_seconds, tell)
        eraser.run()
        outside["spool"] += spooled(settings, search, dry=False)
        outside["webhooks"] = queued(settings, search, dry=False)
        told = _restate(lake, search, topic)
        certificate = certificate_of(lake, wish, progress, behind)
        certificate["outside"] = outside | {"alert_states": told}
        certificate["not_touched"] = not_touched(settings, search, away)
        if vacuum:
            _delete(lake, certificate, behind, tell)
        write_down(settings, certificate)
        file.unlink(missing_ok=True)
        return certificate
    finally:
        lock.release()


# -- jobs that are behind --------------------------------------------------------------------------


def _wait(lake: Lake, seconds: float, tell: Callable[[str], None]) -> dict[str, list[str]]:
    """By table, jobs that still have to read rows from before it was rewritten, by any erasure.

    An earlier one may have been this person's: a second run must not call that done.
    """
    end, said = time.monotonic() + seconds, False
    while True:
        behind = _behind(lake)
        running = {job for job in _names(behind) if _runs(lake.settings, job)}
        if not running or time.monotonic() >= end:
            return behind
        if not said:
            tell(f"waiting for jobs that are behind: {', '.join(sorted(running))}")
            said = True
        time.sleep(1)


def _runs(settings: Settings, job: str) -> bool:
    try:
        Lock(settings.checkpoint_root / job, job).release()
    except Fatal:
        return True
    return False


def _names(behind: Mapping[str, Sequence[str]]) -> set[str]:
    return {job for jobs in behind.values() for job in jobs}


def _behind(lake: Lake) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for table in there(lake):
        done = commits_of(lake, table)
        if not done:
            continue
        folder, last = lake.folder(table), done[-1]["version"]
        jobs = {
            job
            for job, version in unread_by(lake.settings, table_id(folder))
            if any(_appended(folder, one) for one in versions(folder, version) if one < last)
        }
        if jobs:
            found[table.name] = sorted(jobs)
    return found


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


def _topic(settings: Settings, search: Search) -> dict[str, str] | str:
    """States on the compacted topic that name the subject; a sentence when they cannot be read."""
    try:
        return naming(read_all(settings, settings.kafka.state_topic), search)
    except Exception as error:  # the broker's own kinds too: an erasure of the tables goes on
        return f"topic {settings.kafka.state_topic} could not be read: {error}"


def _restate(lake: Lake, search: Search, topic: Mapping[str, str] | str) -> int | str:
    if isinstance(topic, str):
        return topic
    try:
        return restated(lake, search, topic)
    except Retryable as error:
        return str(error)


# -- former versions -------------------------------------------------------------------------------


def _delete(
    lake: Lake,
    certificate: dict[str, Any],
    behind: Mapping[str, list[str]],
    tell: Callable[[str], None],
) -> None:
    """Delete the files that left the rewritten tables, which ends looking back in them."""
    for table in there(lake):
        told = certificate["tables"].get(table.name)
        if told is None:
            continue
        if table.name in behind or table.name == "gold.alert":
            why = "jobs have yet to read them" if table.name in behind else "not published for sure"
            tell(f"{table.name}: former versions stay until upkeep takes them ({why})")
            continue
        delete(lake.folder(table) / name for name in _left_it(lake, table))
        told["former_versions_until"] = None


def _left_it(lake: Lake, table: Table) -> set[str]:
    """Names of files that were part of the table once, by what the log keeps."""
    gone: set[str] = set()
    for version in versions(lake.folder(table)):
        for line in text(lake.folder(table), version).splitlines():
            if line.startswith('{"remove"'):
                gone.add(json.loads(line)["remove"]["path"])
    return gone
