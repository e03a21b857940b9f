"""A repair of what the alert state has forgotten: the alert goes on where it ended."""

from __future__ import annotations

from typing import Any

from alerts.finding import identity
from tests.alerts.test_alert import Bucket, body, finding, leased, tick

LATER = 400_000
"""Seconds after which the state remembers no alert of the first minutes."""


def repaired(second: float, alert: dict[str, Any], mac: str = "bb") -> dict[str, Any]:
    """The finding of that second, attributed anew, with the alert as the table has it."""
    row = finding(second, leased(mac), rev=9, via="repair")
    return row | {"alert": alert["body"]}


def test_a_forgotten_alert_is_revised_and_not_made_again() -> None:
    bucket = Bucket()
    (first,) = bucket.alerts(finding(0))
    bucket.step(tick(LATER))
    (second,) = bucket.alerts(repaired(0, first))
    assert (second["alert_id"], second["revision"]) == (first["alert_id"], 2)
    assert (second["reason"], second["entity_value"], second["previous_entity"]) == (
        "attribution",
        "bb",
        "aa",
    )
    told = body(second)
    assert told["attribution"]["previous"]["mac"] == "aa"
    assert told["evidence"] == body(first)["evidence"]
    assert bucket.alerts(repaired(0, second)) == [], "the same again says nothing"


def test_of_a_forgotten_alert_only_the_findings_in_question_move() -> None:
    bucket = Bucket(count_every_seconds=1)
    (first,) = bucket.alerts(finding(0))
    (counted,) = bucket.alerts(finding(10), finding(20), tick(30))
    assert counted["count"] == 3
    bucket.step(tick(LATER))
    moved = {row["entity_value"]: row for row in bucket.alerts(repaired(10, counted))}
    assert moved.keys() == {"aa", "bb"}
    assert (moved["aa"]["alert_id"], moved["aa"]["revision"]) == (first["alert_id"], 3)
    assert (moved["aa"]["count"], moved["bb"]["count"]) == (2, 1)
    assert moved["bb"]["alert_id"] == identity("default", "r", "e10")
    assert [e["event_uid"] for e in body(moved["aa"])["evidence"]] == ["e0", "e20"]
    assert body(moved["aa"])["evidence_total"] == 2


def test_an_alert_that_is_remembered_knows_better_than_what_comes_along() -> None:
    bucket = Bucket(count_every_seconds=1)
    (first,) = bucket.alerts(finding(0))
    bucket.alerts(finding(10), tick(30))
    rows = {row["entity_value"]: row for row in bucket.alerts(repaired(0, first))}
    assert (rows["aa"]["revision"], rows["aa"]["count"]) == (3, 1)
