"""Who used a device, and what the inventories know of it, over the API."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pyspark.sql import SparkSession

from api.app import create_app
from api.who_cli import run_who
from enrich.assets.user_evidence import MOST_ASKED
from enrich.tables import DHCP_SEGMENT
from enrich.tables_assets import ASSET_VERSION, USER_VERSION
from infra.config.settings import load
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.api.story import IP, A, B, at, event, insert, segment

TOKEN = {"Authorization": "Bearer t"}
SSH = {"metadata": {"product": {"name": "OpenSSH"}}}
KERBEROS = {"activity_id": 3, "auth_protocol": "Kerberos", "source": "zeek:kerberos"}


def said(clock: str, **more: Any) -> dict[str, Any]:
    return {
        "inventory": "default",
        "valid_from": at(clock),
        "loaded_at": at(clock),
        "gone": False,
        **more,
    }


@pytest.fixture(scope="module")
def lake(spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """One lake for these tests: the one that writes asks for what no other asks for."""
    home = tmp_path_factory.mktemp("house")
    shutil.copytree(empty_tables, home / "lake")
    return Lake(spark, load(home=home))


@pytest.fixture(scope="module")
def house(lake: Lake) -> TestClient:
    ticket = {"src_ip": IP, "status_id": 1, **KERBEROS}
    insert(
        lake,
        EVENT,
        [
            event("k1", "12:05", user_name="ann", user={"name": "ann", "domain": "CORP"}, **ticket),
            event("k2", "12:45", user_name="bob", **ticket),
            event("s1", "12:06", user_name="root", src_ip=IP, status_id=1, **SSH),
            event("s2", "12:07", user_name="eve", src_ip=IP, status_id=2, **SSH),
        ],
    )
    insert(lake, DHCP_SEGMENT, [segment(1, "12:00", "13:00", A), segment(3, "12:40", "13:40", B)])
    insert(
        lake,
        ASSET_VERSION,
        [
            said("00:00", asset_id="1", macs=[A], owner="ann", hostnames=["laptop-a"]),
            said("12:30", asset_id="1", macs=[A], owner="zoe", hostnames=["laptop-a"]),
        ],
    )
    people = [said("00:00", user_id="1", name="ann", aliases=["corp\\ann"], department="IT")]
    insert(lake, USER_VERSION, people)
    settings = load(home=lake.settings.home, api={"token": "t"})
    return TestClient(create_app(settings), raise_server_exceptions=False, headers=TOKEN)


def get(client: TestClient, path: str, **params: Any) -> Any:
    answered = client.get(f"/api/v1/entities/{path}", params=params)
    assert answered.status_code == 200, answered.text
    return answered.json()


def test_an_address_is_asked_through_the_device_that_held_it(house: TestClient) -> None:
    first = get(house, f"ip/{IP}/witnesses", at="2026-11-20T12:10:00Z")
    assert (first["mac"], first["scope"]) == (A, "default")
    assert [(one["name"], one["kinds"]) for one in first["users"]] == [
        ("ann", ["kerberos"]),
        ("root", ["ssh"]),
    ]
    ann = first["users"][0]
    assert ann["evidence"] == ["k1:0"]
    assert 0 < ann["strength"] <= 90
    assert ann["user"]["department"] == "IT"
    assert first["users"][1]["user"] is None
    second = get(house, f"ip/{IP}/witnesses", at="2026-11-20T12:50:00+00:00")
    assert (second["mac"], [one["name"] for one in second["users"]]) == (B, ["bob"])
    later = get(house, f"mac/{A}/witnesses", at="2026-11-20T14:00:00Z")
    assert [one["name"] for one in later["users"]] == ["ann"]
    assert get(house, "host/unheard/witnesses", at="2026-11-20T12:10:00Z")["users"] == []


def test_the_inventory_answers_as_of_an_instant(house: TestClient) -> None:
    owners = {
        clock: get(house, f"mac/{A}/inventory", at=f"2026-11-20T{clock}:00Z")["asset"]["owner"]
        for clock in ("12:29", "12:30")
    }
    assert owners == {"12:29": "ann", "12:30": "zoe"}
    assert get(house, "host/LAPTOP-A/inventory")["asset"]["matched_by"] == "hostname"
    user = get(house, "user/corp%5Cann/inventory")
    assert (user["user"]["user_id"], user["asset"]) == ("1", None)
    before = get(house, f"mac/{A}/inventory", at="2026-11-19T00:00:00Z")
    assert (before["asset"], before["user"]) == (None, None)
    assert get(house, "domain/evil.example/inventory")["asset"] is None


def test_the_command_names_users_device_and_evidence(
    house: TestClient, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    def who(value: str, at: str, form: str = "csv") -> tuple[int, list[str], str]:
        asked = Namespace(value=value, at=at, scope=None, output=form)
        code = run_who(asked, load(home=lake.settings.home))
        told = capsys.readouterr()
        return code, told.out.splitlines(), told.err

    code, lines, device = who(IP, "2026-11-20T12:10:00Z")
    assert (code, f"was leased to {A}" in device) == (0, True)
    assert [line.split(",")[0] for line in lines] == ["name", "ann", "root"]
    assert "k1:0" in lines[1]
    assert who(B.replace(":", "-"), "2026-11-20T12:50:00Z")[1][1].startswith("bob,")
    code, lines, said_so = who("laptop-z", "2026-11-20T12:50:00Z", "table")
    assert (code, lines) == (1, [])
    assert "no witness" in said_so
    assert json.loads(who(IP, "2026-11-20T12:50:00Z", "json")[1][0])["mac"] == B


@pytest.mark.full
def test_witnesses_beyond_those_looked_at_are_said_to_be_there(
    house: TestClient, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    bastion = {"src_ip": "10.0.9.9", "status_id": 1, **SSH}
    loud = [event(f"m{n}", "10:30", user_name="max", **bastion) for n in range(MOST_ASKED)]
    insert(lake, EVENT, [event("o1", "10:00", user_name="old", **bastion), *loud])
    later = get(house, "ip/10.0.9.9/witnesses", at="2026-11-20T10:40:00Z")
    assert ([one["name"] for one in later["users"]], later["more"]) == (["max"], True)
    before = get(house, "ip/10.0.9.9/witnesses", at="2026-11-20T10:10:00Z")
    assert ([one["name"] for one in before["users"]], before["more"]) == (["old"], False)

    asked = Namespace(value="10.0.9.9", at="2026-11-20T10:40:00Z", scope=None, output="csv")
    assert run_who(asked, load(home=lake.settings.home)) == 0
    assert "only the newest 2,000 events" in capsys.readouterr().err


def test_a_new_inventory_is_seen_by_the_next_question(house: TestClient, lake: Lake) -> None:
    assert get(house, f"mac/{B}/inventory")["asset"] is None
    insert(lake, ASSET_VERSION, [said("00:00", asset_id="2", macs=[B], owner="bob")])
    assert get(house, f"mac/{B}/inventory")["asset"]["owner"] == "bob"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("mac/zz/witnesses?at=2026-11-20T12:10:00Z", 422),
        ("ip/10.0.0.300/inventory", 422),
        ("ip/10.0.0.1/witnesses", 422),
        ("ip/10.0.0.1/witnesses?at=2026-11-20T12:10:00", 422),
        ("user/ann/witnesses?at=2026-11-20T12:10:00Z", 422),
    ],
)
def test_wrong_questions_are_problems(client: TestClient, path: str, status: int) -> None:
    answered = client.get(f"/api/v1/entities/{path}")
    assert answered.status_code == status
    assert answered.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("at", "status"),
    [
        ("1900-01-02T00:00:00Z", 200),
        ("9899-12-30T00:00:00Z", 200),
        ("1899-12-30T00:00:00Z", 422),
        ("0001-01-01T00:00:00Z", 422),
        ("9999-12-31T23:59:59Z", 422),
        ("9999-12-31T23:59:59-12:00", 422),
    ],
)
@pytest.mark.parametrize("question", ["witnesses", "inventory"])
def test_an_instant_at_the_end_of_time_knows_nobody_or_is_refused(
    client: TestClient, question: str, at: str, status: int
) -> None:
    answered = client.get(f"/api/v1/entities/mac/{A}/{question}", params={"at": at})
    assert answered.status_code == status
    if status == 200:
        assert not answered.json().get("users")
        assert not answered.json().get("asset")
    else:
        assert "lies beyond the years" in answered.json()["detail"]


def test_both_want_the_token(client: TestClient) -> None:
    for path in (f"ip/{IP}/witnesses?at=2026-11-20T12:10:00Z", f"mac/{A}/inventory"):
        answered = client.get(f"/api/v1/entities/{path}", headers={"Authorization": "Bearer x"})
        assert answered.status_code == 401
