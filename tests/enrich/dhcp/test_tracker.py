"""The tracker on Spark: cuts, restarts, and the same leases from history in batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row

from alerts.tables import FINDING
from enrich.attribution.stream_join import attribution_as_of
from enrich.dhcp.lease_rules import DECLINE, RELEASE
from enrich.dhcp.sessions_job import as_segments, sessions_of, track
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import JobSettings
from infra.delta.catalog import views
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.enrich.rows import IP, A, B, at, dhcp, finding, finished, put, rows

JOBS = JobSettings(session_buckets=3, allowed_lateness_seconds=600)
OTHER = "10.0.0.2"

# .1   AAAAAAAAAABBBBBBBBBBBBBBB.......   B takes over at 10, releases at 25
# .2   .....AAAAAAAAAAAAAAAAAAAA......A   A renews at 12, declines at 25, comes back at 32
LINES = [
    dhcp(0, A),
    dhcp(10, B, late=30),
    dhcp(25, B, RELEASE),
    dhcp(5, A, ip=OTHER),
    dhcp(12, A, ip=OTHER, late=40),
    dhcp(25, A, DECLINE, ip=OTHER, status_id=2),
    dhcp(32, A.upper(), ip=OTHER),
]
NO_LEASES = [
    dhcp(13, B, 1),
    dhcp(14, A, RELEASE, ip=OTHER, status_id=2),
    dhcp(15, B, ip=OTHER, dead_letter_reason="unreadable"),
    dhcp(16, B, ip=OTHER, duplicate_of="another"),
    dhcp(17, B, ip=None),
]


@pytest.fixture
def run(lake: Lake, tmp_path: Path) -> Callable[[], None]:
    """Runs the tracker over what is new in silver.event, then stops it."""

    def keep(batch: DataFrame, _: int) -> None:
        batch.write.format("delta").mode("append").save(lake.path(DHCP_SEGMENT))

    def once() -> None:
        query = (
            track(lake.stream(EVENT), JOBS)
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "sessions"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    return once


def leases(frame: DataFrame) -> list[tuple[Any, ...]]:
    columns = ("scope", "ip", "mac", "hostname", "session_id", "lease_start", "lease_end")
    return sorted(
        ((*(row[c] for c in columns), row.evidence.ended) for row in frame.collect()),
        key=str,
    )


def told(lake: Lake) -> DataFrame:
    """The view silver.dhcp_session over what the tracker wrote."""
    lake.read(DHCP_SEGMENT).createOrReplaceTempView("segments")
    view = views()["silver.dhcp_session"]
    return lake.spark.sql(view.sql.replace("silver.dhcp_segment", "segments"))


@pytest.mark.full
def test_a_stream_cut_and_restarted_anywhere_tells_the_leases_of_the_batch(lake, run) -> None:
    arrived = sorted([*LINES, *NO_LEASES], key=lambda row: row["received_at"])
    for cut in (arrived[:3], arrived[3:8], arrived[8:]):
        put(lake, EVENT, [*cut, finished(max(r["received_at"] for r in cut).timestamp() - T0)])
        run()
    history = sessions_of(lake.read(EVENT), JOBS)
    assert leases(told(lake)) == leases(history)
    assert [(row[1], row[2], row[-1]) for row in leases(history)] == [
        (IP, A, "taken over"),
        (IP, B, "released"),
        (OTHER, A, "declined"),
        (OTHER, A, "expired"),
    ]
    findings = rows(lake.spark, FINDING, [finding(n) for n in range(0, 32, 3)])
    live = attribution_as_of(findings, lake.read(DHCP_SEGMENT)).collect()
    past = attribution_as_of(findings, as_segments(history)).collect()
    assert holders(live) == holders(past)
    assert {mac for _, mac, _ in holders(live)} == {A, B, None}


T0 = at(0).timestamp()


def holders(attributions: list[Row]) -> list[tuple[str, str | None, str | None]]:
    return sorted((r.finding_id, r.holder.mac, r.holder.session_id) for r in attributions)


@pytest.mark.full
def test_a_batch_with_nothing_but_a_heartbeat_says_how_far_all_is_known(lake, run) -> None:
    put(lake, EVENT, [finished(7), finished(9)])
    run()
    (row,) = lake.read(DHCP_SEGMENT).collect()
    named = {name: value for name, value in row.asDict().items() if value is not None}
    assert named.keys() == {"kind", "known_at", "learned_at", "rev"}
    assert (row.kind, row.rev) == ("heartbeat", int(at(9).timestamp() * 1_000_000))
    run()
    assert lake.read(DHCP_SEGMENT).count() == 1


@pytest.mark.full
def test_old_logs_and_absurd_times_move_no_live_lease(lake, run) -> None:
    put(lake, EVENT, [dhcp(0, A), finished(1)])
    run()
    year_9999 = at(0).replace(year=9999)
    put(
        lake,
        EVENT,
        [
            dhcp(2, B, mode="import"),
            dhcp(3, B, ip=OTHER, time=year_9999),
            dhcp(4, B, time=at(0).replace(year=1900)),
            finished(5),
        ],
    )
    run()
    said = lake.read(DHCP_SEGMENT).where("kind <> 'heartbeat'").collect()
    assert {(row.ip, row.mac, row.kind) for row in said} == {
        (IP, A, "lease"),
        (IP, B, "too_late"),
        (OTHER, B, "lease"),
    }
    bounded = next(row for row in said if row.ip == OTHER)
    assert bounded.seg_start.timestamp() == at(303).timestamp()
