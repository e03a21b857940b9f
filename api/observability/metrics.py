"""Counters of the process and gauges of the lake, as Prometheus text."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import nan

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from api.observability.feed_gauges import FeedGauges
from api.observability.ledger_gauges import LedgerCheck
from api.observability.listener_metrics import ListenerMetrics
from api.observability.preliminary_gauges import PreliminaryGauges
from api.services.reader import Reader, ReaderRow
from infra.config.settings import Settings
from infra.errors import HeadgateError
from infra.maintenance import retention_holds
from infra.runtime import job_status as status
from infra.runtime.job_registry import wanted_jobs

_JOB = "headgate_job"
"""The label that names a job of ours. One called `job` Prometheus renames, as it has its own."""

_KEPT_SECONDS = 10.0
"""The ledger is folded every ten seconds; asking the lake more often tells nothing new."""

SHARE = 1 / 20
"""Of the time, what asking the lake may take: a ledger of months is asked less often."""

MOST_SECONDS = 60.0
"""It is asked again after so long, however long that takes: it may be gone by then."""

_ALERTS = """
SELECT level, count(*) AS n FROM gold.alert_current WHERE suppressed_by IS NULL GROUP BY level
"""
BOUNDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0)
"""Seconds of a batch's work, between which batches are counted."""

_ANSWER_BOUNDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30)
"""Seconds, from a question to memory up to a statement at its time limit."""

_WITHIN = ", ".join(
    f"count(*) FILTER (WHERE epoch(finished_at - started_at) <= {bound})" for bound in BOUNDS
)
_LEDGER = f"""
SELECT job, count(*) AS batches, sum(coalesce(rows_read, 0)) AS rows_read,
       sum(coalesce(rows_dead, 0)) AS rows_dead, sum(coalesce(rows_late, 0)) AS rows_late,
       sum(list_sum(map_values(rows_written))) AS rows_written, max(finished_at) AS finished_at,
       [{_WITHIN}] AS within, sum(epoch(finished_at - started_at)) AS seconds,
       sum(cpu_seconds) AS cpu_seconds, sum(cpu_between_seconds) AS cpu_between_seconds
FROM ops.ledger GROUP BY job
"""
LEDGER_GAUGES = {
    "batches": "Batches in the ledger.",
    "rows_read": "Rows the job's batches read.",
    "rows_written": "Rows the job's batches wrote, over all tables.",
    "rows_dead": "Rows written as dead letters.",
    "rows_late": "Rows that came later than the watermark.",
}
LEDGER_COUNTERS = {
    "cpu_seconds": "CPU time of the driver's processes while the job's batches ran, in equal parts "
    "where several ran at once.",
    "cpu_between_seconds": "CPU time of these processes without a batch, as batches of the job "
    "told it.",
}
"""CPU time by the ledger; a job of which nobody knows it has none."""

STATUS_GAUGES = {
    "up": "1 when the job makes progress within its target.",
    "since_progress_seconds": "Since the job last finished a batch or had nothing to do.",
    "batch_seconds": "How long its newest batch took.",
    "batch_rows": "Rows its newest batch read.",
    "batch_cap": "Most messages (ingest) or rows (what reads tables) a batch takes now.",
    "failures": "Failures in a row.",
    "held_seconds": "Since when what it wrote could not be handed on (alerts to their topic).",
    "unread_messages": "Kafka messages it has not taken.",
    "unread_commits": "Delta commits it has not taken.",
    "oldest_unread_commit_seconds": "Age of the oldest commit it has not taken.",
    "arrival_time_lag_seconds": "Between now and what it takes as complete.",
    "event_time_lag_seconds": "Between now and the event-time watermark of its query.",
    "state_rows": "Rows of state.",
    "state_bytes": "Memory of that state.",
    "late_rows": "Rows of its newest batch that came later than the watermark.",
}
"""Where each job stands, from the files its driver writes every two seconds."""

