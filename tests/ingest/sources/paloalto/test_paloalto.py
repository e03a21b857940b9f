"""PAN-OS: each type of log, with the columns of several releases."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from ingest.sources.paloalto.fields import LAYOUTS
from tests.ingest import conforms
from tests.ingest.logs import good, reason, rows

TIME = "2026/03/02 09:00:00"
SESSION = {
    "receive_time": TIME,
    "serial": "012801096514",
    "subtype": "end",
    "config_ver": "2561",
    "time_generated": TIME,
    "src": "10.0.0.5",
    "dst": "192.0.2.7",
    "natsrc": "203.0.113.1",
    "natdst": "192.0.2.7",
    "rule": "allow, web",
    "srcuser": "corp\\ann",
    "app": "web-browsing",
    "vsys": "vsys1",
    "from": "trust",
    "to": "untrust",
    "inbound_if": "ethernet1/2",
    "outbound_if": "ethernet1/1",
    "sessionid": "22751",
    "repeatcnt": "1",
    "sport": "55113",
    "dport": "443",
    "natsport": "16418",
    "proto": "tcp",
    "action": "allow",
    "srcloc": "10.0.0.0-10.255.255.255",
    "dstloc": "United States",
    "device_name": "fw1",
    "seqno": "32091112",
}
TRAFFIC = SESSION | {
    "type": "TRAFFIC",
    "bytes": "7734",
    "bytes_sent": "1758",
    "bytes_received": "5976",
    "packets": "36",
    "pkts_sent": "16",
    "pkts_received": "20",
    "start": "2026/03/02 08:50:00",
    "elapsed": "586",
    "session_end_reason": "tcp-fin",
    "rule_uuid": "731a6a1a",
}


def csv_line(fields: dict[str, str], columns: int | None = None) -> str:
    """The line of `fields`, in PAN-OS's order, with the first `columns` columns."""
    names = LAYOUTS[fields["type"]]
    values = [fields.get(name, "") for name in names]
    values[0] = "1"
    last = max(at for at, value in enumerate(values) if value) + 1
    quoted = [
        '"' + value.replace('"', '""') + '"' if "," in value or '"' in value else value
        for value in values[: columns or last]
    ]
    return ",".join(quoted)


def log(raw: str, **more: Any) -> dict[str, Any]:
    row = good("paloalto", raw, **more)
    assert conforms.misfits(row) == []
    assert conforms.faults(row) == []
    assert row == good("paloalto", raw, **more)
    return row


def test_a_session() -> None:
    row = log("<14>Mar  2 09:00:01 PA-220 " + csv_line(TRAFFIC), tz="Europe/Berlin")
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4001, 2, 1)
    assert row["src_endpoint"] == {
        "ip": "10.0.0.5",
        "port": 55113,
        "zone": "trust",
        "interface_name": "ethernet1/2",
    }
    assert row["dst_endpoint"]["country"] == "United States"
    assert row["traffic"] == {
        "bytes": 7734,
        "bytes_out": 1758,
        "bytes_in": 5976,
        "packets": 36,
        "packets_out": 16,
        "packets_in": 20,
    }
    assert row["firewall_rule"] == {"name": "allow, web", "uid": "731a6a1a"}
    assert row["actor"]["user"] == {"name": "ann", "domain": "corp"}
    assert row["time"] == datetime(2026, 3, 2, 8, tzinfo=UTC)
    assert row["start_time"] == datetime(2026, 3, 2, 7, 50, tzinfo=UTC)
    assert row["duration"] == 586000
    assert (row["device"]["hostname"], row["device"]["uid"]) == ("fw1", "012801096514")
    assert (row["app_name"], row["status_detail"]) == ("web-browsing", "tcp-fin")
    rest = json.loads(row["unmapped"])
    assert (rest["natsrc"], rest["natsport"], rest["syslog_host"]) == (
        "203.0.113.1",
        "16418",
        "PA-220",
    )


@pytest.mark.parametrize(
    ("subtype", "action", "activity", "decided"),
    [
        ("start", "allow", 1, 1),
        ("end", "allow", 2, 1),
        ("drop", "drop", 5, 2),
        ("deny", "deny", 5, 2),
        ("end", "reset-both", 5, 2),
        ("deny", "reset-client", 5, 2),
    ],
)
def test_what_became_of_a_session(subtype: str, action: str, activity: int, decided: int) -> None:
    row = log(csv_line(TRAFFIC | {"subtype": subtype, "action": action}))
    assert (row["activity_id"], row["action_id"], row["disposition_id"]) == (
        activity,
        decided,
        decided,
    )


