"""Who held the address then: as a stream, corrected later, and over history."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from alerts.tables import FINDING
from enrich.attribution import stream_join
from enrich.attribution.asof_join import flatten
from enrich.attribution.lease_lookup import LEASE_AT_DUCKDB, LEASE_AT_SQL
from enrich.attribution.server_liveness import ServerLiveness
from enrich.attribution.stream_join import attribution_as_of, correct, split
from enrich.tables import ATTRIBUTION, DHCP_SEGMENT, HOLDER
from infra.config.settings import JobSettings, ScopeSettings
from infra.delta.schema import STRINGS, struct
from infra.streaming.lake import Lake
from tests.enrich.attribution.attributed import attribute
from tests.enrich.rows import IP, SCOPE, A, B, at, detected, finding, known, put, rows, segment
from tests.full import rest_full

JOBS = JobSettings(watermark_seconds=2, wait_seconds=10, correct_seconds=600)
SITES = (
    ScopeSettings(
        name=SCOPE,
        networks=("10.0.0.0/24", "192.168.1.4/30", "fd00::/8"),
        static=("10.0.0.240/29",),
    ),
    ScopeSettings(name="other", networks=("172.16.0.0/12",)),
)


@pytest.fixture
def steps(lake: Lake, tmp_path: Path) -> Callable[..., list[Row]]:
    """Runs a join over the lake's streams until it is idle; each call is a restart."""

    def run(join: Callable[..., DataFrame]) -> list[Row]:
        found: list[Row] = []
        joined = join(lake.stream(FINDING), lake.stream(DHCP_SEGMENT), JOBS)
        query = (
            joined.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
            .option("checkpointLocation", str(tmp_path / "join"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return found

    return run


def test_the_join_names_holders_and_says_when_there_is_none(lake: Lake, steps) -> None:
    # leases   AAAAAAAAAA..........BBBBBBBBBB      A until 10, B from 20 to 30
    # findings     5         15        25    35
    put(lake, DHCP_SEGMENT, [segment(0, 10, A, 0, 1), segment(20, 30, B, 20, 2)])
    put(lake, FINDING, [finding(5), finding(15), finding(25), finding(35)])
    said = {row.finding_id: row for row in steps(attribute)}
    assert {uid: (row.holder.mac, row.attr_rev, row.via) for uid, row in said.items()} == {
        "f5": (A, 1, "join"),
        "f25": (B, 2, "join"),
    }
    assert said["f5"].holder.status == "leased"
    assert said["f5"].holder.evidence == ["line 1"]
    assert said["f5"].holder.lease_end.replace(tzinfo=UTC) == at(10)

    # Nothing but heartbeats from here on: they alone must move the watermark.
    put(lake, DHCP_SEGMENT, [known(60)])
    put(lake, FINDING, [detected(60)])
    late = {row.finding_id: row for row in steps(attribute)}
    assert set(late) == {"f15", "f35"}
    assert late["f15"].holder.status == "none"
    assert late["f15"].attr_rev == -1
    assert late["f15"].holder.complete_up_to.replace(tzinfo=UTC) == at(25)

    put(lake, DHCP_SEGMENT, [known(90)])
    put(lake, FINDING, [detected(90)])
    assert [(row.via, row.holder) for row in steps(attribute)] == [("heartbeat", None)]


@pytest.mark.full
def test_none_is_not_said_before_the_log_is_known_that_far(lake: Lake, steps) -> None:
    put(lake, FINDING, [finding(5), detected(60)])
    put(lake, DHCP_SEGMENT, [known(6)])
    assert steps(attribute) == []
    put(lake, FINDING, [detected(61)])
    put(lake, DHCP_SEGMENT, [segment(0, 10, A, 12, 1)])
    assert [(row.finding_id, row.holder.mac) for row in steps(attribute)] == [("f5", A)]


@pytest.mark.full
def test_a_freed_address_has_no_holder_and_the_highest_revision_wins(lake: Lake, steps) -> None:
    # said    AAAAAAAAAA
    # then    AAAAA.....      freed from 5 on, known at 6
    put(lake, DHCP_SEGMENT, [segment(0, 10, A, 0, 1), segment(5, 10, None, 6, 2)])
    put(lake, FINDING, [finding(7)])
    said = sorted(steps(attribute), key=lambda row: row.attr_rev)
    assert [(row.attr_rev, row.holder.status) for row in said] == [(1, "leased"), (2, "none")]
    assert (said[1].holder.mac, said[1].holder.session_id) == (None, None)


@pytest.mark.full
def test_an_event_that_arrives_late_is_not_late_for_the_join(lake: Lake, steps) -> None:
    put(lake, DHCP_SEGMENT, [segment(0, 10, A, 0, 1), known(900)])
    put(lake, FINDING, [finding(850), detected(900)])
    steps(attribute)
    put(lake, FINDING, [finding(5, late=900)])
    assert [(row.finding_id, row.holder.mac) for row in steps(attribute)] == [("f5", A)]


@pytest.mark.full
def test_what_becomes_known_after_the_wait_comes_as_a_correction(lake: Lake, steps) -> None:
    # finding at 5; the lease that covers it is known at 12 (the join sees it) or at 100
    put(lake, FINDING, [finding(5.123456), detected(6)])
    put(lake, DHCP_SEGMENT, [segment(0, 10, A, 12, 1)])
    assert steps(correct) == []
    put(lake, FINDING, [detected(101)])
    put(lake, DHCP_SEGMENT, [segment(0, 10, B, 100, 2)])
    (row,) = steps(correct)
    assert row.asDict().keys() == set(ATTRIBUTION.schema.fieldNames())
    assert (row.finding_id, row.rev, row.holder.mac, row.via) == ("f5.12346", 2, B, "correction")
    assert row.attributed_at.replace(tzinfo=UTC) == at(100)
    assert (row.holder.confidence, row.holder.certainty) == (83, "likely")
    read = F.from_json("finding", FINDING.schema)
    again = lake.spark.createDataFrame([(row.finding,)], "finding string").select(read.alias("f"))
    assert again.first().f.event_time.replace(tzinfo=UTC) == at(5.123456)


@pytest.mark.full
def test_a_release_with_more_columns_goes_on_with_what_waits(lake: Lake, steps) -> None:
    fewer = struct(event_uids=STRINGS)
    findings = replace(
        FINDING, columns=tuple(one for one in FINDING.columns if one.name != "dst_ip")
    )
    segments = replace(
        DHCP_SEGMENT,
        columns=tuple(
            replace(one, type=fewer) if one.name == "evidence" else one
            for one in DHCP_SEGMENT.columns
        ),
    )
    for table in (findings, segments):
        shutil.rmtree(lake.folder(table))
    lake.ensure(findings, segments)
    put(lake, findings, [finding(5), finding(25), detected(26)])
    old = segment(0, 10, A, 0, 1) | {"evidence": {"event_uids": ["line 1"]}}
    put(lake, segments, [old, known(27) | {"evidence": None}])
    assert [row.finding_id for row in steps(attribute)] == ["f5"]
    assert "dst_ip" not in lake.read(FINDING).columns

    lake.ensure(FINDING, DHCP_SEGMENT)
    put(lake, FINDING, [finding(8, late=21, dst_ip="10.0.0.8"), detected(30)])
    put(lake, DHCP_SEGMENT, [segment(20, 30, B, 30, 2)])
    said = {row.finding_id: row for row in steps(attribute)}
    targets = {uid: json.loads(row.finding).get("dst_ip") for uid, row in said.items()}
    assert targets == {"f8": "10.0.0.8", "f25": None}
    assert {uid: row.holder.mac for uid, row in said.items()} == {"f8": A, "f25": B}
    assert [said[uid].holder.ended for uid in ("f8", "f25")] == [None, "expired"]
    assert said["f8"].holder.evidence == ["line 1"]


@pytest.mark.full
def test_what_waits_from_a_release_that_wrote_no_routing_is_read_from_its_text(
    lake: Lake, steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as former:
        former.setattr(stream_join, "with_routing", lambda columns, _: stream_join._text(columns))
        put(lake, FINDING, [finding(5, host_name="web", feeds=["c"]), detected(6)])
        put(lake, DHCP_SEGMENT, [known(6)])
        assert steps(attribute) == []
    put(lake, FINDING, [finding(6, host_name="db", feeds=["c"]), detected(8)])
    put(lake, DHCP_SEGMENT, [segment(0, 10, A, 8, 1)])
    said = {row.finding_id: row for row in steps(attribute)}
    assert {uid: (row.holder.mac, row.host_name, row.feeds) for uid, row in said.items()} == {
        "f5": (A, "web", ["c"]),
        "f6": (A, "db", ["c"]),
    }
    names = {uid: json.loads(row.finding)["finding_id"] for uid, row in said.items()}
    assert names == {"f5": "f5", "f6": "f6"}


@pytest.mark.full
def test_who_waits_for_nobody_comes_through_the_join_at_once_and_leaves_nothing_in_it(
    lake: Lake, tmp_path: Path
) -> None:
    holder = Row(**dict.fromkeys(HOLDER.names) | {"mac": A, "status": "leased"})
    # Segments are known far beyond all of these: what is late for the join is not late to pass it.
    put(lake, DHCP_SEGMENT, [segment(0, 10, A, 0, 1), known(900)])
    put(lake, FINDING, [detected(900)])
    passing = [
        finding(2, ip="203.0.113.9"),
        finding(3, ip=None),
        finding(4, holder=holder),
        finding(6, scope="other"),
        finding(9, ip="10.0.0.241"),
    ]

    def step() -> tuple[dict[str, Any], int]:
        said: list[Row] = []
        rows = attribute(lake.stream(FINDING), lake.stream(DHCP_SEGMENT), JOBS, SITES)
        query = (
            rows.writeStream.foreachBatch(lambda batch, _: said.extend(batch.collect()))
            .option("checkpointLocation", str(tmp_path / "join"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        (state,) = query.recentProgress[-1].stateOperators
        return {row.finding_id: row for row in said}, state.numRowsTotal

    _, before = step()
    put(lake, FINDING, passing)
    said, kept = step()
    assert {uid: (row.holder.status, row.holder.mac, row.via) for uid, row in said.items()} == {
        "f2": ("outside", None, "outside"),
        "f3": ("unknown", None, "outside"),
        "f4": ("leased", A, "outside"),
        "f6": ("outside", None, "outside"),
        "f9": ("static", None, "outside"),
    }
    assert {row.attr_rev for row in said.values()} == {-1}
    assert kept <= before


def test_only_addresses_of_a_dhcp_network_wait(spark: SparkSession) -> None:
    holder = Row(**dict.fromkeys(HOLDER.names) | {"mac": A, "status": "leased"})
    found = [
        finding(1),
        finding(2, ip="203.0.113.9"),
        finding(3, ip=None),
        finding(4, holder=holder),
        finding(5, scope="other"),
        finding(6, ip="fd00::1"),
        finding(7, scope=None),
        detected(8),
        finding(9, ip="10.0.0.241"),
    ]
    to_join, past = split(rows(spark, FINDING, found), SITES)
    assert {row.finding_id for row in to_join.collect()} == {"f1", "f6", "f8"}
    assert {row.finding_id: row.holder.status for row in past.collect()} == {
        "f2": "outside",
        "f3": "unknown",
        "f4": "leased",
        "f5": "outside",
        "f7": "outside",
        "f9": "static",
    }


C = "02:00:00:00:00:0c"

HISTORY = [
    # A from 0 to 100; learned later: B from 40 on; later still: free from 80 on.
    segment(0, 100, A, 0, 10),
    segment(40, 100, B, 50, 20),
    segment(80, 100, None, 90, 30),
    segment(0, 100, B, 0, 5, ip="10.0.0.2"),
    segment(60, 60, None, 95, 40),
    known(100),
]


@pytest.mark.parametrize(
    ("when", "answers"),
    rest_full(
        1,
        [
            (None, {"f20": A, "f60": B, "f90": None, "f120": None}),
            (at(30), {"f20": A, "f60": A, "f90": A, "f120": None}),
            (at(60), {"f20": A, "f60": B, "f90": B, "f120": None}),
        ],
    ),
    ids=["as known now", "before the takeover was known", "before the release was known"],
)
def test_history_is_answered_as_it_was_known(spark: SparkSession, when: Any, answers: Any) -> None:
    findings = rows(spark, FINDING, [finding(20), finding(60), finding(90), finding(120)])
    said = attribution_as_of(
        findings, rows(spark, DHCP_SEGMENT, HISTORY), when, complete_up_to=at(99)
    )
    assert said.columns == ATTRIBUTION.schema.fieldNames()
    found = {row.finding_id: row for row in said.collect()}
    assert {uid: row.holder.mac for uid, row in found.items()} == answers
    assert found["f20"].holder.session_id == f"lease of {A}"
    assert (found["f120"].rev, found["f120"].holder.status) == (-1, "none")
    assert found["f120"].holder.complete_up_to.replace(tzinfo=UTC) == at(99)


def test_history_names_rivals_and_how_sure_it_is(spark: SparkSession) -> None:
    # A 0-100; B took over at 40; free from 80 on. In the branch, C had the same address.
    said = [*HISTORY, segment(0, 70, C, 0, 7, scope="branch")]
    asked = [finding(20), finding(42), finding(60), finding(82)]
    heard = ServerLiveness.of([(SCOPE, "dhcp-1", at(-7200)), (SCOPE, "dhcp-2", at(50))])
    told = attribution_as_of(
        rows(spark, FINDING, asked),
        rows(spark, DHCP_SEGMENT, said),
        complete_up_to=at(99),
        scopes=SITES,
        liveness=heard,
    )
    found = {row.finding_id: row.holder for row in told.collect()}
    assert {uid: [(r.kind, r.mac) for r in h.rivals] for uid, h in found.items()} == {
        "f20": [("elsewhere", C)],
        "f42": [("before", A), ("elsewhere", C)],
        "f60": [("elsewhere", C), ("superseded", A)],
        "f82": [("before", B), ("superseded", A)],
    }
    assert {uid: h.confidence for uid, h in found.items()} == {
        "f20": 98 - 25 - 5,  # the same address elsewhere; the servers silent for two hours
        "f42": 98 - 25 - 5 - 45,  # and within seconds of the takeover
        "f60": 98 - 25 - 5,  # the log had given it to A first
        "f82": 95 - 45 - 5,
    }
    assert [(s.server, s.last_line_at.replace(tzinfo=UTC)) for s in found["f60"].servers] == [
        ("dhcp-1", at(-7200)),
        ("dhcp-2", at(50)),
    ]
    assert "began only 2 s before, after" in found["f42"].reason


def test_history_without_segments_has_no_holders(spark: SparkSession) -> None:
    findings = rows(spark, FINDING, [finding(20), finding(30, ip="10.0.0.9")])
    said = attribution_as_of(findings, rows(spark, DHCP_SEGMENT, [known(1)])).collect()
    assert sorted((row.finding_id, row.holder.status) for row in said) == [
        ("f20", "none"),
        ("f30", "none"),
    ]


spans = st.tuples(st.integers(0, 30), st.integers(1, 15)).map(lambda s: (s[0], s[0] + s[1]))


@given(st.lists(spans, max_size=12), st.randoms(use_true_random=False))
def test_flattened_spans_are_what_the_highest_revision_says(found, random) -> None:
    revs = list(range(len(found)))
    random.shuffle(revs)
    starts, ends, who = flatten(
        np.array([s for s, _ in found], dtype=np.int64),
        np.array([e for _, e in found], dtype=np.int64),
        np.array(revs, dtype=np.int64),
    )
    flat = {
        time: int(n)
        for s, e, n in zip(starts, ends, who, strict=True)
        for time in range(int(s), int(e))
    }
    for time in range(50):
        over = [n for n, (s, e) in enumerate(found) if s <= time < e]
        assert flat.get(time) == max(over, key=lambda n: revs[n], default=None)
    assert (starts[1:] >= ends[:-1]).all()


QUESTIONS = [
    ({"at": at(20)}, [("leased", A, 10)]),
    ({"at": at(60)}, [("leased", B, 20)]),
    ({"at": at(60), "known_by": at(30)}, [("leased", A, 10)]),
    ({"at": at(90)}, [("none", None, 30)]),
    ({"at": at(120)}, []),
    ({"at": at(20), "scope": "elsewhere"}, []),
]


@pytest.mark.full
@pytest.mark.parametrize(("question", "answer"), rest_full(2, QUESTIONS))
def test_both_engines_say_who_held_an_address(lake: Lake, question: Any, answer: Any) -> None:
    asked = {"ip": IP, "scope": None, "known_by": None} | question
    put(lake, DHCP_SEGMENT, HISTORY)
    lake.read(DHCP_SEGMENT).createOrReplaceTempView("dhcp_segment")
    # Delta's parser hides the parameters from Spark 4.2's newer way of binding them.
    lake.spark.conf.set("spark.sql.legacy.parameterSubstitution.constantsOnly", "true")
    here = LEASE_AT_SQL.replace("silver.dhcp_segment", "dhcp_segment")
    table = lake.spark.sql(here, args=asked)
    found = [(row.status, row.mac, row.rev) for row in table.collect()]
    assert found == answer

    arrow = lake.read(DHCP_SEGMENT).toArrow()
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'; CREATE SCHEMA silver")
        duck.register("segments", arrow)
        duck.execute("CREATE VIEW silver.dhcp_segment AS SELECT * FROM segments")
        got = duck.execute(LEASE_AT_DUCKDB, asked)
        names = [column[0] for column in got.description]
        said = [dict(zip(names, row, strict=True)) for row in got.fetchall()]
    assert [(row["status"], row["mac"], row["rev"]) for row in said] == answer
    assert names == table.columns
