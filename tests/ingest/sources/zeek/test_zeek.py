"""Zeek's logs: text and JSON, every spelling and packing, each log's own fields."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import Usage
from ingest import parse
from ingest.parsing.event_rows import event_rows
from ingest.parsing.record_reader import pieces
from ingest.parsing.source import ParseSettings, Record, Unreadable, lookup, sources
from tests.examples import examples
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import NOW, SAMPLES, good, lines, reason, row, rows

ZEEK = SAMPLES / "zeek"
FILES = sorted(path for path in ZEEK.rglob("*") if path.is_file())
TWICE = ("dns", "dpd", "ftp", "kerberos", "notice", "ntlm", "rdp", "smtp", "ssh", "syslog", "x509")


def log_of(path: Path) -> str:
    name = path.name.split(".")[0]
    return name.partition("_")[2] if path.parent.name == "json_corelight" else name


def read(path: Path, source: str) -> list[dict[str, Any]]:
    """The rows of a file, as the command line and the file source read it."""
    with path.open("rb") as stream:
        records = [
            Record(
                f"r{piece.number}",
                source,
                "import",
                NOW,
                piece.raw,
                {"header": piece.header} if piece.header else {},
            )
            for piece in pieces(stream, lookup(source))
        ]
    return event_rows(records, ParseSettings())


def unmapped(event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event["unmapped"] or "{}")
    return found


def tsv(path: str, fields: str, types: str, *values: str) -> bytes:
    """A log as Zeek writes it; in `values` a space stands for a separator."""
    head = [
        "#separator \\x09",
        "#set_separator\t,",
        "#empty_field\t(empty)",
        "#unset_field\t-",
        f"#path\t{path}",
        "#open\t2025-10-10-21-25-28",
        "#fields " + fields,
        "#types " + types,
    ]
    body = [*head[6:], *values]
    text = "\n".join([*head[:6], *(line.replace(" ", "\t") for line in body)])
    return f"{text}\n#close\t2025-10-10-22-00-00\n".encode()


# -- real logs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_real_logs_become_valid_events(path: Path) -> None:
    found = read(path, f"zeek:{log_of(path)}")
    assert [one["dead_letter_reason"] for one in found if one.get("dead_letter_reason")] == []
    chosen = found[:: max(1, len(found) // 25)]
    assert [fault for one in chosen for fault in faults(one)] == []
    assert [leaf for one in found for leaf in misfits(one)] == []
    assert {one["time_quality"] for one in found} == {"exact"}


@pytest.mark.parametrize("log", TWICE)
def test_text_and_json_of_the_same_traffic_are_the_same_rows(log: str) -> None:
    def same(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        own = ("event_uid", "record_ids", "unmapped")
        # When Zeek wrote the line is only in JSON.
        left = [{k: v for k, v in unmapped(one).items() if k != "_write_ts"} for one in found]
        plain = [{k: v for k, v in one.items() if k not in own} for one in found]
        return [one | {"unmapped": rest} for one, rest in zip(plain, left, strict=True)]

    text = same(read(ZEEK / "wrccdc_tsv" / f"{log}.log.gz", f"zeek:{log}"))
    assert text == same(read(ZEEK / "wrccdc_json" / f"{log}.json.gz", f"zeek:{log}"))
    assert len(text) >= 11


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_family_reads_what_the_record_says_it_is(path: Path) -> None:
    def plain(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v for k, v in one.items() if k != "source"} for one in found]

    assert plain(read(path, "zeek")) == plain(read(path, f"zeek:{log_of(path)}"))


# -- text --------------------------------------------------------------------------------------

ENDS = "ts uid id.orig_h id.orig_p id.resp_h id.resp_p"
TYPES = "time string addr port addr port"
FROM = "1700000000.123456 C1 10.0.0.1 5 10.0.0.2 80"


def test_a_whole_file_is_a_record_too() -> None:
    raw = tsv("conn", f"{ENDS} proto", f"{TYPES} enum", f"{FROM} tcp", f"{FROM} udp")
    found = rows("zeek:conn", raw)
    assert [one["connection_info"]["protocol_name"] for one in found] == ["tcp", "udp"]
    assert found[0]["time"] == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
    assert rows("zeek:conn", gzip.compress(raw))[1]["dst_endpoint"]["port"] == 80
    assert rows("zeek:conn", raw.replace(b"\n", b"\r\n"))[1]["src_ip"] == "10.0.0.1"


def test_the_header_may_come_along() -> None:
    head, line = tsv("ssh", f"{ENDS} auth_success", f"{TYPES} bool", f"{FROM} T").split(b"1700", 1)
    (event,) = parse(b"1700" + line.split(b"\n")[0], "zeek:ssh", header=head)
    assert (event["class_uid"], event["activity_id"], event["status_id"]) == (4007, 1, 1)
    (named,) = parse(b"1700" + line.split(b"\n")[0], "zeek", header=head)
    assert named["metadata"]["log_name"] == "ssh"


def test_each_block_of_a_file_has_its_own_columns() -> None:
    first = tsv("conn", f"{ENDS} proto", f"{TYPES} enum", f"{FROM} tcp")
    second = tsv("conn", f"{ENDS} vlan proto", f"{TYPES} int enum", f"{FROM} 7 tcp")
    found = rows("zeek:conn", first + second)
    assert [unmapped(one) for one in found] == [{}, {"vlan": 7}]
    (both,) = [list(pieces(io.BytesIO(first + second), lookup("zeek:conn")))]
    assert [piece.header.count(b"#fields") for piece in both] == [1, 1]


def test_other_separators_and_no_types() -> None:
    raw = (
        b"#separator \\x7c\n#set_separator|;\n#empty_field|EMPTY\n#unset_field|NONE\n#path|dns\n"
        b"#fields|ts|uid|id.orig_h|id.orig_p|id.resp_h|id.resp_p|proto|query|answers|TTLs|rcode\n"
        b"1700000000.5|C1|10.0.0.1|5|10.0.0.2|53|udp|a.b|c.d;1.2.3.4|60.000000;7.5|0\n"
        b"1700000000.5|C1|10.0.0.1|5|10.0.0.2|53|udp|NONE|EMPTY|NONE|NONE\n"
    )
    found = rows("zeek:dns", raw)
    assert found[0]["answers"] == [{"rdata": "c.d", "ttl": 60}, {"rdata": "1.2.3.4", "ttl": 7}]
    assert (found[1]["query"], found[1]["answers"]) == (None, [])


def test_escapes_are_what_they_stand_for() -> None:
    values = (
        r"1700000000.1 - - - - - a\x09b\\x09c\x5cx41 \x2d \x23x \xc3\xa4\xff\x1b[31m\x00 "
        r"x\x2cy,\x2d,-,\\,z (empty) (empty)"
    )
    raw = tsv(
        "odd",
        f"{ENDS} a b c d set none text",
        f"{TYPES} string string string string set[string] vector[count] string",
        values,
    )
    found = unmapped(good("zeek:odd", raw))
    assert found == {
        "a": "a\tb\\x09c\\x41",
        "b": "-",
        "c": "#x",
        "d": "ä\\xff\\x1b[31m\\x00",
        "set": ["x,y", "-", None, "\\", "z"],
        "none": [],
        "text": "",
    }


def test_values_of_all_types() -> None:
    raw = tsv(
        "odd",
        "ts n i d when span ok net e late early wrong huge",
        "time count int double time interval bool subnet enum time time count count",
        "1 5 -5 0.25 1700000000.000001 1e-06 F 10.0.0.0/8 X::Y 2.385616957e+09 -1.5 abc "
        + "9" * 19,
    )
    event = good("zeek:odd", raw)
    assert event["time"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert unmapped(event) == {
        "n": 5,
        "i": -5,
        "d": 0.25,
        "when": "2023-11-14T22:13:20.000001Z",
        "span": 1e-06,
        "ok": False,
        "net": "10.0.0.0/8",
        "e": "X::Y",
        "late": "2045-08-06T07:22:37.000000Z",
        "early": "1969-12-31T23:59:58.500000Z",
        "wrong": "abc",
        "huge": "9" * 19,
    }


def test_header_lines_alone_say_what_they_are() -> None:
    header = tsv("dns", ENDS, TYPES)
    event = good("zeek:dns", header)
    assert (event["class_uid"], event["message"]) == (0, "Header of Zeek's log dns: 6 fields")
    assert unmapped(event)["header"].startswith("#separator \\x09\n")
    assert good("zeek:dns", b"#close\t2020")["message"] == "Header line of a Zeek log"
    assert lookup("zeek:dns").is_header(b"#fields\tts")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"1\tC1\t10.0.0.1", "without its header lines (#fields)"),
        (tsv("ssh", ENDS, TYPES, FROM + " x"), "the line has 7 values, its header names 6 fields"),
        (tsv("dns", ENDS, TYPES, FROM), "#path: a record of the log 'dns' among those of 'ssh'"),
        (tsv("ssh", ENDS, "time", FROM), "the header has 6 fields, but 1 types"),
        (tsv("ssh", "ts uid uid", "time string string", "1 a b"), "the field 'uid' twice"),
        (b"#path\tssh\n1\t2", "no '#fields' among the header lines"),
        (tsv("ssh", ENDS, TYPES, FROM + "\x00"), "a NUL at byte "),
        (b"#fields\tts\n\xff", "not valid UTF-8 at byte 11"),
    ],
)
def test_text_that_cannot_be_read_says_why(raw: bytes, why: str) -> None:
    assert why in reason("zeek:ssh", raw)


@examples(200)
@given(
    header=st.sampled_from([tsv("dns", ENDS, TYPES), tsv("odd", "ts n", "time count"), b"#x"]),
    values=st.lists(
        st.text(max_size=8) | st.sampled_from(["-", "(empty)", "1.5", "10.0.0.1", "\\x09", "#"]),
        max_size=7,
    ),
    source=st.sampled_from(["zeek", "zeek:dns", "zeek:odd"]),
)
def test_any_line_with_any_header_is_a_row(header: bytes, values: list[str], source: str) -> None:
    raw = "\t".join(values).encode()
    found = rows(source, raw, header + raw, headers={"header": header})
    assert len(found) >= 2
    assert not [one for one in found if "failed:" in str(one.get("dead_letter_reason"))]
    assert found == rows(source, raw, header + raw, headers={"header": header})


def test_one_bad_line_of_a_file_costs_only_itself() -> None:
    raw = tsv("ssh", ENDS, TYPES, FROM, "1 2", FROM)
    found = rows("zeek:ssh", raw)
    assert [one.get("dead_letter_reason") is None for one in found] == [True, False, True]
    assert len({one["event_uid"] for one in found}) == 3


# -- JSON --------------------------------------------------------------------------------------

SSH = {
    "ts": 1700000000.5,
    "uid": "C1",
    "id.orig_h": "203.0.113.9",
    "id.orig_p": 5,
    "id.resp_h": "10.0.0.2",
    "id.resp_p": 22,
    "auth_success": False,
    "auth_attempts": 3,
    "direction": "INBOUND",
    "remote_location.country_code": "NL",
    "remote_location.latitude": 52.5,
}


def packed(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def without(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key not in ("event_uid", "record_ids")}


def test_three_spellings_are_one() -> None:
    nested: dict[str, Any] = {}
    for key, value in SSH.items():
        outer, _, inner = key.partition(".")
        if inner:
            nested.setdefault(outer, {})[inner] = value
        else:
            nested[key] = value
    flat = {key.replace(".", "_"): value for key, value in SSH.items()}
    found = [good("zeek:ssh", packed(one)) for one in (SSH, flat, nested)]
    assert found[0] == found[1] == found[2]
    assert found[0]["src_endpoint"] == {"ip": "203.0.113.9", "port": 5, "country": "NL"}


@pytest.mark.parametrize(
    "wrapped",
    [
        {"ssh": SSH},
        {"zeek": {"ssh": SSH}},
        {"message": json.dumps(SSH), "@timestamp": "2024-01-01T00:00:00Z"},
        {"_index": "zeek", "_source": SSH},
    ],
)
def test_what_a_shipper_wraps_is_unwrapped(wrapped: dict[str, Any]) -> None:
    event = good("zeek:ssh", packed(wrapped))
    plain = good("zeek:ssh", packed(SSH))
    assert (event["time"], event["src_ip"], event["class_uid"]) == (
        plain["time"],
        plain["src_ip"],
        4007,
    )
    assert set(unmapped(event)) - set(unmapped(plain)) == set(wrapped) & {"@timestamp", "_index"}
    assert "among those of 'dns'" in reason("zeek:dns", packed({"ssh": SSH}))


def test_several_objects_are_several_events() -> None:
    one = packed(SSH)
    many = [one + b"\n" + one + b"\n", b"\n".join([one] * 3), b"[" + one + b",\n" + one + b"]"]
    assert [len(rows("zeek:ssh", raw)) for raw in many] == [2, 3, 2]
    assert [len(rows("zeek:ssh", gzip.compress(raw))) for raw in many] == [2, 3, 2]
    mixed = rows("zeek:ssh", one + b"\n{]\n" + one + b"\n")
    assert [one.get("dead_letter_reason") is None for one in mixed] == [True, False, True]


def test_an_object_behind_another_is_refused() -> None:
    one = packed(SSH)
    assert "a second value after the end" in reason("zeek:ssh", one + one)
    assert "a second value after the end" in reason("zeek:ssh", one + b" " + one)
    assert len(rows("zeek:ssh", one + b"\n" + one)) == 2  # a line each
    assert "stands twice" in reason("zeek:ssh", one[:-1] + b', "id.orig_h": "6.6.6.6"}')
    assert len(rows("zeek:ssh", json.dumps(SSH, indent=1).encode())) == 1


@pytest.mark.parametrize(
    ("ts", "quality"),
    [
        (1700000000.5, "exact"),
        (1700000000500, "exact"),
        ("1700000000.5", "exact"),
        ("2023-11-14T22:13:20.500000Z", "exact"),
        ("2023-11-14T23:13:20.5+0100", "exact"),
        ("2023-11-14T23:13:20.5", "assumed_zone"),
    ],
)
@pytest.mark.parametrize("key", ["ts", "@timestamp"])
def test_times_in_every_form(ts: Any, quality: str, key: str) -> None:
    fields = {name: value for name, value in SSH.items() if name != "ts"} | {key: ts}
    event = good("zeek:ssh", packed(fields), tz="Europe/Berlin")
    assert event["time"] == datetime(2023, 11, 14, 22, 13, 20, 500000, UTC)
    assert event["time_quality"] == quality


def test_the_sensor_is_the_device() -> None:
    assert good("zeek:ssh", packed(SSH | {"@system": "s1"}))["host_name"] == "s1"
    assert good("zeek:ssh", packed(SSH | {"_system_name": "s2"}))["host_name"] == "s2"
    assert good("zeek:ssh", packed(SSH), headers={"host": b"s3"})["host_name"] == "s3"


def test_a_value_that_does_not_fit_stays_under_its_name() -> None:
    odd = {
        "id.orig_h": "6.6.6.6 ",
        "id.resp_p": 99999,
        "auth_success": "yes",
        "uid": 5,
        "version": [2],
    }
    event = good("zeek:ssh", packed(SSH | odd))
    assert unmapped(event).items() >= odd.items()
    assert event.get("src_ip") is None
    assert event["dst_endpoint"] == {"ip": "10.0.0.2", "port": None}
    assert (faults(event), misfits(event)) == ([], [])
    lost = good("zeek:ssh", packed(SSH | {"id.orig_h": "x", "id.resp_h": None}))
    assert (lost["class_uid"], lost["activity_id"], faults(lost)) == (0, 0, [])


def test_what_a_peer_says_is_never_its_address() -> None:
    words = '10.9.9.9", "id.orig_h": "6.6.6.6\t\n\x1b[31m\u202e=cmd'
    event = good("zeek:ntlm", packed(SSH | {"username": words, "hostname": words}))
    assert (event["src_ip"], event["user_name"]) == ("203.0.113.9", words)
    text = words.replace("\t", "\\x09").replace("\n", "\\x0a").replace("\x1b", "\\x1b")
    raw = tsv("ntlm", f"{ENDS} username", f"{TYPES} string", f"{FROM} NAME")
    found = rows("zeek:ntlm", raw.replace(b"NAME", text.encode()))
    assert [one["src_ip"] for one in found] == ["10.0.0.1"]
    assert found[0]["user_name"] == words.replace("\x1b", "\\x1b")


# -- names of logs -----------------------------------------------------------------------------


def test_any_log_has_a_source() -> None:
    assert {"zeek", "zeek:conn", "zeek:dpd", "zeek:smb_files", "zeek:ssl"} <= set(sources())
    assert lookup("zeek:mqtt_publish").name == "zeek:mqtt_publish"
    for name in ("zeek:", "zeek:a b", "sshd:x", "zeek:" + "a" * 65):
        with pytest.raises(Usage):
            lookup(name)


def test_a_log_without_a_name_is_told_by_its_fields() -> None:
    found = [row("zeek", raw) for raw in (lines("zeek/wrccdc_json/rdp.json.gz")[0], packed(SSH))]
    assert [one["metadata"]["log_name"] for one in found] == ["rdp", "ssh"]
    nameless = good("zeek", b'{"ts":1,"id":{"orig_h":"::1","resp_h":"::2"},"x":1}')
    assert (nameless["class_uid"], nameless["metadata"].get("log_name")) == (4001, None)


def test_logs_of_another_name_with_the_same_fields() -> None:
    raw = packed(
        {"_path": "conn_red", "ts": 1, "id.orig_h": "::1", "id.resp_h": "::2", "conn_state": "SF"}
    )
    for source in ("zeek:conn", "zeek:conn_red", "zeek"):
        event = good(source, raw)
        assert (event["activity_id"], event["metadata"]["log_name"]) == (2, "conn_red")


def test_restamp_of_text() -> None:
    when = datetime(2031, 7, 9, 5, 4, 3, 210987, UTC)
    source, zone = lookup("zeek:ssh"), ZoneInfo("UTC")
    line = FROM.replace(" ", "\t").encode()
    assert source.restamp(line, when, zone) == line.replace(
        b"1700000000.123456", b"1941339843.210987"
    )
    iso = b"2020-01-01T00:00:00Z\tx"
    assert source.restamp(iso, when, zone) == b"2031-07-09T05:04:03Z\tx"
    for raw in (b"-\tx", b"#fields\tts", line + b"\n" + line, b"x"):
        with pytest.raises(Unreadable):
            source.restamp(raw, when, zone)


def test_nothing_of_a_record_is_dropped() -> None:
    def leaves(value: Any) -> set[str]:
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            return set().union(*map(leaves, inner))
        return set() if value is None else {str(value).lower()}

    # Times, spans and truth values change their form; a name and its realm are two columns.
    formed = {"ts", "duration", "rtt", "ttl", "success", "established", "auth_success", "client"}
    formed |= {"till", "compile_ts", "data_channel.passive", "request_type", "TTLs"}
    lost: Counter[str] = Counter()
    for path in [path for path in FILES if "json" in path.parent.name]:
        log = log_of(path)
        for raw in lines(str(path.relative_to(SAMPLES)))[:60]:
            event = good(f"zeek:{log}", raw)
            known = {k: json.loads(event.get(k) or "{}") for k in ("more", "unmapped")}
            words = "\n".join(leaves(event | known))
            for key, value in json.loads(raw).items():
                if key not in formed and not key.startswith(("times", "certificate")):
                    lost.update(f"{log}.{key}" for leaf in leaves(value) if leaf not in words)
    assert lost == {}
