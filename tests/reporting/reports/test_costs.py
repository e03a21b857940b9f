"""The cost and compliance reports: figures that compare with nothing are not compared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reporting.document.archive import in_form
from reporting.document.text import share
from reporting.ledger.completeness import Completeness
from reporting.ledger.gaps import Missed
from reporting.reports import compliance, cost
from tests.reporting.memory_lake import MemoryLake

HOME = Path("/nowhere")
DAY = datetime(2026, 11, 20, tzinfo=UTC)


def batches(day: datetime, rows: int, job: str = "ingest", **cpu: float) -> list[dict[str, Any]]:
    """An hour of a job, two batches."""
    return [
        {"job": job, "query_id": "q", "batch_id": n, "started_at": day + timedelta(hours=n),
         "finished_at": day + timedelta(hours=n, minutes=30), "rows_read": rows, "replayed": False,
         **cpu}
        for n in range(2)
    ]  # fmt: skip


def told(used: float, shared: float = 0.0, between: float = 0.0) -> dict[str, float]:
    """CPU time of a batch, as the ledger has it."""
    return {"cpu_seconds": used, "cpu_shared_seconds": shared, "cpu_between_seconds": between}


def tiles(report: Any) -> dict[str, tuple[Any, Any]]:
    return {tile.label: (tile.value, tile.before) for tile in report.tiles}


def test_what_jobs_took_is_compared_with_the_period_before_if_there_was_one() -> None:
    lake = MemoryLake().add("ops.ledger", batches(DAY, 500, **told(3_600, between=1_800)))
    first = tiles(cost.compose(lake.request(HOME, "2026-11-20")))
    assert first["Core-hours"] == (3, None), "before the first day there was none"
    assert first["Cores"] == (pytest.approx(3 / 24), None)
    assert first["Records taken in a day"] == (1_000, None)
    lake.add("ops.ledger", batches(DAY - timedelta(days=1), 250, **told(1_800)))
    second = tiles(cost.compose(lake.request(HOME, "2026-11-20")))
    assert second["Core-hours"] == (3, 1)
    assert second["Records taken in a day"] == (1_000, 500)
    assert second["Disk a million records"] == (None, None), "of so few nothing is told"
    assert second["Core-hours a million records"] == (None, None)


def test_cores_are_told_by_job_with_what_was_split_and_what_was_no_batchs() -> None:
    lake = MemoryLake()
    lake.add("ops.ledger", batches(DAY, 500_000, **told(5_400, shared=1_350, between=1_800)))
    lake.add("ops.ledger", batches(DAY, 9, "alert", **told(1_800, shared=1_350)))
    lake.add("ops.ledger", batches(DAY - timedelta(days=1), 9, "alert", **told(900, between=900)))
    report = cost.compose(lake.request(HOME, "2026-11-20"))
    names = ("job", "core_hours", "before", "share", "shared")
    rows = [tuple(row[name] for name in names) for row in report.data()["cores"][1]]
    assert rows == [
        ("ingest", 3, 0, 0.6, 0.25),
        ("alert", 1, 0.5, 0.2, 0.75),
        ("(between batches)", 1, 0.5, 0.2, None),
    ]
    assert report.data()["core_hours"][1] == report.data()["cores"][1]
    page = in_form(report, "html").decode()
    assert "30.0 % of it was used while batches of several jobs ran at once" in page
    (lead,) = report.lead
    assert lead.startswith("On 20 November 2026, the platform took 0.21 cores on average, ")
    assert "400.0 % more cores than in the period before; 60.0 % of that went to ingest" in lead
    assert tiles(report)["Core-hours a million records"][0] == 5


def test_a_demo_that_took_seconds_is_not_told_as_nothing() -> None:
    lake = MemoryLake().add("ops.ledger", batches(DAY, 9, **told(9, between=40)))
    report = cost.compose(lake.request(HOME, "2026-11-20"))
    assert (
        "took < 0.01 cores on average, 0.03 core-hours; 18.4 % of that went to ingest"
        in (report.lead[0])
    )


def test_cores_that_nobody_measured_are_not_told_as_none() -> None:
    lake = MemoryLake().add("ops.ledger", batches(DAY, 500))
    report = cost.compose(lake.request(HOME, "2026-11-20"))
    assert tiles(report)["Cores"] == (None, None)
    assert "how many cores the platform took is not known" in report.lead[0]
    assert "Not known: no batch reported its CPU time" in in_form(report, "html").decode()
    lake.add("ops.ledger", batches(DAY, 9, "alert", **told(60)))
    lake.add("ops.ledger", batches(DAY - timedelta(days=1), 9, "alert", **told(60)))
    report = cost.compose(lake.request(HOME, "2026-11-20"))
    assert "2 of 4 batches have no CPU time" in in_form(report, "html").decode()
    assert tiles(report)["Cores"][1] is None, "of half the batches no rise is told"


def test_what_rules_take_is_told_in_cores_and_disk_for_a_year_ahead() -> None:
    spent = {"us": 7_200_000_000, "events": 9, "candidates": 3, "hits": 1}
    cost_row = {"at": DAY, "pack": "p", "worker": "w", "seconds": 60.0, "events": 9,
                "match_us": 9, "rules": {"r1": spent}}  # fmt: skip
    lake = MemoryLake().add("ops.ledger", batches(DAY, 500)).add("ops.rule_cost", [cost_row])
    assert tiles(cost.compose(lake.request(HOME, "2026-11-20")))["Rules, of a core"][0] == (
        pytest.approx(2 / 24)
    )
    assert cost._a_year(2e9, 500_000_000) == 365e12, "1,000 GB a day"
    assert cost._a_year(None, 1) is None
    quiet = tiles(cost.compose(lake.request(HOME, "2026-11-19")))
    assert quiet["Rules, of a core"][0] is None


def test_of_a_month_that_runs_only_the_part_that_is_over_counts() -> None:
    lake = MemoryLake().add("ops.ledger", batches(DAY, 500))
    report = cost.compose(lake.request(HOME, "2026-11"))
    passed = (report.made_at - datetime(2026, 11, 1, tzinfo=UTC)).total_seconds()
    assert report.data()["jobs"][1][0]["share"] == pytest.approx(3_600 / passed)


def test_what_is_more_than_nothing_is_not_told_as_nothing() -> None:
    assert [share(value) for value in (None, 0.0, 0.0004, 0.25)] == [
        "-",
        "0.0 %",
        "< 0.1 %",
        "25.0 %",
    ]


@pytest.mark.parametrize(
    ("unaccounted", "gaps", "words"),
    [
        (0, 0, "In May, 9 records were received; none is unaccounted for, and no gap is known."),
        (1, 0, "In May, 9 records were received; 1 is unaccounted for, and no gap is known."),
        (2, 1, "2 are unaccounted for, and 1 gap with 7 known messages was accepted."),
    ],
)
def test_an_auditor_reads_first_whether_all_is_accounted_for(
    unaccounted: int, gaps: int, words: str
) -> None:
    gap = Missed("logs.a", 0, "expired", 5, 12, 7, None, DAY, True, DAY, "ana", "disk full")
    whole = Completeness("all", received=9, unaccounted=unaccounted)
    assert words in compliance._sources_words("In May", whole, [gap] * gaps)


def test_an_auditor_reads_what_a_source_is_of_and_how_long_it_is_kept() -> None:
    event = {"source": "zeek:dns", "received_at": DAY, "event_uid": "e", "mode": "live"}
    beat = event | {"source": "_heartbeat", "event_uid": "h"}
    lake = MemoryLake().add("silver.event", [event, beat])
    report = compliance.compose(lake.request(HOME, "2026-11-20"))
    (row,) = report.data()["retention"][1]
    assert (row["name"], row["table"], row["state"]) == ("Name lookups (Zeek)", "event", "kept")
    assert row["kept_for"] == "ever" or row["kept_for"].endswith(" days")
    assert "_heartbeat" not in in_form(report, "html").decode()
    titles = [column.title for column in report.data()["completeness"][0]]
    assert titles[2:] == ["Received", "Read", "Unreadable", "Expired", "In work", "Unaccounted"]
