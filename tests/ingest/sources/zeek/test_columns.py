"""What is read many lines at once equals what is read line by line."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.arrow_parser import Parser
from ingest.sources.zeek.columns import read
from tests.ingest import columnar
from tests.ingest.columnar import SETTINGS, records
from tests.ingest.logs import lines

LOGS = ("conn", "dns", "http")
FILES = {
    "conn": ("zeek/json_corelight/NASHUA_conn.log", "zeek/json_corelight/SCRANTON_conn.log"),
    "dns": ("zeek/json_corelight/NASHUA_dns.log", "zeek/wrccdc_json/dns.json.gz"),
    "http": ("zeek/json_corelight/SCRANTON_http.log",),
}


def agree(source: str, raws: list[bytes]) -> int:
    """How many were read at once; fails where one differs, be it in the order of keys."""
    return columnar.agree(source, raws, by_key=False)


@pytest.mark.parametrize("log", LOGS)
def test_real_logs_are_read_alike(log: str) -> None:
    for file in FILES[log]:
        raws = lines(file)
        taken = agree(f"zeek:{log}", raws)
        # Those of WRCCDC write their time as text and go line by line.
        assert taken >= 0.9 * len(raws) if "corelight" in file else taken == 0


@pytest.mark.parametrize("log", LOGS)
def test_the_spelling_of_zeek_itself_is_read_at_once_too(log: str) -> None:
    raws = [raw.replace(b'"id_', b'"id.') for raw in lines(FILES[log][0])]
    assert agree(f"zeek:{log}", raws) >= 0.9 * len(raws)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.lists(st.one_of(st.text(max_size=3), st.integers(0, 9)), max_size=3),
    st.sampled_from(["", "-", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "0:0::1", "nowhere"]),
    st.sampled_from([0, 65535, 65536, 1e300, 0.5, 1588205199.0000005, 1e11, -1.0, 404, 200]),
    st.sampled_from(["S0", "SF", "OTH", "GET", "get", "PROPFIND", "http://a/b?c", "/x?y=1", "dns"]),
    st.sampled_from(["http://a", "http://[::1]:99999", "a.example", "a.example/x", "CORP\\anna"]),
)


@given(data=st.data(), log=st.sampled_from(LOGS))
def test_lines_with_any_field_changed_are_read_alike(data: st.DataObject, log: str) -> None:
    whole = lines(FILES[log][0])
    raws = []
    for _ in range(data.draw(st.integers(1, 4))):
        fields = msgspec.json.decode(data.draw(st.sampled_from(whole)))
        names = st.sampled_from([*fields, "local_orig", "local_resp", "username", "rtt", "strange"])
        for name in data.draw(st.lists(names, max_size=4)):
            if data.draw(st.booleans()):
                fields.pop(name, None)
            else:
                fields[name] = data.draw(VALUES)
        raws.append(msgspec.json.encode(fields))
    agree(f"zeek:{log}", raws)


def test_a_line_of_which_nothing_is_left_stands_beside_others() -> None:
    bare = b'{"ts":1588205199.5,"id.orig_h":"10.0.0.1","id.resp_h":"10.0.0.2"}'
    assert agree("zeek:conn", [bare, bare[:-1] + b',"missed_bytes":0}']) == 2


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        (("query",), {"qtype_name": "A", "qclass_name": "C_INTERNET"}),
        (("query", "qclass_name"), {"qtype_name": "A"}),
        (("query", "qtype_name", "qclass_name"), {}),
    ],
)
def test_a_question_without_a_name_keeps_its_type(
    gone: tuple[str, ...], left: dict[str, str]
) -> None:
    line = next(raw for raw in lines(FILES["dns"][0]) if b'"qtype_name":"A"' in raw)
    fields = {name: v for name, v in msgspec.json.decode(line).items() if name not in gone}
    raw = msgspec.json.encode(fields)
    # Beside one with a name, which keeps nothing of the kind.
    assert agree("zeek:dns", [line, raw]) == 2
    (rows,) = Parser(SETTINGS)(records("zeek:dns", [line, raw]))
    named, nameless = sorted(rows.to_pylist(), key=lambda row: row["event_uid"])
    assert (named["query"]["type"], nameless["query"]) == ("A", None)
    names = ("qtype_name", "qclass_name")
    rest = [msgspec.json.decode(row["unmapped"]) for row in (named, nameless)]
    kept = [{name: each[name] for name in names if name in each} for each in rest]
    assert kept == [{}, left]


@pytest.mark.parametrize(
    "fields",
    [
        {"uri": None},
        {"uri": "http://b.example:8080/p?q=1"},
        {"uri": "http://b.example", "host": None},
        {"username": "CORP\\anna"},
    ],
)
def test_urls_and_accounts_are_taken_apart_alike(fields: dict[str, str | None]) -> None:
    line = msgspec.json.decode(lines(FILES["http"][0])[0]) | fields
    line = {name: value for name, value in line.items() if value is not None}
    assert agree("zeek:http", [msgspec.json.encode(line)]) == ("username" not in fields)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:-1] + b',"id_orig_h":"10.9.9.9"}',
        lambda raw: raw[:-1] + b',"uid" :"again"}',
        lambda raw: raw + b"{}",
        lambda raw: raw + b" garbage",
        lambda raw: raw.replace(b'"proto":"tcp"', b'"proto":"t\xffp"'),
        lambda raw: raw.replace(b'"proto":"tcp"', b'"pro\\u0074o":"tcp","proto":"udp"'),
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"[" + raw + b"]",
        lambda raw: b"",
    ],
)
def test_a_line_that_is_not_sound_is_left_to_be_read_by_itself(change: Any) -> None:
    raw = next(raw for raw in lines(FILES["conn"][0]) if b'"proto":"tcp"' in raw)
    batch = records("zeek:conn", [raw, change(raw)])
    assert read("conn", batch, SETTINGS).left == [1]


def test_a_record_with_headers_is_left_to_be_read_by_itself() -> None:
    raw = lines(FILES["conn"][0])[0]
    batch = records("zeek:conn", [raw], [{"key": "host", "value": b"sensor-1"}])
    assert read("conn", batch, SETTINGS).left == [0]
    (rows,) = Parser(SETTINGS)(batch)
    assert rows.column("event_uid").to_pylist() == ["t:0:0#0"]


@pytest.mark.parametrize(
    ("name", "other"), [("local_orig", "local_resp"), ("local_resp", "local_orig")]
)
def test_what_a_line_says_of_one_end_alone_stays(name: str, other: str) -> None:
    fields = msgspec.json.decode(lines(FILES["conn"][0])[0])
    both = fields | {name: True, other: False}
    alone = {key: value for key, value in both.items() if key != other}
    raws = [msgspec.json.encode(each) for each in (both, alone)]
    assert agree("zeek:conn", raws) == 2
    (rows,) = Parser(SETTINGS)(records("zeek:conn", raws))
    whole, half = sorted(rows.to_pylist(), key=lambda row: row["event_uid"])
    assert whole["connection_info"]["direction_id"] == (2 if name == "local_orig" else 1)
    assert half["connection_info"]["direction_id"] in (None, 0)
    kept = [msgspec.json.decode(row["unmapped"] or "{}") for row in (whole, half)]
    assert [each.get(name) for each in kept] == [None, True]