_FORMER_GAUGES = {
    "progress_age_seconds": "since_progress_seconds",
    "behind_seconds": "oldest_unread_commit_seconds",
    "lag_seconds": "arrival_time_lag_seconds",
    "event_lag_seconds": "event_time_lag_seconds",
    "late_rows_total": "watermark_dropped_rows_total",
}
"""Deprecated names, for dashboards of the release before; they go with the next."""


def _deprecated(name: str) -> str:
    return f"Deprecated, gone with the next release: headgate_{name}."


class _DroppedRows(Collector):
    """A counter that the driver counts: it begins anew when the driver does."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def describe(self) -> Iterable[CounterMetricFamily]:
        """The counter, without jobs."""
        yield CounterMetricFamily(
            "headgate_job_watermark_dropped_rows",
            "Rows of all its batches, since its driver began, that came later than the watermark.",
            labels=(_JOB,),
        )

    def collect(self) -> Iterable[Metric]:
        """The counter, by job."""
        for family in self.describe():
            for job, rows in self.rows.items():
                family.add_metric([job], rows)
            yield family


class Jobs:
    """Gauges of the jobs and of their drivers' memory; they need neither Spark nor the lake."""

    def __init__(self, registry: CollectorRegistry, settings: Settings) -> None:
        self._settings = settings
        self._gauges = {
            name: Gauge(f"headgate_job_{name}", doc, (_JOB,), registry=registry)
            for name, doc in STATUS_GAUGES.items()
        }
        self._former = {
            name: Gauge(
                f"headgate_job_{name}", _deprecated(f"job_{new}"), (_JOB,), registry=registry
            )
            for name, new in _FORMER_GAUGES.items()
        }
        self._dropped = _DroppedRows()
        registry.register(self._dropped)
        self._phases = Gauge(
            "headgate_job_phase_seconds",
            "A phase of the job's newest batch.",
            (_JOB, "phase"),
            registry=registry,
        )
        self._memory = Gauge(
            "headgate_memory_bytes",
            "Resident memory of a driver, its JVM and its workers; heap as Java tells it.",
            ("pid", "part"),
            registry=registry,
        )

    def refresh(self) -> None:
        """Read the files anew. A number nobody knows has no series."""
        gauges = (*self._gauges.values(), *self._former.values(), self._phases, self._memory)
        for gauge in gauges:
            gauge.clear()
        self._dropped.rows = {}
        now = time.time()
        settings = self._settings
        for job_status in status.judge_jobs(
            settings, wanted_jobs(settings), status.read_status(settings), now
        ):
            self._gauges["up"].labels(job_status.job).set(job_status.missed is None)
            if job_status.status is not None:
                self._show(job_status.status, now)

    def _show(self, job: status.JobStatus, now: float) -> None:
        moved = job.progressed_at
        since = {
            "since_progress_seconds": None if moved is None else now - moved,
            "arrival_time_lag_seconds": job.arrival_time_lag(now),
            "event_time_lag_seconds": job.event_time_lag(now),
        }
        # The other values are of a batch of then; shown on, they would look like those of now.
        if not job.current(now):  # these grow on when its driver is gone
            self._set(job.job, since)
            return
        values = since | {
            "batch_seconds": job.seconds,
            "batch_rows": job.rows,
            "batch_cap": job.cap,
            "failures": job.failures,
            "held_seconds": 0.0 if job.held_since is None else now - job.held_since,
            "unread_messages": job.unread_messages,
            "unread_commits": job.unread_commits,
            "oldest_unread_commit_seconds": job.behind_seconds,
            "state_rows": job.state_rows,
            "state_bytes": job.state_bytes,
            "late_rows": job.dropped,
        }
        self._set(job.job, values)
        self._dropped.rows[job.job] = job.dropped_so_far
        self._former["late_rows_total"].labels(job.job).set(job.dropped_so_far)
        for phase, seconds in job.phases.items():
            self._phases.labels(job.job, phase).set(seconds)
        for part, used in asdict(job.memory).items():
            self._memory.labels(str(job.pid), part).set(used)

    def _set(self, job: str, values: Mapping[str, float | None]) -> None:
        for name, value in values.items():
            # No series says "not known"; a zero would say "nothing to do".
            if value is not None:
                self._gauges[name].labels(job).set(value)
        for former, name in _FORMER_GAUGES.items():
            if (value := values.get(name)) is not None:
                self._former[former].labels(job).set(value)


