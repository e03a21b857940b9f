"""Acts on many alerts in one call: all or none, by ids that may be shortened."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pytest

from alerts.cli import alerts, triage
from alerts.delivery.reader import Wanted, newest_revisions
from infra.errors import Usage
from tests.alerts.lifecycle.test_alert_fold import action
from tests.api.plain_desk import PlainDesk


@pytest.fixture
def desk(tmp_path: Path) -> PlainDesk:
    return PlainDesk(tmp_path)


def ids(desk: PlainDesk) -> list[str]:
    rows, _ = newest_revisions(desk.settings, Wanted())
    return [str(row["alert_id"]) for row in rows]


def run(desk: PlainDesk, *words: str) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    alerts.build(commands)
    triage.build(commands)
    args = parser.parse_args(words)
    code: int = args.run(args, desk.settings)
    return code


def asked(desk: PlainDesk) -> list[dict[str, Any]]:
    folder = desk.settings.home / "spool" / "alert_action"
    rows = [json.loads(file.read_text("utf-8")) for file in folder.glob("*.json")]
    return sorted(rows, key=lambda row: str(row["alert_id"]))


def test_many_are_closed_in_one_call(desk: PlainDesk, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = sorted(ids(desk))
    assert run(desk, "alerts", "close", first[:12], second, second[:12], "--verdict", "benign") == 0
    assert [(row["alert_id"], row["action"], row["value"]) for row in asked(desk)] == [
        (first, "close", "benign"),
        (second, "close", "benign"),
    ], "each once"
    assert "asked to close 2 alerts" in capsys.readouterr().err
    assert third not in str(asked(desk))


def test_ids_come_from_standard_input(desk: PlainDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(ids(desk)) + "\n"))
    assert run(desk, "triage", "-", "--assign", "bob") == 0
    assert [(row["action"], row["value"]) for row in asked(desk)] == [("assign", "bob")] * 3
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    with pytest.raises(Usage, match="standard input names no alert"):
        run(desk, "triage", "-")


def test_where_one_cannot_be_none_is_asked(desk: PlainDesk) -> None:
    first, second, _ = ids(desk)
    desk.batch(action(second, "close", value="benign"))
    with pytest.raises(Usage, match=f"alert {second} is closed already"):
        run(desk, "alerts", "close", first, second)
    with pytest.raises(Usage, match=f"alert {first} is open"):
        run(desk, "triage", second, first, "--reopen")
    with pytest.raises(Usage, match="nosuch"):
        run(desk, "triage", first, "nosuch")
    assert asked(desk) == []


def test_the_list_finds_whomever_an_alert_names(desk: PlainDesk) -> None:
    every, _ = newest_revisions(desk.settings, Wanted())
    for written in ("ROOT", "02:00:00:00:00:01"):
        rows, _ = newest_revisions(desk.settings, Wanted(entity=written))
        assert rows, written
        assert len(rows) <= len(every)
    assert newest_revisions(desk.settings, Wanted(entity="nobody"))[0] == []
