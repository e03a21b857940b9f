"""Rules about network devices on lines as their makers document them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.alerts.reach.fired import fired

HEAD = (
    'date=2026-03-02 time=01:00:00 devname="fg1" devid="FGT60" level="notice" vd="root" '
    'eventtime=1772442000123456789 tz="-0800" '
)
CHANGE = HEAD + (
    'logid="0100044547" type="event" subtype="system" logdesc="Object attribute configured" '
    'user="ann" ui="GUI(10.0.0.5)" action="Add" cfgtid=1 cfgpath="system.admin" cfgobj="eve" '
    'cfgattr="accprofile[super_admin]" msg="Add system.admin eve"'
)
SESSION = HEAD + (
    'logid="0000000013" type="traffic" subtype="forward" srcip=10.0.0.5 srcport=58012 '
    'srcintf="port1" dstip=192.0.2.7 dstport=443 dstintf="wan1" sessionid=105048 proto=6 '
    'policyid=7 policyname="out" dstcountry="Canada" action="close" service="HTTPS" app="SSL" '
    "duration=4000 sentbyte=1188 rcvdbyte=1224"
)
ENDS = (
    'srcip=10.0.0.5 srcport=58012 srcintf="port1" dstip=192.0.2.7 dstport=443 dstintf="wan1" '
    'sessionid=105048 proto=6 policyid=7 direction="incoming" service="HTTP" profile="default" '
)
ATTACK = (
    HEAD
    + ENDS
    + (
        'logid="0419016384" type="utm" subtype="ips" eventtype="signature" severity="critical" '
        'action="dropped" attack="Log4j.Remote.Code" attackid=51006 msg="web_misc"'
    )
)
PAGE = (
    HEAD
    + ENDS
    + (
        'logid="0316013056" type="utm" subtype="webfilter" eventtype="ftgd_blk" action="blocked" '
        'hostname="a.example" url="https://a.example/x" agent="curl/8" catdesc="Malicious Websites"'
    )
)
REFUSED = HEAD + (
    'logid="0101039426" type="event" subtype="vpn" logdesc="SSL VPN login fail" '
    'action="ssl-login-fail" tunneltype="ssl-web" remip=203.0.113.9 user="ann" '
    'reason="sslvpn_login_permission_denied" msg="SSL user failed to logged in"'
)
TUNNEL_DOWN = HEAD + (
    'logid="0101039425" type="event" subtype="vpn" logdesc="SSL VPN statistics" '
    'action="tunnel-stats" tunneltype="ssl-tunnel" remip=203.0.113.9 user="ann" '
    "sentbyte=5000 rcvdbyte=70"
)
LEASE = HEAD + (
    'logid="0100026001" type="event" subtype="system" logdesc="DHCP Ack log" '
    'interface="lan" dhcp_msg="Ack" mac="02:00:00:00:00:0A" ip=10.0.0.5 lease=600 hostname="pc"'
)
DENIED = (
    "<166>Mar  5 2025 12:00:00 fw1 : %ASA-4-106023: Deny tcp src outside:198.51.100.7/50000 dst "
    'inside:10.0.0.5/22 by access-group "outside_in" [0x0, 0x0]'
)
BUILT = (
    "<166>Mar  5 2025 12:00:00 fw1 : %ASA-6-302013: Built outbound TCP connection 7 for "
    "outside:192.0.2.17/80 (192.0.2.17/80) to inside:10.0.0.5/1044 (192.0.2.1/1044)"
)
IN_CEF = (
    "Mar  2 09:00:00 fg1 CEF: 0|Fortinet|Fortigate|v6.0.3|44547|event:system|3|"
    "deviceExternalId=FGT60 FTNTFGTlogid=0100044547 cat=event:system FTNTFGTsubtype=system "
    "duser=ann act=Add FTNTFGTcfgpath=system.admin FTNTFGTcfgobj=eve msg=Add system.admin eve"
)
ACCEPTED = SESSION.replace('"close"', '"accept"')
DROPPED = (
    "<4>Mar  2 09:00:00 fw kernel: [1.0] DROP IN=eth0 OUT= MAC= SRC=203.0.113.9 DST=10.0.0.5 "
    "LEN=40 TOS=0x00 PREC=0x00 TTL=1 ID=1 PROTO=TCP SPT=5000 DPT=23 WINDOW=1 RES=0x00 SYN URGP=0"
)
FLOW = (
    "2 123456789010 eni-1 10.0.0.5 192.0.2.7 49761 3389 6 20 4249 1418530010 1418530070 REJECT OK"
)
TYPED = (
    "<189>45: r1: Mar  2 09:00:00.000: %PARSER-5-CFGLOG_LOGGEDCMD: User:ann  "
    "logged command:clear logging"
)
BGP = "<187>46: r1: Mar  2 09:00:00.000: %IP-TCP-3-BADAUTH: No MD5 digest from 192.0.2.1:179"
EVENT = {"product": "fortigate", "service": "event"}
SESSIONS = {"product": "fortigate", "service": "traffic"}
UTM = {"product": "fortigate", "service": "utm"}
VPN = {"product": "fortios", "service": "vpn"}
ASA = {"product": "cisco", "service": "asa"}
FIREWALL = {"category": "firewall"}
VPC = {"product": "aws", "service": "vpcflow"}
FORTINET = {"product": "fortinet"}
TYPING = {"product": "cisco", "service": "aaa", "category": "accounting"}
NEIGHBOURS = {"product": "cisco", "service": "bgp"}


def words(*wanted: str) -> dict[str, Any]:
    """A detection that looks for words in the whole of an event."""
    return {"keywords": {"|all": list(wanted)}, "condition": "keywords"}


@pytest.mark.parametrize(
    ("logsource", "detection", "source", "line", "fires"),
    [
        (EVENT, {"action": "Add", "cfgpath": "system.admin"}, "fortigate", CHANGE, True),
        (EVENT, {"cfgobj": "eve", "user": "ann"}, "fortigate", CHANGE, True),
        (EVENT, {"action": "Edit", "cfgpath": "system.admin"}, "fortigate", CHANGE, False),
        (EVENT, {"cfgpath": "user.group"}, "fortigate", CHANGE, False),
        (EVENT, {"action": "Add", "cfgpath": "system.admin"}, "fortigate", IN_CEF, True),
        (EVENT, {"subtype": "vpn", "remip": "203.0.113.9"}, "fortigate", REFUSED, True),
        (EVENT, {"subtype": "system", "dhcp_msg": "Ack"}, "fortigate", LEASE, True),
        (EVENT, {"sentbyte": 5000, "rcvdbyte|lt": 100}, "fortigate", TUNNEL_DOWN, True),
        (EVENT, {"action": "close"}, "fortigate", SESSION, False),
        (VPN, {"reason|contains": "permission"}, "fortigate", REFUSED, True),
        (VPN, {"action": "Add"}, "fortigate", CHANGE, False),
        (SESSIONS, {"action": "close", "dstport": 443}, "fortigate", SESSION, True),
        (SESSIONS, {"action": "dropped"}, "fortigate", ATTACK, False),
        (UTM, {"action": "close"}, "fortigate", SESSION, False),
        (
            UTM,
            {"subtype": "ips", "severity": "critical", "attack|contains": "Log4j"},
            "fortigate",
            ATTACK,
            True,
        ),
        (UTM, {"severity": "low"}, "fortigate", ATTACK, False),
        (UTM, {"catdesc|startswith": "Mal", "agent": "curl/8"}, "fortigate", PAGE, True),
        (
            {"product": "fortinet", "category": "firewall"},
            {"action": "Add", "cfgpath": "system.admin"},
            "fortigate",
            CHANGE,
            True,
        ),
        (FORTINET, {"sentbyte": 5000}, "fortigate", TUNNEL_DOWN, True),
        (
            FORTINET,
            {"policyid": 7, "dstcountry": "Canada", "service": "HTTPS", "sentbyte": 1188},
            "fortigate",
            SESSION,
            True,
        ),
        (FORTINET, {"duration|gte": 4000}, "fortigate", SESSION, True),
        (FORTINET, {"duration|gt": 4000}, "fortigate", SESSION, False),
        (FIREWALL, {"action": ["accept", "forward"]}, "fortigate", ACCEPTED, True),
        (
            FIREWALL,
            {"bytes_out": 1188, "app": "SSL", "rule_name": "out"},
            "fortigate",
            SESSION,
            True,
        ),
        (FIREWALL, {"bytes_in": 1188}, "fortigate", SESSION, False),
        (FIREWALL, {"action": ["deny", "drop", "reject"]}, "fortigate", ACCEPTED, False),
        (FIREWALL, {"action": "drop", "tcp_flags|contains": "SYN"}, "netfilter", DROPPED, True),
        (ASA, {"action": "deny", "dst_port": 22}, "cisco_asa", DENIED, True),
        (ASA, {"action": ["accept", "permit"]}, "cisco_asa", DENIED, False),
        (ASA, {"action": "permit"}, "cisco_asa", BUILT, True),
        (FIREWALL, {"tcp_flags|contains": "ACK"}, "netfilter", DROPPED, False),
        (VPC, {"action": "REJECT"}, "aws_vpcflow", FLOW, True),
        (VPC, {"action": "ACCEPT"}, "aws_vpcflow", FLOW, False),
        (TYPING, words("clear logging"), "syslog", TYPED, True),
        (TYPING, words("clear archive"), "syslog", TYPED, False),
        (NEIGHBOURS, words(":179", "IP-TCP-3-BADAUTH"), "syslog", BGP, True),
    ],
)
def test_a_rule_fires_on_the_device_s_own_line(
    logsource: dict[str, str], detection: dict[str, Any], source: str, line: str, fires: bool
) -> None:
    assert fired(logsource, detection, source, line.encode()) is fires
