"""What an erasure leaves in writing: what went from where, and what is still there until when.

It does not say who it was: a digest of the name lets those who know it check, and nobody read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.config.settings import Settings
from infra.delta.schema import Table
from infra.errors import Fatal, Retryable
from infra.maintenance.maintenance import retention_interval
from infra.storage.atomic_files import write_whole
from infra.streaming.lake import Lake
from infra.streaming.outbox import note_audit
from reporting.erasure.outside_tables import judging_models, left
from reporting.erasure.request import ErasureProgress, ErasureRequest, digest
from reporting.erasure.rewrite import commits_of, tables_there
from reporting.erasure.subject_match import Search
from reporting.erasure.topics import sentences_of, topics_kept

_FOLDER = "erasures"
LOG_DAYS = 30
"""How long Delta keeps a table's log, which holds each file's smallest and largest values."""


def certificate_of(
    lake: Lake,
    request: ErasureRequest,
    progress: ErasureProgress,
    behind: Mapping[str, list[str]],
    *,
    settled: bool,
) -> dict[str, Any]:
    """`settled`: whether the last pass through the tables found nothing any more."""
    now = datetime.now(UTC)
    return {
        "form": 1,
        "id": progress.id,
        "began_at": progress.began_at,
        "at": now.isoformat(),
        "subject": {
            "kind": request.kind,
            "salt": progress.salt,
            "digest": digest(progress.salt, request),
        },
        "pseudonymised": request.pseudonymise,
        "reason": request.reason,
        "tables": {
            table.name: _told(lake, table, done, now)
            for table in tables_there(lake)
            if (done := commits_of(lake, table, progress.id, progress.since.get(table.name, 0)))
        },
        "jobs_behind": dict(behind),
        "settled": settled,
    }


def _told(
    lake: Lake, table: Table, done: Sequence[Mapping[str, Any]], now: datetime
) -> dict[str, Any]:
    """What became of a table, and until when its former versions still hold it."""
    # A retention that cannot be read is told as such: the erasure has happened, and what is known
    # of it is to be in writing.
    try:
        kept = retention_interval(lake.settings, table, lake.folder(table))
        until = (now + kept).isoformat(timespec="seconds")
    except Fatal as error:
        until = f"it is not known when ({error})"
    return {
        "rows_removed": sum(rewrite["removed"] for rewrite in done),
        "rows_replaced": sum(rewrite["replaced"] for rewrite in done),
        "files": sum(len(rewrite["files"]) for rewrite in done),
        "versions": [rewrite["version"] for rewrite in done],
        "former_versions_until": until,
        "log_until": (now + timedelta(days=LOG_DAYS)).isoformat(timespec="seconds"),
    }


def not_touched(
    settings: Settings, search: Search, away: str | None, messages: Mapping[str, int]
) -> dict[str, Any]:
    """What an erasure cannot reach, each with how long it lasts where that is known.

    `away`: why the broker cannot be asked. `messages`: by compacted topic that could be read, how
    many messages name it.
    """
    deleted: Mapping[str, int] | str
    compacted: dict[str, dict[str, int | None]] = {}
    try:
        deleted, compacted = (away, {}) if away else topics_kept(settings)
    except Retryable as error:
        deleted = str(error)
    return {
        "topics_keep_ms": deleted,
        "topics_compacted": {
            topic: topic_state | {"messages": messages.get(topic)}
            for topic, topic_state in compacted.items()
        },
        "files": list(left(settings, search)),
        "state": "jobs sessions and alert remember leases, findings and alerts until they are "
        "over (max_lease_seconds, dedup_seconds, windows of correlations); erase again after that",
        "counts": _counts(settings),
        "models": judging_models(settings, search),
        "elsewhere": "backups, reports that were written, what consumers of the topics keep, and "
        "results that an API with another home keeps until their time is over",
    }


def _counts(settings: Settings) -> str | None:
    """When jobs that count will have said all they hold; None where they do not run."""
    jobs = settings.jobs
    if not jobs.rollup_trigger_seconds:
        return None
    now = datetime.now(UTC)
    late = now + timedelta(seconds=jobs.rollup_allowed_lateness_seconds)
    # A session stays open for the longest pause after its last login, a count until its hour is
    # over.
    sessions = late + timedelta(minutes=jobs.login_gap_minutes)
    hours = late + timedelta(hours=1)
    topic = f" and topic {settings.kafka.rollups_topic}" if settings.kafka.rollups_topic else ""
    return (
        "jobs logins and rollup remember sessions and counts that are open, and may write the name "
        "into gold.login_session until "
        f"{sessions.isoformat(timespec='seconds')} and into gold.rollup{topic} until "
        f"{hours.isoformat(timespec='seconds')}, later where logs pause; erase again after that"
    )


def certificates(settings: Settings) -> list[dict[str, Any]]:
    """Those that were written here, as far as they are kept."""
    result = []
    for file in (settings.home.absolute() / _FOLDER).glob("*.json"):
        # A file half copied by a backup must not hide the certificates that can be read.
        with suppress(OSError, ValueError):
            result.append(json.loads(file.read_text("utf-8")))
    return result


def write_down(settings: Settings, certificate: Mapping[str, Any]) -> None:
    folder = settings.home.absolute() / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    name = certificate["id"]
    write_whole(folder / f"{name}.json", json.dumps(certificate, indent=1, ensure_ascii=False))
    write_whole(folder / f"{name}.txt", "\n".join(sentences(certificate)) + "\n")
    rows = {
        table: counts["rows_removed"] + counts["rows_replaced"]
        for table, counts in certificate["tables"].items()
    }
    detail = {"rows": rows, "reason": certificate["reason"], "kind": certificate["subject"]["kind"]}
    note_audit(settings.home.absolute() / "spool", "erase", name, detail)


def sentences(certificate: Mapping[str, Any]) -> Iterator[str]:
    """The certificate as a person reads it."""
    done = "pseudonymised" if certificate["pseudonymised"] else "erased"
    kind = certificate["subject"]["kind"]
    yield f"Erasure {certificate['id']}: a {kind} was {done} on {certificate['at'][:19]}Z."
    yield f"Subject: SHA-256 {certificate['subject']['digest']} (salt in the JSON form)."
    if certificate["reason"]:
        yield f"Reason: {certificate['reason']}"
    if not certificate["tables"]:
        yield "No table had a row that names it."
    for table, counts in certificate["tables"].items():
        removed, replaced = counts["rows_removed"], counts["rows_replaced"]
        until = counts["former_versions_until"]
        yield (
            f"{table}: {removed:,} rows removed, {replaced:,} reworded, in versions "
            f"{', '.join(map(str, counts['versions']))}; former versions "
            + (f"are kept until {until}" if until else "were deleted")
            + f", smallest and largest values in its log until {counts['log_until']}."
        )
    for place, count in certificate["outside"].items():
        how = "deleted" if place == "rollups" and not certificate["pseudonymised"] else "reworded"
        how = "removed, whomever they are of" if place == "results" else how
        yield f"{place}: {count} {how}" if isinstance(count, int) else f"{place}: {count}"
    if certificate.get("recounts"):
        yield (
            f"Counts of {certificate['recounts']} hours had these events; job rollup makes them "
            "anew with its next comparison, or 'headgate rollup recount' where it is off."
        )
    if certificate["indexes"]:
        yield (
            f"Indexes of the inventories removed: {', '.join(certificate['indexes'])}; a process "
            "that has one open may hold it until it ends."
        )
    for table, jobs in certificate["jobs_behind"].items():
        yield (
            f"NOT FINISHED: {', '.join(jobs)} has yet to read rows of {table} from before, and may "
            "carry them on; run the same command again when it has caught up."
        )
    yield from _unpublished(certificate["unpublished"])
    yield from _undelivered(certificate["undelivered"])
    if not certificate["settled"]:
        yield (
            "NOT FINISHED: rows that name it came in for as long as it was at work; run the same "
            "command again once they come no more."
        )
    untouched = certificate["not_touched"]
    yield "Not touched:"
    yield from (f"  {line}" for line in sentences_of(untouched))
    yield from (f"  file {name} names it" for name in untouched["files"])
    yield from (
        f"  model {name} has a baseline of it: train it anew and delete the folder"
        for name in untouched["models"]
    )
    yield f"  {untouched['state']}"
    if untouched["counts"]:
        yield f"  {untouched['counts']}"
    yield f"  {untouched['elsewhere']}"


def _unpublished(waiting: list[int] | str) -> Iterator[str]:
    """What is to be done about alerts that were committed and have yet to go out."""
    if isinstance(waiting, str):
        yield f"NOT FINISHED: it is not known which alerts have yet to be published: {waiting}"
    elif waiting:
        yield (
            f"NOT FINISHED: gold.alert names it in versions {', '.join(map(str, waiting))} as they "
            "were committed, and job alert has yet to publish these. Let it do so (headgate up, "
            "headgate jobs resume alert where it was stopped), then run the same command again: it "
            "takes back what topic alerts.state got, while topic alerts keeps it as told below."
        )


def _undelivered(waiting: int | str) -> Iterator[str]:
    """What is to be done about alerts that webhooks have yet to read from the topic."""
    if isinstance(waiting, str):
        yield f"NOT FINISHED: it is not known what webhooks have yet to read: {waiting}"
    elif waiting:
        yield (
            f"NOT FINISHED: webhooks have yet to read messages of topic alerts that name it "
            f"({waiting}). Let them do so (headgate up), then run the same command again: "
            "it rewords what waits for them."
        )
