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
from infra.kafka.client import ensure_topics, producer, require_broker, topic_of
from ingest.quality.outcome import Outcome
from ingest.quality.outcome_store import State
from ingest.quality.source_silence import LOOK_BACK, Silence
from ingest.quality.unmapped_fields import Field

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from infra.config.settings import Settings

SOURCE = "headgate"
NAMED = 50
"""Fields that one record names; of more it says how many."""

Said = dict[str, Any]


def of_outcomes(outcomes: Sequence[Outcome], state: State, run_at: datetime) -> Iterator[Said]:
    """A record for each expectation that failed, and for each that is met again.

    What failed in the last run already is an update. Sources that are silent have records
    of their own (`of_silences`).
    """
    at = run_at.isoformat()
    for one in outcomes:
        if one.suite == "freshness":
            continue
        first = state.failing.pop(one.name, None)
        if one.passed and first is None:
            continue
        if not one.passed:
            state.failing[one.name] = first or at
        activity = "close" if one.passed else "create" if first is None else "update"
        count = f"{one.unexpected} of {one.checked}"
        examples = f", for example {one.examples}" if one.examples else ""
        yield {
            "kind": "data_quality",
            "activity": activity,
            "level": "informational" if one.passed else "medium",
            "time": at,
            "uid": _digest(one.name, at),
            "finding": _digest(one.name, first or at),
            "title": f"Data quality: {one.expectation}",
            "message": f"{one.name}: met again"
            if one.passed
            else f"{one.name}: not so for {count}{examples}",
            "check": one.name,
            "suite": one.suite,
            "expectation": one.expectation,
            "checked": one.checked,
            "unexpected": one.unexpected,
            "examples": one.examples,
            "failing_since": first or at,
        }


def of_silences(found: Sequence[Silence], state: State, run_at: datetime) -> Iterator[Said]:
    """A record for each silence that began, and for each that ended; none while it lasts.

    When they were told is kept: such a pause is no habit of its source
    (`ingest.quality.silence_baseline`).
    """
    oldest = (run_at - LOOK_BACK).isoformat()
    kept = {name: [at for at in told if at >= oldest] for name, told in state.told.items()}
    state.told = {name: told for name, told in kept.items() if told}
    for one in found:
        since = state.silent.get(one.source)
        newest = one.newest.isoformat()
        ended = since is not None and since != newest
        if ended:
            del state.silent[one.source]
            yield _silence(one, str(since), "close", run_at)
        if one.broken and (since is None or ended):
            state.silent[one.source] = newest
            at = one.newest + timedelta(seconds=one.seconds)
            state.told.setdefault(one.source, []).append(at.isoformat())
            yield _silence(one, newest, "create", run_at)


def _silence(one: Silence, since: str, activity: str, run_at: datetime) -> Said:
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


def of_drift(fields: Sequence[Field], run_at: datetime) -> Iterator[Said]:
    """A record for each source that has fields it did not have before."""
    new: dict[str, list[Field]] = {}
    for one in fields:
        if not one.baseline:
            new.setdefault(one.source, []).append(one)
    for source, found in new.items():
        names = [one.field for one in found]
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
            "example": found[0].event_uid,
        }


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def send(settings: Settings, records: Sequence[Said], seconds: float = 30.0) -> None:
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
        client.produce(topic_of(SOURCE, kafka), raw, on_delivery=delivered)
    left = client.flush(seconds + 5)
    if refused or left:
        why = refused[0] if refused else "no answer"
        raise Retryable(
            f"{len(refused) + left} of {len(records)} records for {topic_of(SOURCE, kafka)} were "
            f"not taken ({why}); the next run tells of them"
        )
