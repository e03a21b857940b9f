"""What forms Zscaler's feeds come in together, and what a stranger's words cannot do in them."""

from __future__ import annotations

import json

import pytest

from tests.ingest.logs import good, reason, rows
from tests.ingest.sources.documented_logs import ZIA_CEF, ZIA_FW, ZIA_WEB, array, zia
from tests.ingest.sources.documented_records import IP, USER


def test_a_batch_of_cloud_nss_is_its_records() -> None:
    raws = [zia("web", **ZIA_WEB), zia("fw", **ZIA_FW)]
    for batch in (array(*raws), "\n".join(raws).encode(), f"<134>{raws[0]}\n{raws[1]}".encode()):
        assert [row["class_uid"] for row in rows("zscaler", batch)] == [4002, 4001]


def test_lines_of_cef_in_one_record_are_events_each() -> None:
    line = ZIA_CEF.format(action="Allowed", reason="x", agent="curl/8", threat="None")
    found = rows("zscaler", f"{line}\nnonsense\n{line}".encode())
    assert [bool(row.get("dead_letter_reason")) for row in found] == [False, True, False]


def test_a_browsers_name_forges_nothing_in_cef() -> None:
    agent = "x suser=root src=6.6.6.6 act=Allowed"
    row = good("zscaler", ZIA_CEF.format(action="Blocked", reason="x", agent=agent, threat="None"))
    assert row.get("user_name") is None
    assert "6.6.6.6" not in (row.get("src_ip") or "")
    assert json.loads(row["unmapped"])["ambiguous"] is True


def test_a_browsers_name_forges_nothing_between_tabs() -> None:
    line = "2026-03-02 09:00:00\taction=Blocked\turlcategory=x\tuseragent=x user=root\tuser=" + USER
    assert good("zscaler", line)["user_name"] == USER
    assert good("zscaler", line + "\tuser=root").get("user_name") is None


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("h.example/a", "h.example", "/a"),
        ("h.example:8443/a?x=http://y/", "h.example", "/a"),
        ("user@evil.example/a", "evil.example", "/a"),
        ("http://h.example/a", "h.example", "/a"),
        ("[2001:db8::1]:443/a", "2001:db8::1", "/a"),
    ],
)
def test_a_url_without_a_scheme_has_its_host(url: str, host: str, path: str) -> None:
    row = good("zscaler", zia("web", **ZIA_WEB | {"url": url, "hostname": host}))
    assert row["http_request"]["url"]["hostname"] == host
    assert row["http_request"]["url"]["path"] == path
    assert row["dst_ip"] == IP


def test_a_place_is_no_user() -> None:
    row = good("zscaler", zia("web", **ZIA_WEB | {"user": "Road Warrior"}))
    assert row.get("user_name") is None
    assert json.loads(row["unmapped"])["user"] == "Road Warrior"


def test_what_is_no_feed_of_zscaler_says_so() -> None:
    assert "neither a record of zscaler" in reason("zscaler", '{"a":1}')
    assert "neither JSON, CEF nor fields" in reason("zscaler", "hello")
