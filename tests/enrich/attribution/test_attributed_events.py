"""Whose address an event came from: as a stream beside the findings, over history, in SQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from alerts.lifecycle.alert_job import alert
from alerts.reattribution.event_repair import said_until
from alerts.reattribution.history_repair import repair_history
from alerts.tables import FINDING
from enrich.attribution.asof_join import Spans, as_arrow, join, statements
from enrich.attribution.attributed_events import CARRIED, attributed
from enrich.tables import ATTRIBUTED_EVENT, ATTRIBUTION, DHCP_SEGMENT
from infra.config.settings import ScopeSettings, load
from infra.delta.duckdb_views import connect
from infra.kafka.client import Broker, ensure_topics
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.enrich.rows import IP, SCOPE, A, B, at, detected, finding, finished, known, put, segment

PACE = {
    "attributed_classes": (3002,),
    "watermark_seconds": 2,
    "wait_seconds": 10,
    "alert_buckets": 2,
}
SITES = [{"name": SCOPE, "networks": ["10.0.0.0/24"], "static": ["10.0.0.200/32"]}]


def event(second: float, ip: str | None = IP, **other: Any) -> dict[str, Any]:
    """A login as a row of silver.event; its id is its second."""
    return {
        "event_uid": f"e{second:g}",
        "source": "sshd",
        "mode": "live",
        "time": at(second),
        "received_at": at(second),
        "scope": SCOPE,
        "class_uid": 3002,
        "src_ip": ip,
        "user_name": "ann",
    } | other


@pytest.fixture
def live(lake: Lake, broker: Broker) -> Lake:
    """The lake of a test, its alerts going to a broker."""
    settings = load(
        home=lake.settings.home, kafka={"bootstrap": broker.address}, jobs=PACE, scopes=SITES
    )
    ensure_topics(settings)
    return Lake(lake.spark, settings)


def said(lake: Lake) -> list[tuple[Any, ...]]:
    found = lake.read(ATTRIBUTED_EVENT).orderBy("event_uid", "rev").collect()
    return [(r.event_uid, r.holder.status, r.holder.mac, r.rev, r.via) for r in found]


@pytest.mark.full
def test_events_of_the_chosen_classes_are_attributed_once_by_the_findings_join(live: Lake) -> None:
    # leases   AAAAAAAAAA..........BBBBBBBBBB      A until 10, B from 20 to 30
    # events       5  8      15        25          and others that are not to be told of
    put(live, DHCP_SEGMENT, [segment(0, 10, A, 0, 1), segment(20, 30, B, 20, 2), known(60)])
    put(live, FINDING, [finding(5, kind="event", mode="live", pack="0" * 32)])
    # The setting may change: what came while no class was chosen is not looked at again.
    put(live, EVENT, [event(4)])
    jobs = live.settings.jobs.model_copy(update={"attributed_classes": ()})
    nobody = live.settings.model_copy(update={"jobs": jobs})
    alert(Lake(live.spark, nobody), once=True).wait()
    put(live, FINDING, [detected(60) | {"mode": "live"}])
    others = [
        event(6, ip="203.0.113.9"),
        event(7, ip="10.0.0.200"),
        event(8, ip=None),
        event(9, class_uid=4003),
        event(9.1, dead_letter_reason="not JSON"),
        event(9.2, duplicate_of="e9"),
        event(9.3, mode="import"),
    ]
    put(live, EVENT, [event(5), *others])
    alert(live, once=True).wait()
    assert said(live) == [("e5", "leased", A, 1, "join")]

    # Findings and segments are far ahead: what the events still have to give is not late.
    logged = event(25, src_ip=None, device={"ip": IP})
    put(live, EVENT, [event(8.5), event(15), logged, finished(60)])
    put(live, FINDING, [detected(61) | {"mode": "live"}])
    put(live, DHCP_SEGMENT, [known(61)])
    alert(live, once=True).wait()
    assert said(live) == [
        ("e15", "none", None, -1, "join"),
        ("e25", "leased", B, 2, "join"),
        ("e5", "leased", A, 1, "join"),
        ("e6", "outside", None, -1, "outside"),
        ("e7", "static", None, -1, "join"),
        ("e8.5", "leased", A, 1, "join"),
    ]
    one = live.read(ATTRIBUTED_EVENT).where("event_uid = 'e25'").first()
    assert one is not None
    assert (one.role, one.user_name, one.ip, one.class_uid) == ("device", "ann", IP, 3002)
    assert one.holder.evidence == ["line 2"]
    assert one.event_time.replace(tzinfo=UTC) == at(25)
    assert live.read(FINDING).where("rule_id = '_event'").count() == 0


def told(second: float, rev: int, mac: str | None = None, **other: Any) -> dict[str, Any]:
    """A row that job `alert` wrote of the event of that second."""
    status = other.pop("status", "leased" if mac else "none")
    names = ("event_uid", "source", "received_at", "scope", "class_uid", "user_name")
    row = {name: event(second)[name] for name in names} | {"ip": IP, "role": "src_endpoint"}
    holder = {"status": status, "mac": mac, "session_id": mac and f"lease of {mac}"}
    return row | {"event_time": at(second), "rev": rev, "via": "join", "holder": holder} | other


# leases   AAAAAAAAAA                  A until 10
# then               BBBBBB            known at 100: B from 12 to 18
# and      .200 to A                   though it is set by hand
# events       5        15      25
@pytest.mark.full
def test_what_is_known_after_the_wait_is_corrected_once(lake: Lake) -> None:
    site = ScopeSettings(**SITES[0])
    lake = Lake(lake.spark, lake.settings.model_copy(update={"scopes": (site,)}))
    by_hand = {"ip": "10.0.0.200", "status": "static"}
    rows = [told(5, 1, A), told(15, -1), told(25, -1), told(7, -1, **by_hand)]
    put(lake, ATTRIBUTED_EVENT, rows)
    late = [segment(12, 18, B, 100, 9), segment(0, 30, A, 100, 10, ip="10.0.0.200"), known(100)]
    put(lake, DHCP_SEGMENT, [segment(0, 10, A, 0, 1), *late])
    assert repair_history(lake, dry=True).events == 2
    before = lake.version(ATTRIBUTED_EVENT)
    done = repair_history(lake)
    assert (done.events, lake.version(ATTRIBUTED_EVENT)) == (2, before + 1)
    repaired = [row for row in said(lake) if row[-1] == "repair"]
    assert repaired == [("e15", "leased", B, 9, "repair"), ("e7", "static", None, 10, "repair")]
    with connect(lake.settings.lake_root) as duck:
        newest = duck.execute(
            "SELECT event_uid, holder.mac, holder.session_id, user_name, via "
            "FROM gold.attributed_event_current ORDER BY event_uid"
        ).fetchall()
    assert newest == [
        ("e15", B, f"lease of {B}", "ann", "repair"),
        ("e25", None, None, "ann", "join"),
        ("e5", A, f"lease of {A}", "ann", "join"),
        ("e7", None, f"lease of {A}", "ann", "repair"),
    ]
    assert repair_history(lake).events == 0
    assert lake.version(ATTRIBUTED_EVENT) == before + 1


def test_events_have_left_the_join_up_to_the_watermark_less_the_wait(tmp_path: Path) -> None:
    settings = load(home=tmp_path, jobs=PACE)
    assert said_until(settings) == 0
    spark = settings.checkpoint_root / "alert" / "spark"
    for number, watermark in ((3, 100_000), (4, 160_000)):
        for folder in ("offsets", *(["commits"] if number == 3 else [])):
            (spark / folder).mkdir(parents=True, exist_ok=True)
            text = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 1})
            (spark / folder / str(number)).write_text(f"v1\n{text}\n0\n")
    assert said_until(settings) == (100 - PACE["wait_seconds"] - 2) * 1_000_000


HISTORY = [
    # A from 0 to 100; learned later: B from 40 on; later still: free from 80 on.
    segment(0, 100, A, 0, 10),
    segment(40, 100, B, 50, 20),
    segment(80, 100, None, 90, 30),
    segment(0, 100, B, 0, 5, ip="10.0.0.2"),
    segment(0, 100, B, 0, 6, scope="elsewhere"),
    segment(60, 60, None, 95, 40),
    segment(40, 40, A, 50, 21, session_start=at(0), session_end=at(40)),  # only where A's ended
    segment(-700_000, 700_000, A, 0, 50, ip="10.0.0.7"),  # over two turns of a week and more
    known(100),
]
EVENTS = [
    event(20),
    event(60),
    event(90),
    event(120),
    event(50, ip="10.0.0.2"),
    event(51, scope="elsewhere"),
    event(52, scope="nowhere"),
    event(53, ip=None),
    event(54, ip="203.0.113.9"),
    event(39.999999),
    event(40),
    event(-700_000, ip="10.0.0.7"),
    event(699_999, ip="10.0.0.7"),
]


@pytest.mark.full
def test_any_slice_of_history_is_attributed_alike_by_every_form(lake: Lake) -> None:
    put(lake, DHCP_SEGMENT, HISTORY)
    put(lake, EVENT, [row | {"event_uid": f"e{place}"} for place, row in enumerate(EVENTS)])
    events = lake.read(EVENT).select("event_uid", "time", "scope", "src_ip", "device")
    segments = lake.read(DHCP_SEGMENT)
    sites = tuple(ScopeSettings(**site) for site in SITES)
    shuffled = attributed(events, segments, sites)
    assert shuffled.columns == [*events.columns, "ip", "role", "holder", "rev"]
    answer = {
        0: ("leased", A, 10),
        1: ("leased", B, 20),
        2: ("none", None, 30),
        3: ("none", None, -1),
        4: ("leased", B, 5),
        5: ("leased", B, 6),
        6: ("outside", None, -1),
        7: ("unknown", None, -1),
        8: ("outside", None, -1),
        9: ("leased", A, 10),
        10: ("leased", B, 20),
        11: ("leased", A, 50),
        12: ("leased", A, 50),
    }
    expected = {f"e{place}": found for place, found in answer.items()}
    assert holders(shuffled) == expected
    few = as_arrow(statements(segments, whole=True), CARRIED)
    assert holders(attributed(events, few, sites)) == expected
    then = attributed(events, segments, sites, at(60))
    assert [holders(then)[uid][1] for uid in ("e0", "e1", "e2")] == [A, B, B]
    assert [lease_end(attributed(events, said, sites)) for said in (segments, few)] == [at(40)] * 2
    assert lease_end(attributed(events, segments, sites, at(30))) == at(100)

    leased = {uid: found[1:] for uid, found in expected.items() if found[0] == "leased"}
    sql = "SELECT event_uid, mac, rev FROM silver.leased_event"
    spark = {row.event_uid: (row.mac, row.rev) for row in lake.register().spark.sql(sql).collect()}
    assert spark == leased
    with connect(lake.settings.lake_root) as duck:
        assert {uid: (mac, rev) for uid, mac, rev in duck.execute(sql).fetchall()} == leased
        ends = "SELECT lease_end FROM silver.leased_event WHERE event_uid = 'e0'"
        assert duck.execute(ends).fetchall() == [(at(40),)]
        narrowed = f"{sql} WHERE mac = $mac AND event_time >= $since"
        only = duck.execute(narrowed, {"mac": B, "since": at(51)})
        assert {row[0] for row in only.fetchall()} == {"e1", "e5"}


def lease_end(found: DataFrame) -> datetime:
    """Where the lease of the first event ends, as far as it is known."""
    row = found.where("event_uid = 'e0'").select("holder.lease_end").first()
    assert row is not None
    ended: datetime = row.lease_end.replace(tzinfo=UTC)
    return ended


def holders(found: DataFrame) -> dict[str, tuple[Any, ...]]:
    return {r.event_uid: (r.holder.status, r.holder.mac, r.rev) for r in found.collect()}


spans = st.tuples(
    st.sampled_from([None, "one", "two"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2"]),
    st.integers(0, 30),
    st.integers(1, 15),
)
asked = st.tuples(
    st.sampled_from([None, "one", "two", "three"]),
    st.sampled_from([None, "10.0.0.1", "10.0.0.2", "10.0.0.3"]),
    st.none() | st.integers(0, 50),
)


@given(st.lists(spans, max_size=12), st.lists(asked, max_size=20), st.randoms())
def test_the_search_finds_the_newest_statement_that_covers_the_instant(
    known_spans: list[Any], questions: list[Any], random: Any
) -> None:
    revs = random.sample(range(100), len(known_spans))
    segments = pa.table(
        {
            "scope": pa.array([s for s, _, _, _ in known_spans], pa.string()),
            "ip": pa.array([ip for _, ip, _, _ in known_spans], pa.string()),
            "start_us": pa.array([start for _, _, start, _ in known_spans], pa.int64()),
            "end_us": pa.array([start + size for _, _, start, size in known_spans], pa.int64()),
            "s_rev": pa.array(revs, pa.int64()),
        }
    )
    events = pa.table(
        {
            "scope": pa.array([s for s, _, _ in questions], pa.string()),
            "ip": pa.array([ip for _, ip, _ in questions], pa.string()),
            "event_time": pa.array([t for _, _, t in questions], pa.timestamp("us", "UTC")),
        }
    )
    found = join(events, Spans.of(segments)).column("s_rev").to_pylist()
    for (scope, ip, time), rev in zip(questions, found, strict=True):
        covering = [
            revs[n]
            for n, (s, i, start, size) in enumerate(known_spans)
            if (s, i) == (scope, ip) and time is not None and start <= time < start + size
        ]
        assert rev == max(covering, default=None)


@pytest.mark.full
@pytest.mark.parametrize("classes", [(), (3002,)])
def test_what_waited_leaves_the_join_as_it_went_in_also_in_a_batch_without_findings(
    live: Lake, classes: tuple[int, ...]
) -> None:
    """With a stream that never gives a row beside the findings, Spark fails in such a batch."""
    jobs = live.settings.jobs.model_copy(update={"attributed_classes": classes})
    lake = Lake(live.spark, live.settings.model_copy(update={"jobs": jobs}))
    put(lake, FINDING, [finding(5, kind="event", mode="live", pack="0" * 32)])
    put(lake, FINDING, [detected(60) | {"mode": "live"}])
    put(lake, DHCP_SEGMENT, [known(60)])
    put(lake, EVENT, [event(6), finished(60)])
    alert(lake, once=True).wait()
    put(lake, EVENT, [event(61), finished(70)])
    put(lake, DHCP_SEGMENT, [known(70)])
    alert(lake, once=True).wait()
    told = lake.read(ATTRIBUTION).collect()
    assert [(row.finding_id, row.holder.status) for row in told] == [("f5", "none")]