class _Work(Collector):
    """How long batches worked: all of them, for the ledger has a row of each. What is read from
    the newest batch alone would miss those between two looks."""

    def __init__(self) -> None:
        self.rows: Sequence[ReaderRow] = ()

    def describe(self) -> Iterable[HistogramMetricFamily]:
        """The histogram, without batches."""
        yield HistogramMetricFamily(
            "headgate_job_batch_work_seconds",
            "From the beginning of a batch to its last commit; planning comes on top.",
            labels=(_JOB,),
        )

    def collect(self) -> Iterable[Metric]:
        """The histogram, by job."""
        for family in self.describe():
            for row in self.rows:
                counts = [*zip(map(str, BOUNDS), row["within"], strict=True)]
                # Prometheus counts cumulatively: the last bucket holds all.
                buckets = [*counts, ("+Inf", row["batches"])]
                family.add_metric([row["job"]], buckets, row["seconds"])
            yield family


class _CpuTime(Collector):
    """Counters of the ledger, which has a row of each batch; they begin anew as rows expire."""

    def __init__(self) -> None:
        self.rows: Sequence[ReaderRow] = ()

    def describe(self) -> Iterable[CounterMetricFamily]:
        """The counters, without jobs."""
        for name, doc in LEDGER_COUNTERS.items():
            yield CounterMetricFamily(f"headgate_job_{name}", doc, labels=(_JOB,))

    def collect(self) -> Iterable[Metric]:
        """The counters, by job."""
        for name, family in zip(LEDGER_COUNTERS, self.describe(), strict=True):
            for row in self.rows:
                if row[name] is not None:
                    family.add_metric([row["job"]], row[name])
            yield family


class Maintenance:
    """Gauges of the newest maintenance of all tables, from what it left in the home."""

    def __init__(self, registry: CollectorRegistry, settings: Settings) -> None:
        self._settings = settings
        age = "Since maintenance last went through all tables and left none out; NaN before it did."
        held = "For how long a job that does not read on has held up a table's maintenance."
        # Each under its former name too: who alerts on that one would hear nothing more.
        self._age = [
            Gauge(f"headgate_{name}_age_seconds", doc, registry=registry)
            for name, doc in (
                ("maintenance", age),
                ("upkeep", _deprecated("maintenance_age_seconds")),
            )
        ]
        self._held = [
            Gauge(f"headgate_{name}_held_seconds", doc, ("table", _JOB), registry=registry)
            for name, doc in (
                ("maintenance", held),
                ("upkeep", _deprecated("maintenance_held_seconds")),
            )
        ]

    def refresh(self) -> None:
        """Read the file anew."""
        now, result = time.time(), retention_holds.last(self._settings)
        done = result.succeeded_at if result else None
        for age in self._age:
            age.set(nan if done is None else now - done)
        for held in self._held:
            held.clear()
            for hold in result.held if result else ():
                held.labels(hold.table, hold.job).set(now - hold.since)


