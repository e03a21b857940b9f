"""Charts for notebooks: what a chart's specification draws of given rows."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate import Usage, charts
from headgate.result import QueryResult, result_of

START = datetime(2026, 11, 20, 8, tzinfo=UTC)


def drawn(chart: Any) -> list[dict[str, Any]]:
    """The rows that a chart brings along."""
    document = chart.to_dict()
    (rows,) = document["datasets"].values()
    return list(rows)


def agents() -> QueryResult:
    counts = {"Mozilla/5.0": 412, "curl/8.5": 3, "sqlmap/1.8": 1, "none": 0, "python": 3}
    return result_of([{"user.agent": name, "devices": count} for name, count in counts.items()])


def test_the_rarest_values_come_first_and_each_has_its_number() -> None:
    chart = charts.rarity_chart(agents(), "user.agent", "devices", most=3)
    document = chart.to_dict()
    assert [row["user.agent"] for row in drawn(chart)] == ["sqlmap/1.8", "curl/8.5", "python"]
    bars, numbers = document["layer"]
    assert bars["encoding"]["y"]["field"] == r"user\.agent"
    assert bars["encoding"]["y"]["sort"] == ["sqlmap/1.8", "curl/8.5", "python"]
    assert bars["encoding"]["x2"] == {"datum": 0.5}
    assert bars["encoding"]["x"]["scale"] == {"type": "log", "domainMin": 0.5}
    assert numbers["encoding"]["text"]["field"] == "devices"
    assert "the 3 rarest of 4" in str(document)


def calls(most: int = 12) -> QueryResult:
    rows = []
    for pair, steps in {"people": [1, 50, 400, 3], "clock": [60, 61, 60, 59]}.items():
        seen = START
        for step in steps * (most // 4):
            seen += timedelta(seconds=step)
            rows.append({"pair": pair, "time": seen, "gap": step})
        rows.append({"pair": pair, "time": START, "gap": None})
    return result_of(rows)


def test_what_goes_by_the_clock_comes_first_with_its_median() -> None:
    document = charts.periodicity_chart(calls(), "pair").to_dict()
    row = document["facet"]["row"]
    assert (row["field"], row["sort"]) == ("pair", ["clock", "people"])
    line, dots = document["spec"]["layer"]
    assert (line["encoding"]["y"]["field"], dots["encoding"]["y"]["field"]) == ("median", "gap")
    assert dots["encoding"]["x"]["scale"] == {"type": "utc"}
    (rows,) = document["datasets"].values()
    assert {(r["pair"], r["median"]) for r in rows} == {("clock", 60), ("people", 26.5)}
    assert len(rows) == 24, "the first of each has no gap"


def test_only_the_most_even_are_drawn() -> None:
    rows = drawn(charts.periodicity_chart(calls(), "pair", most=1))
    assert {row["pair"] for row in rows} == {"clock"}


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(Usage, match="no column gap; there are user"):
        charts.periodicity_chart(agents(), "user.agent", time="devices")


def test_each_device_that_held_an_address_has_a_lane_with_its_name() -> None:
    hour = timedelta(hours=1)
    held = {"ip": "10.0.0.9", "lease_start": START, "lease_end": START + hour}
    later = {"ip": "10.0.0.9", "lease_start": START + hour, "lease_end": START + 2 * hour}
    chart = charts.lease_lanes(
        result_of([
            {**held, "mac": "02:00:00:00:00:01", "hostname": "tab-0417"},
            {**later, "mac": "02:00:00:00:00:02", "hostname": None},
        ])
    )  # fmt: skip
    assert [row["device"] for row in drawn(chart)] == [
        "tab-0417 02:00:00:00:00:01", "02:00:00:00:00:02",
    ]  # fmt: skip
    document = chart.to_dict()
    assert document["facet"]["row"]["field"] == "ip"
    assert document["spec"]["encoding"]["x2"]["field"] == "lease_end"
    assert document["spec"]["encoding"]["y"]["sort"] == {"field": "lease_start", "op": "min"}


EVIL = "</script><script>document.title = 'EVIL'</script>"


def shown(values: QueryResult) -> str:
    chart = charts.rarity_chart(values, "user.agent", "devices")
    return str(chart._repr_mimebundle_()["text/html"])


@pytest.mark.full
def test_a_chart_is_shown_without_a_server_of_others_and_a_log_ends_no_script() -> None:
    page = shown(result_of([{"user.agent": EVIL, "devices": 1}]))
    assert "window.headgateEmbed=" in page
    assert "cdn.jsdelivr.net" not in page
    assert page.count("</script>") == 1
    assert "\\u003c/script>\\u003cscript>document.title" in page


@pytest.mark.full
def test_all_charts_of_a_notebook_are_drawn_in_its_one_page(tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    every = (
        result_of([{"user.agent": EVIL, "devices": 2}]),
        agents(),
        result_of([], ["user.agent", "devices"]),
    )
    page = tmp_path / "page.html"
    page.write_text("<meta charset=utf8><title>notebook</title>" + "".join(map(shown, every)))
    look = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]  # fmt: skip
    done = subprocess.run(look, capture_output=True, text=True, timeout=240, check=True)
    # Vega marks a place as its own as soon as it is called; a script that is refused calls nobody.
    assert len(re.findall('id="headgate-chart-[0-9a-f]+" class="vega-embed', done.stdout)) == 3
    assert "<title>notebook</title>" in done.stdout
