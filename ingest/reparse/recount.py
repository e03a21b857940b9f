"""Hours whose events are changed in place, so that their counts are to be made anew.

A reparse and an erasure put rows of silver.event in the place of others, and streams pass over
that: no count changes by it. So before the first row of an hour is changed, the hour goes to
ops.recount. From then on nobody takes its counts for the events
(`ingest.completeness.rollup_coverage`), until job `rollup` or `headgate rollup recount` has made
them anew (`enrich.rollup.reconcile`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from infra.storage.file_lock import ExclusiveLock, Taken
from infra.streaming.job_lock import LOCK_NAME, already_runs
from ingest.completeness.rollup_coverage import HOUR
from ingest.tables_quality import RECOUNT

if TYPE_CHECKING:
    from infra.config.settings import Settings
    from infra.streaming.lake import Lake

AHEAD = timedelta(minutes=5)
"""A clock that is further ahead than this moves no watermark: its events count where they came."""

CHANGERS = ("reparse", "erase")
"""Who changes rows in place, by the name of its folder beside the checkpoints."""


class Recounts:
    """What one run asks to be counted anew: each hour once, before its first row is changed.

    Once is enough, for nothing is counted anew before the run has ended (`changing`).
    """

    def __init__(self, lake: Lake, by: str) -> None:
        self._lake = lake
        self._by = by
        self._asked: set[tuple[datetime, datetime]] = set()

    def ask(self, hours: Iterable[tuple[datetime, datetime]]) -> None:
        """Ask for hours of arrival, each with an hour in which events of it count."""
        new = set(hours) - self._asked
        # A clock that is ahead: the hour in which such an event counts may still be open when that
        # of its arrival is compared.
        pairs = {*new, *((counted, counted) for arrived, counted in new if counted > arrived)}
        if not pairs:
            return
        by_hour: dict[datetime, list[datetime]] = {}
        for arrived, counted in sorted(pairs):
            by_hour.setdefault(arrived, []).append(counted)
        instant = datetime.now(UTC)
        rows = [
            {"hour": arrived, "happened": counted, "asked_at": instant, "asked_by": self._by}
            for arrived, counted in by_hour.items()
        ]
        # Written before the set is changed: a crash in between asks twice, never not at all.
        self._lake.ensure(RECOUNT).add(RECOUNT, rows, f'{{"recount": "{self._by}"}}')
        self._asked |= new

    @property
    def hours(self) -> list[datetime]:
        """The hours of arrival that were asked for."""
        return sorted({arrived for arrived, _ in self._asked})


def changing(settings: Settings) -> str | None:
    """Who is changing rows in place at the moment; None where nobody is."""
    for job in CHANGERS:
        folder = settings.checkpoint_root / job
        if not (folder / LOCK_NAME).exists():
            continue
        try:
            # Taken and given back: whether somebody holds it can only be told by trying.
            ExclusiveLock(folder / LOCK_NAME, already_runs(folder, job)).release()
        except Taken:
            return job
    return None


def of_counts(settings: Settings, hours: Sequence[datetime]) -> Iterator[str]:
    """What becomes of the counts of hours whose events were changed, in words."""
    jobs = settings.jobs
    if not hours:
        return
    if jobs.rollup_trigger_seconds and jobs.rollup_check_minutes:
        yield (
            f"counts of {len(hours)} hours: job rollup makes them anew with its next comparison "
            f"(every {jobs.rollup_check_minutes:g} min); until then the events are asked instead"
        )
    else:
        since, until = hours[0], hours[-1] + HOUR
        yield (
            f"counts of {len(hours)} hours are out of date, and job rollup is off that would make "
            f"them anew: headgate rollup recount --since {since:%Y-%m-%dT%H}:00:00Z "
            f"--until {until:%Y-%m-%dT%H}:00:00Z; until then the events are asked instead"
        )
