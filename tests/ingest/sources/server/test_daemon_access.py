"""FreeRADIUS and OpenVPN: who was let into the network."""

from __future__ import annotations

import json
from io import BytesIO

import pytest

from ingest.parsing.record_reader import pieces
from ingest.parsing.source import lookup
from tests.ingest.daemons import TEN, Expected, brief, check, events, one, told
from tests.ingest.sources.server.test_daemon_logins import LOGON, PREAUTH, login

STATION = "aa:bb:cc:dd:ee:ff"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Login OK: [bob/<via Auth-Type = eap>] (from client ap1 port 0 cli AA-BB-CC-DD-EE-FF)",
            login(
                1,
                None,
                "bob",
                **{
                    "src_endpoint.mac": STATION,
                    "dst_endpoint.hostname": "ap1",
                    "unmapped.auth_method": "eap",
                    "unmapped.nas_port": "0",
                    "auth_protocol": "RADIUS",
                },
            ),
        ),
        (
            "Login incorrect (mschap: External script says Logon failure (0xc000006d)): [bob] "
            "(from client 10.100.1.3 port 0 cli aabbccddeeff via TLS tunnel)",
            login(
                2,
                None,
                "bob",
                **{
                    "status_detail": "mschap: External script says Logon failure (0xc000006d)",
                    "dst_endpoint.ip": "10.100.1.3",
                    "src_endpoint.mac": STATION,
                    "unmapped.via": "via TLS tunnel",
                },
            ),
        ),
        (
            "Login incorrect (  [ldap] User not found): [bob] (from client 10.0.0.9/32 port 0)",
            login(2, None, "bob", **{"dst_endpoint.ip": "10.0.0.9"}),
        ),
        (
            "Invalid user: [x] (from client n port 5 cli 1.2.3.4)",
            login(2, "1.2.3.4", "x", status_detail="Invalid user"),
        ),
        (
            "Multiple logins (max 1) [MPP attempt]: [bob] (from client n port 1 cli 5551234)",
            login(2, None, "bob", **{"src_endpoint.name": "5551234"}),
        ),
        ("Login OK: [host/pc.example] (from client n port 1)", login(1, None, "host/pc.example")),
        ("Login incorrect: [] (from client n port 1)", login(2, None, "")),
    ],
)
def test_freeradius(text: str, expected: Expected) -> None:
    for head in (
        "Mon Mar  2 10:00:00 2026 : Auth: ",
        "Mon Mar  2 10:00:00 2026 : Auth: (5)   ",
        "Mon Mar  2 10:00:00 : Auth: ",
        "Mar  2 10:00:00 r1 radiusd[7]: ",
        "Mar  2 10:00:00 r1 freeradius[7]: (5) Auth: ",
        "<30>1 2026-03-02T10:00:00Z r1 radiusd 7 - - (5) ",
    ):
        check("freeradius", head + text, expected)
        assert one("freeradius", head + text)["time"] == TEN


def test_what_else_freeradius_says() -> None:
    at = "Mon Mar  2 10:00:00 2026 : "
    found = told(
        "freeradius",
        f"{at}Error: Ignoring request to auth address * port 1812 bound to "
        "server default from unknown client 1.2.3.4 port 5000 proto udp",
    )
    assert (found["class_uid"], found["severity_id"]) == (0, 4)
    assert found["src_endpoint"] == {"ip": "1.2.3.4", "port": 5000}
    assert told("freeradius", f"{at}Info: Ready to process requests")["severity_id"] == 1


@pytest.mark.parametrize(
    "name",
    ["x] (from client evil port 1 cli 00-00-00-00-00-01", "x): [y", "a/nb", "\u202eann"],
)
def test_a_name_forges_no_station(name: str) -> None:
    line = (
        f"Mon Mar  2 10:00:00 2026 : Auth: (5) Invalid user: [{name}] "
        "(from client ap1 port 0 cli aa-bb-cc-dd-ee-ff)"
    )
    row = one("freeradius", line)
    assert (row["mac"], row["dst_endpoint"], row["user_name"]) == (
        STATION,
        {"hostname": "ap1"},
        name,
    )


