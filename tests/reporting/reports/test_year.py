"""Weekly, monthly and coverage reports over a year that was made for them, and over nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from alerts.rulebook.rule_store import recompile
from infra.config.settings import load
from reporting.document.archive import in_form
from reporting.document.content import Chart, Report
from reporting.document.text import shown
from reporting.figures.triage import advice, triage_by_rule, triage_totals
from reporting.reports import reports
from tests.reporting.memory_lake import MemoryLake
from tests.reporting.reports.test_daily import elements
from tests.reporting.year import END, a_whole_year, a_year
from tests.reporting.year_records import ACTS, write_erasures

HOME = Path("/nowhere")
WHOLE = sorted(name for name, listed in reports().items() if not listed.subject)


@pytest.fixture(scope="module")
def year() -> MemoryLake:
    return a_year()


@pytest.fixture(scope="module")
def whole_year() -> MemoryLake:
    return a_whole_year()


def made(lake: MemoryLake, name: str, interval: str, home: Path = HOME) -> Report:
    report: Report = reports()[name].load().compose(lake.request(home, interval))
    return report


@pytest.mark.full
@pytest.mark.parametrize("name", WHOLE)
def test_every_report_is_made_of_a_year_and_of_nothing(whole_year: MemoryLake, name: str) -> None:
    year = whole_year
    for lake in (year, MemoryLake()):
        report = made(lake, name, "2026-10")
        page = in_form(report, "html").decode()
        assert elements(page).risky == []
        assert not re.search(r"\bnan\b|Undefined|>None<", page)
        assert json.loads(in_form(report, "json"))["report"] == name
    assert in_form(made(year, name, "2026-10"), "html") == in_form(
        made(year, name, "2026-10"), "html"
    )


def test_a_month_is_a_page_of_words_and_four_charts(year: MemoryLake) -> None:
    report = made(year, "monthly", "2026-10")
    charts = [b for section in report.sections for b in section.blocks if isinstance(b, Chart)]
    assert len(charts) == 4
    assert all(chart.svg for chart in charts)
    lead = " ".join(report.lead)
    assert lead.startswith("In October 2026, ")
    assert "5 incidents" in lead
    assert "fewer than the 68 of the month before" in lead
    assert "not over yet" not in in_form(report, "html").decode()
    page = in_form(report, "html").decode()
    assert "dc1 showed signs of getting in, running hostile programs and remote control" in page
    months = report.data()["alerts_by_month"][1]
    assert [row["month"] for row in months][:2] == ["2025-11", "2025-12"]
    assert len(months) == 12


@pytest.mark.parametrize(
    ("many", "words"), [(0, "0 B"), (1023, "1023 B"), (47_300, "46.2 KiB"), (3 << 40, "3.0 TiB")]
)
def test_bytes_are_told_in_the_unit_that_suits_them(many: int, words: str) -> None:
    assert shown(many, "bytes") == words


def test_a_matrix_is_printed_across_the_page(year: MemoryLake, tmp_path: Path) -> None:
    wide = in_form(made(year, "coverage", "2026-10", tmp_path), "html").decode()
    assert '<body class="has-wide">' in wide
    assert "<body>" in in_form(made(year, "monthly", "2026-10"), "html").decode()


def test_a_report_of_a_past_month_names_what_came_late(year: MemoryLake) -> None:
    report = made(year, "monthly", "2026-10")
    assert report.arrival is not None
    assert report.arrival.late == 1
    assert report.arrival.whole


def test_a_week_says_what_to_tune_and_who_was_silent(year: MemoryLake) -> None:
    report = made(year, "weekly", "2026-10-01/2026-10-31")
    rules = {row["rule_id"]: row for row in report.data()["rules"][1]}
    assert "were false: narrow it or suppress them" in rules["scan"]["advice"]
    assert report.data()["silent_sources"][1][0]["title"] == "Source sshd is silent"
    tiles = {tile.label: tile for tile in report.tiles}
    assert tiles["Alerts"].before is not None


def test_times_are_of_those_that_did_it(year: MemoryLake) -> None:
    request = year.request(HOME, "2026-10")
    totals = triage_totals(request)
    assert 3 <= totals["detect"] <= 14
    assert 4 * 60 <= totals["acknowledge"] <= 120 * 60
    assert totals["acknowledge"] < totals["close"]
    assert sum(row["alerts"] for row in triage_by_rule(request)) == totals["alerts"]
    assert 0 < totals["rate"] < 1


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"judged": 10, "alerts": 12, "false_positive": 9, "before": 0}, "9 of 10 judged"),
        ({"judged": 2, "alerts": 2, "false_positive": 2, "before": 0}, ""),
        ({"judged": 0, "alerts": 30, "false_positive": 0, "before": 0}, "nobody judged one"),
        ({"judged": 25, "alerts": 30, "false_positive": 0, "before": 5}, "after 5 before"),
    ],
)
def test_advice_is_given_where_there_is_reason(row: dict[str, int], words: str) -> None:
    given = advice(row, new=False)
    assert words in given if words else given == ""


def test_coverage_has_a_matrix_and_a_layer_of_the_rules_in_force(
    year: MemoryLake, tmp_path: Path
) -> None:
    recompile(load(home=tmp_path))
    report = made(year, "coverage", "2026-10", tmp_path)
    layer = json.loads(report.attachments["navigator.json"])
    assert layer["domain"] == "enterprise-attack"
    assert {"techniqueID", "score", "color"} <= layer["techniques"][0].keys() | {"score", "color"}
    page = in_form(report, "html").decode()
    assert "Credential Access" in page
    assert "OS Credential Dumping" in page
    rows = {row["technique"]: row for row in report.data()["techniques"][1]}
    assert rows["T1110.001"]["tactics"] == "Credential Access", "where ATT&CK has it"
    assert "○" in page


@pytest.mark.full
def test_an_auditor_reads_of_records_gaps_acts_and_erasures(
    whole_year: MemoryLake, tmp_path: Path
) -> None:
    write_erasures(tmp_path, END)
    report = made(whole_year, "compliance", "2026-10", tmp_path)
    data = {key: rows for key, (_, rows) in report.data().items()}
    assert sum(row["unaccounted"] for row in data["completeness"]) == 0
    assert all(0 < row["dead"] < row["received"] for row in data["completeness"])
    (gap,) = data["gaps"]
    assert (gap["messages"], gap["accepted_by"]) == (1_240, "admin")
    assert {(row["who"], row["act"], row["n"], row["refused"]) for row in data["acts"]} == {
        (who, act, times, refused) for who, act, times, refused, _ in ACTS
    }
    assert [(row["id"], row["rows"]) for row in data["erasures"]] == [("3f1c", 812), ("9a07", 480)]
    first, second = report.lead
    assert "none is unaccounted for, and 1 gap with 1\u202f240 known messages was accepted" in first
    assert "1\u202f073 acts of 5 users and keys are on record, 6 refused. 2 erasures" in second


@pytest.mark.full
def test_who_pays_reads_of_cores_by_job_and_day(whole_year: MemoryLake) -> None:
    report = made(whole_year, "cost", "2026-10")
    rows = report.data()["cores"][1]
    assert [row["job"] for row in rows][:2] == ["ingest", "alert"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert all(row["core_hours"] > row["before"] > 0 for row in rows)
    assert len(report.data()["core_hours_a_day"][1]) == 31
