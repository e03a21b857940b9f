"""The lease lane of an alert says what it has no room for."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api.services.console import lease_spans
from enrich.tables import DHCP_SEGMENT
from tests.alerts.lifecycle.test_alert_fold import NOON
from tests.api.plain_desk import PlainDesk
from tests.headgate.as_code.delta_by_hand import append_rows

pytestmark = pytest.mark.full


def held(number: int, begin: datetime) -> dict[str, Any]:
    """The address, by a client of its own for ten seconds."""
    return {
        "scope": "default", "ip": "10.0.0.5", "seg_start": begin,
        "seg_end": begin + timedelta(seconds=10), "mac": f"02:00:00:00:01:{number:02}",
        "known_at": NOON, "learned_at": NOON, "rev": number, "kind": "lease",
    }  # fmt: skip


def test_more_clients_than_it_has_room_for_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = PlainDesk(tmp_path, devices=1)
    desk.all_tables()
    ann = desk.browser("ann", "analyst")
    (alert,) = desk.client("bob", "read").get("/api/v1/alerts").json()["items"]
    about = datetime.fromisoformat(alert["event_time"])

    def page() -> str:
        return ann.get(f"/alerts/{alert['alert_id']}").text

    times = [about + timedelta(seconds=10 * n) for n in range(-5, 6)]
    rows = [held(n, time) for n, time in enumerate(times)]
    append_rows(desk.settings.lake_root, DHCP_SEGMENT, rows[:8])
    assert "Clients that held the address" in page()
    assert "held it in this time" not in page()
    append_rows(desk.settings.lake_root, DHCP_SEGMENT, rows[8:])
    assert "3 more clients held it in this time" in page()
    assert 'href="/entity/ip/10.0.0.5"' in page()
    assert "nothing is drawn from" not in page()
    monkeypatch.setattr(lease_spans, "MOST", 6)
    assert "nothing is drawn from" in page()
