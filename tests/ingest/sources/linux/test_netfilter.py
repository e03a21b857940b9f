"""Packets that the Linux kernel logged: ufw, iptables, nftables, firewalld, UniFi."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest import conforms
from tests.ingest.logs import good, reason, rows

MAC = "MAC=52:54:00:aa:bb:01:52:54:00:aa:bb:02:08:00"
BODY = (
    f"IN=eth0 OUT= {MAC} SRC=203.0.113.9 DST=10.0.0.5 LEN=60 TOS=0x00 PREC=0x00 TTL=52 ID=4711 DF "
    "PROTO=TCP SPT=38842 DPT=22 WINDOW=64240 RES=0x00 SYN URGP=0 "
)
HEAD = "Mar  2 09:00:00 gw kernel: [12345.678901] "


def packet(raw: str, **more: Any) -> dict[str, Any]:
    row = good("netfilter", raw, **more)
    assert conforms.misfits(row) == []
    assert conforms.faults(row) == []
    return row


def test_a_packet_that_ufw_blocked() -> None:
    row = packet(HEAD + "[UFW BLOCK] " + BODY)
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4001, 5, 2)
    assert (row["action_id"], row["disposition_id"]) == (2, 2)
    assert row["src_endpoint"] == {
        "ip": "203.0.113.9",
        "port": 38842,
        "mac": "52:54:00:aa:bb:02",
        "interface_name": "eth0",
    }
    assert row["dst_endpoint"] == {"ip": "10.0.0.5", "port": 22, "mac": "52:54:00:aa:bb:01"}
    assert row["connection_info"]["direction_id"] == 1
    assert row["connection_info"]["flag_history"] == "SYN"
    assert (row["traffic"]["bytes"], row["firewall_rule"]) == (60, {"name": "UFW BLOCK"})
    assert (row["host_name"], row["time"]) == ("gw", datetime(2026, 3, 2, 9, tzinfo=UTC))
    rest = json.loads(row["unmapped"])
    assert (rest["TTL"], rest["flags"], rest["uptime"]) == ("52", "DF", "12345.678901")


@pytest.mark.parametrize(
    ("prefix", "action", "activity"),
    [
        ("[UFW BLOCK] ", 2, 5),
        ("[UFW LIMIT BLOCK] ", 2, 5),
        ("[UFW ALLOW] ", 1, 1),
        ("[UFW AUDIT] ", 3, 6),
        ("iptables DROP_INPUT: ", 2, 5),
        ("IPTables-Dropped: ", 2, 5),
        ("filter_IN_public_REJECT: ", 2, 5),
        ("FINAL_REJECT: ", 2, 5),
        ("Shorewall:net2fw:DROP:", 2, 5),
        ("nft accept new: ", 1, 1),
        ("[WAN_LOCAL-default-D]", 2, 5),
        ("[WAN_OUT-2000-A]", 1, 1),
        ("[WAN_IN-10-R] ", 2, 5),
        ("ACCEPT-or-DROP ", 2, 5),
        ("blockchain-node ", 3, 6),
        ("", 3, 6),
    ],
)
def test_the_prefix_tells_what_was_done(prefix: str, action: int, activity: int) -> None:
    row = packet(HEAD + prefix + BODY)
    assert (row["action_id"], row["activity_id"], row["src_ip"]) == (
        action,
        activity,
        "203.0.113.9",
    )


def test_an_icmp_error_does_not_give_its_quoted_packet_as_its_own() -> None:
    row = packet(
        "Jan  8 03:37:09 DENY: IN=eth0 OUT= " + MAC + " SRC=192.0.2.71 DST=10.0.0.5 LEN=88 TTL=118 "
        "ID=21684 PROTO=ICMP TYPE=3 CODE=3 [SRC=10.0.0.5 DST=6.6.6.6 LEN=60 TTL=54 ID=0 DF "
        "PROTO=UDP SPT=21458 DPT=62936 LEN=40 ]"
    )
    assert (row["src_ip"], row["dst_ip"]) == ("192.0.2.71", "10.0.0.5")
    assert "port" not in row["src_endpoint"]
    assert row["connection_info"]["protocol_num"] == 1
    rest = json.loads(row["unmapped"])
    assert rest["quoted_packet"].startswith("[SRC=10.0.0.5 DST=6.6.6.6")
    assert (rest["ID"], rest["TYPE"]) == ("21684", "3")


def test_ipv6_forwarding_and_owners() -> None:
    row = packet(
        HEAD + "IN= OUT=lo SRC=2001:0db8:0000:0000:0000:0000:0000:0001 DST=2001:db8::2 "
        "LEN=104 TC=0 "
        "HOPLIMIT=64 FLOWLBL=8 PROTO=ICMPv6 TYPE=128 CODE=0 ID=3427 SEQ=1"
    )
    assert (row["src_ip"], row["connection_info"]["protocol_ver_id"]) == ("2001:db8::1", 6)
    assert row["connection_info"]["direction_id"] == 2
    row = packet(
        HEAD + "fwd IN=br0 OUT=eth1 PHYSIN=veth1 MACSRC=52:54:00:aa:bb:02 MACDST=52:54:00:aa:bb:01 "
        "MACPROTO=0800 SRC=10.0.0.5 DST=1.1.1.1 LEN=40 PROTO=UDP SPT=5 DPT=53 LEN=20 UID=1000 GID=7"
    )
    assert row["connection_info"]["direction_id"] == 0
    assert row["src_endpoint"]["mac"] == "52:54:00:aa:bb:02"
    assert row["dst_endpoint"]["interface_name"] == "eth1"
    assert row["actor"]["user"]["uid"] == "1000"
    assert json.loads(row["unmapped"])["udp_len"] == "20"


@pytest.mark.parametrize(
    "head",
    [
        "<4>2026-03-02T09:00:00Z gw kernel: ",
        "2026-03-02T10:00:00.000+01:00 gw kernel: [ 1.2] ",
        "<4>1 2026-03-02T09:00:00Z gw kernel - - - ",
        "Mar 02 09:00:00.000000 gw kernel: ",
        "Mar  2 09:00:00 gw ulogd[55]: ",
        "Mar  2 09:00:00 gw ",
    ],
)
def test_framings(head: str) -> None:
    row = packet(head + "[UFW BLOCK] " + BODY)
    assert (row["src_ip"], row["host_name"]) == ("203.0.113.9", "gw")
    assert row["time"] == datetime(2026, 3, 2, 9, tzinfo=UTC)


def test_without_a_header_and_from_the_journal() -> None:
    assert packet("[ 4276.728154] [UFW BLOCK] " + BODY)["time_quality"] == "received"
    assert packet(BODY)["src_ip"] == "203.0.113.9"
    entry = {
        "MESSAGE": "[UFW BLOCK] " + BODY,
        "__REALTIME_TIMESTAMP": "1772442000000000",
        "_HOSTNAME": "gw",
        "SYSLOG_IDENTIFIER": "kernel",
    }
    row = packet(json.dumps(entry))
    assert (row["time"], row["action_id"]) == (datetime(2026, 3, 2, 9, tzinfo=UTC), 2)


def test_other_words_are_no_packets() -> None:
    assert packet(HEAD + "device eth0 entered promiscuous mode")["class_uid"] == 0
    forged = packet(
        "Mar  2 09:00:00 gw sshd[12]: Invalid user IN=eth0 OUT= SRC=6.6.6.6 DST=7.7.7.7"
    )
    assert (forged["class_uid"], forged.get("src_ip")) == (0, None)
    assert packet(HEAD + "usb 1-1: Product: " + "x" * 200 + " " + BODY)["class_uid"] == 0


def test_odd_values_stay_under_their_names() -> None:
    bad = BODY.replace("DPT=22", "DPT=99999").replace("SRC=203.0.113.9", "SRC=6.6.6")
    row = packet(HEAD + bad)
    rest = json.loads(row["unmapped"])
    assert (rest["DPT"], rest["SRC"], row["dst_ip"]) == ("99999", "6.6.6", "10.0.0.5")
    assert "port" not in row["dst_endpoint"]
    twice = packet(HEAD + BODY + "SRC=6.6.6.6")
    assert twice["src_ip"] == "203.0.113.9"
    for raw in ("", "\xff", "hello", "Mar  2 09:00:00 gw kernel: a\nb"):
        assert reason("netfilter", raw.encode("latin-1"))


def test_a_line_with_another_time() -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    raw = (HEAD + BODY).encode()
    assert (
        rows("netfilter", lookup("netfilter").restamp(raw, when, ZoneInfo("UTC")))[0]["time"]
        == when
    )
