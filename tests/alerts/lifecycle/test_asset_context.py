"""Alerts told with what the inventories know: the asset, others that are named, the user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import alerts
from alerts.lifecycle.alert_job import Outputs
from alerts.lifecycle.asset_context import in_context, raised
from alerts.lifecycle.payloads import pack_row
from alerts.tables import ALERT
from enrich.assets.index import AssetIndex, build
from enrich.assets.registers import CRITICALITIES
from enrich.tables_assets import ASSET_VERSION, USER_VERSION
from infra.delta.parquet_writer import Target, arrow_schema
from tests.enrich.assets.test_registers import asset, user
from tests.enrich.rows import A, B, at

LISTED = [
    asset("laptop", 0, macs=[A], owner="ann", criticality="medium"),
    asset("laptop", 100, macs=[A], owner="bob", criticality="high"),
    asset("printer", 0, ips=["10.0.0.7"]),
    asset("database", 0, hostnames=["db1.corp.example"], criticality="critical"),
    asset("guests", 0, ips=["10.0.0.0/24"]),
]
USERS = [user("1", 0, name="ann", department="Finance")]

CONTRACT = json.loads((Path(alerts.__file__).parent / "alert.schema.json").read_text("utf-8"))
SCHEMA = Draft202012Validator(CONTRACT | {"required": []})
"""The contract, for a part of a body."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "1-1.sqlite"
    build(
        made,
        pa.Table.from_pylist(LISTED, arrow_schema(ASSET_VERSION)),
        pa.Table.from_pylist(USERS, arrow_schema(USER_VERSION)),
    )
    return made


def alert(
    second: float, status: str = "leased", mac: str | None = A, **more: Any
) -> dict[str, Any]:
    """A row of gold.alert with as much of its body as matters here."""
    entity = (
        {"type": "device", "value": mac}
        if status == "leased"
        else {"type": "ip", "value": "10.0.0.7"}
    )
    body = {
        "risk_score": 50,
        "entity": entity,
        "entities": [entity, {"type": "ip", "value": "10.0.0.7"}, *more.pop("named", ())],
        "attribution": {"status": status, "mac": mac, "hostname": None, "scope": "default"},
        "later": {"kept": True},
    }
    return {
        "alert_id": "a",
        "event_time": at(second),
        "src_ip": "10.0.0.7",
        "risk_score": 50,
        "body": body | more,
    }


def told(row: dict[str, Any], file: Path | None) -> dict[str, Any]:
    found = in_context(row, AssetIndex(file) if file else None)
    body: dict[str, Any] = found["body"]
    assert body["risk_score"] == found["risk_score"]
    assert body["later"] == {"kept": True}
    SCHEMA.validate({name: body[name] for name in ("asset", "other_assets", "user")})
    return body


def test_the_device_that_had_the_address_is_the_asset_as_it_was_then(file: Path) -> None:
    before, after = told(alert(99), file), told(alert(100), file)
    assert (before["asset"]["asset_id"], before["asset"]["owner"]) == ("laptop", "ann")
    assert after["asset"]["owner"] == "bob"
    assert after["asset"]["matched_by"] == "mac"
    assert (before["risk_score"], after["risk_score"]) == (50, 55)


def test_an_address_leased_to_a_stranger_is_not_the_printer_that_claims_it(file: Path) -> None:
    stranger = told(alert(1, mac=B), file)
    assert (stranger["asset"]["asset_id"], stranger["asset"]["matched_by"]) == ("guests", "network")
    static = told(alert(1, status="outside", mac=None), file)
    assert (static["asset"]["asset_id"], static["asset"]["matched_by"]) == ("printer", "ip")


def test_the_attacked_host_and_the_user_are_told_too(file: Path) -> None:
    named = (
        {"type": "host", "value": "db1"},
        {"type": "user", "value": "nobody"},
        {"type": "user", "value": "CORP\\ann"},
        {"type": "ip", "value": "192.0.2.1"},
    )
    body = told(alert(1, named=named), file)
    assert [one["asset_id"] for one in body["other_assets"]] == ["database"]
    assert body["other_assets"][0]["named"] == {"type": "host", "value": "db1"}
    assert body["user"]["department"] == "Finance"
    assert body["risk_score"] == 60


def test_a_host_is_looked_up_by_its_name(file: Path) -> None:
    row = alert(1, "unknown", None, entity={"type": "host", "value": "DB1.corp.example"})
    body = told(row | {"src_ip": None}, file)
    assert body["asset"]["asset_id"] == "database"


def test_without_an_inventory_an_alert_says_so_and_stays_as_it_was() -> None:
    body = told(alert(1), None)
    assert (body["asset"], body["other_assets"], body["user"]) == (None, [], None)
    assert body["risk_score"] == 50


@given(st.integers(0, 100), st.lists(st.none() | st.sampled_from(CRITICALITIES)))
def test_risk_rises_with_the_most_critical_and_stays_within_bounds(
    risk: int, known: list[str | None]
) -> None:
    found = raised(risk, known)
    assert risk <= found <= 100
    assert found == raised(risk, [*known, "low", "medium", None])
    assert raised(risk, [*known, "critical"]) == min(100, risk + 10)


def test_the_worker_writes_what_the_inventories_know(file: Path, tmp_path: Path) -> None:
    """As job `alert` runs it, and twice with one index: a retry writes the same body."""
    row = alert(100)
    payload = pack_row(dict.fromkeys(ALERT.schema.fieldNames()) | row)
    batch = pa.RecordBatch.from_pydict({"out": ["alert"], "payload": [payload]})
    bodies = []
    for run in ("first", "again"):
        folder = tmp_path / run
        folder.mkdir()
        target = Target.of(ALERT, folder, "alert-0-")
        made = list(Outputs({ALERT.name: target}, 0, 1, str(file))(iter([batch])))
        written = pq.read_table(folder / made[0].column("name")[0].as_py()).to_pylist()
        bodies.append((written[0]["body"], written[0]["risk_score"]))
    assert bodies[0] == bodies[1]
    assert json.loads(bodies[0][0])["asset"]["owner"] == "bob"
    assert bodies[0][1] == 55
