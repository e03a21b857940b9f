"""Whether each preliminary alert on the topic has its one answer behind it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from infra.config.settings import Settings
from infra.kafka.transactions import read_all
from infra.process.clock import clock


class EarlyMessage(NamedTuple):
    """A message of the topic: where it stands, and its value."""

    partition: int
    offset: int
    body: dict[str, Any]


@dataclass
class TopicCheck:
    """What the topic holds; `wrong` has a row for each that is not as promised.

    `waiting`: alert_id to `answer_by` of those without an answer, late or not.
    """

    alerts: int = 0
    answered: int = 0
    late: int = 0
    waiting: dict[str, str] = field(default_factory=dict)
    wrong: list[dict[str, Any]] = field(default_factory=list)


def check_topic(settings: Settings) -> TopicCheck:
    """Read the topic to its end and judge it. Raises `Retryable` when the broker is away."""
    messages = (
        EarlyMessage(m.partition() or 0, m.offset() or 0, msgspec.json.decode(m.value() or b"{}"))
        for m in read_all(settings, settings.kafka.preliminary_topic)
    )
    return judged(messages, clock.now())


def judged(messages: Iterable[EarlyMessage], now: datetime) -> TopicCheck:
    """The same of messages in the order of each partition.

    Of a partition whose beginning is gone, answers may be there without what they answer.
    """
    check = TopicCheck()
    answers: dict[str, int] = {}
    begins: dict[int, int] = {}
    for message in messages:
        begin = begins.setdefault(message.partition, message.offset)
        alert_id = message.body["alert_id"]
        if "certainty" in message.body:
            check.alerts += 1
            if alert_id in answers:
                check.wrong.append(_row(alert_id, "told twice, or behind its answer"))
            answers.setdefault(alert_id, 0)
            check.waiting[alert_id] = message.body["answer_by"]
            continue
        check.answered += 1
        if alert_id not in answers and begin == 0:
            check.wrong.append(_row(alert_id, "answered, and never told"))
        answers[alert_id] = answers.get(alert_id, 0) + 1
        check.waiting.pop(alert_id, None)
    check.wrong += [
        _row(alert_id, f"answered {count} times")
        for alert_id, count in answers.items()
        if count > 1
    ]
    late = {name: by for name, by in check.waiting.items() if datetime.fromisoformat(by) < now}
    check.late = len(late)
    check.wrong += [_row(name, f"unanswered since {by}") for name, by in sorted(late.items())]
    return check


def _row(alert_id: str, problem: str) -> dict[str, Any]:
    return {"alert_id": alert_id, "problem": problem}
