"""`headgate rules preview`: a rule over events that are already there."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from alerts.compiler.compiler import compile_rules
from alerts.matching.event_rows import event_batch
from alerts.rulebook.preview import draft, known_rule, preview, preview_counts
from alerts.rulebook.rule_tests import BASE_TIME, complete
from alerts.rulepack.rule_pack import Rule
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


def test_a_draft_finds_what_is_there_since_then(
    tmp_path: Path, events: duckdb.DuckDBPyConnection
) -> None:
    path = tmp_path / "draft.yml"
    path.write_text(rule(), "utf-8")
    findings, total, looked_at = preview(events, draft(path), BASE_TIME + timedelta(hours=2), 10)
    assert {row["event_uid"] for row in findings} == {"e2", "e3", "e4"}
    assert (total, looked_at) == (3, 3)
    few, total, looked_at = preview(events, draft(path), BASE_TIME, 2)
    assert len(few) == 2
    assert total > 2  # all are counted, however few are shown
    assert looked_at >= total


def test_a_draft_that_does_not_run_says_why(tmp_path: Path) -> None:
    path = tmp_path / "draft.yml"
    path.write_text(rule(logsource={"product": "ocsf"}), "utf-8")
    with pytest.raises(Usage, match=r"requestParameters\.a"):
        draft(path)


def test_a_correlation_has_no_preview(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(rule(name="one"), "utf-8")
    other = ID[:-1] + "2"
    counting = {
        "title": "Many",
        "id": other,
        "correlation": {
            "type": "event_count",
            "rules": ["one"],
            "group-by": ["device"],
            "timespan": "1m",
            "condition": {"gte": 3},
        },
    }
    (tmp_path / "b.yml").write_text(yaml.safe_dump(counting), "utf-8")
    with pytest.raises(Usage, match="counts findings"):
        known_rule(compile_rules([tmp_path]), other)
    with pytest.raises(Usage, match="no rule over events"):
        draft(tmp_path / "b.yml")


def test_what_is_found_is_counted_by_time(
    tmp_path: Path, events: duckdb.DuckDBPyConnection
) -> None:
    path = tmp_path / "draft.yml"
    path.write_text(rule(), "utf-8")
    chosen = draft(path)
    assert isinstance(chosen, Rule)
    counts = preview_counts(events, chosen, BASE_TIME, 1)
    assert (len(counts.shown), counts.findings) == (1, 5)
    assert sum(counts.by_time.values()) == counts.findings
    assert list(counts.by_time) == sorted(counts.by_time)