@pytest.mark.parametrize("columns", [53, 60, 70, 100, len(LAYOUTS["TRAFFIC"])])
def test_releases_have_more_columns_or_fewer(columns: int) -> None:
    fields = TRAFFIC | {"high_res_timestamp": "2026-03-02T09:00:00.437-08:00", "src_host": "pc5"}
    row = log(csv_line(fields, columns))
    assert row["dst_ip"] == "192.0.2.7"
    whole = len(LAYOUTS["TRAFFIC"])
    if columns == whole:
        assert row["time"] == datetime(2026, 3, 2, 17, 0, 0, 437000, UTC)
        assert (row["time_quality"], row["src_endpoint"]["hostname"]) == ("exact", "pc5")
    extra = log(csv_line(fields, whole) + ",from,the,future")
    assert json.loads(extra["unmapped"])[f"column_{whole + 3}"] == "future"


def test_a_placeholder_is_no_time() -> None:
    fields = TRAFFIC | {"high_res_timestamp": "1970-01-01T01:00:00.000+01:00"}
    row = log(csv_line(fields))
    assert (row["time"].hour, row["time_quality"]) == (9, "assumed_zone")


def test_threats() -> None:
    fields = SESSION | {
        "type": "THREAT",
        "subtype": "vulnerability",
        "action": "reset-both",
        "misc": 'evil.example/a,b?x="q"',
        "threatid": "Apache Struts (RCE)(33194)",
        "category": "any",
        "severity": "critical",
        "direction": "client-to-server",
        "thr_category": "code-execution",
    }
    row = log(csv_line(fields))
    assert (row["class_uid"], row["severity_id"], row["action_id"]) == (2004, 5, 2)
    info = row["finding_info"]
    assert (info["uid"], info["title"]) == ("33194", "Apache Struts (RCE)")
    assert (row["src_ip"], row["dst_ip"]) == ("10.0.0.5", "192.0.2.7")
    sha = "c" * 64
    file = {"subtype": "virus", "misc": "x/eicar.com", "filedigest": sha, "action": "alert"}
    row = log(csv_line(fields | file))
    assert (row["file"]["name"], row["action_id"]) == ("eicar.com", 1)
    assert row["file"]["hashes"] == [{"algorithm": "SHA-256", "value": sha}]
    for subtype in ("spyware", "wildfire", "file", "data", "flood", "scan", "packet"):
        assert log(csv_line(fields | {"subtype": subtype}))["class_uid"] == 2004


def test_pages() -> None:
    fields = SESSION | {
        "type": "THREAT",
        "subtype": "url",
        "action": "block-url",
        "misc": 'evil.example:8443/a,b?x="1",6.6.6.6',
        "threatid": "(9999)",
        "category": "malware",
        "severity": "informational",
        "user_agent": "Mozilla/5.0 (X11), like",
        "http_method": "get",
        "xff": "198.51.100.1",
    }
    row = log(csv_line(fields))
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4002, 3, 2)
    request = row["http_request"]
    assert request["url"] == {
        "url_string": fields["misc"],
        "hostname": "evil.example",
        "port": 8443,
        "path": "/a,b",
        "query_string": 'x="1",6.6.6.6',
    }
    assert request["x_forwarded_for"] == ["198.51.100.1"]
    assert request["user_agent"] == "Mozilla/5.0 (X11), like"
    assert (row["src_ip"], row["dst_ip"]) == ("10.0.0.5", "192.0.2.7")


def test_globalprotect_userid_and_authentication() -> None:
    fields = {
        "receive_time": TIME,
        "serial": "013",
        "type": "GLOBALPROTECT",
        "subtype": "0",
        "time_generated": TIME,
        "eventid": "gateway-auth",
        "stage": "login",
        "auth_method": "SAML",
        "srcuser": "ann",
        "machinename": "PC1",
        "public_ip": "198.51.100.9",
        "public_ipv6": "0.0.0.0",
        "private_ip": "10.9.0.5",
        "status": "failure",
        "reason": "Authentication failed: Invalid username or password",
    }
    row = log(csv_line(fields))
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (3002, 1, 2)
    assert (row["src_ip"], row["user"]["name"]) == ("198.51.100.9", "ann")
    row = log(csv_line(fields | {"eventid": "gateway-logout", "status": "success"}))
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4014, 2, 1)
    assert json.loads(row["unmapped"])["private_ip"] == "10.9.0.5"
    userid = {
        "receive_time": TIME,
        "serial": "013",
        "type": "USERID",
        "subtype": "login",
        "time_generated": TIME,
        "ip": "10.0.0.5",
        "user": "corp\\ann",
        "datasourcename": "agent1",
    }
    row = log(csv_line(userid))
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (3002, 1, 1)
    row = log(csv_line(userid | {"subtype": "logout"}))
    assert (row["activity_id"], row["user"]["domain"]) == (2, "corp")
    auth = {
        "receive_time": TIME,
        "serial": "013",
        "type": "AUTHENTICATION",
        "subtype": "auth",
        "time_generated": TIME,
        "ip": "10.0.0.5",
        "user": "ann",
        "event": "Authentication failed",
        "src_mac": "aa:bb:cc:00:11:22",
    }
    row = log(csv_line(auth))
    assert (row["status_id"], row["src_endpoint"]["mac"]) == (2, "aa:bb:cc:00:11:22")


