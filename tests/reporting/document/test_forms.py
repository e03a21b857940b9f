"""One report in all its forms: self-contained, the same each time, safe with hostile names."""

from __future__ import annotations

import csv
import io
import json
import os
import time
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.config.settings import load
from reporting.document import charts
from reporting.document.archive import forget_old, in_form, keep, stem_of
from reporting.document.arrival import Arrival
from reporting.document.content import Chart, Column, Report, Section, Table, Tile, Words
from reporting.interval import parse_interval

DAY = parse_interval("2026-11-20")
MADE = datetime(2026, 11, 21, 6, tzinfo=UTC)
EVIL = '=HYPERLINK("http://x")$a$<script>alert(1)</script>'


def a_report() -> Report:
    svg = charts.rows_of_bars("Bars", [(EVIL, {"n": 3}), ("b", {"n": 1})], {"n": charts.PLAIN})
    columns = [Column("name", "Name"), Column("n", "Number", "bar")]
    rows = [{"name": EVIL, "n": 3}, {"name": "b", "n": 1}]
    return Report(
        "sample", "Sample", DAY, MADE,
        [Section("All", [Words([EVIL]), Chart("bars", svg, columns, rows),
                         Table("rows", columns, rows, whole=9)])],
        [Tile("Number", 4, 2), Tile("Same", 1, 1)],
        subject=EVIL,
        arrival=Arrival(DAY, DAY.end + timedelta(hours=1), 2, 1, DAY.end, {"silver.event": 7}),
    )  # fmt: skip


def test_the_same_report_is_the_same_bytes_in_each_form() -> None:
    for form in ("html", "json", "csv"):
        assert in_form(a_report(), form) == in_form(a_report(), form)


def test_hostile_names_stay_text_in_the_page_and_in_a_spreadsheet() -> None:
    page = in_form(a_report(), "html").decode()
    assert "<script>" not in page
    assert "http://x" not in page.replace("&#34;http://x&#34;", "").replace('"http://x"', "")
    with zipfile.ZipFile(io.BytesIO(in_form(a_report(), "csv"))) as archive:
        assert archive.namelist() == ["bars.csv", "rows.csv"]
        (_, first, _) = csv.reader(io.StringIO(archive.read("rows.csv").decode()))
    assert first == ["'" + EVIL, "3"]


def test_a_page_says_what_changed_and_how_much_was_cut() -> None:
    page = in_form(a_report(), "html").decode()
    assert "up from 2" in page
    assert "as before (1)" in page
    assert "The first 2 of 9." in page


def test_json_has_figures_with_their_interval_and_the_versions_read() -> None:
    document = json.loads(in_form(a_report(), "json"))
    assert document["tables"] == {"silver.event": 7}
    assert (document["since"], document["zone"]) == ("2026-11-20T00:00:00+00:00", "UTC")
    assert document["data"]["rows"][1] == {"name": "b", "n": 1}
    assert document["figures"][0] == {"name": "Number", "value": 4, "before": 2, "unit": "number"}


def test_a_report_says_which_data_had_arrived() -> None:
    early = Arrival(DAY, DAY.end - timedelta(hours=3))
    assert "in its last 3 hours is missing" in " ".join(early.sentences())
    page = in_form(replace(a_report(), arrival=early), "html").decode()
    assert '<p class="notice">' in page
    late = " ".join(a_report().arrival.sentences())  # type: ignore[union-attr]
    assert "2 events of the interval, from 1 source, arrived after its end" in late
    assert '<p class="notice">' not in in_form(a_report(), "html").decode()


def test_a_run_again_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    first = keep(settings, a_report(), ["html", "csv"])
    assert [path.name.rsplit("-", 1)[1].partition(".")[2] for path in first] == [
        "html", "csv.zip", "json",
    ]  # fmt: skip
    assert keep(settings, a_report(), ["html", "csv"]) == first
    assert len(list((tmp_path / "reports").iterdir())) == 3


def test_old_reports_go_and_a_persons_files_stay(tmp_path: Path) -> None:
    settings = load(home=tmp_path, reports={"keep_days": 30})
    kept = keep(settings, a_report(), ["html"])
    own = tmp_path / "reports" / "notes.txt"
    own.write_text("mine")
    for path in (kept[0], own):
        os.utime(path, (time.time() - 40 * 86_400,) * 2)
    assert forget_old(settings) == [kept[0]]
    assert own.exists()


def test_subjects_that_read_alike_have_files_of_their_own() -> None:
    names = {stem_of("device", DAY, subject) for subject in ("a/b", "a b", "../../a b", "")}
    assert len(names) == 4
    assert not any("/" in name for name in names)


@pytest.mark.full
def test_a_report_is_a_pdf_of_some_pages() -> None:
    pytest.importorskip("weasyprint", reason="the extra 'pdf' needs the system library Pango")
    pdf = in_form(a_report(), "pdf")
    assert pdf.startswith(b"%PDF-")


def test_two_blocks_of_one_key_are_refused() -> None:
    table = Table("rows", [Column("n", "N")], [])
    report = replace(a_report(), sections=[Section("A", [table, table])])
    with pytest.raises(ValueError, match="two blocks of one key"):
        report.data()