DETAIL = """Mon Mar  2 10:00:01 2026
\tAcct-Session-Id = "00000001"
\tUser-Name = "bob"
\tNAS-IP-Address = 10.0.0.2
\tAcct-Status-Type = Stop
\tCalling-Station-Id = "AA-BB-CC-DD-EE-FF"
\tFramed-IP-Address = 10.9.0.7
\tAcct-Input-Octets = 100
\tAcct-Output-Octets = 200
\tAcct-Output-Gigawords = 1
\tAcct-Session-Time = 60
\tAcct-Terminate-Cause = User-Request
\tClass = 0x01
\tClass = 0x02
\tTimestamp = 1772445600

Mon Mar  2 10:00:00 2026
\tPacket-Type = Access-Reject
\tUser-Name = "eve"
\tReply-Message = "no"
"""


def test_records_of_a_detail_file() -> None:
    source = lookup("freeradius")
    assert [one.raw.decode() for one in pieces(BytesIO(DETAIL.encode()), source)] == [DETAIL]
    stop, reject = events("freeradius", DETAIL)
    assert (stop["type_uid"], stop["time"], stop["time_quality"]) == (400102, TEN, "exact")
    assert stop["src_endpoint"] == {"mac": STATION, "name": "AA-BB-CC-DD-EE-FF", "ip": "10.9.0.7"}
    assert stop["dst_endpoint"] == {"ip": "10.0.0.2"}
    assert (stop["user_name"], stop["status_detail"], stop["duration"]) == (
        "bob",
        "User-Request",
        60000,
    )
    assert stop["traffic"] == {"bytes": 4294967596, "bytes_in": 4294967496, "bytes_out": 100}
    assert json.loads(stop["unmapped"])["Class"] == ["0x01", "0x02"]
    assert (*brief(reject), reject["status_detail"], reject["time"]) == (
        LOGON,
        2,
        None,
        "eve",
        "no",
        TEN,
    )


