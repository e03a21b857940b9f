"""FortiGate: FortiOS 5 to 7, sessions, security profiles, and the firewall itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest import conforms
from tests.ingest.logs import good, reason, rows

HEAD = (
    'date=2026-03-02 time=01:00:00 devname="fg1" devid="FGT60" logid="{logid}" type="{kind}" '
    'subtype="{sub}" level="notice" vd="root" eventtime=1772442000123456789 tz="-0800" '
)
ENDS = (
    'srcip=10.0.0.5 srcport=58012 srcintf="port1" dstip=192.0.2.7 dstport=443 dstintf="wan1" '
    'sessionid=105048 proto=6 policyid=7 policyname="out" srccountry="Reserved" '
    'dstcountry="Canada" '
)


def line(kind: str, sub: str, rest: str, logid: str = "0000000013") -> str:
    return HEAD.format(kind=kind, sub=sub, logid=logid) + rest


def log(raw: str, **more: Any) -> dict[str, Any]:
    row = good("fortigate", raw, **more)
    assert conforms.misfits(row) == []
    assert conforms.faults(row) == []
    assert row == good("fortigate", raw, **more)
    return row


def test_a_session() -> None:
    row = log(
        "<189>"
        + line(
            "traffic",
            "forward",
            ENDS + 'action="close" user="CORP\\\\ann" group="g" service="HTTPS" app="SSL" '
            'trandisp="snat" transip=203.0.113.2 transport=58012 duration=116 sentbyte=1188 '
            'rcvdbyte=1224 sentpkt=17 rcvdpkt=16 srcmac="a2:e9:00:ec:40:01" utmref=65500-742',
        )
    )
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4001, 2, 1)
    assert row["src_endpoint"] == {
        "ip": "10.0.0.5",
        "port": 58012,
        "mac": "a2:e9:00:ec:40:01",
        "interface_name": "port1",
    }
    assert row["dst_endpoint"]["country"] == "Canada"
    assert (row["traffic"]["bytes_out"], row["traffic"]["bytes_in"]) == (1188, 1224)
    assert (row["duration"], row["firewall_rule"]) == (116000, {"uid": "7", "name": "out"})
    assert row["time"] == datetime(2026, 3, 2, 9, 0, 0, 123456, UTC)
    assert row["time_quality"] == "exact"
    assert row["actor"]["user"] == {"name": "ann", "domain": "CORP", "groups": ["g"]}
    assert (row["device"]["hostname"], row["device"]["uid"]) == ("fg1", "FGT60")
    assert (row["app_name"], row["metadata"]["event_code"]) == ("SSL", "0000000013")
    rest = json.loads(row["unmapped"])
    assert (rest["transip"], rest["service"], rest["facility"]) == ("203.0.113.2", "HTTPS", 23)


@pytest.mark.parametrize(
    ("action", "logid", "activity", "status", "decided"),
    [
        ("accept", "0000000013", 6, 1, 1),
        ("accept", "0000000015", 1, 1, 1),
        ("start", "0000000015", 1, 1, 1),
        ("close", "0000000013", 2, 1, 1),
        ("timeout", "0000000013", 2, 1, 1),
        ("client-rst", "0000000013", 3, 1, 1),
        ("server-rst", "0001000014", 3, 1, 1),
        ("deny", "0000000013", 5, 2, 2),
        ("blocked", "0000000013", 5, 2, 2),
        ("ip-conn", "0000000011", 4, 2, None),
    ],
)
def test_what_became_of_a_session(
    action: str, logid: str, activity: int, status: int, decided: int | None
) -> None:
    row = log(line("traffic", "forward", ENDS + f'action="{action}"', logid))
    assert (row["activity_id"], row["status_id"]) == (activity, status)
    assert (row.get("action_id"), row.get("disposition_id")) == (decided, decided)


@pytest.mark.parametrize(
    ("clock", "time", "quality"),
    [
        ("eventtime=1772442000", (9, 0), "exact"),
        ("eventtime=1772442000123", (9, 123000), "exact"),
        ("eventtime=1772442000123456789 tz=+0100", (9, 123456), "exact"),
        ('date=2026-03-02 time=01:00:00 tz="-0800"', (9, 0), "exact"),
        ("date=2026-03-02 time=09:00:00", (8, 0), "assumed_zone"),
    ],
)
def test_times(clock: str, time: tuple[int, int], quality: str) -> None:
    row = log(f"{clock} logid=0000000013 type=traffic {ENDS}action=close", tz="Europe/Berlin")
    assert (row["time"].hour, row["time"].microsecond) == time
    assert row["time_quality"] == quality


def test_pages_names_and_applications() -> None:
    row = log(
        line(
            "utm",
            "webfilter",
            ENDS + 'eventtype="ftgd_blk" service="HTTPS" hostname="evil.example" action="blocked" '
            'url="/a b?x=\\"srcip=6.6.6.6\\"" direction="outgoing" msg="URL is denied" cat=76',
        )
    )
    assert (row["class_uid"], row["status_id"], row["action_id"]) == (4002, 2, 2)
    assert row["http_request"]["url"]["url_string"] == 'https://evil.example/a b?x="srcip=6.6.6.6"'
    assert (row["src_ip"], row["connection_info"]["direction_id"]) == ("10.0.0.5", 2)
    row = log(
        line(
            "utm",
            "dns",
            ENDS + 'eventtype="dns-response" qname="a.example" qtype="A" qclass="IN" '
            'ipaddr="192.0.2.1, 192.0.2.2" action="pass"',
        )
    )
    assert (row["class_uid"], row["activity_id"], row["query"]["hostname"]) == (
        4003,
        2,
        "a.example",
    )
    assert [one["rdata"] for one in row["answers"]] == ["192.0.2.1", "192.0.2.2"]
    row = log(line("utm", "app-ctrl", ENDS + 'action="pass" app="Web" msg="Web: x,"'))
    assert (row["class_uid"], row["app_name"], row["action_id"]) == (4001, "Web", 1)
    classes = {"ssl": 4001, "voip": 4001, "ssh": 4007, "file-filter": 4001, "cifs": 4001}
    for sub, class_uid in classes.items():
        assert log(line("utm", sub, ENDS + 'action="passthrough"'))["class_uid"] == class_uid
    row = log(line("utm", "emailfilter", ENDS + 'action="blocked" from="a@x.org" to="b@x.org"'))
    assert (row["class_uid"], row["email"]["from"]) == (4009, "a@x.org")


def test_findings() -> None:
    row = log(
        line(
            "utm",
            "ips",
            ENDS + 'severity="critical" action="dropped" attack="Apache.Log4j" attackid=51006 '
            'ref="http://www.fortinet.com/ids/VID51006" hostname="x.y" url="/a" msg="web: x"',
        )
    )
    assert (row["class_uid"], row["severity_id"], row["action_id"]) == (2004, 5, 2)
    assert (row["finding_info"]["uid"], row["finding_info"]["title"]) == ("51006", "Apache.Log4j")
    assert row["http_request"]["url"]["url_string"] == "http://x.y/a"
    sha = "d" * 64
    row = log(
        line(
            "utm",
            "virus",
            ENDS + f'action="blocked" virus="EICAR" virusid=2 filename="e.com" filehash="{sha}"',
        )
    )
    assert row["file"] == {"path": "e.com", "hashes": [{"algorithm": "SHA-256", "value": sha}]}
    old = (
        "Mar  2 09:00:00 10.0.0.1 date=2026-03-02 time=09:00:00 device_id=FG1 log_id=0211008192 "
        "type=virus subtype=infected pri=warning src=10.0.0.5 dst=192.0.2.7 src_port=33 "
        'dst_port=80 status=blocked virus="EICAR"'
    )
    row = log(old)
    assert (row["class_uid"], row["src_ip"], row["severity_id"]) == (2004, "10.0.0.5", 3)


def test_logins_tunnels_changes_and_leases() -> None:
    row = log(
        line(
            "event",
            "system",
            'logdesc="Admin login failed" user="x\\" srcip=6.6.6.6" ui="https(198.51.100.9)" '
            'action="login" status="failed" reason="name_invalid" msg="login failed"',
        )
    )
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (3002, 1, 2)
    assert (row["src_ip"], row["user"]["name"]) == ("198.51.100.9", 'x" srcip=6.6.6.6')
    row = log(line("event", "user", 'srcip=10.0.0.5 user="ann" action="FSSO-logoff"'))
    assert (row["activity_id"], row["status_id"]) == (2, 1)
    row = log(
        line(
            "event",
            "vpn",
            'action="tunnel-down" tunneltype="ssl-tunnel" remip=198.51.100.9 tunnelip=10.9.0.5 '
            'user="ann" group="vpn" duration=60 sentbyte=5 rcvdbyte=7',
        )
    )
    assert (row["class_uid"], row["activity_id"], row["user"]["name"]) == (4014, 2, "ann")
    assert (row["traffic"]["bytes_out"], row["duration"]) == (7, 60000)
    row = log(
        line(
            "event",
            "system",
            'user="ann" ui="GUI(10.0.0.9)" action="Delete" cfgpath="firewall.policy" cfgobj="1"',
        )
    )
    assert (row["class_uid"], row["activity_id"], row["src_ip"]) == (6003, 4, "10.0.0.9")
    row = log(
        line(
            "event",
            "system",
            'dhcp_msg="Ack" mac="00:0C:29:AA:BB:CC" ip=10.0.0.9 lease=604800 hostname="PC9"',
        )
    )
    assert (row["class_uid"], row["activity_id"], row["lease_dur"]) == (4004, 5, 604800)
    assert row["mac"] == "00:0c:29:aa:bb:cc"
    row = log(line("event", "system", 'action="perf-stats" cpu=0 msg="CPU: 0"'))
    assert (row["class_uid"], row["message"]) == (0, "CPU: 0")


def test_commas_between_pairs_and_broken_quotes() -> None:
    row = log(
        "date=2026-03-02,time=09:00:00,devname=FG,logid=0000000013,type=traffic,subtype=forward,"
        'srcip=10.0.0.5,srcport=4,dstip=192.0.2.7,dstport=53,proto=17,action=accept,app="a, b"'
    )
    assert (row["src_ip"], row["app_name"]) == ("10.0.0.5", "a, b")
    row = log(line("traffic", "forward", ENDS + 'action="close" msg="never closed srcip=6.6.6.6'))
    assert (row["src_ip"], row["message"]) == ("10.0.0.5", "never closed srcip=6.6.6.6")


def test_a_source_that_stands_twice_is_none() -> None:
    forged = 'user="x" srcip=6.6.6.6 x="" srcip=198.51.100.9 action="login" status="failed"'
    row = log(line("event", "user", forged))
    assert row.get("src_ip") is None
    rest = json.loads(row["unmapped"])
    assert rest["ambiguous"] is True
    assert (rest["srcip_first"], rest["srcip_again"]) == ("6.6.6.6", ["198.51.100.9"])


def test_hostile_lines() -> None:
    row = log(line("traffic", "forward", ENDS.replace("58012", "99999") + 'action="close"'))
    assert json.loads(row["unmapped"])["srcport"] == "99999"
    assert "no 'date='" in reason("fortigate", "hello")
    assert "none of 'type'" in reason("fortigate", "date=2026-03-02 time=09:00:00")
    one = line("traffic", "forward", ENDS + 'action="close"')
    assert len(rows("fortigate", f"{one}\n{one}\n".encode())) == 2
    cef = log("<1>Mar  2 09:00:00 fg CEF:0|Fortinet|Fortigate|v7|13|x|3|src=10.0.0.5 act=deny")
    assert (cef["class_uid"], cef["activity_id"]) == (4001, 5)
    long = line("traffic", "forward", ENDS + 'msg="' + 'a=\\"' * 1_000_000)
    assert good("fortigate", long)["src_ip"] == "10.0.0.5"


def test_a_line_with_another_time() -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    one = line("traffic", "forward", ENDS + 'action="close"')
    raw = lookup("fortigate").restamp(one.encode(), when, ZoneInfo("UTC"))
    assert good("fortigate", raw)["time"] == when
    assert b"date=2026-03-03 time=21:06:07" in raw
