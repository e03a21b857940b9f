"""How the platform does: jobs, sources, delays, what is silent, blind or broken."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from alerts.coverage.state import CoverageState, coverage_folder
from alerts.preliminary.alarm import late_and_waiting
from api.services.console.time_buckets import bucket_sql, bucket_start, step_of
from api.services.reader import Reader, ReaderRow
from infra.config.settings import Settings
from infra.errors import HeadgateError
from infra.runtime import job_status
from infra.runtime.job_registry import wanted_jobs
from infra.runtime.job_status import JobStatus

_ARRIVALS = f"""
SELECT {bucket_sql("window_start")} AS bucket, source, max(last_at) AS newest,
       sum(events + dead + repeated)::BIGINT AS records, sum(dead)::BIGINT AS dead
FROM gold.arrival_minute WHERE window_start >= $since GROUP BY ALL ORDER BY bucket
"""
_RECENT = """
SELECT source, max(received_at) AS newest, count(*) AS records
FROM bronze.record WHERE received_at >= $recent GROUP BY source
"""
_QUALITY = """
SELECT suite, expectation, unexpected, examples, run_at FROM ops.quality
WHERE NOT passed AND run_at = (SELECT max(run_at) FROM ops.quality)
ORDER BY suite, expectation LIMIT 20
"""
RECENT = timedelta(hours=1)


@dataclass(frozen=True)
class JobView:
    """A job as its driver last told of it, and what is wrong with it."""

    job: str
    state: str
    missed: str | None
    status: JobStatus | None
    unread: int | None
    lag_seconds: float | None
    age_seconds: float | None
    """Since it last made progress."""


@dataclass(frozen=True)
class SourceView:
    """A source as it arrives."""

    source: str
    newest: datetime | None
    records: int
    dead: int
    quiet_seconds: float | None
    silent: str
    """Why it is called silent; empty: it is not."""


def job_views(settings: Settings) -> list[JobView]:
    """Every job that has something to do, or that a driver tells of."""
    now = time.time()
    known = job_status.read_status(settings)
    views = []
    for verdict in job_status.judge_jobs(settings, wanted_jobs(settings), known, now):
        status = verdict.status
        views.append(
            JobView(
                job=verdict.job,
                state=status.state if status else "not seen",
                missed=verdict.missed,
                status=status,
                unread=status.unread_messages if status else None,
                lag_seconds=status.arrival_time_lag(now) if status else None,
                age_seconds=now - status.progressed_at if status and status.progressed_at else None,
            )
        )
    return views


def complete_up_to(settings: Settings) -> datetime | None:
    """Up to when all that arrived is in, as job `ingest` says."""
    status = job_status.read_status(settings).get("ingest")
    # Not known is no time at all: a guess here would look like a promise.
    if status is None or status.complete_to is None:
        return None
    return datetime.fromtimestamp(status.complete_to, UTC)


def arrivals(reader: Reader, since: datetime, step: timedelta) -> list[ReaderRow]:
    """What came by time and source: the newest, records, dead letters; oldest first."""
    asked = {"since": since, "step": step_of(step)}
    return reader.rows(_ARRIVALS, asked, needs=("gold.arrival_minute",), kept=True)


def source_views(
    reader: Reader, settings: Settings, since: datetime, arrived: Sequence[ReaderRow]
) -> list[SourceView]:
    """Sources heard since then, those that are silent first; `arrived`: of `arrivals`."""
    now = datetime.now(UTC)
    # The counts are up to a minute behind, so the newest hour is asked of bronze itself.
    recent = max(since, now - RECENT)
    known = _by_source(arrived)
    within = {"bronze.record": ("received_at", recent, datetime.max.replace(tzinfo=UTC))}
    for row in reader.rows(
        _RECENT, {"recent": recent}, needs=("bronze.record",), kept=True, within=within
    ):
        seen = known.setdefault(row["source"], row | {"dead": 0})
        seen["newest"] = max(seen["newest"], row["newest"])
        # The same records by two ways, one of them up to a minute behind: not to be added up.
        seen["records"] = max(seen["records"], row["records"])
    silent = silent_sources(settings)
    views = [
        SourceView(
            source=source,
            newest=row["newest"],
            records=row["records"],
            dead=row["dead"] or 0,
            quiet_seconds=(now - row["newest"]).total_seconds() if row["newest"] else None,
            silent=silent.get(source, ""),
        )
        for source, row in known.items()
        # Heartbeats are no source.
        if not source.startswith("_")
    ]
    views += [
        SourceView(source, None, 0, 0, None, why)
        for source, why in silent.items()
        if source not in known
    ]
    return sorted(views, key=lambda view: (not view.silent, view.source))


def _by_source(arrived: Iterable[ReaderRow]) -> dict[str, ReaderRow]:
    known: dict[str, ReaderRow] = {}
    for row in arrived:
        seen = known.setdefault(row["source"], {"newest": None, "records": 0, "dead": 0})
        seen["newest"] = max(filter(None, (seen["newest"], row["newest"])), default=None)
        seen["records"] += row["records"] or 0
        seen["dead"] += row["dead"] or 0
    return known


def silent_sources(settings: Settings) -> dict[str, str]:
    """What the last look at the rules' inputs said of silent sources."""
    causes = blind_rules(settings).values()
    return {
        str(cause["source"]): str(cause["reason"])
        for cause in causes
        if cause.get("source") and "silent" in str(cause["reason"])
    }


def blind_rules(settings: Settings) -> dict[str, ReaderRow]:
    """Rules that see nothing or not all, by id, as the last scheduled look left it."""
    try:
        return dict(CoverageState.load(coverage_folder(settings)).blind)
    except HeadgateError:
        return {}


def preliminaries(settings: Settings) -> tuple[int, int]:
    """Preliminary alerts that wait for their answer, and how many of them are late."""
    if not settings.kafka.preliminary_topic:
        return 0, 0
    try:
        late, waiting = late_and_waiting(settings)
    except (HeadgateError, OSError):  # `headgate doctor` says so
        return 0, 0
    return waiting, len(late)


def rates(
    arrived: Iterable[ReaderRow], since: datetime, until: datetime, step: timedelta
) -> tuple[list[datetime], dict[str, list[int]]]:
    """Records that arrived by time and source, the busiest sources first; spans in which nothing
    came are there, too."""
    first = bucket_start(since, step)
    buckets = [first + n * step for n in range((until - first) // step + 1)]
    place = {bucket: number for number, bucket in enumerate(buckets)}
    series: dict[str, list[int]] = {}
    for row in arrived:
        values = series.setdefault(row["source"], [0] * len(buckets))
        # Counted since the page began to ask: the last span is its end all the same.
        values[place.get(row["bucket"], -1)] += row["records"]
    return buckets, dict(sorted(series.items(), key=lambda item: -sum(item[1])))


def failed_expectations(reader: Reader) -> list[ReaderRow]:
    """What the newest check of the data did not find as expected."""
    return reader.rows(_QUALITY, {}, needs=("ops.quality",), kept=True)
