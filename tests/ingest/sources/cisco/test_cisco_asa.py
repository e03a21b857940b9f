"""Cisco ASA and Firepower: messages by their numbers, headers in all their forms."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest import conforms
from tests.ingest.logs import good, reason, rows

HEAD = "<166>Mar 02 2026 09:00:00 fw1 : "


def message(words: str, head: str = HEAD, **more: Any) -> dict[str, Any]:
    """The row of one message, which must fit silver.event and OCSF."""
    row = good("cisco_asa", head + words, **more)
    assert conforms.misfits(row) == []
    assert conforms.faults(row) == []
    assert row == good("cisco_asa", head + words, **more)
    return row


def ends(row: dict[str, Any]) -> tuple[Any, ...]:
    source, target = row.get("src_endpoint") or {}, row.get("dst_endpoint") or {}
    return source.get("ip"), source.get("port"), target.get("ip"), target.get("port")


@pytest.mark.parametrize(
    ("head", "time", "quality", "host"),
    [
        ("<166>Mar 02 2026 09:00:00 fw1 : ", (9, 0), "assumed_zone", "fw1"),
        ("<166>Mar 02 2026 09:00:00: ", (9, 0), "assumed_zone", None),
        ("<166>Mar  2 09:00:00 fw1 : ", (9, 0), "assumed_year", "fw1"),
        ("Mar  2 09:00:00 10.1.1.1 ", (9, 0), "assumed_year", "10.1.1.1"),
        ("Mar  2 09:00:00.138340591: ", (9, 138340), "assumed_year", None),
        ("<166>2026-03-02T09:00:00Z: ", (9, 0), "exact", None),
        ("<166>2026-03-02T09:00:00Z fw1 : ", (9, 0), "exact", "fw1"),
        ("Mar 02 2026 09:00:00 EST: ", (14, 0), "exact", None),
        ("Mar  2 09:00:00 relay : Mar  2 08:59:59 EST: ", (13, 0), "assumed_year", "relay"),
        ("<166>1 2026-03-02T09:00:00.5Z fw1 - - - - : ", (9, 500000), "exact", "fw1"),
        ("<166>:", None, "received", None),
        ("", None, "received", None),
        ("Oct 10 2018 12:34:56 localhost CiscoASA[999]: ", (12, 0), "assumed_zone", "localhost"),
    ],
)
def test_headers(head: str, time: tuple[int, int] | None, quality: str, host: str | None) -> None:
    row = message("%ASA-6-302010: 12 in use, 10 most used", head)
    assert (row["time_quality"], row["host_name"]) == (quality, host)
    if time:
        assert (row["time"].hour, row["time"].microsecond) == time
    assert row["metadata"]["event_code"] == "302010"


def test_connections_built_and_torn_down() -> None:
    row = message(
        "%ASA-6-302013: Built inbound TCP connection 27215708 for internet:198.51.100.4/49926 "
        "(203.0.113.1/49926)(LOCAL\\ann) to dmz-42:10.0.0.5/80 (203.0.113.80/80) (ann)"
    )
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4001, 1, 1)
    assert ends(row) == ("198.51.100.4", 49926, "10.0.0.5", 80)
    assert (row["action_id"], row["disposition_id"]) == (1, 1)
    assert row["src_endpoint"]["interface_name"] == "internet"
    assert row["actor"]["user"]["name"] == "ann"
    assert row["connection_info"]["direction_id"] == 1
    assert row["connection_info"]["uid"] == "27215708"
    rest = json.loads(row["unmapped"])
    assert (rest["dst_mapped_ip"], rest["dst_mapped_port"]) == ("203.0.113.80", "80")
    row = message(
        "%ASA-6-302013: Built outbound TCP connection 7 for outside:192.0.2.17/80 (192.0.2.17/80) "
        "to inside:10.0.0.42/4954 (203.0.113.130/10879)"
    )
    assert ends(row) == ("10.0.0.42", 4954, "192.0.2.17", 80)
    assert json.loads(row["unmapped"])["src_mapped_ip"] == "203.0.113.130"
    closed = message(
        "%ASA-6-302014: Teardown TCP connection 7 for outside:192.0.2.17/80 to "
        "inside:10.0.0.42/4954 duration 1:02:03 bytes 14804 TCP FINs from inside (CORP\\bob)"
    )
    assert ends(closed) == ends(row)
    assert (closed["activity_id"], closed["duration"]) == (2, 3723000)
    assert closed["traffic"] == {"bytes": 14804}
    assert closed["status_detail"] == "TCP FINs from inside"
    assert closed["actor"]["user"] == {"name": "bob", "domain": "CORP"}


@pytest.mark.parametrize(
    ("words", "expected", "rule"),
    [
        (
            "%ASA-2-106001: Inbound TCP connection denied from 192.0.2.2/43803 to 10.1.1.1/22 "
            "flags SYN  on interface outside",
            ("192.0.2.2", 43803, "10.1.1.1", 22),
            None,
        ),
        (
            "%ASA-2-106006: Deny inbound UDP from 192.0.2.2/137 to 10.1.1.1/137 on interface in",
            ("192.0.2.2", 137, "10.1.1.1", 137),
            None,
        ),
        (
            "%ASA-2-106007: Deny inbound UDP from 192.0.2.2/12981 to 10.1.1.1/53 due to DNS Query",
            ("192.0.2.2", 12981, "10.1.1.1", 53),
            None,
        ),
        (
            "%ASA-3-106010: Deny inbound protocol 47 src outside:192.0.2.2 dst inside:10.1.1.1",
            ("192.0.2.2", None, "10.1.1.1", None),
            None,
        ),
        (
            "%ASA-3-106014: Deny inbound icmp src a:192.0.2.2 dst b:10.1.1.1(type 8, code 0)",
            ("192.0.2.2", None, "10.1.1.1", None),
            None,
        ),
        (
            "%ASA-6-106015: Deny TCP (no connection) from 192.0.2.2/53089 to 10.1.1.1/443 flags "
            "FIN PSH ACK  on interface out-1",
            ("192.0.2.2", 53089, "10.1.1.1", 443),
            None,
        ),
        (
            "%ASA-2-106016: Deny IP spoof from (192.0.2.2) to 10.1.1.1 on interface Mobile_1",
            ("192.0.2.2", None, "10.1.1.1", None),
            None,
        ),
        (
            "%ASA-1-106021: Deny TCP reverse path check from 192.0.2.2 to 10.1.1.1 on interface o",
            ("192.0.2.2", None, "10.1.1.1", None),
            None,
        ),
        (
            "%ASA-4-106023: Deny tcp src dmz:192.0.2.2/63016(CORP\\bob) dst outside:10.1.1.1/53 "
            'type 3, code 0, by access-group "acl_dmz" [0xe3aab522, 0x0]',
            ("192.0.2.2", 63016, "10.1.1.1", 53),
            "acl_dmz",
        ),
        (
            "%FTD-4-106023: Deny icmp src OUT:2001:db8::1 dst IN:2001:db8::2 (type 128, code 0) by "
            'access-group "in"',
            ("2001:db8::1", None, "2001:db8::2", None),
            "in",
        ),
        (
            "%ASA-4-106100: access-list acl_in denied tcp inside/192.0.2.2(49734) -> "
            "outside/10.1.1.1(443) hit-cnt 1 first hit [0x71a87d94, 0x0]",
            ("192.0.2.2", 49734, "10.1.1.1", 443),
            "acl_in",
        ),
        (
            "%ASA-4-313004: Denied ICMP type=0, from laddr 192.0.2.2 on interface in to 10.1.1.1: "
            "no matching session",
            ("192.0.2.2", None, "10.1.1.1", None),
            None,
        ),
        (
            "%ASA-4-313005: No matching connection for ICMP error message: icmp src a:192.0.2.2 "
            "dst b:10.1.1.1 (type 3, code 3) on a interface.  Original IP payload: udp src "
            "6.6.6.6/53 dst 7.7.7.7/10872.",
            ("192.0.2.2", None, "10.1.1.1", None),
            None,
        ),
        (
            "%ASA-3-710003: TCP access denied by ACL from 192.0.2.2/6370 to outside:10.1.1.1/23",
            ("192.0.2.2", 6370, "10.1.1.1", 23),
            None,
        ),
        (
            "%ASA-7-710005: UDP request discarded from 192.0.2.2/68 to in:10.1.1.1/67",
            ("192.0.2.2", 68, "10.1.1.1", 67),
            None,
        ),
        (
            "%ASA-4-402119: IPSEC: Received an ESP packet (SPI= 0x1234, sequence number= 0x12) "
            "from 192.0.2.2 (user= bob) to 10.1.1.1 that failed anti-replay checking.",
            ("192.0.2.2", None, "10.1.1.1", None),
            None,
        ),
        (
            "%ASA-4-434002: SFR requested to drop TCP packet from a:192.0.2.2/8888 to b:10.1.1.1/5",
            ("192.0.2.2", 8888, "10.1.1.1", 5),
            None,
        ),
    ],
)
def test_what_is_denied(words: str, expected: tuple[Any, ...], rule: str | None) -> None:
    row = message(words)
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4001, 5, 2)
    assert (row["action_id"], row["disposition_id"]) == (2, 2)
    assert ends(row) == expected
    assert (row.get("firewall_rule") or {}).get("name") == rule
    assert row["message"] == words.partition(": ")[2]


def test_what_is_permitted_and_translated() -> None:
    row = message(
        "%ASA-session-5-106100: access-list acl_in est-allowed tcp inside/10.0.0.46(49840) -> "
        "outside/192.0.2.88(40443) hit-cnt 144 300-second interval [0x71a87d94, 0x0]"
    )
    assert (row["activity_id"], row["action_id"], row["severity_id"]) == (1, 1, 2)
    row = message(
        "%ASA-6-305011: Built dynamic TCP translation from inside:10.0.0.5/57006 to "
        "outside:203.0.113.2/57006"
    )
    assert ends(row) == ("10.0.0.5", 57006, None, None)
    assert json.loads(row["unmapped"])["mapped_ip"] == "203.0.113.2"
    row = message(
        "%ASA-6-302020: Built outbound ICMP connection for faddr 192.0.2.1/0 gaddr 203.0.113.2/0 "
        "laddr 10.0.0.5/0 type 8 code 0"
    )
    assert ends(row) == ("10.0.0.5", None, "192.0.2.1", None)


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (
            "%ASA-6-113004: AAA user authentication Successful : server =  10.0.0.8 : user = ann",
            (1, 1, "ann", None),
        ),
        (
            "%ASA-6-113005: AAA user authentication Rejected : reason = AAA failure : server = "
            "10.0.0.8 : user = ann : user IP = 192.0.2.7",
            (1, 2, "ann", "192.0.2.7"),
        ),
        (
            "%ASA-6-113015: AAA user authentication Rejected : reason = Invalid password : local "
            "database : user = x : user IP = 6.6.6.6 : user IP = 192.0.2.7",
            (1, 2, "x : user IP = 6.6.6.6", "192.0.2.7"),
        ),
        (
            "%ASA-6-113012: AAA user authentication Successful : local database : user = ann : "
            "user IP = 6.6.6.6",
            (1, 1, "ann : user IP = 6.6.6.6", None),
        ),
        (
            "%ASA-6-605004: Login denied from 192.0.2.7/51923 to in:10.0.0.1/https for user "
            '"x" from 6.6.6.6"',
            (1, 2, 'x" from 6.6.6.6', "192.0.2.7"),
        ),
        (
            '%ASA-6-605005: Login permitted from 192.0.2.7/6651 to in:10.0.0.1/ssh for user "ann"',
            (1, 1, "ann", "192.0.2.7"),
        ),
        (
            "%ASA-6-611101: User authentication succeeded: IP address: 192.0.2.7, Uname: ann",
            (1, 1, "ann", "192.0.2.7"),
        ),
        ("%ASA-6-611102: User authentication failed: Uname: ann", (1, 2, "ann", None)),
        (
            "%ASA-6-716039: Group <g h> User <ann> IP <192.0.2.7> Authentication: rejected, "
            "Session Type: WebVPN.",
            (1, 2, "ann", "192.0.2.7"),
        ),
        (
            "%ASA-6-315011: SSH session from 192.0.2.7 on interface in for user ann disconnected "
            "by SSH server, reason: Out of memory",
            (2, 1, "ann", "192.0.2.7"),
        ),
        (
            "%ASA-6-109005: Authentication succeeded for user 'ann' from 192.0.2.7/2342 to "
            "10.0.0.1/80 on interface inside",
            (1, 1, "ann", "192.0.2.7"),
        ),
        (
            '%ASA-6-605004: Login denied from 192.0.2.7/5 to in:10.0.0.1/ssh for user "*****"',
            (1, 2, "unknown", "192.0.2.7"),
        ),
    ],
)
def test_logins(words: str, about: tuple[Any, ...]) -> None:
    row = message(words)
    assert row["class_uid"] == 3002
    source = row.get("src_ip")
    assert (row["activity_id"], row["status_id"], row["user"]["name"], source) == about


def test_vpn_sessions() -> None:
    row = message(
        "%ASA-4-113019: Group = g, Username = ann, IP = 192.0.2.7, Session disconnected. Session "
        "Type: SSL, Duration: 1d 0h:32m:16s, Bytes xmt: 297103, Bytes rcv: 1216163, Reason: User "
        "Requested"
    )
    assert (row["class_uid"], row["activity_id"], row["user"]["name"]) == (4014, 2, "ann")
    assert row["duration"] == (86400 + 32 * 60 + 16) * 1000
    assert (row["traffic"]["bytes_out"], row["traffic"]["bytes_in"]) == (1216163, 297103)
    row = message(
        "%ASA-4-722051: Group <g> User <ann> IP <192.0.2.7> IPv4 Address <10.9.0.5> IPv6 address "
        "<::> assigned to session"
    )
    assert (row["activity_id"], row["src_ip"]) == (1, "192.0.2.7")
    assert json.loads(row["unmapped"])["assigned"] == "10.9.0.5"
    row = message(
        "%ASA-6-734001: DAP: User ann, Addr 192.0.2.7, Connection AnyConnect: The following DAP "
        "records were selected for this connection: DfltAccessPolicy"
    )
    assert (row["class_uid"], row["user"]["name"], row["src_ip"]) == (4014, "ann", "192.0.2.7")


def test_a_vpn_user_cannot_forge_the_address() -> None:
    row = message(
        "%ASA-6-722055: Group <g> User <x> IP <6.6.6.6> Client Type: a> IP <192.0.2.7> Client "
        "Type: real"
    )
    assert row.get("src_ip") is None
    assert json.loads(row["unmapped"])["ambiguous"] is True
    row = message(
        "%ASA-4-722051: Group <g> User <x> IP <6.6.6.6> IPv4 Address <1.1.1.1> IPv6 address <::> "
        "assigned to session> IP <192.0.2.7> IPv4 Address <10.9.0.5> IPv6 address <::> assigned "
        "to session"
    )
    assert row.get("src_ip") != "6.6.6.6"


def test_commands_findings_pages_and_files() -> None:
    row = message("%ASA-5-111010: User 'ann', running 'CLI' from IP 10.0.0.87, executed 'clear x'")
    assert (row["class_uid"], row["api"]["operation"], row["src_ip"]) == (
        6003,
        "clear x",
        "10.0.0.87",
    )
    row = message("%ASA-7-111009: User 'ann' executed cmd: show run")
    assert row["actor"]["user"]["name"] == "ann"
    row = message(
        "%ASA-4-733100: [ Scanning] drop rate-2 exceeded. Current burst rate is 0 per second"
    )
    assert (row["class_uid"], row["finding_info"]["uid"]) == (2004, "733100")
    for word, end in (("attacking", "src_ip"), ("targeted", "dst_ip")):
        row = message(f"%ASA-4-733101: Host 10.1.1.1 is {word}. Current burst rate is 9 per second")
        assert (row["class_uid"], row[end]) == (2004, "10.1.1.1")
    row = message(
        "%ASA-4-338008: Dynamic Filter dropped blacklisted TCP traffic from in:10.1.1.1/33340 "
        "(203.0.113.1/33340) to out:192.0.2.223/80 (192.0.2.223/80), destination 192.0.2.223 "
        "resolved from dynamic list: bad.example.com, threat-level: very-high, category: Malware"
    )
    assert (row["class_uid"], row["action_id"], row["src_ip"]) == (2004, 2, "10.1.1.1")
    row = message(
        "%ASA-5-304002: Access denied URL http://x/ SRC 6.6.6.6 DEST 7.7.7.7 SRC 10.0.0.9 DEST "
        "192.0.2.19 on interface inside"
    )
    assert (row["src_ip"], row["dst_ip"], row["action_id"]) == ("10.0.0.9", "192.0.2.19", 2)
    row = message(
        "%ASA-6-303002: FTP connection from in:10.0.0.2/63656 to out:192.0.2.4/21, user ann Stored "
        "file /a/b c.log"
    )
    assert (row["class_uid"], row["activity_id"], row["file"]["path"]) == (4008, 1, "/a/b c.log")
    row = message("%ASA-5-502103: User priv level changed: Uname: ann From: 1 To: 15")
    assert (row["class_uid"], row["user"]["name"]) == (3001, "ann")


def test_firepower() -> None:
    words = (
        "%FTD-1-430003: EventPriority: Low, DeviceUUID: 48a0-8e53, InstanceID: 2, "
        "FirstPacketSecond: 2026-03-02T08:59:00Z, ConnectionID: 48101, AccessControlRuleAction: "
        "Block with reset, AccessControlRuleReason: File Block, SrcIP: 10.0.1.20, DstIP: "
        "192.0.2.30, SrcPort: 41544, DstPort: 8000, Protocol: tcp, IngressInterface: in, "
        "EgressZone: out, ACPolicy: default, AccessControlRuleName: Rule, 1, User: CORP\\ann, "
        "UserAgent: x, SrcIP: 6.6.6.6, ConnectionDuration: 30, InitiatorPackets: 4, "
        "ResponderPackets: 7, InitiatorBytes: 365, ResponderBytes: 1927, URL: http://x/?a=1, "
        "DstIP: 7.7.7.7"
    )
    row = message(words, "2026-03-02T09:00:00Z ftd1  ")
    assert (row["activity_id"], row["action_id"], row["severity_id"]) == (5, 2, 2)
    assert ends(row) == ("10.0.1.20", 41544, "192.0.2.30", 8000)
    assert row["firewall_rule"]["name"] == "Rule, 1"
    assert row["actor"]["user"] == {"name": "ann", "domain": "CORP"}
    assert (row["duration"], row["traffic"]["bytes_in"]) == (30000, 1927)
    assert row["time_quality"] == "exact"
    assert json.loads(row["unmapped"])["SrcIP_again"] == ["6.6.6.6"]
    sha = "b" * 64
    row = message(
        "%FTD-1-430005: SrcIP: 10.0.1.20, DstIP: 192.0.2.30, SrcPort: 1, DstPort: 80, Protocol: "
        f"tcp, FileAction: Malware Block, FileSHA256: {sha}, SHA_Disposition: Malware, ThreatName: "
        "Win.X, FileName: x.zip, FileSize: 184, URI: http://x/x.zip"
    )
    assert (row["class_uid"], row["severity_id"], row["action_id"]) == (2004, 4, 2)
    assert row["file"]["hashes"] == [{"algorithm": "SHA-256", "value": sha}]
    row = message(
        "%FTD-1-430001: SrcIP: 10.0.1.20, DstIP: 192.0.2.30, Protocol: tcp, Priority: 1, GID: 1, "
        'SID: 58724, Revision: 6, Message: "SERVER-OTHER Log4j", Classification: Attempted User, '
        "InlineResult: Blocked"
    )
    assert (row["finding_info"]["uid"], row["finding_info"]["title"]) == (
        "58724",
        "SERVER-OTHER Log4j",
    )


def test_messages_of_no_known_form_and_hostile_lines() -> None:
    for words in (
        "%ASA-1-104001: (Primary) Switching to ACTIVE - mate want me Active.",
        "%ASA-6-302013: Built inbound TCP connection from src 6.6.6.6/4",
        "%ASA-3-199999: from 6.6.6.6/1 to 7.7.7.7/2",
    ):
        row = message(words)
        assert (row["class_uid"], row.get("src_ip")) == (0, None)
    row = message('%ASA-4-106023: Deny tcp src a:1.1.1.1/99999 dst b:2.2.2.2/1 by access-group "x"')
    assert json.loads(row["unmapped"])["srcport"] == "99999"
    assert "no '%ASA-'" in reason("cisco_asa", "Mar  2 09:00:00 fw hello")
    assert "priority 999" in reason("cisco_asa", "<999>%ASA-6-302010: 1 in use")
    found = rows("cisco_asa", b"%ASA-6-302010: 1 in use\nhello\n%ASA-6-302010: 2 in use")
    assert [row.get("dead_letter_reason") is None for row in found] == [True, False, True]
    long = "%ASA-6-113005: AAA user authentication Rejected : reason = " + " : server = a" * 500_000
    assert good("cisco_asa", long)["class_uid"] == 0


def test_a_line_with_another_time() -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    words = "%ASA-6-302010: 12 in use, 10 most used"
    for head in (HEAD, "<166>2026-03-02T09:00:00Z: ", "Mar  2 09:00:00 10.1.1.1 "):
        raw = lookup("cisco_asa").restamp((head + words).encode(), when, ZoneInfo("UTC"))
        assert good("cisco_asa", raw)["time"] == when
        assert len(raw) == len(head + words)