def test_the_firewall_itself() -> None:
    system = {
        "receive_time": TIME,
        "serial": "013",
        "type": "SYSTEM",
        "subtype": "auth",
        "time_generated": TIME,
        "eventid": "auth-fail",
        "severity": "medium",
        "opaque": "failed authentication for user 'x'. From: 6.6.6.6.'.  Reason: Invalid "
        "username/password. From: 198.51.100.9.",
    }
    row = log(csv_line(system))
    assert (row["class_uid"], row["status_id"], row["src_ip"]) == (3002, 2, "198.51.100.9")
    assert (row["user"]["name"], row["severity_id"]) == ("x'. From: 6.6.6.6.", 3)
    row = log(csv_line(system | {"opaque": "User ann logged out via Web from 10.0.0.9"}))
    assert (row["activity_id"], row["user"]["name"]) == (2, "ann")
    row = log(csv_line(system | {"opaque": "Connection closed, source: 6.6.6.6"}))
    assert (row["class_uid"], row.get("src_ip")) == (0, None)
    config = {
        "receive_time": TIME,
        "serial": "013",
        "type": "CONFIG",
        "subtype": "0",
        "time_generated": TIME,
        "host": "10.0.0.9",
        "cmd": "delete",
        "admin": "ann",
        "client": "Web",
        "result": "Failed",
        "path": " vsys  vsys1 rulebase security rules  r1",
        "before_change_detail": 'r1 { description "a, b"; } ',
    }
    row = log(csv_line(config))
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (6003, 4, 2)
    assert (row["actor"]["user"]["name"], row["src_ip"]) == ("ann", "10.0.0.9")
    assert json.loads(row["unmapped"])["before_change_detail"] == config["before_change_detail"]
    hip = {
        "receive_time": TIME,
        "serial": "013",
        "type": "HIPMATCH",
        "subtype": "0",
        "time_generated": TIME,
        "srcuser": "ann",
        "machinename": "PC1",
        "src": "10.0.0.5",
        "matchname": "no-av",
    }
    assert log(csv_line(hip))["src_ip"] == "10.0.0.5"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "User 'ann' failed authentication.  Reason: Invalid username/password From: "
            "198.51.100.9.",
            (2, "198.51.100.9", "ann", "PAN-OS"),
        ),
        (
            "GlobalProtect gateway user authentication failed. Login from: 198.51.100.9, Source "
            "region: US, User name: ann, Client OS version: Microsoft Windows 10 Pro , 64-bit, "
            "Reason: Authentication failed: Invalid username or password, Auth type: profile.",
            (2, "198.51.100.9", "ann", "GlobalProtect gateway"),
        ),
        (
            "GlobalProtect portal user authentication succeeded. Login from: 198.51.100.9, User "
            "name: corp\\Login from: 6.6.6.6, Auth type: profile.",
            (1, "198.51.100.9", "Login from: 6.6.6.6", "GlobalProtect portal"),
        ),
    ],
)
def test_logins_of_older_releases(words: str, expected: tuple[Any, ...]) -> None:
    fields = {
        "receive_time": TIME,
        "serial": "013",
        "type": "SYSTEM",
        "subtype": "auth",
        "time_generated": TIME,
        "opaque": words,
    }
    row = log(csv_line(fields))
    assert (row["class_uid"], row["activity_id"]) == (3002, 1)
    outcome = (row["status_id"], row["src_ip"], row["user"]["name"], row["service"]["name"])
    assert outcome == expected


