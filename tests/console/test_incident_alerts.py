"""An incident shows the alerts that made it, and those that came since."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from alerts.lifecycle.risk_score import INCIDENT
from alerts.tables import ALERT
from api.services.console.attack_axis import alerts_of_incident, incidents
from infra.delta.catalog import table
from tests.alerts.lifecycle.test_alert_fold import NOON
from tests.api.plain_desk import PlainDesk
from tests.headgate.as_code.delta_by_hand import append_rows

DEVICE, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"


def row(name: str, begin: int, end: int, **more: Any) -> Mapping[str, Any]:
    """An alert of the device whose findings lie between two seconds after noon."""
    return {
        "alert_id": name, "revision": 1, "rule_id": name, "rule_name": name, "level": "high",
        "severity_id": 4, "entity_type": "device", "entity_value": DEVICE, "reason": "first",
        "event_time": NOON + timedelta(seconds=end), "count": 1, "risk_score": 60, "body": "{}",
        "window_start": NOON + timedelta(seconds=begin),
        "window_end": NOON + timedelta(seconds=end), **more,
    }  # fmt: skip


def test_alerts_that_led_to_an_incident_belong_to_it(tmp_path: Path) -> None:
    desk = PlainDesk(tmp_path, devices=1)
    rows = (
        row("guessed", 0, 40),
        row("made", 38, 45, rule_id=INCIDENT),
        row("since", 60, 61, incident_id="made"),
        row("earlier", -900, -800),
        row("another", 0, 40, entity_value=OTHER),
    )
    append_rows(desk.settings.lake_root, ALERT, list(rows))
    reader = desk.app.state.services.reader
    of_it = alerts_of_incident(reader, "made")
    assert [(each["alert_id"], each["led"]) for each in of_it] == [
        ("guessed", True), ("made", False), ("since", False),
    ]  # fmt: skip
    (incident,) = incidents(reader, closed=False)
    assert (incident["alerts"], incident["rules"]) == (2, 2)
    append_rows(desk.settings.lake_root, table("ops.case_act"), [])
    page = desk.browser("ann", "admin")
    text = page.get("/incidents/made").text
    assert "1 alert led to the incident" in text, text[text.find("<h1>") :]
