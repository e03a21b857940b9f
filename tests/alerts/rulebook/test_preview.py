"""`headgate rules preview`: a rule over events that are already there."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from alerts.matching.event_rows import event_batch
from alerts.rulebook.preview import draft, preview, preview_counts
from alerts.rulebook.rule_tests import BASE_TIME, complete
from alerts.rulepack.rule_pack import Rule
from infra.config.settings import load
from infra.errors import Usage

ID = "00000000-0000-4000-8000-000000000001"


def rule(**keys: Any) -> str:
    return yaml.safe_dump(
        {
            "title": "Draft",
            "id": ID,
            "logsource": {"product": "aws", "service": "cloudtrail"},
            "detection": {"s": {"requestParameters.a": "x"}, "condition": "s"},
        }
        | keys
    )


@pytest.fixture
def events() -> duckdb.DuckDBPyConnection:
    rows = [
        complete({"event_uid": f"e{n}", "unmapped": '{"requestParameters":{"a":"X"}}'}, (6003,))
        | {"source": "aws_cloudtrail", "mode": "import", "time": BASE_TIME + timedelta(hours=n)}
        for n in range(5)
    ]
    rows.append(rows[0] | {"event_uid": "other", "class_uid": 4001})
    batch = event_batch(rows)  # noqa: F841  DuckDB finds it by its name
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE SCHEMA silver")
    connection.execute("CREATE TABLE silver.event AS SELECT * FROM batch")
    return connection


def drafted(path: Path) -> Rule:
    chosen, _ = draft(path, load(home=path.parent))
    assert isinstance(chosen, Rule)
    return chosen


def test_a_draft_finds_what_is_there_since_then(
    tmp_path: Path, events: duckdb.DuckDBPyConnection
) -> None:
    path = tmp_path / "draft.yml"
    path.write_text(rule(), "utf-8")
    chosen = drafted(path)
    findings, total, looked_at = preview(events, chosen, BASE_TIME + timedelta(hours=2), 10)
    assert {row["event_uid"] for row in findings} == {"e2", "e3", "e4"}
    assert (total, looked_at) == (3, 3)
    few, total, looked_at = preview(events, chosen, BASE_TIME, 2)
    assert len(few) == 2
    assert total > 2  # all are counted, however few are shown
    assert looked_at >= total


def test_older_events_are_told_where_none_came_since(
    tmp_path: Path, events: duckdb.DuckDBPyConnection
) -> None:
    path = tmp_path / "draft.yml"
    path.write_text(rule(), "utf-8")
    counts = preview_counts(events, drafted(path), BASE_TIME + timedelta(days=9), 10)
    newest = (BASE_TIME + timedelta(hours=4)).replace(microsecond=0).isoformat()
    assert counts.notes == (f"there are older ones: the newest is of {newest} (--since)",)
    assert preview_counts(events, drafted(path), BASE_TIME, 10).notes == ()
    events.execute("UPDATE silver.event SET source = 'json'")
    (note,) = preview_counts(events, drafted(path), BASE_TIME, 10).notes
    assert "no event of its log source" in note


def test_a_draft_that_does_not_run_says_why(tmp_path: Path) -> None:
    path = tmp_path / "draft.yml"
    path.write_text(rule(logsource={"product": "ocsf"}), "utf-8")
    with pytest.raises(Usage, match=r"requestParameters\.a"):
        draft(path, load(home=tmp_path))


def test_of_a_file_with_a_correlation_and_its_rules_the_correlation_is_taken(
    tmp_path: Path,
) -> None:
    counting = {
        "title": "Many",
        "id": ID[:-1] + "2",
        "correlation": {
            "type": "event_count",
            "rules": ["one"],
            "group-by": ["device"],
            "timespan": "1m",
            "condition": {"gte": 3},
        },
    }
    path = tmp_path / "both.yml"
    path.write_text(f"{rule(name='one')}---\n{yaml.safe_dump(counting)}", "utf-8")
    chosen, compiled = draft(path, load(home=tmp_path))
    assert chosen.title == "Many"
    assert set(compiled.sources) == {ID, chosen.id}
    other = rule(title="Another", id=ID[:-1] + "3")
    path.write_text(f"{rule(name='one')}---\n{other}", "utf-8")
    with pytest.raises(Usage, match=r"2 rules, 'Draft', 'Another'; preview one at a time"):
        draft(path, load(home=tmp_path))
    path.write_text("a: 1", "utf-8")
    with pytest.raises(Usage, match=r"both\.yml"):
        draft(path, load(home=tmp_path))


def test_what_is_found_is_counted_by_time(
    tmp_path: Path, events: duckdb.DuckDBPyConnection
) -> None:
    path = tmp_path / "draft.yml"
    path.write_text(rule(), "utf-8")
    chosen = drafted(path)
    counts = preview_counts(events, chosen, BASE_TIME, 1)
    assert (len(counts.shown), counts.findings) == (1, 5)
    assert sum(counts.by_time.values()) == counts.findings
    assert list(counts.by_time) == sorted(counts.by_time)
