"""A preview of a correlation finds the windows that a backtest finds, and says where it stops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import headgate
from alerts.backtest.correlation_preview import preview_correlation, preview_over_events
from alerts.backtest.result import summarise
from alerts.backtest.rule_selection import select_rules
from alerts.backtest.run import Backtest, begin_backtest
from alerts.domain.entity import micros
from alerts.rulebook.preview import PreviewCounts, draft
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import Correlation, PackStore
from api.app import create_app
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.errors import Usage
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.alerts.backtest.test_history_match import HISTORY, SEGMENTS, wish
from tests.alerts.cli.test_rules import run
from tests.alerts.history import LOGIN, MANY, NOON, A, at, login, with_rules
from tests.headgate.as_code.delta_by_hand import append_rows

TOKEN = "t" * 32
TWO_DEEP = """
title: Guessing goes on
id: 11111111-0000-4000-8000-000000000003
correlation:
  type: event_count
  rules: [guessing]
  group-by: [device]
  timespan: 30m
  condition: {gte: 2}
level: high
"""


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    """A lake with a day of logins, and the leases of the address they came from."""
    settings = with_rules(load(home=tmp_path), levels=["high"])
    append_rows(settings.lake_side, EVENT, HISTORY)
    append_rows(settings.lake_side, DHCP_SEGMENT, SEGMENTS)
    return settings


def previewed(settings: Settings, since: datetime = NOON, **more: Any) -> PreviewCounts:
    chosen = select_rules(settings, ["guessing"])
    (correlation,) = chosen.pack.correlations
    with connect(settings.lake_root, needs=("silver.event",), only=()) as connection:
        return preview_correlation(settings, connection, correlation, chosen, since, 50, **more)


def nowhere() -> Lake:
    raise AssertionError("Spark was asked for")


def test_it_finds_the_windows_that_a_backtest_finds(home: Settings) -> None:
    run = begin_backtest(home, wish(home, ["guessing"]))
    work = Backtest(home, nowhere, run)
    sides = work.through(lambda _: None)
    windows = [row for row in sides["new"].findings if row["event_time"] >= NOON]
    result = summarise(work, sides, PackStore(store_folder(home)))["sides"]["new"]
    counts = previewed(home)
    assert len(windows) >= 2
    assert {row["finding_id"] for row in counts.shown} == {row["finding_id"] for row in windows}
    # One before the span may complete a window, and one after the backtest's end is there too.
    assert (counts.findings, counts.counted) == (len(windows), result["counted"][LOGIN] + 2)
    assert sum(counts.by_time.values()) == counts.findings
    assert counts.shown == sorted(counts.shown, key=lambda row: row["event_time"])
    assert counts.notes == ()


def test_a_window_that_began_before_is_whole(home: Settings) -> None:
    (first, *_) = previewed(home).shown
    assert first["window_start"] < first["event_time"]
    (again, *_) = previewed(home, first["event_time"] - timedelta(seconds=1)).shown
    assert again["finding_id"] == first["finding_id"]
    assert again["holder"]["mac"] == A


@pytest.mark.full
def test_where_it_stops_counting_is_told(home: Settings) -> None:
    whole = previewed(home)
    cut = previewed(home, most=4)
    (note,) = cut.notes
    assert f"of {whole.counted:,} findings that it counts the newest 4" in note
    assert cut.counted == 4
    assert cut.findings < whole.findings
    since = note.split("since ")[1].split(";")[0]
    kept = [row for row in whole.shown if row["event_time"] >= datetime.fromisoformat(since)]
    assert [row["finding_id"] for row in cut.shown] == [row["finding_id"] for row in kept]
    assert previewed(home, most=whole.counted or 0).notes == ()


def test_correlations_of_correlations_and_drafts_are_previewed_too(
    home: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "draft.yml"
    path.write_text(TWO_DEEP, "utf-8")
    rule, compiled = draft(path, home)
    assert isinstance(rule, Correlation)
    counts = preview_over_events(home, rule, NOON - timedelta(hours=1), 10, compiled)
    deep = [row["finding_id"] for row in counts.shown]
    append_rows(home.lake_side, EVENT, [login(f"d{n}", 300 + n * 10) for n in range(3)])
    more = preview_over_events(home, rule, NOON - timedelta(hours=1), 10, compiled)
    assert (len(deep), more.findings) == (0, 1)
    assert {row["rule_id"] for row in more.shown} == {rule.id}


def test_a_lake_without_leases_is_previewed_by_address(tmp_path: Path) -> None:
    settings = with_rules(load(home=tmp_path))
    append_rows(settings.lake_side, EVENT, HISTORY)
    (first, *_) = previewed(settings).shown
    assert (first["holder"]["status"], first["rule_id"]) == ("none", MANY)


def test_imported_leases_that_were_not_asked_are_told(home: Settings) -> None:
    assert previewed(home).notes == ()
    line = login("dhcp", 100, mode="import", class_uid=4004, source="dhcpd")
    append_rows(home.lake_side, EVENT, [line])
    assert "DHCP lines of imports" in previewed(home).notes[0]


def test_a_rule_that_counts_a_query_names_it(home: Settings, tmp_path: Path) -> None:
    query = {
        "title": "Asked in SQL", "name": "asked", "id": MANY[:-1] + "4", "level": "low",
        "type": "sql", "query": "SELECT event_uid FROM event WHERE class_uid = 3002",
    }  # fmt: skip
    (tmp_path / "rules" / "query.yml").write_text(json.dumps(query), "utf-8")
    (tmp_path / "rules" / "above.yml").write_text(
        TWO_DEEP.replace("[guessing]", "[asked]").replace("title", "name: above\ntitle"), "utf-8"
    )
    chosen = select_rules(home, ["above"])
    (correlation,) = chosen.pack.correlations
    with pytest.raises(Usage, match=r"'Guessing goes on' counts 'Asked in SQL', which runs on"):
        preview_over_events(home, correlation, NOON, 5)


@pytest.mark.full
def test_command_rest_page_and_notebook_say_the_same(
    home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    want = previewed(home)
    since = NOON.isoformat()
    assert run(home, "preview", "guessing", "--since", since, "--summary") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["findings"], document["counted"]) == (want.findings, want.counted)
    assert document["shown"][0]["event_uid"] in {row["event_uid"] for row in HISTORY}
    assert run(home, "preview", "guessing", "--since", since) == 0
    words = capsys.readouterr().err
    assert f"{want.findings} findings in {want.events} events of the rules it counts" in words

    settings = home.model_copy(update={"api": load(home=home.home, api={"token": TOKEN}).api})
    client = TestClient(create_app(settings), headers={"Authorization": f"Bearer {TOKEN}"})
    asked = {"since": since, "limit": 1}
    answered = client.post("/api/v1/rules/guessing/preview", json=asked).json()
    assert (answered["findings"], answered["counted"]) == (want.findings, want.counted)
    assert answered["notes"] == []

    _assert_notebook(home, want, document["shown"])


def _assert_notebook(home: Settings, want: PreviewCounts, shown: Sequence[Any]) -> None:
    config = home.home / "headgate.toml"
    rules = home.alerts.rules[0]
    config.write_text(f'[alerts]\nbundled = false\nrules = ["{rules}"]\n', "utf-8")
    hg = headgate.open(home.home, config)
    seen = hg.rules.preview(hg.rules.draft(TWO_DEEP), NOON)
    assert seen.total == 0
    rows = list(hg.rules.preview("guessing", NOON))
    assert [row["event_uid"] for row in rows] == [row["event_uid"] for row in shown]
    assert len(rows) == want.findings
    assert micros(rows[0]["event_time"]) >= micros(at(0))