class Meters:
    """What `/metrics` shows. A registry of its own, so that two apps in one process agree."""

    def __init__(self, settings: Settings) -> None:
        # Prometheus' default registry is one for the process and refuses a name that comes twice.
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "headgate_http_requests_total",
            "Requests answered; status 499: the caller hung up before.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "headgate_http_request_seconds",
            "Time from request to answer.",
            ("method", "route"),
            buckets=_ANSWER_BOUNDS,
            registry=self.registry,
        )
        self._flight_calls = Counter(
            "headgate_flight_calls_total",
            "Calls over Flight SQL, by what they ended with; a statement is two to four.",
            ("method", "status"),
            registry=self.registry,
        )
        self._flight_seconds = Histogram(
            "headgate_flight_call_seconds",
            "Time from a call over Flight SQL to the end of its answer.",
            ("method",),
            buckets=_ANSWER_BOUNDS,
            registry=self.registry,
        )
        self._lake_up = self._gauge("lake_up", "Whether the lake could be read.")
        self._alerts = self._gauge("alerts", "Alerts in gold.alert, by newest revision.", "level")
        self._age = self._gauge(
            "job_since_batch_seconds", "Since the newest batch in the ledger was finished.", _JOB
        )
        former = _deprecated("job_since_batch_seconds")
        self._former_age = self._gauge("job_batch_age_seconds", former, _JOB)
        self._finished: dict[str, float] = {}
        """When each job's newest batch was finished, seconds since 1970."""
        self._ledger = {
            name: self._gauge(f"job_{name}", doc, _JOB) for name, doc in LEDGER_GAUGES.items()
        }
        self._work = _Work()
        self.registry.register(self._work)
        self._cpu_time = _CpuTime()
        self.registry.register(self._cpu_time)
        self._dead = self._gauge("dead_letters", "Records that no parser could read.")
        self._status = Jobs(self.registry, settings)
        self._maintenance = Maintenance(self.registry, settings)
        LedgerCheck(self.registry, settings)
        FeedGauges(self.registry, settings)
        PreliminaryGauges(self.registry, settings)
        ListenerMetrics(self.registry, settings)
        self._lock = threading.Lock()
        self._due = 0.0

    def _gauge(self, name: str, doc: str, *labels: str) -> Gauge:
        return Gauge(f"headgate_{name}", doc, labels, registry=self.registry)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        # The route's pattern and not its path: an id in a label would make a series for each alert.
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def flight_call(self, method: str, status: str, seconds: float) -> None:
        """Count one call over Flight SQL; `method` such as `do_get`."""
        self._flight_calls.labels(method, status).inc()
        self._flight_seconds.labels(method).observe(seconds)

    def text(self, reader: Reader) -> bytes:
        """The exposition. A lake that cannot be read is `headgate_lake_up 0`, not an error."""
        # Two scrapers at once would ask the lake the same twice.
        with self._lock:
            began = time.monotonic()
            if began >= self._due:
                self._refresh(reader)
                asked = time.monotonic()
                # The dearer the question, the longer its answer has to serve.
                rest = max(_KEPT_SECONDS, (asked - began) / SHARE)
                self._due = asked + min(rest, MOST_SECONDS)
            self._show_ages()
            self._status.refresh()
            self._maintenance.refresh()
            return generate_latest(self.registry)

    def _refresh(self, reader: Reader) -> None:
        try:
            alerts = reader.rows(_ALERTS, needs=("gold.alert_current",))
            jobs = reader.rows(_LEDGER, needs=("ops.ledger",))
        except HeadgateError:
            self._lake_up.set(0)
            return
        self._lake_up.set(1)
        # Levels without alerts would otherwise show their last number for ever.
        self._alerts.clear()
        for row in alerts:
            self._alerts.labels(row["level"]).set(row["n"])
        self._show_jobs(jobs)

    def _show_jobs(self, jobs: Sequence[ReaderRow]) -> None:
        self._work.rows = self._cpu_time.rows = jobs
        self._finished = {row["job"]: row["finished_at"].timestamp() for row in jobs}
        dead = 0
        for row in jobs:
            for name, gauge in self._ledger.items():
                gauge.labels(row["job"]).set(row[name] or 0)
            dead += int(row["rows_dead"] or 0)
        self._dead.set(dead)

    def _show_ages(self) -> None:
        """They grow on also between two looks, and while the lake cannot be read."""
        now = time.time()
        for gauge in (self._age, self._former_age):
            gauge.clear()
            for job, finished_at in self._finished.items():
                gauge.labels(job).set(max(0.0, now - finished_at))
