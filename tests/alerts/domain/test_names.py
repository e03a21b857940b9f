"""Names of any length: whoever can log one of megabytes must not stop the alerts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from alerts.domain.finding import NAME_CHARS, named
from alerts.lifecycle.alert_json import LARGEST_BODY, LONGEST_TEXT, bounded, with_text
from alerts.matching.event_rows import event_batch
from alerts.matching.matcher import Matcher
from alerts.rulepack.predicate import Test
from alerts.spark_rules.rule import _named
from tests.alerts.lifecycle.test_alert_fold import SCHEMA, Bucket, finding, leased
from tests.alerts.matching.test_matcher import event, one_rule

LONG = 3_000_000
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=NAME_CHARS + 20)


@given(NAMES, NAMES)
def test_a_name_is_bounded_and_two_stay_two(one: str, other: str) -> None:
    assert len(str(named(one))) <= NAME_CHARS
    assert (named(one) == one) == (len(one) <= NAME_CHARS)
    assert (named(one) == named(other)) == (one == other)


def test_long_names_that_begin_alike_stay_two() -> None:
    assert named("a" * LONG) != named("a" * (LONG - 1))
    assert named(None) is None


@pytest.mark.full
def test_a_column_is_named_as_a_text_is(spark: SparkSession) -> None:
    texts = ["", "h", "é" * NAME_CHARS, "é" * (NAME_CHARS + 1), "😀" * 999, "a\n" * 500, None]
    rows = spark.createDataFrame([(text,) for text in texts], "name string")
    found = rows.select("name", _named(F.col("name")).alias("named")).collect()
    assert [row.named for row in found] == [named(row.name) for row in found]


def test_a_finding_about_an_endless_name_is_short_and_says_which() -> None:
    pack = one_rule(Test("source", "eq", "s"), carry=("user.name",))
    name = "h" * LONG
    row = event(host_name=name, user_name=name, user={"name": name}, device={"hostname": name})
    (found,) = Matcher(pack).match(event_batch([row])).to_pylist()
    assert found["host_name"] == found["user_name"] == named(name)
    assert len(json.dumps(found, default=str)) < 4_000


def test_an_alert_about_endless_names_is_a_message_that_any_topic_takes() -> None:
    bucket = Bucket()
    holder = leased("aa", hostname="h" * LONG, evidence=["d" * LONG])
    (told,) = bucket.alerts(finding(0, holder, rule_title="t" * LONG))
    text = with_text(told)["body"]
    assert len(text.encode()) <= LARGEST_BODY
    found = json.loads(text)
    assert len(found["title"]) == LONGEST_TEXT
    assert found["attribution"]["mac"] == "aa"
    (again,) = bucket.alerts(finding(1, leased("bb", hostname="h" * (LONG + 1)), uid="e0", rev=2))
    assert again["alert_id"] == told["alert_id"]


def test_a_body_within_the_bound_is_as_it_was() -> None:
    body: dict[str, Any] = {"title": "t" * (LARGEST_BODY - 100), "count": 1, "state": None}
    assert json.loads(bounded(body)) == body
    cut = json.loads(bounded(body | {"title": "é" * LARGEST_BODY, "evidence": [{"n": "x" * 9}]}))
    assert (len(cut["title"]), cut["count"], cut["evidence"]) == (LONGEST_TEXT, 1, [{"n": "x" * 9}])
    assert set(SCHEMA["required"]) >= {"title", "count"}