# -- OpenVPN --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "1.2.3.4:5000 TLS: Initial packet from [AF_INET]1.2.3.4:5000, sid=ab cd",
            {"type_uid": 400101, "src_endpoint.ip": "1.2.3.4", "src_endpoint.port": 5000},
        ),
        (
            "1.2.3.4:5000 VERIFY OK: depth=0, C=US, O=x, CN=ann",
            {"type_uid": PREAUTH, "status_id": 1, "user.name": "ann"},
        ),
        ("1.2.3.4:5000 VERIFY OK: depth=1, CN=CA", {"class_uid": 0, "unmapped.depth": "1"}),
        (
            "1.2.3.4:5000 VERIFY ERROR: depth=0, error=certificate has expired: CN=ann, serial=1",
            login(2, "1.2.3.4", "ann", status_detail="certificate has expired"),
        ),
        (
            "1.2.3.4:5000 [ann] Peer Connection Initiated with [AF_INET]1.2.3.4:5000",
            login(1, "1.2.3.4", "ann", **{"src_endpoint.port": 5000}),
        ),
        (
            "1.2.3.4:5000 TLS: Username/Password authentication succeeded for username 'ann' [CN]",
            {"type_uid": PREAUTH, "status_id": 1, "user.name": "ann"},
        ),
        (
            "1.2.3.4:5000 TLS Auth Error: Auth Username/Password verification failed for peer",
            login(2, "1.2.3.4", ""),
        ),
        (
            "ann/1.2.3.4:5000 MULTI: Learn: 10.8.0.6 -> ann/1.2.3.4:5000",
            {
                "type_uid": 401401,
                "user.name": "ann",
                "src_endpoint.ip": "1.2.3.4",
                "tunnel_interface.ip": "10.8.0.6",
                "session.is_vpn": True,
            },
        ),
        (
            "ann/1.2.3.4:5000 MULTI_sva: pool returned IPv4=10.8.0.6, IPv6=(Not enabled)",
            {"type_uid": 401499, "tunnel_interface.ip": "10.8.0.6"},
        ),
        (
            "ann/1.2.3.4:5000 SIGTERM[soft,remote-exit] received, client-instance exiting",
            {"type_uid": 401402, "user.name": "ann"},
        ),
        (
            "ann/1.2.3.4:5000 [ann] Inactivity timeout (--ping-restart), restarting",
            {"type_uid": 401402, "src_endpoint.port": 5000},
        ),
        ("1.2.3.4:5000 Connection reset, restarting [0]", {"type_uid": 401402}),
        ("ann/1.2.3.4:5000 TLS: soft reset sec=3600 bytes=1/-1 pkts=5/0", {"type_uid": 401403}),
        ("1.2.3.4:5000 TLS Error: TLS handshake failed", {"type_uid": 400104, "status_id": 2}),
        (
            "1.2.3.4:5000 SENT CONTROL [ann]: 'AUTH_FAILED' (status=1)",
            {"type_uid": PREAUTH, "status_id": 2, "user.name": "ann"},
        ),
        (
            "ann/1.2.3.4:5000 MULTI: bad source address from client [192.168.1.5], packet dropped",
            {"type_uid": 401499, "action_id": 2, "unmapped.vpn_address": "192.168.1.5"},
        ),
        (
            "1.2.3.4:5000 Control Channel: TLSv1.3, cipher TLSv1.3 TLS_AES_256_GCM_SHA384, RSA",
            {"type_uid": 401499, "tls.cipher": "TLS_AES_256_GCM_SHA384"},
        ),
        ("udp4:1.2.3.4:5000 peer info: IV_VER=2.6.3", {"unmapped.peer_info": {"IV_VER": "2.6.3"}}),
        ("Initialization Sequence Completed", {"class_uid": 0}),
        ("WARNING: file is group readable", {"class_uid": 0, "severity_id": 3}),
    ],
)
def test_openvpn(text: str, expected: Expected) -> None:
    for head in (
        "Mon Mar  2 10:00:00 2026 ",
        "2026-03-02 10:00:00 ",
        "2026-03-02 10:00:00 us=0 ",
        "1772445600.000000 1 ",
        "Mar  2 10:00:00 gw openvpn[7]: ",
        "Mar  2 10:00:00 gw ovpn-server[7]: ",
        "<29>1 2026-03-02T10:00:00Z gw openvpn 7 - - ",
    ):
        check("openvpn", head + text, expected)
        assert one("openvpn", head + text)["time"] == TEN
    check("openvpn", text, expected)


def test_openvpn_over_ipv6_and_as_a_client() -> None:
    row = one(
        "openvpn",
        "2026-03-02 10:00:00 2001:db8::5:5000 [ann] Peer Connection Initiated "
        "with [AF_INET6]2001:db8::5:5000",
    )
    assert (*brief(row), row["src_endpoint"]["port"]) == (LOGON, 1, "2001:db8::5", "ann", 5000)
    found = told(
        "openvpn",
        "2026-03-02 10:00:00 [vpn.example] Peer Connection Initiated with [AF_INET]5.6.7.8:1194",
    )
    assert (found["type_uid"], found["dst_endpoint"]["ip"]) == (401401, "5.6.7.8")


def test_a_name_forges_no_address_of_openvpn() -> None:
    text = (
        "1.2.3.4:5000 [x] Peer Connection Initiated with [AF_INET]6.6.6.6:1] Peer Connection "
        "Initiated with [AF_INET]1.2.3.4:5000"
    )
    assert one("openvpn", f"2026-03-02 10:00:00 {text}")["src_ip"] == "1.2.3.4"
    text = (
        "1.2.3.4:5000 TLS: Username/Password authentication succeeded for username "
        "'x' 6.6.6.6:1 [CN SET]'"
    )
    assert one("openvpn", f"2026-03-02 10:00:00 {text}")["src_ip"] == "1.2.3.4"


