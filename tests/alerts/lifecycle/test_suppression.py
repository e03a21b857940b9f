"""Suppressions: what is silenced lies in the table with its reason, and never goes out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from alerts.domain.entity import entity_of, holder_of, micros
from alerts.lifecycle.suppression import Suppression, covering
from tests.alerts.lifecycle.test_alert_fold import NONE, NOON, Bucket, action, finding, leased, tick

LATER = NOON + timedelta(hours=1)


def suppress(name: str = "s1", expires: Any = LATER, **keys: Any) -> dict[str, Any]:
    asked = action(name, "suppress", -10, expires_at=expires, rule_id="*", target=None)
    return asked | {"entity": None, "fields": {}} | keys


def end(name: str = "s1", second: float = 0) -> dict[str, Any]:
    return action(name, "unsuppress", second, rule_id="*", target=None)


def covers(row: dict[str, Any], **keys: Any) -> bool:
    one = Suppression("s", micros(LATER), **keys)
    holder = holder_of(row)
    return covering([one], row, entity_of(row, holder), holder) == "s"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"rule": "r"}, True),
        ({"rule": "GUESS*"}, True),
        ({"rule": "guess"}, False),
        ({"entity": "AA"}, True),
        ({"entity": "host-a?"}, True),
        ({"entity": "10.0.0.0/24"}, True),
        ({"entity": "10.0.1.0/24"}, False),
        ({"entity": "10.0.0.*"}, True),
        ({"entity": "10.0.0"}, False),
        ({"entity": "10x0x0x5"}, False),
        ({"fields": {"user.name": "ro*"}}, True),
        ({"fields": {"src_endpoint.ip": "10.0.0.5"}}, True),
        ({"fields": {"user.name": "root", "process.name": "*"}}, False),
        ({"rule": "r", "entity": "bb"}, False),
        ({"rule": "r", "fields": {"tenant_uid": "acme"}}, False),
    ],
)
def test_all_patterns_that_are_given_must_fit(keys: dict[str, Any], expected: bool) -> None:
    assert covers(finding(0), **keys) is expected


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        ("C:\\[a]*.exe", "c:\\[A]\\x.EXE", True),
        ("[a]", "a", False),
        ("a?c", "a\nc", True),
        ("*" + "a*" * 12 + "b", "a" * 20_000, False),
        ("*" + "a*" * 12 + "b", "a" * 20_000 + "b", True),
    ],
)
def test_a_pattern_knows_two_wildcards_and_no_value_makes_it_slow(
    pattern: str, value: str, expected: bool
) -> None:
    row = finding(0, fields={"process.name": value})
    assert covers(row, fields={"process.name": pattern}) is expected


def test_the_arrival_decides_about_expiry_not_the_clock_of_the_wall() -> None:
    assert covers(finding(3598.9))
    assert not covers(finding(3599))
    assert not covers(finding(0, received_at=LATER)), "an old event that arrives after it"


def test_a_silenced_alert_lies_in_the_table_with_every_revision_silenced() -> None:
    bucket = Bucket(count_every_seconds=60)
    (row,) = bucket.alerts(suppress(rule_id="r"), finding(0))
    assert (row["revision"], row["suppressed_by"]) == (1, "s1")
    (more,) = bucket.alerts(finding(100), tick(200))
    assert (more["alert_id"], more["revision"], more["suppressed_by"]) == (row["alert_id"], 2, "s1")
    assert more["count"] == 2


def test_what_comes_after_the_expiry_is_a_new_alert_that_is_told() -> None:
    bucket = Bucket(dedup_seconds=86_400)
    (silent,) = bucket.alerts(suppress(), finding(0))
    (told,) = bucket.alerts(finding(3600))
    assert told["suppressed_by"] is None
    assert told["alert_id"] != silent["alert_id"]
    assert told["revision"] == 1


def test_one_that_is_ended_silences_nothing_more_and_others_go_on() -> None:
    bucket = Bucket()
    rows = [suppress(entity="aa"), suppress("s2", entity="bb")]
    bucket.step(*rows)
    found = bucket.alerts(end(), finding(0), finding(1, leased("bb")))
    assert {row["entity_value"]: row["suppressed_by"] for row in found} == {"aa": None, "bb": "s2"}


def test_an_alert_that_is_out_counts_no_more_once_its_repeats_are_silenced() -> None:
    bucket = Bucket(count_every_seconds=1)
    (told,) = bucket.alerts(finding(0))
    (silent,) = bucket.alerts(suppress(), finding(10), tick(100))
    assert silent["suppressed_by"] == "s1"
    assert silent["alert_id"] != told["alert_id"]
    (closed,) = bucket.alerts(action(told["alert_id"], "close", 101))
    assert (closed["revision"], closed["suppressed_by"]) == (2, None), "the consumer hears the end"


#   silenced as aa's        correction: it was bb, whom nobody silenced
def test_one_silenced_in_another_devices_name_is_told_from_revision_one() -> None:
    bucket = Bucket()
    (silent,) = bucket.alerts(suppress(entity="aa"), finding(0))
    rows = bucket.alerts(finding(0, leased("bb"), rev=2, via="correction"))
    by_id = {row["alert_id"]: row for row in rows}
    closed = by_id.pop(silent["alert_id"])
    (told,) = by_id.values()
    assert (closed["reason"], closed["suppressed_by"]) == ("superseded", "s1")
    assert (told["entity_value"], told["revision"], told["suppressed_by"]) == ("bb", 1, None)


def test_one_that_is_out_stays_out_when_it_turns_out_to_be_a_silenced_devices() -> None:
    bucket = Bucket()
    (first,) = bucket.alerts(suppress(entity="bb"), finding(0))
    (second,) = bucket.alerts(finding(0, leased("bb"), rev=2, via="correction"))
    assert second["alert_id"] == first["alert_id"]
    assert (second["revision"], second["entity_value"], second["suppressed_by"]) == (2, "bb", None)


def test_an_address_without_a_lease_can_be_silenced_too() -> None:
    (row,) = Bucket().alerts(suppress(entity="10.0.0.0/8"), finding(0, NONE))
    assert row["suppressed_by"] == "s1"


def test_expired_suppressions_leave_the_state() -> None:
    bucket = Bucket()
    empty = len(bucket.blob)
    bucket.step(suppress())
    assert len(bucket.blob) > empty + 50
    for hours in (26, 27):
        bucket.step(tick(hours * 3600))
    assert len(bucket.blob) < empty + 20


def test_what_arrived_before_it_ended_stays_silenced_however_late_it_is_worked_off() -> None:
    """An outage: the findings of four hours come in one batch, and a person asks meanwhile."""
    hours = 3600
    bucket = Bucket()
    bucket.step(suppress())
    bucket.step(action("of another alert", "close", 4 * hours))
    rows = bucket.alerts(finding(1800), finding(3 * hours, leased("bb")))
    assert {row["entity_value"]: row["suppressed_by"] for row in rows} == {"aa": "s1", "bb": None}
    # Another partition of the topic is not so far yet.
    (row,) = bucket.alerts(finding(1900, leased("cc")))
    assert row["suppressed_by"] == "s1"