CLOUD = {"TimeGenerated": "2026-03-02T09:00:00Z", "DeviceSN": "018", "DeviceName": "fw1"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {
                "LogType": "GLOBALPROTECT",
                "EventIDValue": "gateway-auth",
                "AuthMethod": "LDAP",
                "SourceUserName": "corp\\ann",
                "SourceRegion": "US",
                "PublicIPv4": "198.51.100.9",
                "EventStatus": "failure",
                "Description": "bad password",
            },
            {"class_uid": 3002, "status_id": 2, "src_ip": "198.51.100.9", "user_name": "ann"},
        ),
        (
            {
                "LogType": "CONFIG",
                "AdminUsername": "corp\\ann",
                "AdminUserDomain": "corp",
                "AdminUserName": "ann",
                "Client": "Web",
                "IPaddress": "10.0.0.9",
                "EventName": "delete",
                "EventPath": "vsys1",
                "EventResult": "Failed",
            },
            {
                "class_uid": 6003,
                "activity_id": 4,
                "status_id": 2,
                "src_ip": "10.0.0.9",
                "user_name": "ann",
                "message": "delete vsys1",
            },
        ),
        (
            {
                "LogType": "AUTH",
                "Subtype": "Radius",
                "SourceIP": "10.0.0.9",
                "User": "corp\\ann",
                "AuthEvent": "User Password Failure",
                "AuthenticationProtocol": "PAP",
            },
            {
                "class_uid": 3002,
                "status_id": 2,
                "src_ip": "10.0.0.9",
                "user_name": "ann",
                "auth_protocol": "PAP",
            },
        ),
        (
            {"LogType": "AUTH", "User": "ann", "AuthEvent": "authentication success"},
            {"class_uid": 3002, "status_id": 1, "user_name": "ann"},
        ),
        (
            {"LogType": "USERID", "Subtype": "login", "SourceIP": "10.0.0.9", "User": "ann"},
            {"class_uid": 3002, "status_id": 1, "src_ip": "10.0.0.9", "user_name": "ann"},
        ),
    ],
)
def test_logs_of_the_cloud(fields: dict[str, str], expected: dict[str, Any]) -> None:
    row = log(json.dumps(CLOUD | fields))
    assert {name: row[name] for name in expected} == expected
    assert (row["device"]["hostname"], row["time_quality"]) == ("fw1", "exact")
    if "AdminUserName" in fields:
        assert json.loads(row["unmapped"])["AdminUserName"] == "ann"


def test_decryption_and_unknown_types() -> None:
    fields = SESSION | {
        "type": "DECRYPTION",
        "subtype": "0",
        "tls_version": "TLS1.3",
        "sni": "a.example",
        "cn": "a.example",
        "issuer_cn": "CA",
        "cert_serial": "ba67",
        "error": "Received fatal alert",
    }
    row = log(csv_line(fields))
    assert (row["tls"]["sni"], row["tls"]["version"]) == ("a.example", "TLS1.3")
    row = log(f"1,{TIME},013,NEWTYPE,sub,2561,{TIME},a,b")
    assert (row["class_uid"], row["message"]) == (0, "NEWTYPE sub")
    assert json.loads(row["unmapped"])["column_9"] == "b"


def test_hostile_lines() -> None:
    row = log(csv_line(TRAFFIC | {"sport": "99999", "src": "6.6.6"}))
    rest = json.loads(row["unmapped"])
    assert (rest["sport"], rest["src"], row["dst_ip"]) == ("99999", "6.6.6", "192.0.2.7")
    spoofed = 'x",1,2,6.6.6.6,"'
    row = log(csv_line(TRAFFIC | {"srcuser": spoofed}))
    assert (row["src_ip"], row["actor"]["user"]["name"]) == ("10.0.0.5", spoofed)
    assert "no receive time" in reason("paloalto", "hello")
    assert "priority" in reason("paloalto", "<999>" + csv_line(TRAFFIC))
    line = csv_line(TRAFFIC)
    assert len(rows("paloalto", f"{line}\n{line}\n".encode())) == 2
    assert good("paloalto", csv_line(TRAFFIC | {"srcuser": "a" * 5_000_000}))["dst_ip"]
    assert good("paloalto", csv_line(TRAFFIC) + ',"' * 1_000_000)["src_ip"] == "10.0.0.5"
    cef = log("CEF:0|Palo Alto Networks|PAN-OS|11.0|end|TRAFFIC|1|src=10.0.0.5 dst=192.0.2.7")
    assert (cef["class_uid"], cef["src_ip"]) == (4001, "10.0.0.5")


def test_a_line_with_another_time() -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, 123000, UTC)
    source, utc = lookup("paloalto"), ZoneInfo("UTC")
    raw = source.restamp(csv_line(TRAFFIC).encode(), when, utc)
    assert good("paloalto", raw)["time"] == when.replace(microsecond=0)
    fields = TRAFFIC | {"high_res_timestamp": "2026-03-02T09:00:00.437-08:00"}
    assert good("paloalto", source.restamp(csv_line(fields).encode(), when, utc))["time"] == when
