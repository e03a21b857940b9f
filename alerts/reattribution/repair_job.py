"""Job `repair`: what the join of job `alert` cannot say.

Corrections of what it said, the sweep that leaves no finding without a row, and now and then the
repair of history (`alerts.reattribution.history_repair`).
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from alerts.domain.entity import event_instant
from alerts.lifecycle.holder_confidence import ServerWatch
from alerts.reattribution.history_repair import newest_beat, note_repair, repair_history
from alerts.reattribution.pending_attributions import PendingAttributions
from alerts.tables import FINDING, HEARTBEAT
from enrich.attribution.server_liveness import ServerLiveness
from enrich.attribution.stream_join import attribution_as_of, correct, split
from enrich.tables import ATTRIBUTION, DHCP_SEGMENT
from infra.config.settings import Settings
from infra.process.clock import clock
from infra.process.log import say
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake

SWEEP_REACH = timedelta(days=1)
"""How far back the sweep looks for findings without a row."""

SWEEP_EVERY = 60.0
"""Seconds between two looks at what the last commits left without a row."""

SWEEP_LONGEST = 3600.0
"""Longest time between two sweeps; the first batch of a run begins with one."""

SWEEP_SLACK = 30
"""Seconds the sweep leaves job `alert` beyond what the join itself waits."""


def repair(lake: Lake, *, once: bool = False) -> Job:
    """Corrections of what the join said, and the sweep that leaves no finding without a row."""
    settings = lake.settings
    findings = lake.stream(FINDING, job="repair").where("mode <> 'import'")
    waiting, _ = split(findings, settings.scopes)
    corrected = correct(
        waiting, lake.stream(DHCP_SEGMENT, job="repair"), settings.jobs, settings.scopes
    )
    servers = ServerWatch(settings)
    # A run that ends by itself has to leave nothing over, so it sweeps whatever the clock says.
    sweeps = _Sweeps(lake, always=once)
    mended = time.monotonic()

    def batch(rows: DataFrame, run: Batch) -> None:
        # One table only: a retry finds all of it there or none, so what it reads may be newer.
        nonlocal mended
        unionByName, limit = rows, sweeps.limit()
        if limit is not None:
            liveness_text = servers.current()
            liveness = (
                ServerLiveness()
                if liveness_text is None
                else ServerLiveness.from_json(liveness_text)
            )
            late = unattributed_findings(lake, limit, sweeps.reach(limit))
            unionByName = (
                # `take` first: the as-of join costs seconds, and there is mostly nothing to sweep.
                rows.unionByName(sweep(lake, late, limit, liveness)) if late.take(1) else rows
            )
        # Counted and written: without it the joins would run twice.
        unionByName = unionByName.persist()
        try:
            counts = {
                row["via"]: row["count"] for row in unionByName.groupBy("via").count().collect()
            }
            run.counts["late"] = counts.get("late", 0)
            if counts:
                lake.append(unionByName, ATTRIBUTION, run)
        finally:
            unionByName.unpersist()
        if limit is not None:
            # Behind the append: what failed must be swept again.
            sweeps.done(limit)
        pause = settings.jobs.repair_minutes * 60
        if pause and not once and time.monotonic() - mended >= pause:
            repair_now(lake)
            mended = time.monotonic()

    trigger = None if once else settings.jobs.repair_trigger_seconds
    return lake.each_batch("repair", corrected, batch, trigger_seconds=trigger)


def repair_now(lake: Lake) -> None:
    """The repair of history as the job does it: what fails is said, and tried again in due time."""
    try:
        done = repair_history(lake)
    except Exception as error:  # corrections and the sweep must go on whatever this comes to
        say(f"job repair: history not repaired, again in due time: {type(error).__name__}: {error}")
        return
    if done.changed or done.findings or done.events:
        note_repair(lake.settings, done, {"by": "job repair"})


class _Sweeps:
    """When to sweep: now and then, and each minute where the last commits left something over."""

    def __init__(self, lake: Lake, *, always: bool) -> None:
        self._lake = lake
        self._always = always
        self._untold = PendingAttributions(lake)
        # The first batch sweeps, since what was left over before the start is not known.
        self._looked = self._swept = -math.inf

    def limit(self) -> datetime | None:
        """The arrival time before which all must have been said; None when no sweep is due."""
        now = time.monotonic()
        if now - self._looked < SWEEP_EVERY and not self._always:
            return None
        self._looked = now
        self._untold.follow()
        # Only as far as detection has finished: a finding may still come from an event before that.
        reached = self._untold.finished or _finished(self._lake)
        limit = reached - timedelta(seconds=patience(self._lake.settings))
        due = self._always or now - self._swept >= SWEEP_LONGEST
        return limit if due or self._untold.before(limit) else None

    def reach(self, limit: datetime) -> datetime:
        """How far back to look: a broker whose clock was behind dates findings long before now."""
        return min(min(limit, clock.now()) - SWEEP_REACH, self._untold.oldest or limit)

    def done(self, limit: datetime) -> None:
        """What was before `limit` is said. A sweep that failed is made again in due time."""
        self._untold.judged(limit)
        self._swept = self._looked


def unattributed_findings(lake: Lake, limit: datetime, since: datetime) -> DataFrame:
    """Findings about an address of ours from `since` to `limit` that still have no attribution."""
    old = lake.read(FINDING).where(
        (F.col("rule_id") != HEARTBEAT)
        & (F.col("mode") != "import")
        & (F.col("received_at") < F.lit(limit))
        & (F.col("received_at") >= F.lit(since))
    )
    waiting, _ = split(old, lake.settings.scopes)
    # Their rows have their time: so not all of the table is read each minute, but its end.
    first_us = waiting.agg(F.min(F.unix_micros("event_time"))).collect()[0][0]
    first = limit if first_us is None else event_instant(first_us)
    happened = F.col("event_time")
    where = lake.read(ATTRIBUTION).where(happened.isNull() | (happened >= F.lit(first)))
    # An anti-join: a finding may have several rows, and any of them is enough.
    return waiting.join(where.select("finding_id"), "finding_id", "left_anti")


def sweep(lake: Lake, left: DataFrame, limit: datetime, liveness: ServerLiveness) -> DataFrame:
    """What the join left over, attributed from the tables."""
    return attribution_as_of(
        left,
        lake.read(DHCP_SEGMENT),
        via="late",
        complete_up_to=limit,
        scopes=lake.settings.scopes,
        liveness=liveness,
    )


def _finished(lake: Lake) -> datetime:
    """How far detection has finished its input: its newest heartbeat."""
    heartbeats = lake.read(FINDING).where(F.col("rule_id") == HEARTBEAT)
    return newest_beat(heartbeats, "event_time") or event_instant(0)


def patience(settings: Settings) -> int:
    """Seconds after its arrival when a finding must have its row."""
    jobs = settings.jobs
    # Two watermarks: the join lets a row go only when both of its inputs have passed it.
    return jobs.wait_seconds + 2 * jobs.watermark_seconds + SWEEP_SLACK
