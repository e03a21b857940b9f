"""What failed, told to the platform itself: records for the topic `logs.headgate`.

They take the way of all logs (see `ingest.sources.generic.headgate`), and rules match them, so
that an alert arises like any other. What goes on from one run to the next is an update
and raises no further alert; what is well again is closed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from infra.errors import Retryable
from infra.kafka.client import ensure_topics, produce, producer, require_broker, topic_of
from ingest.quality.outcome import Outcome
from ingest.quality.outcome_store import QualityState
from ingest.quality.source_silence import LOOK_BACK, Silence
from ingest.quality.unmapped_fields import Field

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from infra.config.settings import Settings

SOURCE = "headgate"
NAMED = 50
"""Fields that one record names; of more it says how many."""

_Record = dict[str, Any]


def of_outcomes(
    outcomes: Sequence[Outcome], state: QualityState, run_at: datetime
) -> Iterator[_Record]:
    """A record for each expectation that failed, and for each that is met again.

    What failed in the last run already is an update. Sources that are silent have records
    of their own (`of_silences`).
    """
    stamp = run_at.isoformat()
    for outcome in outcomes:
        if outcome.suite == "freshness":
            continue
        first = state.failing.pop(outcome.name, None)
        if outcome.passed and first is None:
            continue
        if not outcome.passed:
            state.failing[outcome.name] = first or stamp
        activity = "close" if outcome.passed else "create" if first is None else "update"
        count = f"{outcome.unexpected} of {outcome.checked}"
        examples = f", for example {outcome.examples}" if outcome.examples else ""
        yield {
            "kind": "data_quality",
            "activity": activity,
            "level": "informational" if outcome.passed else "medium",
            "time": stamp,
            "uid": _digest(outcome.name, stamp),
            "finding": _digest(outcome.name, first or stamp),
            "title": f"Data quality: {outcome.expectation}",
            "message": f"{outcome.name}: met again"
            if outcome.passed
            else f"{outcome.name}: not so for {count}{examples}",
            "check": outcome.name,
            "suite": outcome.suite,
            "expectation": outcome.expectation,
            "checked": outcome.checked,
            "unexpected": outcome.unexpected,
            "examples": outcome.examples,
            "failing_since": first or stamp,
        }


def of_silences(
    silences: Sequence[Silence], state: QualityState, run_at: datetime
) -> Iterator[_Record]:
    """A record for each silence that began, and for each that ended; none while it lasts.

    When they were reported is kept: such a pause is no habit of its source
    (`ingest.quality.silence_baseline`).
    """
    oldest = (run_at - LOOK_BACK).isoformat()
    kept = {
        name: [instant for instant in instants if instant >= oldest]
        for name, instants in state.told.items()
    }
    state.told = {name: instants for name, instants in kept.items() if instants}
    for silence in silences:
        since = state.silent.get(silence.source)
        newest = silence.newest.isoformat()
        # Another newest record means that it was heard in between, however shortly.
        ended = since is not None and since != newest
        if ended:
            del state.silent[silence.source]
            yield _silence(silence, str(since), "close", run_at)
        if silence.broken and (since is None or ended):
            state.silent[silence.source] = newest
            instant = silence.newest + timedelta(seconds=silence.seconds)
            state.told.setdefault(silence.source, []).append(instant.isoformat())
            yield _silence(silence, newest, "create", run_at)


def _silence(one: Silence, since: str, activity: str, run_at: datetime) -> _Record:
    over = activity == "close"
    return {
        "kind": "source_silent",
        "activity": activity,
        "level": "informational" if over else "high",
        "time": run_at.isoformat(),
        # The same silence has the same uid, told by whichever run.
        "uid": _digest("silent", one.source, since, activity),
        "finding": _digest("silent", one.source, since),
        "title": f"Source {one.source} {'is heard again' if over else 'is silent'}",
        "message": f"{one.source}: heard again" if over else one.sentence(),
        "check": "silence",
        "silent_source": one.source,
        "newest": one.newest.isoformat(),
        "silent_since": since,
        "silent_seconds": round(one.known, 1),
        "allowed_seconds": one.allowed,
    }


def of_drift(fields: Sequence[Field], run_at: datetime) -> Iterator[_Record]:
    """A record for each source that has fields it did not have before."""
    new: dict[str, list[Field]] = {}
    for field in fields:
        if not field.baseline:
            new.setdefault(field.source, []).append(field)
    for source, field_names in new.items():
        names = [field.field for field in field_names]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield {
            "kind": "field_drift",
            "activity": "create",
            "level": "medium",
            "time": run_at.isoformat(),
            "uid": _digest("drift", source, *sorted(names)),
            "finding": _digest("drift", source, *sorted(names)),
            "title": f"Source {source} has new fields",
            "message": f"{source}: fields not seen before: {', '.join(names[:NAMED])}{more}",
            "check": "drift",
            "drifting_source": source,
            "fields": names[:NAMED],
            "field_count": len(names),
            "example": field_names[0].event_uid,
        }


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def send(settings: Settings, records: Sequence[_Record], seconds: float = 30.0) -> None:
    """Put the records into the topic; raises `Retryable` when the broker does not take all."""
    if not records:
        return
    kafka = settings.kafka
    require_broker(kafka)
    ensure_topics(settings, (SOURCE,), jobs=())
    refused: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error.str())

    client = producer(kafka, **{"delivery.timeout.ms": int(seconds * 1000)})
    for record in records:
        raw = json.dumps(record).encode()
        produce(client, topic_of(SOURCE, kafka), raw, on_delivery=delivered)
    # A little longer than the delivery may take, so that each record has its report.
    left = client.flush(seconds + 5)
    if refused or left:
        why = refused[0] if refused else "no answer"
        raise Retryable(
            f"{len(refused) + left} of {len(records)} records for {topic_of(SOURCE, kafka)} were "
            f"not taken ({why}); the next run tells of them"
        )
