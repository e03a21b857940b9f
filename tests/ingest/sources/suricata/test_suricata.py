"""Suricata's EVE log: every type of event, three versions of DNS, alerts the right way round."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from ingest.parsing.ocsf_export import ocsf_object
from ingest.parsing.source import lookup
from tests.ingest import conforms
from tests.ingest.logs import good, lines, reason, rows

BASE = {
    "timestamp": "2024-05-01T10:00:00.123456+0200",
    "flow_id": 1827364,
    "src_ip": "10.0.0.5",
    "src_port": 51000,
    "dest_ip": "203.0.113.9",
    "dest_port": 80,
    "proto": "TCP",
}
SAMPLES = (
    "suricata/wrccdc-2017.eve.json",
    "suricata/honeypot-2018.eve.json",
    "suricata/mixed_types.eve.json",
)


def eve(kind: str, detail: Any = None, **more: Any) -> bytes:
    """An EVE event of `kind`."""
    fields = BASE | {"event_type": kind} | more
    if detail is not None:
        fields[kind] = detail
    return json.dumps(fields).encode()


def seen(kind: str, detail: Any = None, **more: Any) -> dict[str, Any]:
    """Its row, which must fit silver.event and OCSF."""
    row = good("suricata", eve(kind, detail, **more))
    assert conforms.misfits(row) == []
    assert conforms.faults(row) == []
    return row


OTHERS = """
    snmp tftp ikev2 ike nfs dcerpc modbus dnp3 mqtt sip bittorrent_dht quic websocket ldap pgsql
    template telnet rfb enip pop3 new_in_version_99
