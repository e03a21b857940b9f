"""A scheduled run: check, learn new fields, look for silence; keep it and tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from infra.delta.duckdb_views import connect
from ingest.quality import outcome_store, self_events, unmapped_fields
from ingest.quality.measurements import Written, measure_written
from ingest.quality.outcome import Outcome
from ingest.quality.silence_rules import finished
from ingest.quality.unmapped_fields import Field
from ingest.quality.validate import check

if TYPE_CHECKING:
    from infra.config.settings import Settings

_AT_FIRST = timedelta(days=1)
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
    folder = outcome_store.quality_folder(settings)
    with outcome_store.quality_lock(folder):
        run_at = now or datetime.now(UTC)
        state = outcome_store.QualityState.load(folder)
        connection = connect(
            settings.lake_root,
            needs=("silver.event", "ops.drift"),
            memory=settings.api.statement_memory,
        )
        try:
            # Rows beyond what ingest has finished would be looked at in half.
            until = min(run_at, finished(connection) or run_at)
            since = until - _AT_FIRST
            if state.until is not None:
                # Never behind `until`: a lake restored from a backup may be older than the last
                # run.
                since = min(max(since, datetime.fromisoformat(state.until)), until)
            spool = outcome_store.spool_of(settings, "drift")
            baselines = unmapped_fields.known_fields(connection, spool)
            fields = unmapped_fields.learn(connection, baselines, since, until)
        finally:
            connection.close()
        measured = measure_written(settings, since, until, now=run_at)
        outcomes = check(measured, expect_some=False)
        lines = [
            *self_events.of_outcomes(outcomes, state, run_at),
            *self_events.of_silences(measured.silences, state, run_at),
            *self_events.of_drift(fields, run_at),
        ]
        outcome_store.write_outcomes(settings, outcomes, run_at)
        self_events.send(settings, lines)
        # Only what was told is known: a record that did not get out is told by the next run.
        unmapped_fields.write_fields(spool, fields)
        state.until = until.isoformat()
        state.save(folder)
    return Ran(outcomes, fields, measured, len(lines))
