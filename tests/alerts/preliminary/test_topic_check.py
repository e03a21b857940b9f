"""What is judged of the topic: each preliminary alert once, and one answer behind it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from alerts.preliminary.topic_check import EarlyMessage, judged
from headgate.cli import main

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
SOON, LATE = "2026-11-26T12:00:01.000Z", "2026-11-26T11:59:59.000Z"


def told(alert_id: str, by: str = SOON) -> dict[str, Any]:
    return {"certainty": "preliminary", "alert_id": alert_id, "answer_by": by}


def answer(alert_id: str) -> dict[str, Any]:
    return {"answer": "confirmed", "alert_id": alert_id}


@pytest.mark.parametrize(
    ("bodies", "first", "problems"),
    [
        ([told("a"), answer("a"), told("b")], 0, []),
        ([told("a", LATE), answer("a")], 0, []),
        ([told("a", LATE)], 0, [("a", f"unanswered since {LATE}")]),
        ([told("a"), answer("a"), answer("a")], 0, [("a", "answered 2 times")]),
        ([told("a"), told("a"), answer("a")], 0, [("a", "told twice, or behind its answer")]),
        ([answer("a")], 0, [("a", "answered, and never told")]),
        # What it answers is gone from the topic.
        ([answer("a")], 7, []),
    ],
)
def test_what_is_not_as_promised_is_named(
    bodies: list[dict[str, Any]], first: int, problems: list[tuple[str, str]]
) -> None:
    messages = [EarlyMessage(0, first + number, body) for number, body in enumerate(bodies)]
    check = judged(messages, NOW)
    assert [(row["alert_id"], row["problem"]) for row in check.wrong] == problems
    assert check.alerts == sum("certainty" in body for body in bodies)
    assert check.answered == len(bodies) - check.alerts


def test_those_without_an_answer_are_counted() -> None:
    bodies = [told("a"), told("b", LATE), told("c"), answer("c")]
    check = judged([EarlyMessage(0, n, body) for n, body in enumerate(bodies)], NOW)
    assert check.waiting == {"a": SOON, "b": LATE}
    assert check.late == 1


@pytest.mark.full
def test_the_command_names_the_broker_that_does_not_answer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_KAFKA__BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("HEADGATE_KAFKA__PRELIMINARY_TOPIC", "early")
    assert main(["--home", str(tmp_path), "alerts", "verify"]) == 1
    # What runs in this process beside it may say something as well.
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("headgate: ")]
    assert len(lines) == 1
    assert lines[0].startswith("headgate: no Kafka broker answers at 127.0.0.1:1")
