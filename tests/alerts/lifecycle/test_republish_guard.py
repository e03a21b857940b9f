"""Numbers of revisions in a lake from a backup, beside a broker that has heard more.

heard      1  2  3 .. 7 (seven findings)
restored   1                    2          8         9
           │ the first one      │ all seven │ closed  │ and so on
                                  not told
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from alerts.domain.finding import identity
from alerts.lifecycle.bucket_state import BucketState
from alerts.lifecycle.republish_guard import Newest, asked_of, guard_key, nothing_published
from infra.config.settings import load
from infra.errors import Fatal
from tests.alerts.lifecycle.test_alert_fold import (
    DETECTED,
    VALIDATOR,
    Bucket,
    action,
    finding,
    leased,
)
from tests.alerts.lifecycle.test_alert_fold import load as packs

A0 = identity("default", "r", "e0")
AA = guard_key(A0, "device", "aa")
SEVEN = {A0: Newest(7, 7, AA)}


class Restored(Bucket):
    """A bucket of a lake from a backup."""

    def __init__(self, heard: Mapping[str, Newest], **settings: Any) -> None:
        super().__init__(**settings)
        self.heard = heard

    def step(self, *rows: dict[str, Any]) -> list[dict[str, Any]]:
        state = BucketState.decode(self.blob)
        outputs = state.step(rows, packs, self.settings, DETECTED, published=self.heard.get)
        again = BucketState.decode(self.blob)
        assert again.step(rows, packs, self.settings, DETECTED, published=self.heard.get) == outputs
        self.blob = state.encode()
        for output in outputs:
            if output["out"] == "alert":
                VALIDATOR.validate(output["row"]["body"])
        return outputs


def told(row: dict[str, Any]) -> tuple[int, str, str]:
    return row["revision"], row["activity"], row["reason"]


def test_what_is_only_counted_again_keeps_its_own_number_and_what_is_new_goes_behind() -> None:
    bucket = Restored(SEVEN)
    (first,) = bucket.alerts(finding(0))
    assert first["alert_id"] == A0
    assert told(first) == (1, "create", "first")
    (counted,) = bucket.alerts(*(finding(n) for n in range(1, 7)), finding(400, uid="e6"))
    assert (told(counted), counted["count"]) == ((2, "update", "count"), 7)
    (closed,) = bucket.alerts(action(A0, "close", 500))
    assert told(closed) == (8, "close", "closed")
    (taken,) = bucket.alerts(action(A0, "assign", 501, value="ann"))
    assert told(taken) == (9, "update", "assigned")


def test_what_counts_more_than_was_heard_is_told() -> None:
    bucket = Restored({A0: Newest(7, 2, AA)})
    (first,) = bucket.alerts(finding(0), finding(1), finding(2))
    assert (told(first), first["count"]) == ((8, "update", "first"), 3)


def test_what_turns_out_to_be_anothers_is_told() -> None:
    bucket = Restored({A0: Newest(3, 1, AA)})
    (first,) = bucket.alerts(finding(0), finding(0, leased("bb"), rev=2))
    assert (told(first), first["entity_value"]) == ((4, "update", "first"), "bb")
    (moved,) = bucket.alerts(finding(0, leased("cc"), rev=3))
    assert told(moved) == (5, "update", "attribution")


def test_an_alert_that_ends_in_favour_of_another_is_told_to_have_ended() -> None:
    bucket = Restored({A0: Newest(3, 1, AA)})
    first, other = bucket.alerts(finding(0), finding(10, leased("bb")))
    assert (first["alert_id"], told(first)) == (A0, (1, "create", "first"))
    rows = {row["alert_id"]: told(row) for row in bucket.alerts(finding(0, leased("bb"), rev=2))}
    assert rows == {A0: (4, "close", "superseded"), other["alert_id"]: (2, "update", "attribution")}


def test_an_alert_of_which_nothing_was_heard_counts_from_one() -> None:
    bucket = Restored({"another": Newest(7, 7, AA)})
    assert [told(row) for row in bucket.alerts(finding(0))] == [(1, "create", "first")]
    assert bucket.alerts(action(A0, "close"))[0]["revision"] == 2


def test_without_a_restore_no_file_is_asked(tmp_path: Path) -> None:
    assert asked_of(load(home=tmp_path), None) is nothing_published


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"heard-.*\.sqlite is damaged .*remove it, it is made anew"):
        asked_of(load(home=tmp_path), "heard-000001-0.sqlite")
