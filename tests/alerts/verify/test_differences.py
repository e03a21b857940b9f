"""Verify: history says the same as the stream, or why not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.backtest.rule_selection import select_rules
from alerts.domain.finding import RULE_FAILED, identity
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from alerts.tables import ALERT, FINDING
from alerts.verify.differences import (
    CAUSES,
    AlertFacts,
    Batches,
    ComparedAlert,
    Difference,
    EventFacts,
    OneSidedFinding,
    Verified,
    judge_finding,
    judge_told,
)
from alerts.verify.run import REPAIRED, Verification
from enrich.tables import ATTRIBUTION, DHCP_SEGMENT
from infra.delta.duckdb_views import connect
from infra.delta.ops_tables import LEDGER
from infra.delta.retention import Applied, note_retention
from infra.errors import Fatal, Usage
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.alerts.history import (
    LOGIN,
    NOON,
    A,
    B,
    at,
    beats,
    fit,
    leased,
    login,
    streamed,
    with_rules,
)
from tests.api.story import insert

INGEST = EventFacts(False, False, "ingest-7-0123456789abcdef-x.parquet")


def stray(
    recorded: str | None = None, packs: tuple[str, ...] = ("p1",), **more: Any
) -> OneSidedFinding:
    return OneSidedFinding("f", more.pop("rule", "r"), "e", 0, recorded, packs, **more)


@pytest.mark.parametrize(
    ("one", "event", "batches", "expected"),
    [
        (stray(), INGEST, Batches({("ingest", 7): "p1"}), "unexplained"),
        (stray(), INGEST, Batches({("ingest", 7): "p0"}), None),  # its batch had another pack
        (stray(), INGEST, Batches({("ingest", 7): "p0"}, lost={"p0"}), "pack lost"),
        (stray(), INGEST, Batches({("ingest", 7): "p1"}, failed={("r", "p1")}), "rule failed"),
        (stray(), EventFacts(False, False, "part-1.parquet"), Batches({}), "unexplained"),
        (
            stray(),
            EventFacts(False, False, "part-1.parquet"),
            Batches({("ingest", 1): "p0", ("ingest", 2): "p1"}),
            "rule changed",
        ),
        (stray(), EventFacts(False, False, "reparse-a-1.parquet"), Batches({}), "reparsed"),
        (stray("p1", ()), INGEST, Batches({}), "unexplained"),
        (stray("p1", ()), None, Batches({}), "gone"),
        (stray("p1", ()), EventFacts(True, False, "x"), Batches({}), "duplicate"),
        (stray("p0", ()), INGEST, Batches({}, lost={"p0"}), "pack lost"),
        (stray("p1", (), rule=RULE_FAILED), INGEST, Batches({}), "rule failed"),
        (stray("p1", ("p1",), times=2), INGEST, Batches({}), "unexplained"),
    ],
)
def test_each_stray_finding_has_its_cause(
    one: OneSidedFinding, event: EventFacts | None, batches: Batches, expected: str | None
) -> None:
    found = judge_finding(one, event, batches)
    assert (found.cause if found else None) == expected
    if found:
        assert found.cause in CAUSES
        assert found.how == ("other" if one.times > 1 else "extra" if one.recorded else "missing")


def told(name: str, first: int = 0, **more: Any) -> ComparedAlert:
    values: dict[str, Any] = {
        "rule_id": "r", "key": "ip|a", "entity": "a", "first": first, "last": first + 10,
        "raised": first, "received": first, "count": 1, "evidence": (name,),
    }  # fmt: skip
    return ComparedAlert(name, **values | more)


FACTS = AlertFacts(finished=1000, repaired={"moved"}, strays={"stray"})


def causes(stream: list[ComparedAlert], history: list[ComparedAlert]) -> list[tuple[str, str]]:
    _, different = judge_told("alert", stream, history, (0, 5000), FACTS)
    return [(one.how, one.cause) for one in different]


def test_each_alert_that_differs_has_its_cause() -> None:
    assert causes([told("a")], [told("a")]) == []
    assert causes([], [told("a")]) == [("missing", "unexplained")]
    assert causes([told("a")], []) == [("extra", "unexplained")]
    assert causes([], [told("a", 1000)]) == [("missing", "unfinished")]
    assert causes([told("a", 1000)], []) == [("extra", "unexplained")]
    assert causes([told("a")], [told("a", count=2)]) == [("other", "unexplained")]
    assert causes([told("a", received=1000)], [told("a", count=2)]) == [("other", "unfinished")]
    assert causes([told("a", key="x", moved=True)], [told("a")]) == [("other", "repaired")]
    assert causes([told("stray")], []) == [("extra", "follows")]
    assert causes([told("moved")], []) == [("extra", "repaired")]
    assert causes([told("a", late=True)], []) == [("extra", "late")]
    assert causes([told("a")], [told("b", 5)]) == [("extra", "order"), ("missing", "order")]


def test_a_double_is_not_explained_by_the_one_it_doubles() -> None:
    assert causes([told("a"), told("a2", 1)], [told("a")]) == [("extra", "unexplained")]
    both = causes([told("a"), told("b", 1)], [told("c", 2)])
    assert sorted(both) == [("extra", "order"), ("extra", "unexplained"), ("missing", "order")]


def test_what_lies_outside_the_span_is_not_compared() -> None:
    same, different = judge_told("alert", [told("a", 6000)], [], (0, 5000), FACTS)
    assert (same, different) == (0, [])


@given(st.lists(st.integers(0, 4000), unique=True), st.sets(st.integers(0, 20)))
def test_every_alert_is_either_the_same_or_told(firsts: list[int], without: set[int]) -> None:
    history = [told(f"a{n}", first) for n, first in enumerate(firsts)]
    stream = [one for n, one in enumerate(history) if n not in without]
    same, different = judge_told("alert", stream, history, (0, 5000), FACTS)
    assert same == len(stream)
    assert len(different) == len(history) - len(stream)


def test_what_is_unexplained_comes_first_and_is_counted() -> None:
    late = Difference("alert", "extra", "a", "r", 0, "late")
    result = Verified("", "", "", [], differences=[late, late, _unexplained()])
    assert result.unexplained == 1
    assert [row["cause"] for row in result.by_cause()] == ["unexplained", "late"]
    assert [row["number"] for row in result.by_cause()] == [1, 2]


def _unexplained() -> Difference:
    return Difference("finding", "missing", "f", "r", 0, "unexplained")


# -- on Spark ----------------------------------------------------------------------------------

EVENTS = [
    *(login(f"a{n}", n * 10) for n in range(4)),
    *(login(f"b{n}", 4000 + n * 10) for n in range(4)),
    login("lost", 8000),
    login("twice", 8100, duplicate_of="a0"),
    login("late", 9990),
]
SEGMENTS = [
    leased(1, -600, 9990, A),
    leased(2, 4000, 9990, B, known_at=at(5000), learned_at=at(5000)),
]


@pytest.mark.full
def test_history_says_the_same_or_why_not(lake: Lake) -> None:
    settings = with_rules(lake.settings)
    lake = Lake(lake.spark, settings)
    pack = select_rules(settings, ["login_failed", "guessing"]).pack
    PackStore(store_folder(settings)).put(pack)
    findings, attributions, alerts = streamed(settings, pack, EVENTS)
    gone = dict(findings[0]) | {"finding_id": identity(LOGIN, "gone"), "event_uid": "gone"}
    gone |= {"event_time": at(10_200), "received_at": at(10_202), "alerting": False, "feeds": []}
    told = [row for row in findings if row["event_uid"] not in ("lost", "late")]
    columns = FINDING.schema.fieldNames()
    insert(lake, EVENT, EVENTS)
    insert(lake, DHCP_SEGMENT, SEGMENTS)
    insert(lake, FINDING, [fit(row, columns) for row in (*told, gone)])
    insert(lake, FINDING, beats([100, 9991], pack.hash))
    insert(lake, ATTRIBUTION, attributions)
    insert(lake, ALERT, [fit(row, ALERT.schema.fieldNames()) for row in alerts])
    insert(lake, LEDGER, [_batch("alert", 0)])

    result = Verification(lake, NOON, NOON + timedelta(hours=3), lambda _: None).run()

    by_event = {
        one.detail.split(";")[0]: (one.how, one.cause)
        for one in result.differences
        if one.what == "finding"
    }
    assert by_event == {
        "event lost": ("missing", "unexplained"),
        "event twice": ("extra", "duplicate"),
    }
    assert result.same == {"finding": 8, "correlation": 2, "alert": 4}
    alerts_told = {(one.how, one.cause) for one in result.differences if one.what == "alert"}
    assert alerts_told == {("extra", "follows"), ("missing", "follows")}
    assert result.unexplained == 1


def _batch(job: str, number: int) -> dict[str, Any]:
    return {
        "job": job,
        "query_id": "q",
        "batch_id": number,
        "started_at": at(86_400),
        "finished_at": at(86_401),
        "replayed": False,
    }


def test_a_lake_without_detection_is_refused_by_name(lake: Lake) -> None:
    with pytest.raises(Fatal, match="detection has not said yet how far it is"):
        Verification(lake, NOON, NOON + timedelta(hours=1), lambda _: None).run()


def test_a_span_that_retention_has_reached_is_refused(lake: Lake) -> None:
    note_retention(lake.folder(ALERT), Applied(NOON + timedelta(minutes=1)))
    with pytest.raises(Usage, match=r"up to 2026-.*:01:00Z were taken out .* begin later"):
        Verification(lake, NOON, NOON + timedelta(hours=1), lambda _: None).run()


@pytest.mark.full
def test_what_was_attributed_anew_is_known_by_its_rows(lake: Lake) -> None:
    said = [
        # finding, via, holder: named once; named anew within the wait; nobody, then somebody late
        *(("once", "join", A), ("once", "join", A)),
        *(("anew", "join", A), ("anew", "join", B)),
        *(("late", "join", None), ("late", "correction", A)),
    ]
    insert(
        lake, FINDING, [{"finding_id": n, "event_uid": f"event {n}"} for n in {s[0] for s in said}]
    )
    rows = [
        {"finding_id": name, "role": "src_endpoint", "rev": rev, "event_time": at(10), "via": via,
         "holder": {"mac": mac}}
        for rev, (name, via, mac) in enumerate(said)
    ]  # fmt: skip
    insert(lake, ATTRIBUTION, rows)
    span = {"begin": at(0), "end": at(20)}
    with connect(lake.settings.lake_root) as engine:
        found = engine.execute(REPAIRED, span).fetchall()
    assert sorted(found) == [("event anew",), ("event late",)]
