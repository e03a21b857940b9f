"""Preliminary alerts whose answer is late: an alarm, for it is job `alert` that answers."""

from __future__ import annotations

import time
from collections.abc import Iterator

from alerts.domain.entity import event_instant
from alerts.lifecycle.alert_json import rfc3339
from alerts.preliminary.place import Waiting, overdue_answers, place_file
from infra.config.settings import Settings
from infra.errors import Fatal
from infra.runtime.machine_checks import Finding


def late_and_waiting(settings: Settings) -> tuple[dict[str, Waiting], int]:
    """Those whose answer is late, by finding, and how many wait in all, handed on or not.

    Raises `Fatal` when the place of job `ingest` is damaged.
    """
    place = place_file(settings).read()
    return overdue_answers(settings, round(time.time() * 1_000_000)), len(
        place.waiting
    ) if place else 0


def preliminary_findings(settings: Settings) -> Iterator[Finding]:
    """One line for `headgate doctor` and `headgate status`, where preliminary alerts are made."""
    if not settings.kafka.preliminary_topic:
        return
    try:
        late, waiting = late_and_waiting(settings)
    except Fatal as error:
        yield Finding("preliminary", "its place cannot be read", str(error))
        return
    if not late:
        yield Finding("preliminary", f"{waiting} preliminary alerts wait for their answer")
        return
    first = min(late.values(), key=lambda each: (each.answer_by, each.alert_id))
    yield Finding(
        "preliminary",
        f"{len(late)} of {waiting} preliminary alerts are unanswered, the first since "
        f"{rfc3339(event_instant(first.answer_by))} (alert {first.alert_id})",
        "job alert answers them: see how it stands (headgate status); if it is well, "
        "alerts.preliminary_seconds is shorter than it takes",
    )