V1 = """OpenVPN CLIENT LIST
Updated,Mon Mar  2 10:00:00 2026
Common Name,Real Address,Bytes Received,Bytes Sent,Connected Since
ann,1.2.3.4:5000,123,456,Mon Mar  2 09:00:00 2026
ROUTING TABLE
Virtual Address,Common Name,Real Address,Last Ref
10.8.0.6,ann,1.2.3.4:5000,Mon Mar  2 09:59:00 2026
GLOBAL STATS
Max bcast/mcast queue length,0
END
"""
V2 = """TITLE,OpenVPN 2.6.3
TIME,2026-03-02 10:00:00,1772445600
HEADER,CLIENT_LIST,Common Name,Real Address,Virtual Address,Virtual IPv6 Address,Bytes Received,\
Bytes Sent,Connected Since,Connected Since (time_t),Username,Client ID,Peer ID,Data Channel Cipher
CLIENT_LIST,ann,1.2.3.4:5000,10.8.0.6,,123,456,2026-03-02 09:00:00,1772442000,UNDEF,0,0,AES
GLOBAL_STATS,Max bcast/mcast queue length,0
END
"""


@pytest.mark.parametrize("raw", [V1, V2, V2.replace(",", "\t")])
def test_the_status_file(raw: str) -> None:
    source = lookup("openvpn")
    assert [one.raw.decode() for one in pieces(BytesIO(raw.encode()), source)] == [raw]
    client = events("openvpn", raw)[0]
    assert (client["type_uid"], client["time"], client["duration"]) == (401499, TEN, 3_600_000)
    assert (client["src_ip"], client["user_name"]) == ("1.2.3.4", "ann")
    assert client["traffic"] == {"bytes": 579, "bytes_out": 123, "bytes_in": 456}


def test_syslog_knows_the_programs_of_access() -> None:
    lines = (
        "Mar  2 10:00:00 gw openvpn[7]: 1.2.3.4:5000 TLS Error: TLS handshake failed",
        "Mar  2 10:00:00 r1 radiusd[7]: Login OK: [bob] (from client n port 1)",
        "Mar  2 10:00:00 l1 slapd[7]: conn=1 op=0 RESULT tag=97 err=49 text=",
        "Mar  2 10:00:00 d1 mysqld[7]: [Note] Access denied for user 'a'@'1.2.3.4'",
        "Mar  2 10:00:00 x1 xrdp-sesman[7]: [INFO ] AUTHFAIL: user=a ip=1.2.3.4 time=1",
        "Mar  2 10:00:00 d1 dropbear[7]: Bad password attempt for 'a' from 1.2.3.4:5",
        'Mar  2 10:00:00 f1 vsftpd[7]: [a] FAIL LOGIN: Client "1.2.3.4"',
        "Mar  2 10:00:00 f1 proftpd[7]: f1 (c[1.2.3.4]) - USER a: Login successful.",
        "Mar  2 10:00:00 mx dovecot: imap(ann)<7><s>: Disconnected: Logged out in=1 out=2",
    )
    assert [row["type_uid"] for row in events("syslog", *lines)] == [
        400104,
        LOGON,
        LOGON,
        LOGON,
        LOGON,
        LOGON,
        LOGON,
        LOGON,
        300202,
    ]


def test_long_lines_of_access_take_no_long_time() -> None:
    for source, program, text in (
        ("freeradius", "radiusd", "Login incorrect (" + "): [x] (from client a port 1" * 250),
        ("openvpn", "openvpn", "a/" * 4000),
        ("openvpn", "openvpn", "[" + "] Peer Connection Initiated with [AF_INET]1.1.1.1:1" * 150),
        ("openvpn", "openvpn", "MULTI: primary virtual IP for " + ": 1" * 2600),
    ):
        for size in (7900, 500_000):
            line = f"Mar  2 10:00:00 h {program}[1]: {(text * 100)[:size]}"
            assert isinstance(one(source, line)["class_uid"], int)
