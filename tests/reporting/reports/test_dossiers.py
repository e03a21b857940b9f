"""Dossiers of a device and of an incident: leases, alerts, evidence with digests."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from alerts.lifecycle.risk_score import INCIDENT
from infra.errors import Usage
from reporting.document.archive import in_form
from reporting.document.content import Report
from reporting.document.mail import text_of
from reporting.reports import device, incident
from tests.api.story import IP, A
from tests.reporting.memory_lake import MemoryLake, story_in_memory

HOME = Path("/nowhere")
TITLE = "SSH password guessing: laptop-a, 20 November 2026 at 12:05 UTC"


@pytest.fixture(scope="module")
def day() -> MemoryLake:
    return story_in_memory()


def dossier(day: MemoryLake, subject: str) -> Report:
    return device.compose(day.request(HOME, "2026-11-20", subject))


@pytest.mark.parametrize(("subject", "leases"), [(A, 1), (A.upper(), 1), ("laptop-a", 1), (IP, 2)])
def test_a_device_is_found_by_what_it_is_called(day: MemoryLake, subject: str, leases: int) -> None:
    report = dossier(day, subject)
    assert len(report.data()["leases"][1]) == leases
    assert "Leases" in in_form(report, "html").decode()


def test_a_device_is_called_by_its_name_and_an_address_of_two_by_itself(day: MemoryLake) -> None:
    assert dossier(day, A).headline == f"Dossier of laptop-a ({A})"
    page = in_form(dossier(day, IP), "html").decode()
    assert f"<h1>Dossier: {IP}</h1>" in page


def test_evidence_has_the_digest_of_the_bytes_as_received(day: MemoryLake) -> None:
    rows = dossier(day, A).data()["evidence"][1]
    assert {row["sha256"] for row in rows} == {hashlib.sha256(b"raw").hexdigest()}
    assert {row["record_id"] for row in rows} == {"e1", "e2"}


def test_an_unknown_device_gives_an_empty_dossier(day: MemoryLake) -> None:
    page = in_form(dossier(day, "nobody"), "html").decode()
    for sentence in ("No lease in this interval.", "No alert.", "no line that is still kept"):
        assert sentence in page


def test_an_incident_is_named_by_its_alert(day: MemoryLake) -> None:
    report = incident.compose(day.request(HOME, "2026-11-20", "alert-1"))
    assert [row["alert_id"] for row in report.data()["alerts"][1]] == ["alert-1"]
    assert {row["mac"] for row in report.data()["leases"][1]} == {A}
    with pytest.raises(Usage, match="there is no such alert"):
        incident.compose(day.request(HOME, "2026-11-20", "alert-9"))


def test_a_dossier_of_an_incident_has_the_alerts_that_led_to_it() -> None:
    lake = story_in_memory()
    for number in (1, 2):
        lake.connection.execute(
            f"""INSERT INTO gold.alert
            SELECT * REPLACE ('incident-{number}' AS alert_id, '{INCIDENT}' AS rule_id,
                              window_end + INTERVAL {number} SECOND AS window_end)
            FROM gold.alert WHERE alert_id = 'alert-1'"""
        )

    def alerts(subject: str) -> set[str]:
        report = incident.compose(lake.request(HOME, "2026-11-20", subject))
        return {row["alert_id"] for row in report.data()["alerts"][1]}

    # Both may have come of it: it is the earlier one's.
    assert alerts("incident-1") == {"incident-1", "alert-1"}
    assert alerts("incident-2") == {"incident-2"}
    assert alerts("alert-1") == {"alert-1"}


def test_a_dossier_is_called_by_what_happened_to_whom_and_when(day: MemoryLake) -> None:
    report = incident.compose(day.request(HOME, "2026-11-20", "alert-1"))
    page = in_form(report, "html").decode()
    heading = re.search("<h1>(.*)</h1>", page)
    assert heading is not None
    assert heading[1] == report.headline
    assert report.headline == TITLE
    assert text_of(report).startswith(TITLE)
    assert "Dossier of an incident <code>alert-1</code>" in page


def test_a_record_of_fields_says_who_asked_whom_for_what() -> None:
    lake = story_in_memory()
    lake.connection.execute(
        "UPDATE silver.event SET message = NULL, src_ip = '10.0.0.1', dst_ip = '203.0.113.9'"
    )
    rows = dossier(lake, A).data()["evidence"][1]
    assert {row["message"] for row in rows} <= {
        "10.0.0.1 to 203.0.113.9", "10.0.0.1 asked for x7.evil.example",
    }  # fmt: skip
    assert rows