"""
ALERT = {
    "action": "blocked",
    "gid": 1,
    "signature_id": 2100498,
    "rev": 7,
    "signature": "GPL ATTACK_RESPONSE id check returned root",
    "category": "Potentially Bad Traffic",
    "severity": 1,
    "metadata": {
        "mitre_tactic_id": ["TA0001", "TA0011"],
        "mitre_tactic_name": ["Initial_Access", "Command_And_Control"],
        "mitre_technique_id": ["T1190"],
        "mitre_technique_name": ["Exploit_Public_Facing_Application"],
    },
}


@pytest.mark.parametrize("path", SAMPLES)
def test_no_line_of_a_real_log_is_a_dead_letter(path: str) -> None:
    found = rows("suricata", *lines(path))
    assert [row.get("dead_letter_reason") for row in found] == [None] * len(lines(path))
    for row in found:
        assert conforms.misfits(row) == []
        assert conforms.faults(row) == []
    assert found == rows("suricata", *lines(path))


def test_nothing_of_a_real_record_is_dropped() -> None:
    def leaves(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set().union(*map(leaves, value.values())) if value else set()
        if isinstance(value, list):
            return set().union(*map(leaves, value)) if value else set()
        return set() if value in (None, "") else {str(value).lower()}

    # Times and severities change their form, and an action becomes OCSF's.
    formed = {"timestamp", "start", "end", "severity", "action", "event_type", "notbefore"}
    for path in SAMPLES:
        for raw in lines(path):
            fields = json.loads(raw)
            for inner in (fields, *(v for v in fields.values() if isinstance(v, dict))):
                for name in formed & inner.keys():
                    del inner[name]
            row = good("suricata", raw)
            kept = leaves(row) | leaves(json.loads(row["unmapped"] or "{}"))
            url = (row.get("http_request") or {}).get("url") or {}
            kept.add(f"{url.get('path')}?{url.get('query_string')}".lower())
            assert leaves(fields) <= kept, leaves(fields) - kept


def test_an_alert() -> None:
    row = seen("alert", ALERT, community_id="1:x=", app_proto="http", in_iface="eth0")
    assert (row["class_uid"], row["activity_id"], row["severity_id"]) == (2004, 1, 4)
    assert row["time"] == datetime(2024, 5, 1, 8, 0, 0, 123456, UTC)
    assert row["time_quality"] == "exact"
    assert (row["action_id"], row["disposition_id"]) == (2, 2)
    info = row["finding_info"]
    assert (info["title"], info["uid"]) == (ALERT["signature"], "2100498")
    assert info["types"] == ["Potentially Bad Traffic"]
    assert info["analytic"]["type_id"] == 1
    assert json.loads(row["more"])["attacks"] == [
        {
            "tactic": {"uid": "TA0001", "name": "Initial Access"},
            "technique": {"uid": "T1190", "name": "Exploit Public Facing Application"},
        },
        {"tactic": {"uid": "TA0011", "name": "Command And Control"}},
    ]
    shown = ocsf_object(row)
    assert shown["evidences"][0]["src_endpoint"]["ip"] == "10.0.0.5"
    assert shown["unmapped"]["in_iface"] == "eth0"


@pytest.mark.parametrize(("number", "severity"), [(1, 4), (2, 3), (3, 2), (4, 1), (9, 0)])
def test_severities_of_alerts(number: int, severity: int) -> None:
    assert seen("alert", ALERT | {"severity": number})["severity_id"] == severity


def test_an_alert_on_a_server_packet_has_the_client_as_its_source() -> None:
    turned = {"src_ip": "203.0.113.9", "src_port": 80, "dest_ip": "10.0.0.5", "dest_port": 51000}
    flow = {"pkts_toserver": 6, "bytes_toserver": 496, "pkts_toclient": 5, "bytes_toclient": 876}
    tuple_of_flow = {
        "src_ip": "10.0.0.5",
        "src_port": 51000,
        "dest_ip": "203.0.113.9",
        "dest_port": 80,
    }
    for more in (
        {"direction": "to_client"},
        {"direction": "to_client", "flow": flow | tuple_of_flow},
        {"flow": flow | tuple_of_flow},
    ):
        row = seen("alert", ALERT, **turned, **more)
        assert (row["src_ip"], row["src_endpoint"]["port"]) == ("10.0.0.5", 51000)
        assert (row["dst_ip"], row["dst_endpoint"]["port"]) == ("203.0.113.9", 80)
        rest = json.loads(row["unmapped"])
        assert (rest["src_ip"], rest["src_port"]) == ("203.0.113.9", 80)
    assert row["traffic"]["bytes_out"] == 496
    # Without evidence the packet's own direction stands.
    assert seen("alert", ALERT, **turned)["src_ip"] == "203.0.113.9"
    assert seen("alert", ALERT, flow=flow | tuple_of_flow)["src_ip"] == "10.0.0.5"


@pytest.mark.parametrize(
    ("detail", "query", "answers", "rcode"),
    [
        ({"type": "query", "rrname": "a.x", "rrtype": "A"}, ("a.x", "A"), None, None),
        (
            {
                "type": "answer",
                "rrname": "a.x",
                "rrtype": "A",
                "rcode": "NOERROR",
                "ttl": 5,
                "rdata": "1.2.3.4",
            },
            ("a.x", "A"),
            [{"rdata": "1.2.3.4", "type": "A", "ttl": 5}],
            0,
        ),
        (
            {
                "version": 2,
                "type": "answer",
                "rrname": "a.x",
                "rrtype": "A",
                "rcode": "NXDOMAIN",
                "grouped": {"CNAME": ["b.x"], "A": ["1.2.3.4"]},
            },
            ("a.x", "A"),
            [{"rdata": "b.x", "type": "CNAME"}, {"rdata": "1.2.3.4", "type": "A"}],
            3,
        ),
        (
            {
                "version": 3,
                "type": "response",
                "rcode": "NOERROR",
                "queries": [{"rrname": "a.x", "rrtype": "AAAA"}],
                "answers": [{"rrname": "a.x", "rrtype": "AAAA", "ttl": 9, "rdata": "::1"}],
            },
            ("a.x", "AAAA"),
            [{"rdata": "::1", "type": "AAAA", "ttl": 9}],
            0,
        ),
    ],
)
def test_dns_in_three_versions(
    detail: dict[str, Any], query: tuple[str, str], answers: Any, rcode: int | None
) -> None:
    row = seen("dns", detail, proto="UDP", dest_port=53)
    assert row["class_uid"] == 4003
    assert (row["query"]["hostname"], row["query"]["type"]) == query
    assert row.get("answers") == answers
    assert row.get("rcode_id") == rcode
    assert row["activity_id"] == (1 if detail["type"] == "query" else 2)


@pytest.mark.parametrize(
    "detail",
    [
        {"type": "query", "rrname": "", "rrtype": "NS"},
        {"type": "query", "rrtype": "NS"},
        {"version": 3, "type": "request", "queries": [{"rrname": "", "rrtype": "NS"}]},
        {"version": 2, "type": "query", "query": [{"rrname": "", "rrtype": "NS"}]},
    ],
)
def test_a_question_without_a_name_keeps_its_type(detail: dict[str, Any]) -> None:
    row = seen("dns", detail, proto="UDP", dest_port=53)
    assert row.get("query") is None
    assert msgspec.json.decode(row["unmapped"])["dns"]["rrtype"] == "NS"


def test_an_answer_of_version_1_came_from_the_server() -> None:
    detail = {"type": "answer", "rrname": "a.x", "rcode": "NOERROR"}
    ends = {"src_ip": "10.0.0.1", "src_port": 53, "dest_ip": "10.0.0.5", "dest_port": 5353}
    row = seen("dns", detail, **ends)
    assert (row["src_ip"], row["dst_ip"]) == ("10.0.0.5", "10.0.0.1")


def test_http_tls_and_ssh() -> None:
    detail = {
        "hostname": "a.example",
        "url": "/x?y=1",
        "http_user_agent": "curl/8",
        "http_method": "POST",
        "status": 404,
        "length": 9,
        "http_content_type": "text/html",
    }
    row = seen("http", detail)
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4002, 6, 2)
    assert row["http_request"]["url"]["url_string"] == "http://a.example/x?y=1"
    assert row["http_response"] == {"code": 404, "content_type": "text/html", "length": 9}
    row = seen(
        "tls",
        {
            "subject": "CN=a",
            "issuerdn": "CN=b",
            "sni": "a.example",
            "version": "TLS 1.2",
            "fingerprint": "aa:bb",
            "notbefore": "2020-01-01T00:00:00",
            "ja3": {"hash": "e7", "string": "771"},
        },
    )
    assert (row["tls"]["sni"], row["tls"]["ja3_hash"]) == ("a.example", "e7")
    assert row["tls"]["certificate"]["created_time"] == datetime(2020, 1, 1, tzinfo=UTC)
    hassh = {"hash": "ec7378c1a92f5a8dde7e8b7a1ddf33d1", "string": "curve"}
    row = seen("ssh", {"client": {"software_version": "OpenSSH_9", "hassh": hassh}})
    assert json.loads(row["more"])["client_hassh"]["fingerprint"]["algorithm"] == "HASSH"
    assert json.loads(row["unmapped"])["ssh"]["client"]["software_version"] == "OpenSSH_9"


def test_mail_files_and_logins() -> None:
    row = seen(
        "smtp",
        {"helo": "pc", "mail_from": "<a@example.com>", "rcpt_to": ["<b@example.com>"]},
        email={"from": "Ann <ann@example.com>", "subject": "hi", "attachment": ["x.exe"]},
    )
    assert (row["email"]["from"], row["email"]["to"]) == ("a@example.com", ["b@example.com"])
    assert json.loads(row["unmapped"])["email"]["from"] == "Ann <ann@example.com>"
    row = seen("ftp", {"command": "USER", "command_data": "root", "completion_code": ["530"]})
    assert (row["actor"]["user"]["name"], row["status_id"]) == ("root", 2)
    row = seen("ftp_data", {"filename": "/tmp/x.bin", "command": "STOR"})
    assert (row["class_uid"], row["activity_id"], row["file"]["name"]) == (4008, 1, "x.bin")
    row = seen(
        "smb",
        {
            "command": "SMB2_COMMAND_CREATE",
            "status": "STATUS_ACCESS_DENIED",
            "filename": "a\\b.exe",
            "disposition": "FILE_OPEN",
            "ntlmssp": {"domain": "D", "user": "u", "host": "WS"},
        },
    )
    assert (row["activity_id"], row["status_id"], row["file"]["name"]) == (2, 2, "b.exe")
    assert row["actor"]["user"] == {"name": "u", "domain": "D"}
    row = seen("krb5", {"msg_type": "KRB_AS_REP", "cname": "bob", "realm": "D", "sname": "krbtgt"})
    assert (row["class_uid"], row["activity_id"], row["user"]["name"]) == (3002, 3, "bob")
    row = seen(
        "krb5", {"msg_type": "KRB_ERROR", "failed_request": "KRB_TGS_REQ", "error_code": "E"}
    )
    assert (row["activity_id"], row["status_id"]) == (4, 2)


def test_a_lease_belongs_to_the_client() -> None:
    row = seen(
        "dhcp",
        {
            "type": "reply",
            "id": 77,
            "client_mac": "08:00:27:AA:BB:CC",
            "assigned_ip": "10.0.0.5",
            "dhcp_type": "ack",
            "lease_time": 3600,
            "hostname": "pc5",
        },
        src_ip="10.0.0.1",
        src_port=67,
        dest_ip="10.0.0.5",
        dest_port=68,
    )
    assert (row["class_uid"], row["activity_id"], row["lease_dur"]) == (4004, 5, 3600)
    assert row["src_endpoint"] == {
        "ip": "10.0.0.5",
        "mac": "08:00:27:aa:bb:cc",
        "hostname": "pc5",
    }
    assert row["dst_ip"] == "10.0.0.1"


def test_flows_drops_and_files() -> None:
    detail = {
        "pkts_toserver": 2,
        "pkts_toclient": 1,
        "bytes_toserver": 486,
        "bytes_toclient": 12,
        "start": "2024-05-01T09:59:58.000000+0200",
        "end": "2024-05-01T09:59:59.500000+0200",
        "state": "closed",
        "reason": "timeout",
    }
    row = seen("flow", detail, tcp={"tcp_flags": "1b"})
    assert (row["activity_id"], row["duration"]) == (2, 1500)
    assert (row["traffic"]["bytes_out"], row["traffic"]["bytes_in"]) == (486, 12)
    row = seen("drop", {"len": 40, "reason": "rules"})
    assert (row["activity_id"], row["action_id"], row["disposition_id"]) == (5, 2, 2)
    sha = "a" * 64
    row = seen("fileinfo", {"filename": "/x/y.exe", "sha256": sha, "size": 3}, app_proto="smb")
    assert row["file"]["hashes"] == [{"algorithm": "SHA-256", "value": sha}]


@pytest.mark.parametrize(
    "kind",
    OTHERS.split(),
)
def test_any_other_protocol_is_traffic_with_all_that_is_said_of_it(kind: str) -> None:
    row = seen(kind, {"a": {"b": [1, "x"]}})
    assert (row["class_uid"], row["activity_id"], row["app_name"]) == (4001, 6, kind)
    assert json.loads(row["unmapped"])[kind] == {"a": {"b": [1, "x"]}}


def test_what_suricata_says_of_itself() -> None:
    raw = b'{"timestamp":"2024-05-01T10:00:00.1+0000","event_type":"stats","stats":{"uptime":5}}'
    row = good("suricata", raw)
    assert (row["class_uid"], json.loads(row["unmapped"])) == (0, {"stats": {"uptime": 5}})


def test_times_with_and_without_an_offset() -> None:
    raw = eve("flow", {}, timestamp="2024-05-01T10:00:00.5")
    row = good("suricata", raw, tz="America/New_York")
    assert row["time"] == datetime(2024, 5, 1, 14, 0, 0, 500000, UTC)
    assert row["time_quality"] == "assumed_zone"
    for spelled in ("2024-05-01T10:00:00-0600", "2024-05-01T16:00:00+0000"):
        assert seen("flow", {}, timestamp=spelled)["time"].hour == 16


def test_odd_values_do_not_cost_the_event() -> None:
    row = seen("alert", ALERT, src_ip="6.6.6", src_port=99999, proto=7, flow="x", flow_id="y")
    rest = json.loads(row["unmapped"])
    assert (rest["src_ip"], rest["src_port"], rest["proto"], rest["flow"]) == (
        "6.6.6",
        99999,
        7,
        "x",
    )
    assert seen("alert", "x")["class_uid"] == 2004
    assert "event_type" in reason("suricata", b'{"a":1}')
    assert "second value" in reason("suricata", eve("flow") + eve("flow"))
    assert "twice" in reason("suricata", b'{"event_type":"flow","event_type":"alert"}')


def test_several_events_and_shippers() -> None:
    one = eve("flow", {})
    assert len(rows("suricata", one + b"\n" + one)) == 2
    assert len(rows("suricata", b"[" + one + b"," + one + b"]")) == 2
    assert good("suricata", b"<14>May  1 10:00:00 ids suricata[77]: " + one)["class_uid"] == 4001
    assert "not valid JSON" in reason("suricata", b"x suricat " + one)
    beat = {"@timestamp": "2024-05-01T10:00:00Z", "suricata": {"eve": json.loads(one)}}
    assert good("suricata", json.dumps(beat))["src_ip"] == "10.0.0.5"


def test_a_record_with_another_time() -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, 123456, UTC)
    raw = lookup("suricata").restamp(eve("flow", {}), when, ZoneInfo("UTC"))
    assert good("suricata", raw)["time"] == when
