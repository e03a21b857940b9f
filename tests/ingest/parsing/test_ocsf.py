"""OCSF that comes as OCSF goes out as it came."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.ocsf_export import ocsf_object
from ingest.parsing.source import lookup
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import FILES, good, lines, reason, rows

TEN = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
LOGON: dict[str, Any] = {
    "class_uid": 3002,
    "category_uid": 3,
    "activity_id": 1,
    "type_uid": 300201,
    "severity_id": 1,
    "status_id": 1,
    "time": 1795230000000,
    "metadata": {"version": "1.1.0", "product": {"name": "X", "vendor_name": "Y"}, "uid": "u1"},
    "user": {"name": "ann", "groups": [{"name": "g", "uid": "1"}], "type_id": 1},
    "src_endpoint": {"ip": "10.0.0.5", "port": 7},
    "service": {"name": "s"},
    "unmapped": {"a": 1},
}


def changed(**fields: Any) -> str:
    return json.dumps({k: v for k, v in (LOGON | fields).items() if v is not None})


def test_columns_are_filled() -> None:
    found = good("ocsf", changed())
    assert (found["class_uid"], found["activity_id"], found["status_id"]) == (3002, 1, 1)
    assert (found["time"], found["time_quality"]) == (TEN, "exact")
    assert (found["src_ip"], found["user_name"]) == ("10.0.0.5", "ann")
    assert found["metadata"]["uid"] == "u1"
    assert found["unmapped"] == '{"a":1}'
    assert faults(found) == []
    assert misfits(found) == []


def test_what_comes_out_is_what_came_in() -> None:
    fields = LOGON | {
        "raw_data": "x",
        "extra": {"q": [1, {"z": None}, 2.5]},
        "src_endpoint": {"ip": "::ffff:10.0.0.5", "port": 7, "owner": {"name": "o"}},
        "process": {
            "pid": 7,
            "cmd_line": "x",
            "file": {"path": "/x", "name": "x", "type_id": 1, "size": 5},
        },
        "time_dt": "2026-11-21T03:00:00Z",
        "enrichments": [{"name": "n", "value": "v", "data": {}}],
    }
    shown = ocsf_object(good("ocsf", json.dumps(fields)))
    # A logon has no process of its own; what has no place in its class is unmapped.
    assert shown["unmapped"].pop("process") == fields.pop("process") | {"path": "/x"}
    for name, value in fields.items():
        if name != "metadata":
            assert shown[name] == value, name
    assert shown["metadata"]["product"] == {"name": "X", "vendor_name": "Y"}


def test_whose_an_event_is_the_way_in_says_and_not_the_event() -> None:
    about = {"version": "1.8.0", "product": {"name": "X"}, "tenant_uid": "globex"}
    fields = {"class_uid": 0, "type_uid": 0, "time": 1763600000000, "metadata": about}
    row = good("ocsf", json.dumps(fields))
    assert row.get("tenant_uid") is None
    assert ocsf_object(row | {"tenant_uid": "acme"})["metadata"]["tenant_uid"] == "acme"


@pytest.mark.parametrize(("source", "path", "zone"), FILES)
def test_our_own_events_come_back(source: str, path: str, zone: str) -> None:
    for found in rows(source, *lines(path)[:40], tz=zone):
        shown = ocsf_object(found)
        again = ocsf_object(good("ocsf", json.dumps(shown)))
        for one in (shown, again):
            one.pop("metadata")
            one.get("unmapped", {}).pop("metadata", None)
            if not one.get("unmapped"):
                one.pop("unmapped", None)
        assert again == shown


def test_who_collected_it_before_stands_in_unmapped() -> None:
    about = LOGON["metadata"] | {"labels": ["l"], "logged_time": 5, "source": "s3"}
    shown = ocsf_object(good("ocsf", changed(metadata=about)))
    assert shown["metadata"]["source"] == "ocsf"
    assert shown["unmapped"]["metadata"] == {"labels": ["l"], "logged_time": 5, "source": "s3"}


@pytest.mark.parametrize(
    "fields",
    [
        {"time": 1795230000},
        {"time": 1795230000000},
        {"time": "1795230000000"},
        {"time": "2026-11-21T03:00:00Z"},
        {"time": None, "time_dt": "2026-11-21T03:00:00.000Z"},
        {"time_dt": "2026-11-21T04:00:00+01:00"},
    ],
)
def test_the_time_comes_in_several_forms(fields: dict[str, Any]) -> None:
    found = good("ocsf", changed(**fields))
    assert found["time"] == TEN
    assert ocsf_object(found)["time"] == 1795230000000


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"class_uid": None}, "class_uid: expected a whole number, found none"),
        ({"class_uid": "x"}, "class_uid: expected a whole number, found a string"),
        ({"class_uid": 7}, "class_uid: no class 7 in OCSF 1.8.0"),
        ({"type_uid": None}, "type_uid: expected a whole number, found none"),
        ({"type_uid": 300202}, "type_uid: expected 300201 of class 3002 and activity 1"),
        ({"activity_id": None, "type_uid": 400101}, "type_uid: 400101 is none of class 3002"),
        ({"activity_id": 55, "type_uid": 300255}, "activity_id: Authentication has no activity 55"),
        ({"category_uid": 4}, "category_uid: expected 3 of class 3002, found 4"),
        ({"severity_id": 42}, "severity_id: 42 is none of OCSF's"),
        ({"time": None}, "no 'time' in the object"),
        ({"time": "soon"}, "time: not a time: 'soon'"),
        ({"time": True}, "time: not a time: 'True'"),
        ({"time_dt": "2020-01-01T00:00:00Z"}, "time_dt: 2020-01-01T00:00:00Z is another time"),
    ],
)
def test_contradictions_are_refused_with_their_place(fields: dict[str, Any], why: str) -> None:
    assert why in reason("ocsf", changed(**fields))


def test_what_is_missing_is_derived() -> None:
    found = good("ocsf", changed(activity_id=None, category_uid=None, severity_id=None))
    assert (found["activity_id"], found["activity_name"], found["severity_id"]) == (1, "Logon", 0)


def test_odd_values_stay_and_fill_no_column() -> None:
    odd = {
        "src_endpoint": {"ip": "nowhere", "port": 99999, "hostname": 5},
        "user": "ann",
        "actor": [],
        "metadata": 7,
        "observables": [1, {"name": "n"}],
        "status_id": "x",
        "start_time": 10**18,
        "unmapped": "text",
        "duration": 2**62,
    }
    found = good("ocsf", changed(**odd))
    assert misfits(found) == []
    assert found.get("src_ip") is None
    shown = ocsf_object(found)
    for name in ("src_endpoint", "user", "actor", "observables", "start_time", "duration"):
        assert shown[name] == odd[name], name
    assert shown["unmapped"] == {"unmapped": "text", "metadata": 7}


@pytest.mark.parametrize("value", [5, [], "x", {"http_method": []}, {"http_method": {"a": 1}}])
def test_an_odd_request_can_be_shown(value: Any) -> None:
    request = {"class_uid": 4002, "category_uid": 4, "type_uid": 400201, "http_request": value}
    shown = ocsf_object(good("ocsf", changed(**request)))
    assert shown["class_uid"] == 4002
    assert "http_request" in shown["unmapped"] or "http_method" in shown["unmapped"]


def test_a_findings_status_has_its_own_names() -> None:
    finding = {
        "class_uid": 2004,
        "activity_id": 1,
        "type_uid": 200401,
        "severity_id": 4,
        "status_id": 1,
        "status": "New",
        "time": 1795230000000,
        "metadata": {"version": "1.8.0", "product": {"name": "X"}},
        "finding_info": {"uid": "f", "title": "t", "related_events": [{"uid": "e"}]},
    }
    shown = ocsf_object(good("ocsf", json.dumps(finding)))
    assert (shown["status"], shown["finding_info"]) == ("New", finding["finding_info"])


def test_the_time_is_rewritten_in_its_unit() -> None:
    when = datetime(2031, 7, 9, 5, 4, 3, 210987, UTC)
    moved = lookup("ocsf").restamp(changed().encode(), when, ZoneInfo("UTC"))
    assert json.loads(moved) == LOGON | {"time": 1941339843210}
    moved = lookup("ocsf").restamp(changed(time=1795230000).encode(), when, ZoneInfo("UTC"))
    assert json.loads(moved)["time"] == 1941339843
