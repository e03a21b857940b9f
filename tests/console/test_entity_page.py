"""The page of a device: its risk, and what is told as known now beside what was known then."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.credentials import Credentials
from api.services.console import lease_spans
from infra.config.settings import load
from tests.alerts.tuning.history import Asked
from tests.api.story import IP, A, B, alert, at
from tests.reporting.memory_lake import MemoryLake

SPAN = "since=2026-11-20&until=2026-11-21"


def risky(alert_id: str, risk: int, lifecycle: str, entity: str = A) -> dict:
    row = alert(alert_id, "12:05", risk_score=risk, entity_value=entity)
    return row | {"body": json.dumps(json.loads(row["body"]) | {"lifecycle": lifecycle})}


@pytest.fixture
def browser(tmp_path):
    settings = load(home=tmp_path)
    app = create_app(settings)
    rows = [risky("a", 55, "new"), risky("b", 90, "closed"), risky("c", 20, "triaged"),
            risky("d", 80, "closed", B)]  # fmt: skip
    reader = Asked(MemoryLake().add("gold.alert", rows))
    app.state.services = replace(app.state.services, reader=reader)
    _, key = Credentials(settings).add_key("ann", "read")
    client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    assert client.post("/login", data={"key": key}).status_code == 303
    return client


def test_the_risk_of_a_device_is_the_highest_of_its_alerts_that_are_not_closed(browser):
    assert "risk <b>55</b>" in browser.get(f"/entity/mac/{A}?{SPAN}").text
    closed = browser.get(f"/entity/mac/{B}?{SPAN}")
    assert closed.status_code == 200
    assert "risk <b>" not in closed.text


def test_what_is_not_told_as_of_then_says_so(browser):
    words = "by leases as known now"
    assert words not in browser.get(f"/entity/mac/{A}?{SPAN}").text
    assert words in browser.get(f"/entity/mac/{A}?{SPAN}&known_by=2026-11-20T12:10:00Z").text


def held(number, device):
    """That a device held the address in an hour."""
    start, end = at(f"{number:02}:00"), at(f"{number + 1:02}:00")
    return {
        "scope": "default", "ip": IP, "kind": "lease", "rev": number + 1, "seg_start": start,
        "seg_end": end, "mac": f"02:00:00:00:01:{device:02}", "hostname": f"host-{device:02}",
        "session_id": str(number), "known_at": start, "learned_at": start,
    }  # fmt: skip


@pytest.mark.full
def test_of_many_who_held_an_address_those_who_held_it_last_are_drawn(browser):
    # Whoever had it first has it again now.
    segments = [held(number, number) for number in range(11)] + [held(11, 0)]
    reader = Asked(MemoryLake().add("silver.dhcp_segment", segments))
    app = browser.app
    app.state.services = replace(app.state.services, reader=reader)
    text = browser.get(f"/entity/ip/{IP}?{SPAN}").text
    drawn = re.findall(r'<text class="[^"]*" x="0" y="[^"]*">(host-\d+)</text>', text)
    assert drawn == ["host-00", *(f"host-{number:02}" for number in range(4, 11))]
    assert "3 older rows of leases not drawn" in text


def test_leases_that_are_too_many_to_go_through_say_from_when_on_none_is_shown(monkeypatch):
    # Whoever has it first would have it all the time, but for what comes later.
    segments = [held(1, 1), held(2, 2), held(3, 3), held(4, 4)]
    segments[0] |= {"seg_end": at("05:00")}
    reader = Asked(MemoryLake().add("silver.dhcp_segment", segments))
    asked = {"ip": IP, "since": at("00:00"), "until": at("06:00")}
    whole, cut = lease_spans.lease_spans(reader, **asked)
    assert cut is None
    monkeypatch.setattr(lease_spans, "MOST", 3)
    few, cut = lease_spans.lease_spans(reader, **asked)
    assert cut == at("04:00")
    assert few == whole[:3]
    monkeypatch.setattr(lease_spans, "MOST", 1)
    (first,), cut = lease_spans.lease_spans(reader, **asked)
    assert (first.start, first.end, cut) == (at("01:00"), at("02:00"), at("02:00"))


@pytest.mark.full
def test_the_page_says_from_when_on_no_lease_is_shown(browser, monkeypatch):
    reader = Asked(MemoryLake().add("silver.dhcp_segment", [held(1, 1), held(2, 2)]))
    browser.app.state.services = replace(browser.app.state.services, reader=reader)
    words = "on none is shown. Choose a shorter time."
    assert words not in browser.get(f"/entity/ip/{IP}?{SPAN}").text
    monkeypatch.setattr(lease_spans, "MOST", 1)
    assert words in browser.get(f"/entity/ip/{IP}?{SPAN}").text
