"""Lines of other versions, builds and modules of the same products, and what they must become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.logs import good

SYSLOG = "<86>Mar  2 09:00:00 h1 "
APACHE = "[Mon Mar 02 09:00:00.000000 2026] [{}:error] [pid 1:tid 2] [client {}] "
NGINX = (
    "2026/03/02 09:00:00 [error] 12#12: *5 {}, client: 10.0.0.5, server: s, "
    'request: "GET / HTTP/1.1", host: "h"'
)
FORTIGATE = (
    'date=2026-03-02 time=09:00:00 eventtime=1772442000000000000 tz="+0000" devname="FG" '
    'devid="F1" vd="root" '
)
LOGIN, FAILED, DONE = 3002, 2, 1

SSHD = [  # Solaris, BSD, macOS, CORP\ann of Windows, and without a protocol
    ("Failed keyboard-interactive for root from 10.0.0.5 port 41 ssh2", FAILED, "root"),
    ("[ID 800047 auth.info] Failed none for root from 10.0.0.5 port 41 ssh2", FAILED, "root"),
    ("[ID 800047 auth.info] Accepted publickey for ann from 10.0.0.5 port 4 ssh2", DONE, "ann"),
    ("error: PAM: authentication error for root from 10.0.0.5", FAILED, "root"),
    ("error: PAM: authentication error for ann from 10.0.0.5 via 10.0.0.1", FAILED, "ann"),
    ("Failed password for root from 10.0.0.5 port 1", FAILED, "root"),
    ("Accepted password for CORP\\ann from 10.0.0.5 port 1 ssh2", DONE, "ann"),
]


@pytest.mark.parametrize("program", ["sshd", "com.apple.sshd", "sshd-session"])
@pytest.mark.parametrize(("words", "status", "user"), SSHD)
def test_sshd_of_other_systems(words: str, status: int, user: str, program: str) -> None:
    row = good("sshd", f"{SYSLOG}{program}[1]: {words}")
    assert (row["class_uid"], row["status_id"]) == (LOGIN, status)
    assert (row["user_name"], row["src_ip"], row["host_name"]) == (user, "10.0.0.5", "h1")


def test_sshd_of_metalog_and_of_the_first_protocol() -> None:
    row = good("sshd", "Mar  2 09:00:00 [sshd] Failed password for ann from 10.0.0.5 port 1 ssh2")
    assert (row["class_uid"], row["user_name"], row["host_name"]) == (LOGIN, "ann", None)
    old = good("sshd", SYSLOG + "sshd[1]: log: Password authentication for ann accepted.")
    assert (old["class_uid"], old["status_id"], old["user_name"]) == (LOGIN, DONE, "ann")
    shut = good("sshd", SYSLOG + "sshd[1]: Login not allowed for user ann: account is locked")
    assert (shut["class_uid"], shut["status_id"]) == (LOGIN, FAILED)


@pytest.mark.parametrize(
    ("words", "user"),
    [
        ("AH01790: user x: password mismatch: /x", "x"),
        ("AH01794: user `x' in realm `r' not found: /x", "x"),
        ("Digest: user `x' in realm `r' not found: /x", "x"),
        ("AH01788: realm mismatch - got `a' but expected `b'", None),
        (
            "AH01695: auth_ldap authenticate: user x authentication failed; URI /x "
            "[LDAP: ldap_simple_bind() failed][Invalid credentials]",
            "x",
        ),
        ("AH01807: user x not found", "x"),
        ("AH01655: PAM: user 'x' - not authenticated: Authentication failure", "x"),
        ("PAM authentication failed for user x: Authentication failure", "x"),
        ("krb5_get_init_creds_password() failed: Preauthentication failed", None),
        ("gss_accept_sec_context() failed: An unsupported mechanism was requested", None),
    ],
)
def test_apache_logins_that_failed_in_every_modules_words(words: str, user: str | None) -> None:
    row = good("apache_error", APACHE.format("auth_basic", "10.0.0.5:4242") + words)
    assert (row["class_uid"], row["status_id"], row["src_ip"]) == (LOGIN, FAILED, "10.0.0.5")
    assert (row["user_name"] or None) == user


@pytest.mark.parametrize("client", ["[2001:db8::5]:4242", "2001:db8::5:4242"])
def test_apache_clients_of_ipv6_with_a_port(client: str) -> None:
    words = "AH01630: client denied by server configuration: /x"
    row = good("apache_error", APACHE.format("authz_core", client) + words)
    assert row["src_endpoint"] == {"ip": "2001:db8::5", "port": 4242}


@pytest.mark.parametrize(
    ("words", "user"),
    [
        ("PAM: user 'x' - not authenticated: Authentication failure", "x"),
        ('http_auth_ldap: Authentication failed for user "x"', "x"),
        ("http_auth_ldap: User bind failed with error code 49", None),
        ("Negotiate authentication failed", None),
    ],
)
def test_nginx_logins_that_failed_in_other_modules(words: str, user: str | None) -> None:
    row = good("nginx_error", NGINX.format(words))
    assert (row["class_uid"], row["status_id"], row["src_ip"]) == (LOGIN, FAILED, "10.0.0.5")
    assert (row["user_name"] or None) == user


@pytest.mark.parametrize(
    "words",
    [
        "auth: Info: passdb(ann,10.0.0.5)<x>: ldap: Password mismatch",
        "auth(ann,10.0.0.5,sasl:plain)<x>: ldap: Password mismatch",
        "auth(ann,10.0.0.5,sasl:login): Info: ldap: unknown user",
        "auth: Error: ldap(ann,10.0.0.5): ldap_bind() failed: Invalid credentials",
        "auth: oauth2(ann,10.0.0.5): oauth2 failed: Token is not valid",
        "auth-worker(1): Info: conn unix:auth-worker (pid=1,uid=1): auth-worker<1>: "
        "sql(ann,10.0.0.5,<x>): Password mismatch",
    ],
)
def test_dovecot_two_point_four_and_ldap(words: str) -> None:
    row = good("dovecot", f"{SYSLOG}dovecot[1]: {words}")
    assert (row["class_uid"], row["status_id"]) == (LOGIN, FAILED)
    assert (row["user_name"], row["src_ip"]) == ("ann", "10.0.0.5")


def url_of(row: dict[str, Any]) -> tuple[Any, ...]:
    url = row["http_request"]["url"]
    return tuple(url.get(name) for name in ("scheme", "hostname", "port", "path", "query_string"))


@pytest.mark.parametrize(
    ("source", "raw"),
    [
        (
            "fortigate",
            FORTIGATE + 'logid="0316013056" type="utm" subtype="webfilter" eventtype="ftgd_blk" '
            'srcip=10.0.0.5 dstip=10.0.0.9 action="blocked" hostname="h.example" '
            'url="https://h.example:8443/a/b?c=d"',
        ),
        ("cef", "CEF:0|V|P|1|1|x|5|request=https://h.example:8443/a/b?c\\=d src=10.0.0.5"),
        (
            "paloalto",
            '{"LogType":"THREAT","Subtype":"url","TimeGenerated":"2026-03-02T09:00:00Z",'
            '"SourceAddress":"10.0.0.5","URL":"https://h.example:8443/a/b?c=d"}',
        ),
    ],
)
def test_a_whole_url_is_taken_apart(source: str, raw: str) -> None:
    row = good(source, raw)
    assert url_of(row) == ("https", "h.example", 8443, "/a/b", "c=d")
    assert "h.example" in {seen["value"] for seen in row["observables"]}


def test_fortigate_in_cef_has_the_firewalls_own_time() -> None:
    row = good(
        "fortigate",
        "<134>Mar 02 08:00:00 FG CEF:0|Fortinet|Fortigate|v7.2.1|13056|utm:webfilter blocked|4|"
        "FTNTFGTeventtime=1772442000000000000 src=10.0.0.5 dst=10.0.0.9 act=blocked",
    )
    assert (row["time"].isoformat(), row["time_quality"]) == ("2026-03-02T09:00:00+00:00", "exact")


@pytest.mark.parametrize(
    ("pairs", "class_uid"),
    [
        ('subtype="wad" srcip=10.0.0.5 dstip=10.0.0.9 action="receive" msg="SSL alert"', 4001),
        (
            'subtype="rest-api" user="ann" ui="GUI(10.0.0.5)" method="GET" path="system.status"',
            6003,
        ),
        ('subtype="endpoint" user="ann" ip=10.0.0.5 name="pc1" action="add"', 0),
    ],
)
def test_fortigate_says_of_itself(pairs: str, class_uid: int) -> None:
    row = good("fortigate", f'{FORTIGATE}logid="0100000001" type="event" {pairs}')
    assert (row["class_uid"], row["src_ip"]) == (class_uid, "10.0.0.5")


def test_paloalto_as_json_of_the_logging_service() -> None:
    row = good(
        "paloalto",
        '{"log_type":{"value":"traffic"},"sub_type":{"value":"end"},"action":{"value":"allow"},'
        '"time_generated":1772442000000000,"source_ip":{"value":"10.0.0.5"},"source_port":25238.0,'
        '"dest_ip":{"value":"10.0.0.9"},"source_user":"corp\\\\ann","odd":[1]}',
    )
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4001, 2, 1)
    assert (row["src_ip"], row["dst_ip"], row["user_name"]) == ("10.0.0.5", "10.0.0.9", "ann")
    assert row["src_endpoint"]["port"] == 25238
    assert json.loads(row["unmapped"])["odd"] == "[1]"


def test_globalprotect_in_cef_is_a_tunnel() -> None:
    row = good(
        "paloalto",
        "CEF:0|Palo Alto Networks|PAN-OS|10.0.0|gateway-connected|GLOBALPROTECT|1|rt=Mar 02 2026 "
        "09:00:00 PanOSEventStatus=success suser=corp\\\\ann PanOSPublicIPv4=10.0.0.5 shost=pc1",
    )
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4014, 1, 1)
    assert (row["user_name"], row["user"]["domain"], row["src_ip"]) == ("ann", "corp", "10.0.0.5")


STRATA = (
    "CEF:0|Palo Alto Networks|LF|2.0|{}|{}|3|dtz=UTC rt=Mar 02 2026 09:00:00 "
    "deviceExternalId=0018 {}"
)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (
            STRATA.format(
                "GLOBALPROTECT",
                "globalprotect",
                "PanOSEventIDValue=gateway-auth PanOSSourceUserName=corp\\\\\\\\ann "
                "PanOSEndpointDeviceName=pc1 PanOSPublicIPv4=10.0.0.5 PanOSEventStatus=failure",
            ),
            2,
        ),
        (
            "CEF:0|Palo Alto Networks|PAN-OS|10.0.0|portal-auth|GLOBALPROTECT|1|rt=Mar 02 2026 "
            "09:00:00 PanOSEventStatus=success suser=corp\\\\ann PanOSPublicIPv4=10.0.0.5",
            1,
        ),
        (
            STRATA.format(
                "AUTH", "Radius", "src=10.0.0.5 duser=corp\\\\ann msg=Invalid Certificate"
            ),
            2,
        ),
        (
            STRATA.format(
                "AUTH", "Radius", "src=10.0.0.5 duser=corp\\\\ann msg=authentication success"
            ),
            1,
        ),
    ],
)
def test_logins_of_pan_os_in_cef(line: str, status: int) -> None:
    row = good("paloalto", line)
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (3002, 1, status)
    assert (row["user_name"], row["user"]["domain"], row["src_ip"]) == ("ann", "corp", "10.0.0.5")


def test_names_of_pan_os_in_cef_of_others_mean_nothing() -> None:
    row = good(
        "cef",
        "CEF:0|Other|X|1|AUTH|x|1|rt=Mar 02 2026 09:00:00 src=10.0.0.5 "
        "PanOSSourceUserName=eve PanOSEventIDValue=gateway-auth",
    )
    assert (row["class_uid"], row.get("user_name")) == (4001, None)


def test_bind_answers_with_their_records() -> None:
    row = good(
        "bind",
        SYSLOG + "named[1]: client 10.0.0.5#1: UDP: query: a.b IN A response: NOERROR +A a.b. 300 "
        "IN A 10.9.9.9; a.b. 300 IN A 10.9.9.8;",
    )
    assert (row["class_uid"], row["activity_id"], row["rcode"]) == (4003, 2, "NOERROR")
    assert row["query"]["hostname"] == "a.b"
    assert [answer["rdata"] for answer in row["answers"]] == ["10.9.9.9", "10.9.9.8"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Sending Advertise to fe80::5 port 546", "Advertise"),
        (
            "Relay-forward message from 2001:db8::1 port 547, link address 2001:db8::1, "
            "peer address fe80::5",
            "Relay-forward",
        ),
        ("DHCPv4-query message from fe80::5 port 546, transaction ID 0x1A", "DHCPv4-query"),
    ],
)
def test_dhcpv6_between_relay_and_server(words: str, name: str) -> None:
    row = good("isc_dhcpd", f"{SYSLOG}dhcpd[1]: {words}")
    assert (row["class_uid"], row["activity_name"], row["src_ip"]) == (4004, name, "fe80::5")


@pytest.mark.parametrize(
    ("source", "raw", "name"),
    [
        ("xrdp", "[20260302-09:00:00] [INFO ] AUTHFAIL: user=CORP\\ann ip=10.0.0.5 time=1", "ann"),
        (
            "vsftpd",
            'Mon Mar  2 09:00:00 2026 [pid 2] [CORP\\ann] FAIL LOGIN: Client "10.0.0.5"', "ann"),
        ("json", '{"user":"CORP\\\\ann","time":"2026-03-02T09:00:00Z"}', "ann"),
        ("json", '{"user":"a\\\\b\\\\c","time":"2026-03-02T09:00:00Z"}', "a\\b\\c"),
    ],
)  # fmt: skip
def test_a_domain_is_no_part_of_a_users_name(source: str, raw: str, name: str) -> None:
    row = good(source, raw)
    assert row["user_name"] == name
    assert (row["user"].get("domain") == "CORP") == (name == "ann")
    assert name in {seen["value"] for seen in row["observables"]}


def test_a_connection_of_ftd_has_its_request() -> None:
    head = "<134>Mar  2 2026 09:00:00 ftd : %FTD-1-430003: EventPriority: Low, ConnectionID: 50, "
    ends = "SrcIP: 10.0.0.5, DstIP: 203.0.113.9, SrcPort: 51234, DstPort: 80, Protocol: tcp, "
    said = "UserAgent: curl/8, HTTPResponse: 404, HTTPReferer: http://a.example/r, "
    row = good(
        "cisco_asa",
        f"{head}AccessControlRuleAction: Allow, {ends}{said}ReferencedHost: h.example, "
        "URL: http://h.example/a?b=c",
    )
    asked = row["http_request"]
    assert (row["class_uid"], asked["user_agent"], asked["referrer"]) == (
        *(4001, "curl/8", "http://a.example/r"),
    )
    assert asked["url"]["hostname"] == "h.example"
    assert (asked["url"]["path"], asked["url"]["query_string"]) == ("/a", "b=c")
    assert row["http_response"]["code"] == 404
    row = good("cisco_asa", f"{head}{ends}ApplicationProtocol: HTTPS, URL: https://h.example")
    assert row["http_request"]["url"]["scheme"] == "https"
    row = good("cisco_asa", f"{head}{ends}URL: h.example/x")
    assert row["http_request"]["url"]["url_string"] == "h.example/x"
    assert row["http_request"]["url"]["hostname"] == "h.example"


def test_fortigate_looks_into_shares_and_shells() -> None:
    ends = 'srcip=10.0.0.5 srcport=5 dstip=203.0.113.9 dstport=22 proto=6 action="blocked"'
    row = good(
        "fortigate",
        f'{FORTIGATE}logid="1500008448" type="utm" subtype="cifs" {ends} service="CIFS" '
        'eventtype="cifs-filefilter" cmdtype="read" filename="x.exe" filesize="7" user="ann"',
    )
    assert (row["class_uid"], row["activity_name"], row["status_id"]) == (4006, "read", FAILED)
    assert (row["file"]["path"], row["file"]["size"]) == ("x.exe", 7)
    row = good(
        "fortigate",
        f'{FORTIGATE}logid="1600061002" type="utm" subtype="ssh" {ends} login="root" command="ls"',
    )
    assert (row["class_uid"], row["activity_id"], row["user_name"]) == (4007, 5, "root")
    assert row["message"] == "ssh blocked: ls"


def test_infoblox_tells_the_port_a_client_is_behind() -> None:
    row = good(
        "infoblox",
        SYSLOG + "dhcpd[7]: Option 82: received a REQUEST DHCP packet from relay-agent 10.9.0.1 "
        'with a circuit-id of "00:04:03:e8" and remote-id of "00:06:00:1a" for 10.7.0.1 '
        "(02:42:ac:77:0b:10) lease time is 7200 seconds.",
    )
    assert (row["class_uid"], row["activity_id"], row["src_ip"]) == (4004, 3, "10.7.0.1")
    assert (row["src_endpoint"]["mac"], row["relay_ip"]) == ("02:42:ac:77:0b:10", "10.9.0.1")
    assert json.loads(row["unmapped"])["circuit_id"] == "00:04:03:e8"


def test_a_session_of_smtp_without_a_mail_is_a_connection() -> None:
    row = good(
        "suricata",
        '{"timestamp":"2026-03-02T09:00:00.000000+0000","event_type":"smtp","src_ip":"10.0.0.5",'
        '"src_port":5,"dest_ip":"203.0.113.9","dest_port":25,"proto":"TCP","smtp":{"helo":"x"}}',
    )
    assert (row["class_uid"], row["activity_id"], row["app_name"]) == (4001, 6, "smtp")
    assert row["connection_info"]["protocol_num"] == 6
    assert json.loads(row["unmapped"])["smtp"] == {"helo": "x"}


WHOLE: list[tuple[str, str, dict[str, Any]]] = [
    (
        "zeek:conn",
        '{"ts":1588205198.5,"uid":"C1","id.orig_h":"10.0.0.5","id.orig_p":25238.0,'
        '"id.resp_h":"10.0.0.6","id.resp_p":2.0,"proto":"tcp","conn_state":"SF"}',
        {"src_ip": "10.0.0.5"},
    ),
    (
        "winlogbeat",
        '{"@timestamp":"2026-03-02T09:00:00Z","winlog":{"event_id":4624.0,"channel":"Security",'
        '"provider_name":"Microsoft-Windows-Security-Auditing","computer_name":"pc","event_data":'
        '{"TargetUserName":"ann","LogonType":3.0,"IpAddress":"10.0.0.5","IpPort":25238.0}}}',
        {"logon_type_id": 3},
    ),
    (
        "mysql",
        '{"timestamp":"2026-03-02 09:00:00","id":1.0,"class":"connection","event":"connect",'
        '"account":{"user":"ann","host":""},"login":{"user":"ann","ip":"10.0.0.5"},'
        '"connection_data":{"status":1045.0}}',
        {"status_id": FAILED},
    ),
]


@pytest.mark.parametrize(("source", "raw", "columns"), WHOLE)
def test_a_whole_number_may_have_a_point(source: str, raw: str, columns: dict[str, Any]) -> None:
    row = good(source, raw)
    assert {name: row[name] for name in columns} == columns
    assert row["src_endpoint"].get("port") in (25238, None)
    assert ".0" not in (row["unmapped"] or "")
