"""What attackers and broken senders write: each has its reason, and forges nothing."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.ingest.logs import good, lines, reason, rows

CONN = (
    b'{"ts":1588205198.5,"uid":"C1","id.orig_h":"10.0.0.5","id.orig_p":1,"id.resp_h":"10.0.0.6",'
    b'"id.resp_p":2,"proto":"tcp","conn_state":"SF"}'
)
TRAIL = (
    b'{"eventTime":"2026-03-02T09:00:00Z","eventName":"GetX","eventSource":"x.amazonaws.com",'
    b'"sourceIPAddress":"203.0.113.9"}'
)
JSON = [("zeek:conn", CONN), ("aws_cloudtrail", TRAIL)]
SSHD = b"<86>1 2026-03-02T09:00:00Z b1 sshd 7 - - "
TEXT = ("sshd", "sudo", "isc_dhcpd", "kea_dhcp4", "dnsmasq", "windows_dhcp", "syslog")


@pytest.mark.parametrize(("source", "record"), JSON)
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda r: r + b" x", "trailing bytes after the end of the JSON value, at byte "),
        (lambda r: r + r, "a second value after the end of the JSON value, at byte "),
        (lambda r: r + b" \t" + r, "a second value after the end of the JSON value, at byte "),
        (lambda r: r + b"\x00", "a NUL at byte "),
        (lambda r: r[:-1], "not valid JSON: it ends early, at byte "),
        (lambda r: r.replace(b":", b"=", 1), "not valid JSON: expected ':' at byte "),
        (lambda r: r[:-1] + b',"x":"\xff"}', "not valid UTF-8 at byte "),
        (lambda r: r[:-1] + b',"\xc3":1}', "not valid UTF-8 at byte "),
        (lambda r: r[:-1] + b',"x":"\x00"}', "a NUL at byte "),
        (lambda r: r[:-1] + b',"x":NaN}', "not valid JSON: invalid character at byte "),
        (lambda r: r[:-1] + b',"x":1,"x":2}', "the key 'x' stands twice in one object"),
        (lambda r: r[:-1] + b',"x" :1,"x":2}', "the key 'x' stands twice in one object"),
        (lambda r: r[:-1] + b',"x":1,"\\u0078":2}', "the key 'x' stands twice in one object"),
        (lambda r: r[:-1] + b',"x":"\\ud800', "not valid JSON: cut short, or an escaped surrogate"),
        (lambda r: r[:-1] + b',"x":' + b"[" * 99999, "nested deeper than 64"),
        (lambda r: b"\xef\xbb\xbf" + r, "not valid JSON: invalid character at byte 0"),
        (lambda r: b"null", "expected a JSON object, found null"),
        (lambda r: b"[]", "expected a JSON object, found an array"),
        (lambda r: b"1", "expected a JSON object, found a number"),
        (lambda r: b'"x"', "expected a JSON object, found a string"),
        (lambda r: b"", "the record is empty"),
        (lambda r: b" \n", "the record is empty"),
        (lambda r: b"{}", "no '"),
    ],
)
def test_damaged_json_is_refused_with_its_place(
    source: str, record: bytes, damage: Any, why: str
) -> None:
    assert why in reason(source, damage(record))
    good(source, record)


ODD = [
    (b"9223372036854775808", "9223372036854775808", "a number beyond 64 bits, kept as text"),
    (b"-9223372036854776000", "-9223372036854776000", "a number beyond 64 bits, kept as text"),
    (b"1e999", "1e999", "a number beyond 64 bits, kept as text"),
    (b"9" * 5000, "9" * 5000, "a number beyond 64 bits, kept as text"),
    (b'"a\\ud800b"', "a\\ud800b", "half of a surrogate pair, kept as its escape"),
    (b"[" * 80 + b"]" * 80, None, "more than 64 levels, kept as text"),
]


@pytest.mark.parametrize(("source", "record"), JSON)
@pytest.mark.parametrize(("written", "kept", "why"), ODD)
def test_one_odd_value_costs_no_event(
    source: str, record: bytes, written: bytes, kept: str | None, why: str
) -> None:
    plain = good(source, record)
    row = good(source, record[:-1] + b',"x":' + written + b"}")
    rest = json.loads(row["unmapped"])
    (named,) = rest["oddities"]
    assert named.startswith("x: ")
    assert named.endswith(why)
    assert kept is None or rest["x"] == kept
    inner = json.loads(good(source, record[:-1] + b',"x":{"y":[' + written + b"]}}")["unmapped"])
    assert why in json.dumps(inner["x"])
    decides = ("class_uid", "activity_id", "status_id", "time", "src_ip", "dst_ip", "user_name")
    assert [row.get(name) for name in decides] == [plain.get(name) for name in decides]


@pytest.mark.parametrize(("source", "record"), JSON)
def test_a_key_that_stands_twice_inside_keeps_both_values_and_gives_none(
    source: str, record: bytes
) -> None:
    twice = b',"x":{"y":1,"y":"\\":","z":2}}'
    assert json.loads(good(source, record[:-1] + twice)["unmapped"])["x"] == {
        "y": [1, '":'],
        "z": 2,
        "oddities": ["y: stands 2 times"],
    }
    same = good(source, record[:-1] + b',"x":{"y":1,"y":1,"oddities":3}}')
    assert json.loads(same["unmapped"])["x"] == {
        "y": 1,
        "oddities": 3,
        "oddities_": ["y: stands 2 times with the same value"],
    }


def test_what_decides_is_not_read_from_an_odd_value() -> None:
    assert reason("zeek:conn", CONN.replace(b'"id.orig_p":1', b'"id.orig_p":1e999'))
    ends = b'"id":{"orig_h":"10.0.0.5","orig_h":"6.6.6.6","resp_h":"10.0.0.6"}'
    assert reason("zeek:conn", b'{"ts":1588205198.5,' + ends + b"}")
    identity = b',"userIdentity":{"type":"IAMUser","userName":"ann","userName":"root"}}'
    assert reason("aws_cloudtrail", TRAIL[:-1] + identity)
    named = b'{"user":{"name":"ann","name":"root"},"message":"x"}'
    assert good("json", named)["user_name"] is None


def test_resources_that_are_no_objects_cost_no_call() -> None:
    for odd in (b'["arn:aws:s3:::a"]', b'"arn"', b'[{"ARN":"arn:aws:s3:::b","type":7},3]'):
        row = good("aws_cloudtrail", TRAIL[:-1] + b',"resources":' + odd + b"}")
        assert row["class_uid"] == 6003
        assert "resources" in json.loads(row["unmapped"])


@pytest.mark.parametrize(
    ("written", "failed"),
    [
        # As JavaScript prints the masks of a success and of a failure.
        ("-9214364837600035000", False),
        ("-9218868437227405000", True),
        ("9227875636482146000", True),
        ("-9.214364837600035e+18", False),
    ],
)
def test_keywords_that_javascript_rounded_keep_their_outcome(written: str, failed: bool) -> None:
    raw = (
        '{"EventID":4625,"SourceName":"Microsoft-Windows-Security-Auditing",'
        f'"Channel":"Security","Keywords":{written},"TargetUserName":"ann"}}'
    )
    row = good("windows_nxlog", raw)
    assert json.loads(row["unmapped"])["Keywords"][:6] == ("0x8010" if failed else "0x8020")
    sysmon = (
        '{"EventID":22,"SourceName":"Microsoft-Windows-Sysmon","Keywords":-9223372036854776000}'
    )
    assert json.loads(good("windows_nxlog", sysmon)["unmapped"])["Keywords"] == "0x8000000000000000"


def test_a_key_that_only_seems_to_stand_twice_is_none() -> None:
    row = good("zeek:conn", CONN[:-1] + b',"x" : {"a":"\\":"} , "y":{"a": "b :"}}')
    assert json.loads(row["unmapped"]) == {"x": {"a": '":'}, "y": {"a": "b :"}}


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("id.orig_p", "70000", "id.orig_p: expected a number from 0 to 65535, found 70000"),
        ("id.orig_p", "-1", "id.orig_p: expected a number from 0 to 65535, found -1"),
        ("id.orig_p", '"80"', "id.orig_p: expected a whole number, found a string"),
        ("id.orig_p", "true", "id.orig_p: expected a whole number, found true or false"),
        ("id.orig_h", '"10.0.0"', "id.orig_h: expected an IP address, found '10.0.0'"),
        ("id.orig_h", "null", "id.orig_h: expected an IP address, found 'None'"),
        ("proto", "6", "proto: expected a string, found a number"),
        ("duration", "-1", "duration: expected seconds from 0 to 1e10, found -1"),
        ("orig_bytes", "-5", "orig_bytes: expected a number from 0 to"),
        ("_path", '"dns"', "_path: a record of the log 'dns' among those of 'conn'"),
    ],
)
def test_values_out_of_bounds_name_their_field(field: str, value: str, why: str) -> None:
    fields = json.loads(CONN) | {field: json.loads(value)}
    assert why in reason("zeek:conn", json.dumps(fields))


def test_numbers_that_are_too_big_together_are_refused() -> None:
    fields = json.loads(CONN) | {"orig_bytes": 2**63 - 1, "resp_bytes": 1}
    assert "together are beyond 64 bits" in reason("zeek:conn", json.dumps(fields))


@pytest.mark.parametrize("source", TEXT)
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (SSHD + b"\xff", "not valid UTF-8 at byte 41"),
        (SSHD + b"a\x00b", "a NUL at byte 42"),
        (SSHD + b"one\n" + SSHD + b"two", "a second line starts at byte 45"),
        (b"", "byte 0: ''"),
        (b"what is this", "'what is this'"),
        (b'{"ts":1}', "'{\"ts\":1}'"),
    ],
)
def test_damaged_lines_are_refused_with_their_place(source: str, raw: bytes, why: str) -> None:
    found = reason(source, raw)
    assert why in found or (not raw and found == "the record is empty")


def test_a_priority_that_cannot_be_is_refused() -> None:
    assert "priority 999" in reason("sshd", "<999>Mar  2 09:00:00 h sshd[1]: x")


@pytest.mark.parametrize(
    ("source", "raw"),
    [
        ("zeek:conn", CONN[:-1] + b',"x":"' + b"a" * 5_000_000 + b'"}'),
        ("aws_cloudtrail", TRAIL[:-1] + b',"x":"' + b"a" * 5_000_000 + b'"}'),
        ("sshd", SSHD + b"a" * 5_000_000),
        ("isc_dhcpd", SSHD.replace(b"sshd", b"dhcpd") + b"DHCPACK on " + b"1" * 5_000_000),
        ("sudo", SSHD.replace(b"sshd", b"sudo") + b"a : COMMAND=" + b" ; X" * 1_250_000),
        ("dnsmasq", SSHD.replace(b"sshd", b"dnsmasq") + b"1 " * 2_500_000),
        ("kea_dhcp4", SSHD.replace(b"sshd", b"kea-dhcp4") + b"INFO  [a] A1 " + b"[h " * 1_600_000),
    ],
)
def test_a_line_of_five_megabytes_is_read(source: str, raw: bytes) -> None:
    assert good(source, raw)["record_ids"] == ["r0"]


def test_lines_made_to_make_a_pattern_search_for_long_do_not() -> None:
    long = b"Failed password for " + b" from 1.1.1.1 port 1 ssh2" * 100_000 + b"!"
    assert good("sshd", SSHD + long)["class_uid"] == 0
    long = b"Connection closed by invalid user " + b" 1.1.1.1 port 1: " * 100_000 + b"!"
    assert good("sshd", SSHD + long)["class_uid"] == 0
    data = b'[x a="' * 300_000
    assert "no syslog header" in reason("sshd", SSHD[:-2] + data + b" x")


@pytest.mark.parametrize(
    "name",
    [
        "a from 6.6.6.6",
        "root from 1.2.3.4 port 22 ssh2",
        "x from 6.6.6.6 port 22 ssh2: RSA SHA256:abc",
        "invalid user y from 6.6.6.6 port 1",
        "",
    ],
)
def test_a_user_name_cannot_forge_the_address(name: str) -> None:
    failed = f"Failed password for invalid user {name} from 10.0.0.5 port 4242 ssh2"
    row = good("sshd", SSHD + failed.encode())
    assert (row["src_ip"], row["src_endpoint"]["port"]) == ("10.0.0.5", 4242)
    assert row["user_name"] == (name or None)
    knocked = good("sshd", SSHD + f"Invalid user {name} from 10.0.0.5 port 4242".encode())
    assert (knocked["src_ip"], knocked["user_name"]) == ("10.0.0.5", name or None)
    gone = f"Connection closed by invalid user {name} 10.0.0.5 port 4242 [preauth]"
    assert good("sshd", SSHD + gone.encode())["src_ip"] == "10.0.0.5"


def test_a_command_cannot_hide_behind_another() -> None:
    raw = "Mar  2 09:00:00 h sudo: ann : TTY=pts/0 ; PWD=/tmp ; USER=root ; COMMAND={}"
    plain = good("sudo", raw.format("/bin/ls -l"))
    assert plain["process"]["user"] == {"name": "root"}
    forged = good("sudo", raw.format("/bin/ls ; USER=bob ; COMMAND=/bin/true"))
    assert forged["process"]["cmd_line"] == "/bin/ls ; USER=bob ; COMMAND=/bin/true"
    assert forged["process"]["user"] is None
    assert json.loads(forged["unmapped"])["ambiguous"] is True


def test_a_directory_cannot_forge_the_target_user() -> None:
    raw = (
        "Mar  2 09:00:00 h sudo: ann : TTY=pts/0 ; PWD=/tmp/x ; USER=nobody ; y ; USER=root ; "
        "COMMAND=/bin/sh"
    )
    row = good("sudo", raw)
    assert row["process"]["user"] is None
    assert row["process"]["cmd_line"] == "/bin/sh"
    assert json.loads(row["unmapped"])["ambiguous"] is True


def test_cloudtrail_files_are_unpacked_with_care() -> None:
    record = TRAIL.decode()
    whole = f'{{"Records":[{record},{record}]}}'.encode()
    assert len(rows("aws_cloudtrail", whole)) == 2
    packed = gzip.compress(whole)
    assert len(rows("aws_cloudtrail", packed)) == 2
    assert "trailing bytes after the gzip data" in reason("aws_cloudtrail", packed + b"x")
    assert "ends early" in reason("aws_cloudtrail", packed[:-9])
    assert "not valid gzip" in reason("aws_cloudtrail", b"\x1f\x8bnonsense")
    bomb = gzip.compress(b"[" + b" " * (65 * 1024 * 1024), 1)
    assert "once unpacked" in reason("aws_cloudtrail", bomb)


def test_one_bad_record_of_a_file_costs_only_itself() -> None:
    whole = b'{"Records":[' + TRAIL + b',7,{"eventName":"X"},' + TRAIL + b"]}"
    found = rows("aws_cloudtrail", whole)
    assert [row.get("dead_letter_reason") for row in found] == [
        None,
        "Records[1]: expected an object, found a number",
        "Records[2]: no 'eventSource' in the record",
        None,
    ]
    assert [row["event_uid"] for row in found] == ["r0#0", "r0#1", "r0#2", "r0#3"]
    assert "expected an array" in reason("aws_cloudtrail", b'{"Records":{}}')


def test_a_file_without_records_is_still_named() -> None:
    row = good("aws_cloudtrail", b'{"Records":[]}')
    assert (row["class_uid"], row["message"]) == (0, "CloudTrail file with 0 records")


def test_an_unknown_source_is_a_dead_letter_that_names_the_known() -> None:
    assert reason("nothing", b"x").startswith("no source 'nothing'; there are apache, ")


def test_nothing_of_a_record_is_dropped() -> None:
    def leaves(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set().union(*map(leaves, value.values())) if value else set()
        if isinstance(value, list):
            return set().union(*map(leaves, value)) if value else set()
        return set() if value is None else {str(value).lower()}

    samples = [
        ("zeek:conn", lines("zeek/json_corelight/NASHUA_conn.log")),
        ("zeek:dns", lines("zeek/wrccdc_json/dns.json.gz")),
        ("zeek:http", lines("zeek/json_corelight/SCRANTON_http.log")),
        ("aws_cloudtrail", lines("cloudtrail/otrf_ec2_proxy_s3_exfiltration.jsonl")),
    ]
    # Times and spans change their form; the log's name is a constant of its source.
    formed = {"ts", "duration", "rtt", "_path", "@stream", "TTLs", "eventTime", "mfaAuthenticated"}
    for source, raws in samples:
        for raw in raws:
            fields = {k: v for k, v in json.loads(raw).items() if k not in formed}
            row = good(source, raw)
            kept = leaves(row) | leaves(json.loads(row["unmapped"] or "{}"))
            assert leaves(fields) <= kept, (source, leaves(fields) - kept)
