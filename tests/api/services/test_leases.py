"""Who held this address: how sure that is, as known then, and where configuration decides."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.services.entities import leases
from api.services.reader import Reader
from api.sql.runner import Statements
from headgate.cli import main
from infra.config.settings import ScopeSettings, Settings
from tests.api.story import A, B, at

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "attribution.md"
SITES = (ScopeSettings(name="default", networks=("10.0.0.0/24",), static=("10.0.0.9",)),)


@pytest.fixture
def reader(day_settings: Settings) -> Any:
    made = Reader(day_settings)
    yield made
    made.close()


#   12:00        12:30   12:40        13:00        13:40      14:00
#   A---------------------------------)                        | heartbeat
#                free----------------)     known at 12:30
#                        B-------------------------)   known at 12:40
@pytest.mark.parametrize(
    ("clock", "known_by", "status", "mac"),
    [
        ("12:35", None, "none", None),
        ("12:35", "12:20", "leased", A),
        ("12:35", "12:30", "none", None),
        ("12:45", "12:35", "none", None),
        ("12:45", "12:20", "leased", A),
        ("12:45", "12:40", "leased", B),
        ("12:10", "11:59", "none", None),
    ],
)
def test_the_holder_as_it_was_known_then(
    client: TestClient, clock: str, known_by: str | None, status: str, mac: str | None
) -> None:
    asked = {"ip": "10.0.0.1", "at": at(clock).isoformat()}
    if known_by:
        asked["known_by"] = at(known_by).isoformat()
    found = client.get("/api/v1/leases", params=asked).json()
    assert found["status"] == status
    assert (found["lease"] or {}).get("mac") == mac
    # The only heartbeat came at 14:00: before it nothing was known of the log's completeness.
    assert found["complete_up_to"] == (None if known_by else "2026-11-20T14:00:00Z")
    assert found["confidence"] < 90 if known_by else True
    # Of a lease that ran on beyond what was known, nobody can say that it has expired.
    assert (found["lease"] or {}).get("ended") == ("expired" if mac and not known_by else None)


def test_an_answer_says_how_sure_it_is_and_why(client: TestClient) -> None:
    asked = {"ip": "10.0.0.1", "at": "2026-11-20T12:40:02Z"}
    found = client.get("/api/v1/leases", params=asked).json()
    assert (found["status"], found["lease"]["mac"]) == ("leased", B)
    assert [(rival["kind"], rival["mac"]) for rival in found["rivals"]] == [("superseded", A)]
    assert (found["confidence"], found["certainty"]) == (98 - 15 - 5, "likely")
    assert "the lease began only 2 s before; " in found["reason"]
    # The only DHCP line of the day: it names no server.
    assert [server["last_line_at"] for server in found["servers"]] == ["2026-11-20T12:00:00Z"]


def test_configuration_decides_where_no_lease_can(reader: Reader) -> None:
    told = {
        ip: leases.holder(reader, SITES, ip, at("12:10"))
        for ip in ("10.0.0.9", "192.0.2.1", "10.0.0.8")
    }
    assert {ip: found.status for ip, found in told.items()} == {
        "10.0.0.9": "static",
        "192.0.2.1": "outside",
        "10.0.0.8": "none",
    }
    assert told["10.0.0.9"].scope == "default"
    assert told["192.0.2.1"].reason == "192.0.2.1 lies outside every DHCP scope."
    assert told["10.0.0.8"].complete_up_to == at("14:00")


def test_the_command_asks_as_known_then_and_writes_csv(
    day_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--home", str(day_settings.home), "lease", "10.0.0.1", "--at", at("12:45").isoformat()]
    assert main([*words, "--known-by", at("12:20").isoformat(), "--output", "csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["status"], row["mac"], row["known_by"]) == ("leased", A, "2026-11-20T12:20:00Z")


def documented() -> list[str]:
    """The questions in SQL that the page gives."""
    return re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


ANSWERS = [
    ({"ip": "10.0.0.1", "at": "2026-11-20 12:45:00"}, ["leased", B]),
    ({"ip": "10.0.0.1", "at": "2026-11-20 12:35:00"}, ["none", None]),
]


@pytest.mark.parametrize(("params", "answer"), ANSWERS)
def test_the_page_s_sql_answers_as_known_then_and_now(
    day_settings: Settings, params: dict[str, str], answer: list[Any]
) -> None:
    then, revisions = documented()
    # As the page says: without the fourth condition, what is known now.
    now = re.sub(r"\n  AND s\.known_at <= .*", "", then)
    assert now != then
    running = Statements(day_settings)
    try:
        (told,) = running.run(now, params).rows
        assert told[1:3] == answer
        (told,) = running.run(then, params | {"known_by": "2026-11-20 12:20:00"}).rows
        assert told[1:3] == ["leased", A]
        found = running.run(revisions, {"finding_id": "f-e1"})
        assert [column["name"] for column in found.columns][:3] == ["rev", "via", "attributed_at"]
        assert len(found.rows) >= 1
    finally:
        running.close()
