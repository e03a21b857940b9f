"""What was seen of a model's drift is told by `status` and by the weekly report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.anomaly.drift_notes import DriftNote, drift_file, drift_findings
from alerts.anomaly.store import ModelHeader, ModelStore, Peers, steps_schema
from alerts.domain.step import STEPS
from alerts.rulebook.rule_store import model_rules
from alerts.rulepack.locations import store_folder
from infra.config.settings import Settings, load
from infra.runtime.check_registry import registered_findings
from reporting.reports import weekly
from tests.reporting.memory_lake import MemoryLake

NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
STEP = "cmd.exe started whoami.exe"


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Settings, str, str]:
    """Settings of a home with a model of steps in force; the rule's id and the model's hash."""
    settings = load(home=tmp_path)
    rule = model_rules(settings).named("device_rare_steps")
    assert rule is not None
    header = ModelHeader(
        rule_id=rule.rule.id, rule_version="1", features=(STEPS,), least={},
        since=NOW - timedelta(days=30), until=NOW - timedelta(days=2),
        trained_at=NOW - timedelta(days=2), history_days=28, devices=1, unjudged=0,
        device_hours=10, peers=(Peers(1, 10, {}),),
    )  # fmt: skip
    row = {"entity": "host|pc1", "peers": 0, "device_days": 28, "step": STEP, "days": 20}
    store = ModelStore(store_folder(settings))
    name = store.put(header, steps_schema().empty_table().from_pylist([row], steps_schema()))
    store.use(rule.rule.id, name)
    return settings, rule.rule.id, name


def note(settings: Settings, rule_id: str, model: str, state: str) -> None:
    seen = DriftNote("device_rare_steps", model, NOW, state, "40 of 400 hours reached score 2")
    drift_file(settings).write({rule_id: seen})


def of_models(settings: Settings) -> list[tuple[str, str | None]]:
    every = registered_findings(settings)
    return [(each.found, each.remedy) for each in every if each.what == "model"]


def test_status_names_the_model_that_is_to_be_trained_again(
    trained: tuple[Settings, str, str],
) -> None:
    settings, rule_id, model = trained
    assert of_models(settings) == [], "nobody looked yet"
    note(settings, rule_id, model, "train again")
    assert of_models(settings) == [
        (
            "device_rare_steps: train again, as of 2026-11-20T09:00Z: 40 of 400 hours reached "
            "score 2",
            "headgate models train device_rare_steps",
        )
    ]
    note(settings, rule_id, model, "stable")
    assert of_models(settings)[0][1] is None
    note(settings, rule_id, "0" * 32, "train again")
    assert of_models(settings) == [], "that model is not in force any more"


def test_damage_of_the_note_is_named_with_its_remedy(trained: tuple[Settings, str, str]) -> None:
    settings, _, _ = trained
    drift_file(settings).path.write_text("{")
    ((found, remedy),) = [(each.found, each.remedy) for each in drift_findings(settings)]
    assert found == "how it drifted cannot be read"
    assert "the next `headgate models retrain` looks anew" in (remedy or "")


def hours(rule_id: str, model: str, many: int) -> list[dict[str, Any]]:
    """Hours of one device, each twelfth of them rare and with a step that nobody ever made."""
    return [
        {"rule_id": rule_id, "model": model, "entity": "host|pc1",
         "hour": NOW - timedelta(hours=n), "events": 1, "bytes_out": 0,
         "bytes_in": 0, "score": 2.5 if n % 12 == 0 else 0.1,
         "top": [{"snippet": "a.exe opened lsass.exe" if n % 12 == 0 else STEP}]}
        for n in range(many)
    ]  # fmt: skip


@pytest.mark.full
def test_the_weekly_report_tells_how_models_fit(trained: tuple[Settings, str, str]) -> None:
    settings, rule_id, model = trained
    lake = MemoryLake()
    report = weekly.compose(lake.request(settings.home, "2026-11-11/2026-11-21"))
    assert "models" not in report.data(), "none judged"
    gone = hours(rule_id, "f" * 32, 1)
    lake.add("gold.device_hour", [*hours(rule_id, model, 201), *gone])
    report = weekly.compose(lake.request(settings.home, "2026-11-11/2026-11-21"))
    rows = {row["model"]: row for row in report.data()["models"][1]}
    assert (rows[model]["state"], rows[model]["hours"], rows[model]["rare"]) == (
        "train again", 201, 17,
    )  # fmt: skip
    assert "8.5% of hours had steps that the training never saw" in rows[model]["sentence"]
    assert rows["f" * 32]["state"] == "unknown"
    assert "no such model" in rows["f" * 32]["sentence"]
