"""The ledger by hour, with the rule packs in force, and gaps in the hours they are missing from."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from alerts.tables import FINDING
from infra.delta.duckdb_views import connect
from infra.delta.ops_tables import GAP, LEDGER
from infra.streaming.lake import Lake
from ingest.tables import EVENT, RECORD
from reporting.document.html import to_html
from reporting.document.request import ReportRequest
from reporting.interval import parse_interval
from reporting.ledger.completeness import completeness, hourly
from reporting.ledger.gaps import missed
from reporting.reports.daily import compose
from tests.api.story import DAY, DEAD, Row, at, batch, event, finding, insert, record
from tests.reporting.ledger.test_completeness import run

NEXT = DAY + timedelta(days=1)
SPAN = ["--since", f"{DAY:%F}", "--until", f"{NEXT:%F}"]


def told_json(lake: Lake, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    run(["ledger", *SPAN, *more, "--output", "json"], lake.settings)
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


@pytest.mark.full
def test_each_hour_has_its_rows_and_the_packs_in_force(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    clocks = {"a": "10:05", "b": "10:59", "c": "12:30", "lost": "12:31"}
    insert(lake, RECORD, [record(uid, clock) for uid, clock in clocks.items()])
    read = [event(uid, clock) for uid, clock in clocks.items() if uid != "lost"]
    insert(lake, EVENT, [*read, event("beat", "23:00", source="_heartbeat", **DEAD)])
    insert(lake, FINDING, [finding("a", "10:05", pack="p1"), finding("c", "12:30", pack="p2"),
                           finding("c", "12:30", pack="p2", finding_id="f2")])  # fmt: skip
    # The second batch was at work after an outage: what it read had arrived before it began.
    insert(lake, LEDGER, [ingested(0, "10:00", "p0"), ingested(1, "10:40", "p1"),
                          ingested(2, "12:20", None), ingested(3, "12:40", "p2"),
                          ingested(4, "14:00", "p3")])  # fmt: skip
    rows = told_json(lake, capsys, "--by", "hour")
    assert [(one["hour"][11:13], one["source"], one["received"], one["unaccounted"],
             one["matched"], one["findings"], one["packs"]) for one in rows] == [
        ("10", "sshd", 2, 0, 1, 1, ["p0", "p1"]),
        ("10", "all", 2, 0, 1, 1, ["p0", "p1"]),
        ("12", "sshd", 2, 1, 1, 2, ["p2", "p3"]),
        ("12", "all", 2, 1, 1, 2, ["p2", "p3"]),
    ]  # fmt: skip
    whole = told_json(lake, capsys)
    assert [one["source"] for one in whole] == ["sshd", "all"]
    assert "hour" not in whole[0]
    assert (whole[0]["matched"], whole[0]["pending"], whole[0]["attributed"]) == (2, 3, 0)
    assert whole[0]["packs"] == ["p0", "p1", "p2", "p3"]
    run(["ledger", *SPAN, "--by", "hour"], lake.settings)
    assert "2026-11-20T10:00" in capsys.readouterr().out


def ingested(number: int, finished: str, pack: str | None) -> Row:
    """A batch of job ingest, long after what it read had arrived."""
    decisions = json.dumps({"finished": at(finished).isoformat()})
    return batch("ingest", number, "20:00") | {"pack": pack, "decisions": decisions}


def test_hours_come_to_the_whole(told: Lake) -> None:
    connection = connect(told.settings.lake_root)
    hours = hourly(connection, DAY, NEXT)
    whole = completeness(connection, DAY, NEXT)
    assert {one.hour for one in hours} == {at("12:00"), at("13:00")}
    for name in ("received", "dead", "events", "findings", "attributed", "matched"):
        assert sum(getattr(one, name) for one in hours) == sum(getattr(one, name) for one in whole)
    assert sum(one.attributed for one in whole) == 4


def gap(name: str, after: str | None, before: str | None, **more: Any) -> Row:
    """A gap of the day before yesterday's ledger would show; accepted a day later."""
    return {
        "gap_id": name,
        "job": "ingest",
        "kind": "expired",
        "topic": "logs.sshd",
        "partition": 0,
        "from_offset": 5,
        "to_offset": 9,
        "messages": 4,
        "goes_on_at": 9,
        "accepted_at": NEXT + timedelta(hours=9),
        "accepted_by": "me",
        "reason": name,
        "source": "sshd",
        "lost_after": at(after) if after else None,
        "lost_before": at(before) if before else None,
        **more,
    }


def names(lake: Lake, since: datetime, until: datetime, source: str | None = None) -> list[str]:
    found = missed(connect(lake.settings.lake_root), since, until, source)
    return sorted(one.reason for one in found)


@pytest.mark.full
#          09   10   11   12   13   14   ...   accepted
#  night        |---------|                       x
#  dns                         |----|             x
#  open                             |------------>x      no message behind it yet
#  first   <----|                                 x      nothing of it in bronze
#  old                                            x      of a release that noted no times
def test_a_gap_stands_in_the_hours_it_is_missing_from(lake: Lake) -> None:
    other = {"source": "zeek:dns", "topic": "logs.zeek.dns"}
    insert(lake, GAP, [gap("night", "10:00", "12:00"), gap("dns", "13:00", "14:00", **other),
                       gap("open", "14:00", None), gap("first", None, "10:00"),
                       gap("old", None, None, source=None)])  # fmt: skip
    assert names(lake, at("11:00"), at("11:30")) == ["night"]
    assert names(lake, at("13:10"), at("13:20")) == ["dns"]
    assert names(lake, at("13:10"), at("13:20"), "sshd") == []
    assert names(lake, at("16:00"), at("17:00")) == ["open"]
    assert names(lake, at("08:00"), at("09:00")) == ["first"]
    assert names(lake, at("12:00"), at("12:30")) == ["night"]
    late = NEXT + timedelta(hours=9)
    assert names(lake, late, late + timedelta(hours=1)) == ["old", "open"]
    assert names(lake, late, late + timedelta(hours=1), "zeek:dns") == ["old"]


@pytest.mark.full
def test_the_command_and_the_report_of_the_outage_name_the_gap(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "<script>\x1b[2J"
    insert(lake, GAP, [gap("night", "10:00", "12:00", reason=hostile)])
    assert run(["ledger", *SPAN], lake.settings) == 0
    said = capsys.readouterr().err
    assert "gap in logs.sshd partition 0: 5 to 8 (4 messages), expired; came between " in said
    assert "2026-11-20T10:00:00Z and 2026-11-20T12:00:00Z; accepted by me" in said
    assert "\x1b" not in said
    assert run(["ledger", *SPAN, "--source", "zeek:dns"], lake.settings) == 0
    assert "gap" not in capsys.readouterr().err
    made = datetime(2026, 11, 21, 6, tzinfo=UTC)

    def page_of(day: str) -> str:
        connection = connect(lake.settings.lake_root)
        return to_html(compose(ReportRequest(lake.settings, connection, parse_interval(day), made)))

    page = page_of("2026-11-20")
    assert "never arrived" in page
    assert "5 to 8 (4 messages)" in page
    assert "<script>" not in page
    assert "never arrived" not in page_of("2026-11-19")
