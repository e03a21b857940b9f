"""Each of Zeek's logs: what its own fields become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.ocsf_export import ocsf_object
from tests.examples import examples
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, rows
from tests.ingest.sources.zeek.test_zeek import SSH, packed, tsv, unmapped


def at(shown: Any, path: str) -> Any:
    """What stands at a path such as `user/name`."""
    for key in path.split("/"):
        shown = (shown or {}).get(key)
    return shown


BASE = {key: SSH[key] for key in ("ts", "uid", "id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p")}
MD5, SHA256 = "a" * 32, "b" * 64
GOLDEN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "ssl",
        {
            "version": "TLSv13",
            "cipher": "TLS_AES_256_GCM_SHA384",
            "server_name": "a.example",
            "established": True,
            "ja3": MD5,
            "ja4": "t13d",
            "cert_chain_fps": [SHA256, MD5],
            "subject": "CN=a.example",
            "issuer": "CN=ca",
            "validation_status": "ok",
        },
        {
            "class_uid": 4001,
            "activity_id": 1,
            "status_id": 1,
            "status_detail": "ok",
            "tls/version": "TLSv13",
            "tls/sni": "a.example",
            "tls/ja3_hash/value": MD5,
            "tls/certificate/subject": "CN=a.example",
            "tls/certificate/issuer": "CN=ca",
            "ja4_fingerprint_list": [{"type_id": 1, "type": "JA4", "value": "t13d"}],
            "unmapped/cert_chain_fps": [SHA256, MD5],
        },
    ),
    (
        "ssl",
        {"version": "TLSv12", "established": False, "last_alert": "bad_certificate"},
        {"activity_id": 4, "status_id": 2, "status_code": "bad_certificate"},
    ),
    (
        "ssh",
        {key: SSH[key] for key in SSH if key not in BASE} | {"hassh": MD5, "version": 2},
        {
            "class_uid": 4007,
            "activity_id": 4,
            "status_id": 2,
            "protocol_ver": "2",
            "connection_info/direction_id": 1,
            "client_hassh/fingerprint/value": MD5,
            "src_endpoint/location": {"country": "NL", "lat": 52.5},
        },
    ),
    (
        "kerberos",
        {
            "request_type": "TGS",
            "client": "ann/EX.COM",
            "service": "cifs/fs.ex.com",
            "success": True,
            "till": 2136422885.0,
            "cipher": "aes256-cts-hmac-sha1-96",
            "renewable": True,
            "forwardable": True,
        },
        {
            "class_uid": 3002,
            "activity_id": 4,
            "status_id": 1,
            "auth_protocol_id": 2,
            "user": {"name": "ann", "domain": "EX.COM"},
            "service": {"name": "cifs/fs.ex.com"},
            "authentication_token/expiration_time": 2136422885000,
            "authentication_token/is_renewable": True,
            "authentication_token/encryption_details/algorithm_id": 3,
            "unmapped": {"forwardable": True},
        },
    ),
    (
        "kerberos",
        {"request_type": "AS", "client": "a/b/EX", "error_msg": "KDC_ERR_PREAUTH_REQUIRED"}
        | {"success": False},
        {"activity_id": 6, "status_id": 2, "user/name": "a/b", "severity_id": 1},
    ),
    (
        "kerberos",
        {"service": "krbtgt/EX", "success": False, "error_msg": "KDC_ERR_C_PRINCIPAL_UNKNOWN"},
        {"class_uid": 4001, "status_id": 2, "status_code": "KDC_ERR_C_PRINCIPAL_UNKNOWN"},
    ),
    (
        "ntlm",
        {
            "username": "ann",
            "domainname": "EX",
            "hostname": "PC1",
            "success": False,
            "server_dns_computer_name": "dc.ex.com",
        },
        {
            "class_uid": 3002,
            "activity_id": 1,
            "status_id": 2,
            "severity_id": 2,
            "user": {"name": "ann", "domain": "EX"},
            "src_endpoint/hostname": "PC1",
            "dst_endpoint/hostname": "dc.ex.com",
            "auth_protocol_id": 1,
            "logon_type_id": 3,
        },
    ),
    (
        "radius",
        {"username": "ann", "result": "success", "mac": "00-11-22-33-44-55", "ttl": 0.25},
        {"class_uid": 3002, "status_id": 1, "auth_protocol_id": 10, "duration": 250}
        | {"unmapped/mac": "00-11-22-33-44-55"},
    ),
    (
        "rdp",
        {
            "cookie": "ann",
            "result": "Success",
            "security_protocol": "RDP",
            "client_name": "PC1",
            "desktop_width": 800,
            "keyboard_layout": "German",
        },
        {
            "class_uid": 4005,
            "activity_id": 4,
            "status_id": 1,
            "user/name": "ann",
            "identifier_cookie": "ann",
            "src_endpoint/hostname": "PC1",
            "remote_display/physical_width": 800,
            "unmapped": {"security_protocol": "RDP"},
        },
    ),
    (
        "smb_files",
        {
            "action": "SMB::FILE_DELETE",
            "path": "\\\\fs\\c$",
            "name": "a\\b.exe",
            "size": 7,
            "times.modified": 1588187906.664602,
            "fuid": "F1",
        },
        {
            "class_uid": 4006,
            "activity_id": 99,
            "activity_name": "File Delete",
            "share": "\\\\fs\\c$",
            "file/name": "b.exe",
            "file/path": "\\\\fs\\c$\\a\\b.exe",
            "file/modified_time": 1588187906664,
            "file/uid": "F1",
            "file/size": 7,
        },
    ),
    (
        "smb_mapping",
        {"path": "\\\\fs\\IPC$", "share_type": "PIPE"},
        {"class_uid": 4006, "share": "\\\\fs\\IPC$", "share_type_id": 2},
    ),
    (
        "dce_rpc",
        {"rtt": 0.0015, "named_pipe": "135", "endpoint": "drsuapi", "operation": "DRSGetNCChanges"},
        {
            "class_uid": 4001,
            "api/operation": "DRSGetNCChanges",
            "duration": 2,
            "api/service/name": "drsuapi",
            "unmapped/named_pipe": "135",
        },
    ),
    (
        "ftp",
        {
            "user": "ann",
            "password": "x",
            "command": "RETR",
            "arg": "ftp://10.0.0.2/p/a.zip",
            "reply_code": 226,
            "reply_msg": "done",
            "file_size": 9,
            "fuid": "F1",
        },
        {
            "class_uid": 4008,
            "activity_id": 2,
            "status_id": 1,
            "file/name": "a.zip",
            "actor/user/name": "ann",
            "codes": [226],
            "file/size": 9,
            "unmapped/password": "x",
        },
    ),
    (
        "smtp",
        {
            "helo": "h",
            "mailfrom": "a@b.de",
            "rcptto": ["c@d.de"],
            "from": '"A" <x@y.z>',
            "to": ["c@d.de"],
            "subject": "hi",
            "last_reply": "550 no",
            "tls": False,
        },
        {
            "class_uid": 4009,
            "status_id": 2,
            "email/from": "a@b.de",
            "smtp_hello": "h",
            "email/to": ["c@d.de"],
            "email/from_mailbox": '"A" <x@y.z>',
            "status_code": "550",
        },
    ),
    ("smtp", {"helo": "h", "last_reply": "220 go"}, {"class_uid": 4001, "unmapped/helo": "h"}),
    (
        "notice",
        {
            "note": "SSH::Password_Guessing",
            "msg": "203.0.113.9 guesses",
            "sub": "in 3 m",
            "src": "203.0.113.9",
            "p": 22,
            "actions": ["Notice::ACTION_LOG"],
        },
        {
            "class_uid": 2004,
            "severity_id": 3,
            "finding_info/title": "SSH::Password_Guessing",
            "finding_info/desc": "203.0.113.9 guesses: in 3 m",
            "finding_info/types": ["SSH"],
            "unmapped": {"sub": "in 3 m", "actions": ["Notice::ACTION_LOG"]},
        },
    ),
    (
        "weird",
        {"name": "bad_TCP_checksum", "addl": "x", "notice": False},
        {"class_uid": 4001, "metadata/event_code": "bad_TCP_checksum"},
    ),
    (
        "analyzer",
        {"cause": "violation", "analyzer_name": "HTTP", "failure_reason": "not a request"},
        {"class_uid": 4001, "message": "HTTP: not a request", "metadata/event_code": "violation"},
    ),
    (
        "intel",
        {"seen": {"indicator": "e.vil", "indicator_type": "Intel::DOMAIN"}, "sources": ["x"]},
        {"class_uid": 2004, "finding_info/analytic/uid": "e.vil", "severity_id": 3},
    ),
    (
        "files",
        {"fuid": "F1", "source": "HTTP", "filename": "a.exe", "md5": MD5, "sha256": SHA256}
        | {"total_bytes": 5},
        {
            "class_uid": 4001,
            "metadata/uid": "F1",
            "unmapped/file/name": "a.exe",
            "unmapped/file/size": 5,
            "unmapped/file/uid": "F1",
        },
    ),
    ("tunnel", {"tunnel_type": "Tunnel::TEREDO", "action": "Tunnel::CLOSE"}, {"type_uid": 401402}),
    ("ntp", {"version": 4, "mode": 3, "stratum": 2}, {"type_uid": 401303, "stratum_id": 2}),
    (
        "syslog",
        {"proto": "udp", "facility": "AUTH", "severity": "ERR", "message": "<1>x"},
        {"class_uid": 4001, "severity_id": 3, "message": "<1>x", "unmapped/facility": "AUTH"},
    ),
    (
        "suricata_corelight",
        {"alert.signature": "ET X", "alert.signature_id": 7, "alert.severity": 1}
        | {"alert.action": "blocked"},
        {"class_uid": 2004, "severity_id": 4, "finding_info/title": "ET X", "action_id": 2},
    ),
    (
        "mysql",
        {"cmd": "query", "arg": "select 1", "success": True, "user": "bob"},
        {"type_uid": 400106, "status_id": 1, "app_name": "mysql", "actor/user/name": "bob"},
    ),
]


@pytest.mark.parametrize(("log", "fields", "expected"), GOLDEN)
def test_each_log_has_its_own_fields(
    log: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    event = good(f"zeek:{log}", packed(BASE | fields))
    assert (faults(event), misfits(event)) == ([], [])
    shown = ocsf_object(event)
    assert {path: at(shown, path) for path in expected} == expected
    assert (event["src_ip"], event["dst_ip"]) == ("203.0.113.9", "10.0.0.2")
    assert (shown["metadata"]["log_name"], shown["metadata"]["correlation_uid"]) == (log, "C1")


ALONE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "files",
        {"fuid": "F1", "tx_hosts": ["10.0.0.2"], "rx_hosts": ["10.0.0.1"], "conn_uids": ["C1"]}
        | {"is_orig": False, "filename": "d\\a.ini"},
        {"src_endpoint/ip": "10.0.0.1", "dst_endpoint/ip": "10.0.0.2"}
        | {"metadata/correlation_uid": "C1", "unmapped/file/name": "a.ini"},
    ),
    (
        "x509",
        {"fingerprint": SHA256, "certificate.serial": "01", "certificate.subject": "CN=a"}
        | {"certificate.not_valid_after": 1722750331.0, "san.dns": ["a.example"]},
        {"class_uid": 0, "unmapped/tls/certificate/expiration_time": 1722750331000}
        | {"unmapped/tls/certificate/sans": [{"name": "a.example", "type": "dns"}]},
    ),
    (
        "software",
        {"host": "10.0.0.7", "software_type": "SSH::SERVER", "name": "OpenSSH"}
        | {"version": {"major": 7, "minor": 4, "addl": "p1"}, "unparsed_version": "OpenSSH_7.4p1"},
        {"class_uid": 5020, "device/ip": "10.0.0.7"}
        | {"product": {"name": "OpenSSH", "version": "7.4-p1"}},
    ),
    (
        "files",
        {"fuid": "F1", "tx_hosts": ["10.0.0.2"], "rx_hosts": ["10.0.0.1"], "conn_uids": [""]},
        {"metadata/uid": "F1", "src_endpoint/ip": "10.0.0.2", "dst_endpoint/ip": "10.0.0.1"},
    ),
    ("known_hosts", {"host": "10.0.0.7"}, {"class_uid": 0, "src_endpoint": {"ip": "10.0.0.7"}}),
    ("reporter", {"level": "Reporter::ERROR", "message": "m"}, {"severity_id": 3, "message": "m"}),
    ("pe", {"id": "F1", "compile_ts": 5.0}, {"metadata/uid": "F1", "class_uid": 0}),
    ("capture_loss", {"ts_delta": 900.0, "peer": "w1"}, {"unmapped/ts_delta": 900.0}),
    ("notice", {"note": "A::B", "msg": "m"}, {"class_uid": 2004, "message": "m"}),
]


@pytest.mark.parametrize(("log", "fields", "expected"), ALONE)
def test_logs_without_a_connection(
    log: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    event = good(f"zeek:{log}", packed({"ts": 1700000000} | fields))
    assert (faults(event), misfits(event)) == ([], [])
    shown = ocsf_object(event)
    assert {path: at(shown, path) for path in expected} == expected


def test_dhcp_is_named_after_how_it_ended() -> None:
    fields = (
        "ts uids client_addr server_addr mac host_name requested_addr assigned_addr "
        "lease_time server_message msg_types duration"
    )
    types = (
        "time set[string] addr addr string string addr addr interval string vector[string] interval"
    )
    raw = tsv(
        "dhcp",
        fields,
        types,
        "1 C1,C2 - - 00:21:70:E9:bb:47 lt 10.0.0.9 - - no REQUEST,NAK 0.009251",
        "2 C1 10.0.0.9 10.0.0.1 00:21:70:e9:bb:47 lt - 10.0.0.8 3600.0 - "
        "DISCOVER,OFFER,REQUEST,ACK 0.5",
        "3 C1 10.0.0.7 - 00:21:70:e9:bb:47 - - - - - INFORM,ACK 0.1",
        "4 C1 - - 00:21:70:e9:bb:47 - 0.0.0.0 - - - DISCOVER 0.1",
    )
    nak, ack, inform, discover = found = rows("zeek:dhcp", raw)
    assert [(one["activity_name"], one["status_id"]) for one in found] == [
        ("Nak", 2),
        ("Ack", 1),
        ("Inform", 1),
        ("Discover", 1),
    ]
    assert (nak["src_ip"], nak["status_detail"]) == ("10.0.0.9", "no")
    assert (ack["src_ip"], ack["mac"]) == ("10.0.0.8", "00:21:70:e9:bb:47")
    assert (ack["lease_dur"], ack["dst_ip"], ack["duration"]) == (3600, "10.0.0.1", 500)
    assert unmapped(ack)["client_addr"] == "10.0.0.9"
    assert (inform["src_ip"], inform["lease_dur"]) == ("10.0.0.7", None)
    assert (discover["src_ip"], discover["src_endpoint"]["hostname"]) == (None, None)
    assert [fault for one in found for fault in faults(one)] == []


def test_dhcp_before_zeek_2_6() -> None:
    fields = BASE | {"mac": "00:0b:db:63:5b:d4", "assigned_ip": "10.0.0.8", "trans_id": 7}
    event = good("zeek:dhcp", packed(fields | {"lease_time": 60.0}))
    assert (event["activity_name"], event["src_ip"], event["lease_dur"]) == ("Ack", "10.0.0.8", 60)
    assert (event["dst_endpoint"]["port"], event["transaction_uid"]) == (22, "7")
    assert unmapped(event)["id.orig_h"] == "203.0.113.9"


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["", "-", "10.0.0.1", "::1", "x@y.z", "2020-01-01T00:00:00Z", "a/b", "a\\b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
CASES = [(log, BASE | fields) for log, fields, _ in GOLDEN] + [
    (log, {"ts": 1.5} | fields) for log, fields, _ in ALONE
]


@examples(400)
@given(data=st.data())
def test_whatever_stands_in_a_field_the_event_is_valid(data: st.DataObject) -> None:
    log, fields = data.draw(st.sampled_from(CASES))
    keys = data.draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=5))
    changed = fields | {key: data.draw(ODD) for key in keys}
    (event,) = rows(f"zeek:{log}", packed(changed))
    assert event.get("dead_letter_reason") is None
    assert (faults(event), misfits(event)) == ([], [])
