"""The cost and compliance reports: figures that compare with nothing are not compared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reporting.document.archive import in_form
from reporting.document.text import share
from reporting.reports import compliance, cost
from tests.reporting.memory_lake import MemoryLake

HOME = Path("/nowhere")
DAY = datetime(2026, 11, 20, tzinfo=UTC)


def batches(day: datetime, rows: int) -> list[dict[str, Any]]:
    """An hour of job ingest, two batches."""
    return [
        {"job": "ingest", "query_id": "q", "batch_id": n, "started_at": day + timedelta(hours=n),
         "finished_at": day + timedelta(hours=n, minutes=30), "rows_read": rows, "replayed": False}
        for n in range(2)
    ]  # fmt: skip


def tiles(report: Any) -> dict[str, tuple[Any, Any]]:
    return {tile.label: (tile.value, tile.before) for tile in report.tiles}


def test_what_jobs_took_is_compared_with_the_period_before_if_there_was_one() -> None:
    lake = MemoryLake().add("ops.ledger", batches(DAY, 500))
    first = tiles(cost.compose(lake.request(HOME, "2026-11-20")))
    assert first["Jobs at work"] == (3_600, None), "before the first day there was none"
    assert first["At work of the time"] == (pytest.approx(1 / 24), None)
    assert first["Records taken in a day"] == (1_000, None)
    lake.add("ops.ledger", batches(DAY - timedelta(days=1), 250))
    second = tiles(cost.compose(lake.request(HOME, "2026-11-20")))
    assert second["Jobs at work"] == (3_600, 3_600)
    assert second["Records taken in a day"] == (1_000, 500)
    assert second["Disk a million records"] == (None, None), "of so few nothing is told"


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
    assert tiles(report)["At work of the time"][0] == pytest.approx(3_600 / passed)


def test_what_is_more_than_nothing_is_not_told_as_nothing() -> None:
    assert [share(value) for value in (None, 0.0, 0.0004, 0.25)] == [
        "-",
        "0.0 %",
        "< 0.1 %",
        "25.0 %",
    ]


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
