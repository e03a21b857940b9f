"""Figures that pages tell are those that the benchmarks left in `bench/results`."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.docs.pages import ROOT

RESULTS = ROOT / "bench" / "results"
LATENCY = "docs/explanation/latency.md"
STATE = "docs/explanation/state.md"
SIZING = "docs/explanation/sizing.md"
FAULTS = "docs/explanation/faults.md"
DECISIONS = "docs/explanation/decisions"


@cache
def measures(benchmark: str) -> dict[str, float]:
    """Values of a benchmark by their measure's name; of equal names the first."""
    results = json.loads((RESULTS / f"{benchmark}.json").read_text("utf-8"))["measures"]
    return {each["name"]: each["value"] for each in reversed(results)}


KNOWN = "lease known or outside"
FOUND = "lease known, finding to attributed finding"
BURST = "last event of a burst to the correlation's alert, p50"
TOLD = [
    (
        LATENCY,
        "event_to_alert",
        "{:.1f} s | {:.1f} s | {:.1f} s",
        [f"{KNOWN}, p50", f"{KNOWN}, p95", f"{KNOWN}, p99"],
    ),
    (
        LATENCY,
        "event_to_alert",
        "{:.1f} s | {:.1f} s | {:.1f} s",
        ["stock queries, p50", "stock queries, p95", "stock queries, p99"],
    ),
    (
        LATENCY,
        "event_to_alert",
        "{:.0f} s | {:.0f} s | {:.0f} s",
        ["none, p50", "none, p95", "none, p99"],
    ),
    (LATENCY, "first_alert", "median of five {:.1f} s", ["start to first alert"]),
    (LATENCY, "live_attribution", "p50 {:.1f} s, p95 {:.1f} s", [f"{FOUND}, p50", f"{FOUND}, p95"]),
    (
        LATENCY,
        "promote",
        "median {:.1f} s, worst {:.1f} s",
        ["pack change to first alert", "pack change to first alert, worst"],
    ),
    (LATENCY, "correlations", "p50 {:.1f} s", [BURST]),
    (
        LATENCY,
        "catch_up",
        "{:,.0f} | {:.0f} s | {:.0f} MB",
        ["drain, adaptive", "caught up, adaptive", "peak memory, adaptive"],
    ),
    (
        LATENCY,
        "catch_up",
        "{:,.0f} | {:.0f} s | {:.0f} MB",
        ["drain, cap 200000", "caught up, cap 200000", "peak memory, cap 200000"],
    ),
    (LATENCY, "catch_up", "{:,.0f}, in one batch", ["drain, no cap"]),
    (
        STATE,
        "lease_growth",
        "| {:.3f} | {:.2f} | {:.1f} MB",
        [
            "in chunks, 10,000 leases: a batch",
            "whole, 10,000 leases: a batch",
            "in chunks, 10,000 leases: state",
        ],
    ),
    (
        STATE,
        "lease_growth",
        "| {:.2f} | {:.1f} | {:.0f} MB",
        [
            "in chunks, 1,000,000 leases: a batch",
            "whole, 1,000,000 leases: a batch",
            "in chunks, 1,000,000 leases: state",
        ],
    ),
    (SIZING, "sustained", "held {:,.0f} events/s", ["held for 600 s, all jobs"]),
    (
        SIZING,
        "adhoc",
        "a user and a day take {:.2f} s (DuckDB by itself {:.1f} s, ClickHouse {:.1f} s), "
        "an hourly histogram of the week {:.1f} s ({:.1f} s, {:.1f} s), asked again {:.2f} s",
        [
            "a user and a day: asked first",
            "a user and a day: DuckDB by itself",
            "a user and a day: ClickHouse by itself",
            "hourly histogram of the week: asked first",
            "hourly histogram of the week: DuckDB by itself",
            "hourly histogram of the week: ClickHouse by itself",
            "hourly histogram of the week: asked again",
        ],
    ),
    (FAULTS, "day", "checkpoints {:.2f}", ["checkpoints: last third against the middle"]),
    (
        "docs/how-to/measure-on-a-benign-day.md",
        "benign_day",
        "now {:.2f}; {:.2f}",
        [
            "bundled rules: high and critical",
            "bundled rules, every chore on one day: high and critical",
        ],
    ),
    (
        "docs/how-to/install-and-run.md",
        "recovery",
        "{:.0f} s at the median, {:.0f} s at p95",
        [
            "10,000 leases: kill to first silver.dhcp_segment",
            "10,000 leases: kill to first commit of both, p95",
        ],
    ),
    (
        "docs/how-to/train-anomaly-models.md",
        "models",
        "catches {:.0f} ({:.0f} %)",
        ["recordings caught, model", "precision at 10 alerts a day, model"],
    ),
    ("docs/reference/alert.md", "storm", "{:,.0f} findings", ["findings in gold.finding"]),
    (
        f"{DECISIONS}/0001-own-marker.md",
        "sink_cost",
        "{:.2f} | {:.2f}",
        ["CPU a batch, Delta's sink, 10000 files", "batch, Delta's sink, 10000 files"],
    ),
    (
        f"{DECISIONS}/0001-own-marker.md",
        "sink_cost",
        "{:.2f} | {:.2f}",
        ["CPU a batch, ours, 10000 files", "batch, ours, 10000 files"],
    ),
    (
        f"{DECISIONS}/0006-workers-write-files.md",
        "sources",
        "{:,.0f} | {:,.0f}",
        ["zeek: ours", "zeek: stock Spark"],
    ),
    (
        f"{DECISIONS}/0006-workers-write-files.md",
        "sources",
        "{:,.0f} | {:,.0f}",
        ["mix: ours", "mix: stock Spark"],
    ),
    (
        f"{DECISIONS}/0013-one-join-for-all-leases.md",
        "join",
        "{:.1f} s, {:.1f} s",
        ["one join, batch", "one join, slowest batch"],
    ),
    (f"{DECISIONS}/0014-correlations-packed-away.md", "correlations", "{:.1f} s", [BURST]),
]


@pytest.mark.parametrize(("page", "benchmark", "form", "names"), TOLD)
def test_a_page_tells_what_was_measured(
    page: str, benchmark: str, form: str, names: list[str]
) -> None:
    text = " ".join((ROOT / page).read_text("utf-8").split())
    values = [measures(benchmark)[name] for name in names]
    wanted = form.format(*values)
    assert wanted in text, f"{page} does not tell {wanted} ({benchmark}: {', '.join(names)})"


def test_a_week_is_tried_in_the_time_that_was_measured() -> None:
    page = (ROOT / "docs/how-to/backtest-a-rule.md").read_text("utf-8")
    assert f"took {measures('backtest')['a week of history'] * 60:.0f} s" in page
