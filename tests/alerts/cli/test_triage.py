"""`headgate suppress` and `headgate triage`: what a person asks becomes a row of the lake."""

from __future__ import annotations

import argparse
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from alerts.cli import triage
from alerts.lifecycle.suppression import suppression_of
from alerts.tables import ALERT, ALERT_ACTION
from infra.config.settings import Settings, load
from infra.errors import Usage
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming.lake import Lake
from tests.api.story import alert, insert


@pytest.fixture(scope="module")
def lake(spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    home = tmp_path_factory.mktemp("suppress")
    shutil.copytree(empty_tables, home / "lake")
    made = Lake(spark, load(home=home))
    rows = [alert("aaaa1", "12:00"), alert("bbbb1", "12:01")]
    rows[1]["body"] = json.dumps({"alert_id": "bbbb1", "state": "closed", "superseded_by": "aaaa1"})
    insert(made, ALERT, rows)
    return made


def run(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    triage.build(parser.add_subparsers())
    args = parser.parse_args(words)
    code: int = args.run(args, settings)
    return code


def listed(
    settings: Settings, capsys: pytest.CaptureFixture[str], *words: str
) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run(settings, "suppress", "list", "--output", "json", *words) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.full
def test_a_suppression_is_added_listed_with_what_it_silenced_and_ended(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = lake.settings
    spool = settings.home / "spool" / "alert_action"
    words = ("--rule", "ssh_root_login", "--entity", "10.4.0.0/16", "--field", "user.name=svc-*")
    ends = ("--for", "7d", "--reason", "pentest", "--owner", "ann")
    assert run(settings, "suppress", "add", *words, *ends) == 0
    name = capsys.readouterr().out.strip()
    request = json.loads(next(spool.glob("*.json")).read_text())
    kept = suppression_of(request | {"expires_at": datetime.fromisoformat(request["expires_at"])})
    assert (kept.entity, kept.fields) == ("10.4.0.0/16", {"user.name": "svc-*"})
    assert kept.rule != "ssh_root_login", "the rule's id: its short name is on no finding"
    assert flush_outbox(lake, ALERT_ACTION, spool) == 1
    insert(lake, ALERT, [alert("cccc1", "12:02", suppressed_by=name)])
    (row,) = listed(settings, capsys)
    assert (row["suppression_id"], row["state"], row["silenced"]) == (name, "active", 1)
    assert (row["owner"], row["reason"], row["fields"]) == ("ann", "pentest", "user.name=svc-*")
    assert run(settings, "suppress", "remove", name[:6]) == 0
    assert flush_outbox(lake, ALERT_ACTION, spool) == 1
    assert listed(settings, capsys) == []
    (over,) = listed(settings, capsys, "--all")
    assert over["state"] == "ended"
    with pytest.raises(Usage, match="is ended already"):
        run(settings, "suppress", "remove", name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--for", "7d", "--reason", "x"), "silence everything"),
        (("--entity", "**", "--for", "7d", "--reason", "x"), "silence everything"),
        (("--entity", "a", "--for", "7d", "--reason", " "), "say why"),
        (("--entity", "a", "--for", "0d", "--reason", "x"), "over already"),
        (("--entity", "a", "--until", "2020-01-01T00:00:00Z", "--reason", "x"), "over already"),
        (("--entity", "a", "--for", "400d", "--reason", "x"), "longer than a year"),
        (("--entity", "a", "--for", "soon", "--reason", "x"), "--for"),
        (("--rule", "no_such_rule", "--for", "7d", "--reason", "x"), "no rule 'no_such_rule'"),
        (("--field", "user.name", "--for", "7d", "--reason", "x"), "write NAME=PATTERN"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    settings = load(home=tmp_path)
    with pytest.raises(Usage, match=said):
        run(settings, "suppress", "add", *words)
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize("words", [("--entity", "a"), ("--entity", "a", "--for", "7d")])
def test_a_reason_and_an_end_are_demanded(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        run(load(home=tmp_path), "suppress", "add", *words)


@pytest.mark.full
def test_a_request_brings_an_old_alert_along_and_not_a_new_one(
    spark: SparkSession, empty_tables: Path, tmp_path: Path
) -> None:
    shutil.copytree(empty_tables, tmp_path / "lake")
    made = Lake(spark, load(home=tmp_path))
    rows = [alert("aaaa1", "12:00"), alert("bbbb1", "12:01")]
    now = datetime.now(UTC).isoformat()
    rows[1]["body"] = json.dumps(json.loads(rows[1]["body"]) | {"detected_at": now})
    insert(made, ALERT, rows)
    for name in ("aaaa1", "bbbb1"):
        assert run(made.settings, "triage", name, "--assign", "bob") == 0
    spool = tmp_path / "spool"
    asked = [json.loads(file.read_text()) for file in (spool / "alert_action").glob("*.json")]
    brought = {request["alert_id"]: request.get("alert") for request in asked}
    assert brought["bbbb1"] is None
    assert json.loads(brought["aaaa1"]) == json.loads(rows[0]["body"])
    assert flush_outbox(made, ALERT_ACTION, spool / "alert_action") == 2
    told = {row.alert_id: row.alert for row in made.read(ALERT_ACTION).collect()}
    assert told == brought
    assert not any("detected_at" in file.read_text() for file in (spool / "audit").glob("*.json"))


@pytest.mark.full
def test_triage_leaves_the_request_it_was_asked_for(lake: Lake) -> None:
    settings = lake.settings
    spool = settings.home / "spool" / "alert_action"
    assert run(settings, "triage", "aaaa1", "--assign", "bob", "--comment", "mine") == 0
    assert run(settings, "triage", "aaaa1", "--verdict", "benign") == 0
    asked = sorted(
        (request["action"], request["value"], request["comment"])
        for request in (json.loads(file.read_text()) for file in spool.glob("*.json"))
    )
    assert asked == [("assign", "bob", "mine"), ("verdict", "benign", None)]
    with pytest.raises(Usage, match="is open"):
        run(settings, "triage", "aaaa1", "--reopen")
    with pytest.raises(Usage, match="belong to alert aaaa1 now"):
        run(settings, "triage", "bbbb1", "--reopen")
    audited = [json.loads(f.read_text()) for f in (settings.home / "spool/audit").glob("*.json")]
    assert {"alert.assign", "alert.verdict"} <= {row["act"] for row in audited}
    assert datetime.fromisoformat(audited[0]["at"]).tzinfo == UTC
