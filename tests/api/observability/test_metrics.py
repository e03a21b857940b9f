"""What /metrics says while the lake is slow or away, and beside a file that cannot be read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.auth import token_of
from api.observability.metrics import Meters
from api.services.reader import Reader
from infra.config.settings import load
from infra.errors import Fatal
from ingest.completeness.ledger_state import LedgerCheckState, ledger_check_folder
from tests.full import rest_full

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROW = dict.fromkeys(("batches", "rows_read", "rows_dead", "rows_late", "rows_written"), 7)
ROW |= {"cpu_seconds": 41.5, "cpu_between_seconds": None}


class Slow:
    """A lake that answers late, and only as often as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.takes = 0.0
        self.asked = 0
        self.answers: list[list[dict[str, Any]]] = []
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: NOW.timestamp() + self.now)
        monkeypatch.setattr("api.observability.metrics.time", clock)

    def rows(self, *_: object, **__: object) -> list[dict[str, Any]]:
        self.asked += 1
        self.now += self.takes
        if not self.answers:
            raise Fatal("gone")
        return self.answers.pop(0)


@pytest.mark.full
def test_a_ledger_that_takes_long_to_fold_is_asked_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meters, reader = Meters(load(home=tmp_path)), Slow(monkeypatch)
    # Every ten seconds; a twentieth of the time; once a minute at least, however long it takes.
    for takes, asked in ((0.01, 60), (2.0, 14), (4.0, 9), (30.0, 7)):
        reader.takes, reader.asked = takes, 0
        until = reader.now + 600
        while reader.now < until:
            assert b"headgate_lake_up 0.0" in meters.text(cast(Reader, reader))
            reader.now += 0.5
        assert asked - 2 <= reader.asked <= asked + 1


def test_ages_grow_on_between_two_looks_and_while_the_lake_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meters, reader = Meters(load(home=tmp_path)), Slow(monkeypatch)
    newest = {"job": "ingest", "finished_at": NOW - timedelta(seconds=5), "seconds": 9.0}
    reader.answers = [[], [newest | ROW | {"within": [7] * 8}]]
    reader.takes = 2.0

    def told() -> tuple[float, float]:
        text = meters.text(cast(Reader, reader)).decode()
        (age,) = re.findall(
            r'^headgate_job_since_batch_seconds{headgate_job="ingest"} (\S+)', text, re.M
        )
        (up,) = re.findall(r"^headgate_lake_up (\S+)", text, re.M)
        return float(age), float(up)

    assert told() == (9.0, 1.0)
    text = meters.text(cast(Reader, reader)).decode()
    assert 'headgate_job_cpu_seconds_total{headgate_job="ingest"} 41.5' in text
    assert "headgate_job_cpu_between_seconds_total{" not in text, "nobody knows it"
    reader.now += 30
    assert told() == (39.0, 1.0), "it is not asked anew so soon after an answer that took long"
    reader.now += 31
    age, up = told()
    assert age >= 70
    assert up == 0
    assert "headgate_job_batches" in meters.text(cast(Reader, reader)).decode()


@pytest.mark.parametrize(
    "content",
    rest_full(2, ['{"at":"garbage"}', '{"at":7}', '{"at":"2026-11-20T12:00:00"}', "[]", "{", None]),
)
def test_what_a_check_left_and_cannot_be_read_costs_no_other_metric(
    tmp_path: Path, content: str | None
) -> None:
    settings = load(home=tmp_path)
    file = ledger_check_folder(settings) / "check.json"
    file.parent.mkdir(parents=True)
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
    client = TestClient(create_app(settings))
    client.headers["Authorization"] = f"Bearer {token_of(settings)}"
    answered = client.get("/metrics")
    assert answered.status_code == 200
    assert "\nheadgate_ledger_passed " not in answered.text
    assert "\nheadgate_job_up{" in answered.text
    if content is not None:
        LedgerCheckState(at=datetime.now(UTC).isoformat()).save(file.parent)
        assert "\nheadgate_ledger_passed 1.0" in client.get("/metrics").text
