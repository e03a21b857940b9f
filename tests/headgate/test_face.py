"""What `import headgate` promises: its names, and what they do over the story's day."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from inspect import getdoc, signature
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import headgate
from headgate import Headgate, Usage
from infra.delta.catalog import catalog
from tests.api.story import A, B

ROOT = Path(__file__).parents[2]
LINE = "<86>1 2026-11-20T12:01:00+00:00 bastion1 sshd 4171 - - Failed password for root from 10.0.0.1 port 52011 ssh2"  # noqa: E501
DRAFT = """
title: Root was refused
name: root_refused
id: 3c9de2b0-55a1-4a0e-8d5e-1d2f3a4b5c6d
level: high
logsource: {product: ocsf, category: authentication}
detection:
  selection: {status_id: 2, user_name: root}
  condition: selection
headgate:
  tests:
    match: [{status_id: 2, user_name: root}]
    no_match: [{status_id: 1, user_name: root}]
"""


@pytest.fixture(scope="module")
def day(day_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("face")
    shutil.copytree(day_tables, home / "lake")
    return home


@pytest.fixture
def hg(day: Path, spark: SparkSession) -> Headgate:
    return headgate.open(day, spark=spark)


def test_the_promised_names_are_these_and_each_is_documented() -> None:
    assert headgate.__all__ == [
        "BacktestReport", "Fatal", "Headgate", "HeadgateError", "LakeTable", "QueryResult",
        "Retryable", "RuleBook", "RuleDraft", "Usage", "charts", "function_rule", "open",
        "rule_from", "sql_rule",
    ]  # fmt: skip
    assert dir(headgate) == headgate.__all__
    for name in headgate.__all__:
        assert getdoc(getattr(headgate, name)), name
    with pytest.raises(AttributeError, match="no 'lake'"):
        headgate.lake  # noqa: B018


def test_what_a_lake_offers_is_documented_and_typed() -> None:
    offered = {name for name in vars(Headgate) if not name.startswith("_")}
    assert offered == {
        "alerts", "backtest", "close", "home", "kafka_alerts", "lease", "models", "parse",
        "read_kafka", "rules", "spark", "sql", "tables", "timeline", "views", "who",
    }  # fmt: skip
    for name in offered:
        member = vars(Headgate)[name]
        assert getdoc(member), name
        if callable(member):
            parameters = list(signature(member).parameters.values())[1:]
            assert all(each.annotation is not each.empty for each in parameters), name


def test_importing_starts_neither_spark_nor_duckdb() -> None:
    code = (
        "import sys, headgate; "
        "print([m for m in ('pyspark', 'duckdb', 'pandas', 'pyarrow', 'pydantic') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_opening_where_there_is_no_lake_makes_none_and_names_those_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".headgate" / "demo" / "lake").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    wrong = tmp_path / ".headgate"
    with pytest.raises(Usage) as refused:
        headgate.open(wrong)
    assert f"{wrong}/lake: there is no lake here" in str(refused.value)
    assert f"there is one in {wrong}/demo" in str(refused.value)
    assert [path.name for path in wrong.iterdir()] == ["demo"]


@pytest.mark.full
def test_looking_makes_no_table_that_is_missing(
    empty_tables: Path, tmp_path: Path, spark: SparkSession
) -> None:
    shutil.copytree(empty_tables / "silver" / "event", tmp_path / "lake" / "silver" / "event")
    few = headgate.open(tmp_path, spark=spark)
    assert few.sql("SELECT count(*) AS n FROM silver.event").value() == 0
    assert few.sql("SELECT count(*) AS n FROM silver.event", engine="spark").value() == 0
    with pytest.raises(headgate.Retryable, match=r"gold\.alert"):
        few.sql("SELECT * FROM gold.alert")
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["silver"]
    assert [path.name for path in (tmp_path / "lake" / "silver").iterdir()] == ["event"]
    few.close()


@pytest.mark.full
def test_both_engines_give_the_same_rows(hg: Headgate) -> None:
    text = (
        "SELECT class_name, count(*) AS events, min(time) AS first FROM silver.events "
        "WHERE src_ip = :ip GROUP BY class_name ORDER BY class_name"
    )
    by_duck = hg.sql(text, params={"ip": "10.0.0.1"})
    by_spark = hg.sql(text, params={"ip": "10.0.0.1"}, engine="spark")
    assert by_duck.rows() == by_spark.rows()
    assert [row["class_name"] for row in by_duck] == [
        "Authentication", "DHCP Activity", "DNS Activity"
    ]  # fmt: skip
    frame = by_duck.pandas()
    assert isinstance(frame, pd.DataFrame)
    assert str(frame["first"].dt.tz) == "UTC"
    assert by_duck.arrow().num_rows == len(by_duck) == 3


def test_a_result_that_is_cut_says_so(hg: Headgate) -> None:
    with pytest.warns(UserWarning, match="cut after 2 rows"):
        cut = hg.sql("SELECT event_uid FROM silver.event", max_rows=2)
    assert (len(cut), cut.truncated) == (2, True)
    assert "cut: there are more" in repr(cut)


def test_what_is_no_question_is_refused(hg: Headgate) -> None:
    with pytest.raises(Usage):
        hg.sql("DROP TABLE silver.event")
    with pytest.raises(Usage, match="engine 'hive'"):
        hg.sql("SELECT 1 AS n", engine="hive")  # type: ignore[arg-type]
    with pytest.raises(Usage, match="name the zone"):
        hg.lease("10.0.0.1", datetime(2026, 11, 20, 12, 10))
    with pytest.raises(Usage, match="not an IP address"):
        hg.lease("gate", "2026-11-20T12:10:00Z")


@pytest.mark.full
def test_tables_and_views_tell_what_they_are(hg: Headgate) -> None:
    assert set(hg.tables) == set(catalog())
    event = hg.tables["silver.event"]
    assert event.doc in repr(hg.tables)
    assert event.columns["event_uid"]
    logins = event.read("class_uid = 3002 AND user_name = 'root'")
    assert {row["event_uid"] for row in logins} >= {"e1:0", "e3:0"}
    assert event.spark().where("user_name = 'root'").count() == len(
        event.read("user_name = 'root'")
    )
    assert "mac" in hg.views["silver.dhcp_session"].columns
    with pytest.raises(Usage, match=r"no 'silver.evnt'"):
        hg.tables["silver.evnt"]


def test_a_lease_is_what_was_true_and_what_was_known_then(hg: Headgate) -> None:
    held = hg.lease("10.0.0.1", "2026-11-20T12:10:00Z")
    assert held.lease is not None
    assert held.lease.mac == A
    later = hg.lease("10.0.0.1", datetime(2026, 11, 20, 12, 45, tzinfo=UTC))
    assert later.lease is not None
    assert later.lease.mac == B
    then = hg.lease("10.0.0.1", "2026-11-20T12:45:00Z", known_by="2026-11-20T12:20:00Z")
    assert then.lease is not None
    assert then.lease.mac == A


def test_alerts_timeline_and_users_are_rows(hg: Headgate) -> None:
    alerts = hg.alerts()
    assert {"alert_id", "entity", "entity_type", "level"} <= set(alerts.columns)
    line = hg.timeline(A, "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z")
    assert {row["kind"] for row in line} >= {"event", "lease"}
    with pytest.warns(UserWarning, match="cut after 1"):
        assert len(hg.timeline(A, "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z", limit=1)) == 1
    assert hg.who("10.0.0.1", "2026-11-20T12:10:00Z").mac == A


def test_a_record_is_parsed_as_ingest_would(hg: Headgate) -> None:
    (event,) = hg.parse(LINE, "sshd")
    assert event["user_name"] == "root"
    assert event["time"] == datetime(2026, 11, 20, 12, 1, tzinfo=UTC)
    (dead,) = hg.parse(b"\xff not sshd", "zeek:conn")
    assert dead["dead_letter_reason"]
    with pytest.raises(Usage, match="no source 'shd'"):
        hg.parse(LINE, "shd")


def test_an_old_import_works_and_says_what_to_write() -> None:
    code = "import headgate; from alerts.notebook import sql_rule; print(sql_rule.__module__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, cwd=ROOT, env=dict(os.environ),
    )  # fmt: skip
    assert done.stdout.strip() == "alerts.spark_rules.notebook"
    assert "alerts.notebook has moved" in done.stderr
    assert "from headgate import rule_from" in done.stderr


@pytest.mark.full
def test_a_draft_is_tested_tried_and_put_live(
    day: Path, tmp_path: Path, spark: SparkSession
) -> None:
    home = tmp_path / "home"
    shutil.copytree(day, home)
    (tmp_path / "rules").mkdir()
    config = tmp_path / "headgate.toml"
    config.write_text(f'[alerts]\nrules = ["{tmp_path}/rules"]\n')
    hg = headgate.open(home, config, spark=spark)
    with pytest.raises(Usage, match="refused"):
        hg.rules.draft("title: nothing")
    draft = hg.rules.draft(DRAFT, name="root_refused")
    assert [row["passed"] for row in hg.rules.test(draft)] == [True, True]
    seen = hg.rules.preview(draft, "2026-11-20T00:00:00Z")
    assert {row["event_uid"] for row in seen} == {"e1:0", "e3:0"}

    report = hg.backtest(draft, "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z")
    assert report.rules.rows()[0]["findings"] == 2
    assert sum(report.by_day.values()) == len(report.alerts) > 0
    with pytest.raises(Usage, match="against"):
        report.change  # noqa: B018

    pack = hg.rules.put_live(draft)
    (row,) = (row for row in hg.rules.list() if row["title"] == "Root was refused")
    assert (row["name"], row["state"]) == ("root_refused", "on")
    assert hg.rules.disable("root_refused", "too loud") != pack
    assert hg.rules.enable("root_refused") == pack
    with pytest.raises(Usage, match="is there already"):
        hg.rules.put_live(draft)


@pytest.mark.full
def test_the_example_of_the_how_to_works(hg: Headgate, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "how-to" / "work-in-a-notebook.md").read_text("utf-8")
    blocks = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    (block,) = (block for block in blocks if "headgate.open()" in block)
    monkeypatch.setattr("headgate.open", lambda: hg)
    names: dict[str, Any] = {}
    exec(compile(block, "work-in-a-notebook.md", "exec"), names)
    assert {row["event_uid"] for row in names["events"]} == {"e1:0", "e3:0"}
