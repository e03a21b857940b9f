"""A scheduled run: check, learn new fields, look for silence; keep it and tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from infra.duck import connect
from ingest import drift
from ingest.drift import Field
from ingest.quality import record, report
from ingest.quality.found import Written, written
from ingest.quality.validate import Outcome, check
from ingest.silence import finished

if TYPE_CHECKING:
    from infra.settings import Settings

AT_FIRST = timedelta(days=1)
"""How far the first run looks back, and any run at most: it checks what is new, not history."""


@dataclass(frozen=True)
class Ran:
    """What a run found. `told`: how many records it sent."""

    outcomes: list[Outcome]
    fields: list[Field]
    found: Written
    told: int


def run(settings: Settings, now: datetime | None = None) -> Ran:
    """Check what came since the last run.

    Rows for ops.quality and ops.drift are left to the driver, records go to the topic
    `logs.headgate`. If the broker is away, `Retryable` is raised, and the next run says
    again what this one could not.
    """
    folder = record.folder_of(settings)
    with record.alone(folder):
        run_at = now or datetime.now(UTC)
        state = record.State.load(folder)
        connection = connect(
            settings.lake_root,
            needs=("silver.event", "ops.drift"),
            memory=settings.api.statement_memory,
        )
        try:
            until = min(run_at, finished(connection) or run_at)
            since = until - AT_FIRST
            if state.until is not None:
                since = min(max(since, datetime.fromisoformat(state.until)), until)
            spool = record.spool_of(settings, "drift")
            known = drift.known_fields(connection, spool)
            fields = drift.learn(connection, known, since, until)
        finally:
            connection.close()
        found = written(settings, since, until, now=run_at)
        outcomes = check(found, expect_some=False)
        said = [
            *report.of_outcomes(outcomes, state, run_at),
            *report.of_silences(found.silences, state, run_at),
            *report.of_drift(fields, run_at),
        ]
        record.keep(settings, outcomes, run_at)
        report.send(settings, said)
        # Only what was told is known: a record that did not get out is told by the next run.
        drift.keep(spool, fields)
        state.until = until.isoformat()
        state.save(folder)
    return Ran(outcomes, fields, found, len(said))
