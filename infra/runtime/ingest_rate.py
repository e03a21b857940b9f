"""Sets the pace of job `ingest`: `infra.streaming.rate_controller` decides, this watches and
remembers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil

from infra.config.settings import Settings
from infra.runtime.job_status import JobStatus
from infra.runtime.monitor import resident
from infra.streaming.job import Job
from infra.streaming.kafka_offsets import OffsetReader, backlog, kafka_checkpoint
from infra.streaming.progress import durations, unread
from infra.streaming.rate_controller import (
    BatchSeen,
    Learned,
    Pace,
    RateLimits,
    begin_regime,
    follow,
    restart,
)
from infra.streaming.rate_estimates import read_estimates, write_estimates

GOVERNED = "ingest"
SAMPLE_SECONDS = 1.0
"""How often the workers' memory is read while a batch runs."""


@dataclass
class Governor:
    """The pace of one job, over restarts of its query and of the driver."""

    settings: Settings
    pace: Pace | None = None
    learned: Learned = field(default_factory=Learned)
    _warm: bool = False
    _batch: int | None = None
    _peak: int = 0
    _sampled: float = 0.0

    @property
    def limits(self) -> RateLimits:
        """What the settings allow."""
        jobs = self.settings.jobs
        return RateLimits(
            most=jobs.max_offsets_per_batch,
            least=min(jobs.least_offsets_per_batch, jobs.max_offsets_per_batch),
            steady_seconds=jobs.steady_batch_seconds,
            behind_seconds=jobs.behind_batch_seconds,
            memory=jobs.batch_memory_mb * 2**20,
        )

    def start(self) -> Settings:
        """Settings to start the query with: the pace that was decided, or that its backlog asks."""
        if not self.settings.jobs.adaptive:
            return self.settings
        if self.pace is None:
            # Only at the first start: one for another pace begins with the pace that was decided.
            self.learned = read_estimates(self.settings.checkpoint_root / GOVERNED, Learned())
            waiting = backlog(
                kafka_checkpoint(self.settings.checkpoint_root / GOVERNED),
                OffsetReader(self.settings.kafka),
                self.settings.kafka,
            )
            self.pace = begin_regime(waiting, self.learned, self.limits)
        return _paced(self.settings, self.pace)

    @property
    def pace_text(self) -> str:
        """The pace in words."""
        pace = self.pace
        return f"{pace.regime}, up to {pace.cap} messages a batch" if pace else "at a fixed pace"

    def failed(self) -> None:
        """The query ended by itself: the next start looks at the backlog anew."""
        self.pace = self._batch = None

    def look(self, job: Job, progress: Mapping[str, Any] | None, status: JobStatus) -> bool:
        """Whether the query is to be started anew at another pace; to be asked again and again."""
        if self.pace is None:
            return False
        status.cap, status.regime = self.pace.cap, self.pace.regime
        self._sample(job)
        # Spark gives the newest progress again until there is another batch.
        if progress is None or progress["batchId"] in (self._batch, None):
            return False
        seen = self._seen(job, progress)
        if seen is None:
            return False
        self._batch, self._peak = progress["batchId"], 0
        if self._warm:
            self.learned = self.learned.seen(seen)
        self._warm = True  # the first batch of a driver also loads and compiles: it teaches nothing
        before, self.pace = self.pace, follow(self.pace, seen, self.learned, self.limits)
        changed = restart(before, self.pace)
        if changed:
            self._remember()
        return changed

    def _seen(self, job: Job, progress: Mapping[str, Any]) -> BatchSeen | None:
        """The batch a progress tells of; None while the job's pulse is at another one."""
        pulse = job.pulse
        if pulse.done != progress["batchId"]:
            return None
        return BatchSeen(
            messages=pulse.rows or 0,
            bytes=pulse.bytes,
            seconds=durations(progress).get("triggerExecution", 0.0),
            memory=self._peak,
            left=unread(progress).messages or 0,
        )

    def _sample(self, job: Job) -> None:
        if job.pulse.under_way and time.monotonic() - self._sampled >= SAMPLE_SECONDS:
            self._peak = max(self._peak, resident(psutil.Process())[1])
            self._sampled = time.monotonic()

    def _remember(self) -> None:
        write_estimates(self.settings.checkpoint_root / GOVERNED, self.learned)

    def stop(self) -> None:
        """Keep what was learned."""
        if self.pace is not None:
            self._remember()


def _paced(settings: Settings, pace: Pace) -> Settings:
    """The settings with a pace's cap, and without a pause between batches while behind."""
    jobs = settings.jobs.model_copy(
        update={
            "max_offsets_per_batch": pace.cap,
            "ingest_trigger_seconds": (
                0.0 if pace.regime == "behind" else settings.jobs.ingest_trigger_seconds
            ),
        }
    )
    return settings.model_copy(update={"jobs": jobs})
