"""Each preliminary alert is answered where its finding is folded, and the answer is true."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import alerts
from alerts.domain.entity import Holder, holder_of
from alerts.preliminary.answer import preliminary_id
from alerts.preliminary.message import (
    answer_message,
    as_published,
    given_up,
    preliminary_message,
)
from alerts.tables import PRELIMINARY_ANSWER
from tests.alerts.lifecycle.test_alert_fold import (
    DETECTED,
    NONE,
    NOON,
    PACK,
    Bucket,
    action,
    finding,
    leased,
)
from tests.alerts.lifecycle.test_suppression import suppress
from tests.examples import examples

FOLDER = Path(alerts.__file__).parent
EARLY = Draft202012Validator(json.loads((FOLDER / "preliminary.schema.json").read_text("utf-8")))
ANSWER = Draft202012Validator(
    json.loads((FOLDER / "preliminary_answer.schema.json").read_text("utf-8"))
)
BY = NOON + timedelta(minutes=2)


def early(second: float, *args: Any, **keys: Any) -> dict[str, Any]:
    """A finding that was told early."""
    return finding(second, *args, answer_by=BY, **keys)


def own_id(row: dict[str, Any]) -> str:
    return preliminary_id(row, "default")


def answers(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers among what a bucket gives, each as its table and its schema want it."""
    rows = [output["row"] for output in outputs if output["out"] == "answer"]
    for row in rows:
        assert set(row) == {column.name for column in PRELIMINARY_ANSWER.columns}
        ANSWER.validate(json.loads(json.dumps(answer_message(row, "default"))))
    return rows


def told(outputs: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("alert_id", "answer", "merged_into", "revision", "reason")
    return [tuple(row[name] for name in names) for row in answers(outputs)]


def test_the_finding_that_makes_an_alert_is_confirmed_under_the_same_id() -> None:
    outputs = Bucket().step(early(0))
    (alert,) = [output["row"] for output in outputs if output["out"] == "alert"]
    assert told(outputs) == [(alert["alert_id"], "confirmed", None, 1, None)]
    assert alert["alert_id"] == own_id(early(0))


def test_one_that_counts_on_an_alert_is_merged_into_it_though_that_gets_no_revision_yet() -> None:
    bucket = Bucket()
    bucket.step(finding(0))
    outputs = bucket.step(early(5))
    assert [output["out"] for output in outputs if output["out"] == "alert"] == []
    assert told(outputs) == [(own_id(early(5)), "merged", own_id(finding(0)), 1, None)]


def test_one_that_was_told_of_nobody_is_merged_into_the_alert_of_its_device() -> None:
    bucket = Bucket()
    bucket.step(finding(0, leased("bb", ip="10.0.0.9"), ip="10.0.0.9"))
    outputs = bucket.step(early(5, leased("bb")))
    ((_, answer, merged_into, _, _),) = told(outputs)
    assert (answer, merged_into) == ("merged", own_id(finding(0)))


def test_what_is_silenced_held_back_or_does_not_count_is_withdrawn_and_says_why() -> None:
    assert told(Bucket().step(suppress(), early(0))) == [
        (own_id(early(0)), "withdrawn", None, None, "suppressed")
    ]
    full = Bucket(hourly_budget=1)
    full.step(finding(0, NONE))
    # Another entity: an alert of its own, beyond the budget.
    other = early(1, NONE | {"ip": "10.0.0.6"}, ip="10.0.0.6")
    assert told(full.step(other)) == [(own_id(other), "withdrawn", None, None, "budget")]
    wrong = early(2, confirmed=False)
    assert told(Bucket().step(wrong)) == [(own_id(wrong), "withdrawn", None, None, "not_meant")]


def test_a_correction_and_what_was_not_told_are_not_answered() -> None:
    bucket = Bucket()
    assert len(told(bucket.step(early(0)))) == 1
    assert told(bucket.step(early(0, leased("bb"), rev=2, via="correction"))) == []
    assert told(bucket.step(early(0))) == []
    assert told(bucket.step(finding(9), action(own_id(early(0)), "close"))) == []


_FINDINGS = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.sampled_from(["aa", "bb", "none"]),
        st.integers(0, 3),
        st.integers(1, 3),
    ),
    max_size=25,
)


@given(rows=_FINDINGS, budget=st.sampled_from([1, 3, 100]))
@examples(80)
def test_each_is_answered_once_and_its_alert_is_on_the_topic_where_the_answer_says_so(
    rows: list[tuple[int, str, int, int]], budget: int
) -> None:
    bucket = Bucket(hourly_budget=budget)
    wanted, given_answers, heard = set(), [], set()
    for step in range(4):
        sent = []
        for second, mac, batch, rev in rows:
            if batch == step:
                holder = NONE if mac == "none" else leased(mac)
                # A finding has its mark from its row in gold.finding, so always the same one.
                row = finding(second, holder, rev, answer_by=BY if second % 2 else None)
                sent.append(row)
                wanted |= {own_id(row)} if row["answer_by"] else set()
        outputs = bucket.step(*sent)
        for output in outputs:
            row = output["row"]
            if output["out"] == "alert" and row["suppressed_by"] is None:
                heard.add((row["alert_id"], row["revision"]))
        for row in answers(outputs):
            given_answers.append(row["alert_id"])
            pointed = {"confirmed": row["alert_id"], "merged": row["merged_into"]}
            if row["answer"] in pointed:
                assert (pointed[row["answer"]], row["revision"]) in heard
            else:
                assert row["reason"] == "budget"
    assert sorted(given_answers) == sorted(wanted)


def test_a_message_follows_its_schema_and_names_the_last_known_holder() -> None:
    now = "2026-11-21T12:00:00.000Z"
    for row in (early(0), early(1, ip=None, scope=None), early(2, ip=None, host_name=None)):
        for holder in (None, holder_of(early(0)), Holder(ip=row["ip"], status="none")):
            for pack in (PACK, None):
                message = preliminary_message(row, holder, pack, "default")
                body = json.loads(as_published(message, now))
                EARLY.validate(body)
                assert body["alert_id"] == own_id(row)
                assert body["published_at"] == now
    body = preliminary_message(early(0), holder_of(early(0)), PACK, "default")
    assert body["entity"] == {"type": "device", "value": "aa"}
    assert body["attribution"]["hostname"] == "host-aa"
    assert (body["certainty"], body["revision"]) == ("preliminary", 0)


def test_an_answer_in_the_stead_of_job_alert_follows_the_schema() -> None:
    row = given_up(own_id(early(0)), "f", "r", DETECTED)
    ANSWER.validate(
        json.loads(as_published(answer_message(row, "default"), "2026-11-21T12:00:00.000Z"))
    )
