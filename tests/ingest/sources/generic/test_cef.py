"""CEF and LEEF: escapes, labels, times, and the class that an event speaks for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest import conforms
from tests.ingest.logs import good, reason, rows

NET = "src=10.0.0.5 spt=33876 dst=192.0.2.7 dpt=443 proto=TCP"


def cef(extension: str, name: str = "Traffic", level: str = "3", head: str = "") -> str:
    return f"{head}CEF:0|Vendor|Product|1.0|100|{name}|{level}|{extension}"


def told(raw: str, **more: Any) -> dict[str, Any]:
    row = good("cef", raw, **more)
    assert conforms.misfits(row) == []
    assert conforms.faults(row) == []
    assert row == good("cef", raw, **more)
    return row


def test_a_connection() -> None:
    row = told(
        cef(
            NET + " smac=52:54:00:AA:BB:01 shost=pc5 act=blocked in=10 out=20 app=ssl "
            "suser=CORP\\\\ann cs1=out rule cs1Label=Rule deviceDirection=1 dvchost=fw1 "
            "externalId=77 cn1=5 cn1Label=Hits msg=a \\= b\\nc"
        )
    )
    assert (row["class_uid"], row["activity_id"], row["severity_id"]) == (4001, 5, 2)
    assert row["src_endpoint"] == {
        "ip": "10.0.0.5",
        "port": 33876,
        "mac": "52:54:00:aa:bb:01",
        "hostname": "pc5",
    }
    assert (row["action_id"], row["disposition_id"], row["status_id"]) == (2, 2, 2)
    assert (row["traffic"]["bytes_out"], row["traffic"]["bytes_in"]) == (20, 10)
    assert row["firewall_rule"] == {"name": "out rule"}
    assert row["actor"]["user"] == {"name": "ann", "domain": "CORP"}
    assert (row["message"], row["host_name"]) == ("a = b\nc", "fw1")
    assert row["connection_info"]["direction_id"] == 2
    product = row["metadata"]["product"]
    assert (product["vendor_name"], product["name"], product["version"]) == (
        "Vendor",
        "Product",
        "1.0",
    )
    assert (row["metadata"]["event_code"], row["metadata"]["uid"]) == ("100", "77")
    assert json.loads(row["unmapped"]) == {"Hits": "5"}


@pytest.mark.parametrize(
    ("extension", "name", "level", "class_uid"),
    [
        (NET, "Traffic", "3", 4001),
        (NET, "Worm stopped", "10", 2004),
        (NET, "Virus detected", "5", 2004),
        (NET + " duser=ann", "User login", "5", 3002),
        (NET + " request=http://x.org/a requestMethod=GET", "Web request", "low", 4002),
        ("cs1=a", "Started", "1", 0),
        ("", "Nothing", "Unknown", 0),
    ],
)
def test_the_class_is_told_by_the_keys(
    extension: str, name: str, level: str, class_uid: int
) -> None:
    assert told(cef(extension, name, level))["class_uid"] == class_uid


def test_logins() -> None:
    row = told(cef("src=10.0.0.9 suser=ann duser=root outcome=failure", "Authentication", "Low"))
    assert (row["activity_id"], row["status_id"]) == (1, 2)
    assert (row["user"]["name"], row["actor"]["user"]["name"]) == ("root", "ann")
    row = told(cef("src=10.0.0.9 suser=ann", "User logged out", "Low"))
    assert (row["activity_id"], row["status_id"], row["user"]["name"]) == (2, 1, "ann")


def test_pages_and_files() -> None:
    row = told(
        cef(
            NET + " request=https://a.example:8443/x?y=1 requestMethod=POST "
            "requestClientApplication=curl/8 fname=x.exe fileHash=" + "e" * 64,
            "Web request",
        )
    )
    assert (row["activity_id"], row["http_request"]["url"]["hostname"]) == (6, "a.example")
    assert row["file"]["hashes"][0]["algorithm"] == "SHA-256"


@pytest.mark.parametrize(
    ("extension", "time", "quality"),
    [
        ("rt=1772442000123", (9, 123000), "exact"),
        ("rt=1772442000", (9, 0), "exact"),
        ("start=Mar 02 2026 09:00:00.5 UTC", (9, 500000), "exact"),
        ("rt=Mar 02 2026 09:00:00 GMT+01:00", (8, 0), "exact"),
        ("rt=Mar 02 2026 09:00:00", (8, 0), "assumed_zone"),
        ("end=2026-03-02T09:00:00Z", (9, 0), "exact"),
        ("rt=Mar 02 2026 09:00:00 dtz=America/New_York", (14, 0), "assumed_zone"),
        ("rt=nonsense", (7, 0), "assumed_year"),
    ],
)
def test_times(extension: str, time: tuple[int, int], quality: str) -> None:
    row = told(cef(f"{extension} {NET}", head="<134>Mar  2 08:00:00 h "), tz="Europe/Berlin")
    assert (row["time"].hour, row["time"].microsecond) == time
    assert (row["time_quality"], row["host_name"]) == (quality, "h")


@pytest.mark.parametrize(
    "head",
    [
        "",
        "<134>",
        "<134>Mar  2 08:00:00 h ",
        "Mar 02 2026 08:00:00 h ",
        "<14>1 2026-03-02T08:00:00Z h CEF - - - ",
    ],
)
def test_headers_before_it(head: str) -> None:
    assert told(cef(NET, head=head))["src_ip"] == "10.0.0.5"


def test_escapes_in_the_header() -> None:
    row = told("CEF:0|V|Pro\\|duct\\\\|1|sig|a \\| b|3|" + NET)
    assert row["metadata"]["product"]["name"] == "Pro|duct\\"
    assert row["message"] == "a | b"


def test_leef_in_both_versions() -> None:
    pairs = ["src=10.0.0.5", "dst=192.0.2.7", "sev=5", "srcPort=81", "dstPort=21", "usrName=joe"]
    for raw in (
        "LEEF:1.0|Vendor|Product|1.0|41|" + "\t".join(pairs),
        "LEEF:2.0|Vendor|Product|1.0|41|^|" + "^".join(pairs),
        "LEEF:2.0|Vendor|Product|1.0|41|x09|" + "\t".join(pairs),
        "LEEF:2.0|Vendor|Product|1.0|41|0x7C|" + "|".join(pairs),
    ):
        row = told("<13>Mar  2 08:00:00 h " + raw)
        assert row["src_endpoint"] == {"ip": "10.0.0.5", "port": 81}
        assert (row["dst_endpoint"]["port"], row["severity_id"]) == (21, 3)
        assert row["actor"]["user"]["name"] == "joe"


def test_an_address_that_stands_twice_is_none() -> None:
    row = told(cef("msg=x src=6.6.6.6 y src=10.0.0.5 dst=192.0.2.7"))
    assert (row.get("src_ip"), row["dst_ip"]) == (None, "192.0.2.7")
    rest = json.loads(row["unmapped"])
    assert (rest["src_first"], rest["src_again"], rest["ambiguous"]) == (
        "6.6.6.6 y",
        ["10.0.0.5"],
        True,
    )
    escaped = told(cef("request=http://x/?a src\\=6.6.6.6 " + NET))
    assert escaped["src_ip"] == "10.0.0.5"


def test_hostile_lines() -> None:
    row = told(cef("src=6.6.6 spt=99999 dst=192.0.2.7"))
    rest = json.loads(row["unmapped"])
    assert (rest["src"], rest["spt"]) == ("6.6.6", "99999")
    assert "neither 'CEF:0|'" in reason("cef", "hello")
    assert "fields between bars" in reason("cef", "CEF:0|a|b")
    assert "priority" in reason("cef", "<999>" + cef(NET))
    assert len(rows("cef", f"{cef(NET)}\n{cef(NET)}".encode())) == 2
    assert good("cef", cef("a=" + "\\=" * 1_000_000))["class_uid"] == 0
    assert good("cef", cef("b=1 " * 100_000))["class_uid"] == 0


def test_a_line_with_another_time() -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    for raw in (
        cef("rt=1772442000123 " + NET),
        cef(NET + " rt=Mar 02 2026 09:00:00.5 UTC"),
        cef(NET, head="<134>Mar  2 08:00:00 h "),
    ):
        changed = lookup("cef").restamp(raw.encode(), when, ZoneInfo("UTC"))
        assert good("cef", changed)["time"] == when
