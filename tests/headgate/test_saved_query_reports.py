"""A saved query as a report: of its interval, by who saved it, kept in every form, and listed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headgate.packages  # noqa: F401  registers who can ask a saved query
from api.credentials import Credentials
from api.services.searches.saved_queries import QueryStore, span_params
from api.wire.jobs import QueryContent
from infra.config.settings import Settings, load
from infra.delta.catalog import table
from infra.errors import Usage
from reporting.cli.due_reports import make_due
from reporting.cli.making import make_report
from reporting.document.archive import keep
from reporting.interval import parse_interval
from tests.alerts.lifecycle.test_alert_fold import NOON
from tests.api.desk import audited
from tests.api.plain_desk import PlainDesk
from tests.headgate.as_code.delta_by_hand import append_rows

pytestmark = pytest.mark.full

BY_LEVEL = """SELECT level, count(*) AS alerts, count(DISTINCT rule_id) AS alerts FROM gold.alert
WHERE event_time >= :since AND event_time < :until GROUP BY level"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[PlainDesk]:
    running = PlainDesk(tmp_path)
    append_rows(running.settings.lake_root, table("silver.event"), [])
    QueryStore(running.settings).put("api", "by-level", QueryContent(sql=BY_LEVEL, doc="Levels"))
    yield running
    running.app.state.services.close()


def test_it_is_kept_in_every_form_and_listed(desk: PlainDesk) -> None:
    day = parse_interval(f"{NOON:%Y-%m-%d}")
    report = make_report(desk.settings, "query", day, "by-level")
    files = {path.suffixes[-1]: path for path in keep(desk.settings, report, ("html", "csv"))}
    known = json.loads(files[".json"].read_text())
    assert known["data"]["rows"] == [{"level": "high", "alerts": 3, "alerts_3": 1}]
    assert known["lead"] == ["Levels"]
    assert "gold.alert" in files[".html"].read_text()
    with zipfile.ZipFile(files[".zip"]) as kept:
        assert kept.read("rows.csv").decode().splitlines()[1:] == ["high,3,1"]
    bot = desk.client("bot", "read")
    names = {item["name"] for item in bot.get("/api/v1/reports").json()["items"]}
    assert names == {path.name for path in files.values()}
    assert files[".html"].name in desk.browser("ann", "viewer").get("/reports").text
    (row,) = [row for row in audited(desk.settings) if row["act"] == "report.query"]
    assert (row["who"], row["outcome"]) == ("api", "ok")


def test_another_interval_has_its_own_rows(desk: PlainDesk) -> None:
    before = parse_interval(f"{NOON - timedelta(days=1):%Y-%m-%d}")
    report = make_report(desk.settings, "query", before, "by-level")
    assert report.tiles[0].value == 0
    QueryStore(desk.settings).put("api", "all", QueryContent(sql="SELECT 1 AS n"))
    whole = make_report(desk.settings, "query", before, "all")
    assert "of all time, not of the interval" in whole.lead[-1]


def test_who_may_not_ask_any_more_gets_no_report(desk: PlainDesk) -> None:
    Credentials(desk.settings).add_key("eve", "viewer", None)
    QueryStore(desk.settings).put("eve", "hers", QueryContent(sql="SELECT 1 AS n"))
    Credentials(desk.settings).remove_key("eve")
    day = parse_interval("2026-11-20")
    with pytest.raises(Usage, match="may not ask any more"):
        make_report(desk.settings, "query", day, "hers")
    with pytest.raises(Usage, match="no saved query 'none'"):
        make_report(desk.settings, "query", day, "none")
    with pytest.raises(Usage, match="the name of a saved query"):
        make_report(desk.settings, "query", day)


def test_a_schedule_names_the_query(desk: PlainDesk) -> None:
    wanted = {"report": "query", "subject": "by-level", "every": "day"}
    settings: Settings = load(home=desk.settings.home, reports={"scheduled": [wanted]})
    assert make_due(settings, datetime(2026, 11, 21, 6, tzinfo=UTC)) == 0
    assert [path.suffix for path in sorted((settings.home / "reports").iterdir())] == [
        ".html",
        ".json",
    ]


def test_only_placeholders_that_a_query_has_are_given_values() -> None:
    since = datetime(2026, 11, 20, tzinfo=UTC)
    until = since + timedelta(days=1)
    assert span_params("SELECT 1", since, until) == {}
    assert span_params("SELECT x::since, :sincere FROM t WHERE a < :until", since, until) == {
        "until": "2026-11-21T00:00:00Z"
    }
