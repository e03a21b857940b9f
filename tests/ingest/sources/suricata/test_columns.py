"""Suricata's events read many at once equal those read one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.source import lookup
from ingest.sources.suricata import columns
from tests.ingest.columnar import SETTINGS, agree, records
from tests.ingest.logs import lines
from tests.ingest.sources.suricata.test_suricata import ALERT, BASE, SAMPLES, eve


@pytest.fixture(autouse=True, scope="module")
def _however_few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "FEWEST_EVENTS", 1)
        yield


FLOW = {
    "pkts_toserver": 6,
    "pkts_toclient": 5,
    "bytes_toserver": 496,
    "bytes_toclient": 876,
    "start": "2024-05-01T09:59:58.000500+0200",
}
ENDS = {"src_ip": "10.0.0.5", "src_port": 51000, "dest_ip": "203.0.113.9", "dest_port": 80}
ENDED = FLOW | {
    "end": "2024-05-01T10:00:59.5+0200",
    "age": 61,
    "state": "closed",
    "reason": "timeout",
    "alerted": False,
}
TCP = {"tcp_flags": "1b", "tcp_flags_ts": "1b", "syn": True, "state": "closed"}
HTTP = {
    "hostname": "a.example",
    "url": "/x?y=1",
    "http_user_agent": "curl/8",
    "http_content_type": "text/html",
    "http_method": "POST",
    "protocol": "HTTP/1.1",
    "status": 404,
    "length": 9,
}
TLS = {
    "subject": "CN=a",
    "issuerdn": "CN=b",
    "serial": "00:AA",
    "fingerprint": "aa:bb",
    "sni": "a.example",
    "version": "TLS 1.2",
    "notbefore": "2020-01-01T00:00:00",
    "notafter": "never",
    "ja3": {"hash": "e7", "string": "771,1"},
    "ja3s": {},
}
ANSWER = {"rrname": "a.x", "rrtype": "A", "ttl": 5, "rdata": "1.2.3.4"}
DNS = (
    {"type": "query", "id": 553, "rrname": "a.x", "rrtype": "A", "tx_id": 0},
    {"type": "answer", "id": 553, "rcode": "NOERROR", **ANSWER},
    {
        "version": 2,
        "type": "answer",
        "id": 7,
        "flags": "8180",
        "qr": True,
        "rd": True,
        "rrname": "a.x",
        "rrtype": "A",
        "rcode": "NOERROR",
        "answers": [ANSWER, {"rrname": "b.x", "rrtype": "CNAME", "rdata": "a.x"}],
        "grouped": {"A": ["1.2.3.4"], "CNAME": ["a.x"]},
    },
    {
        "version": 2,
        "type": "answer",
        "rrname": "a.x",
        "rcode": "NXDOMAIN",
        "grouped": {"CNAME": ["b.x"], "A": ["1.2.3.4"]},
        "authorities": [{"rrname": "x", "rrtype": "SOA", "soa": {"mname": "m", "serial": 4}}],
    },
    {
        "version": 3,
        "type": "response",
        "rcode": "4095",
        "queries": [{"rrname": "a.x", "rrtype": "AAAA"}],
        "answers": [{**ANSWER, "rdata": "fe80::1"}],
    },
)
NAMELESS = (
    {"type": "query", "rrtype": "NS"},
    {"version": 3, "type": "request", "queries": [{"rrname": "", "rrtype": "NS"}]},
)
EVENTS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("alert", ALERT, {}),
    (
        "alert",
        ALERT | {"source": {"ip": "10.0.0.5"}, "action": "allowed"},
        {
            "app_proto": "http",
            "flow": FLOW | ENDS,
            "http": HTTP,
            "tls": TLS,
            "direction": "to_server",
            "payload_printable": 'say "hi"\r\n',
            "metadata": {"flowbits": ["a", "b"]},
            "packet_info": {"linktype": 1},
            "vlan": [7],
            "stream": 1,
            "verdict": {"action": "alert"},
        },
    ),
    ("alert", {"signature": "x", "severity": 9, "action": "odd"}, {"direction": "to_client"}),
    ("alert", {}, {"http": {"hostname": "h", "url": "/", "length": 0}, "host": "sensor-1"}),
    ("flow", ENDED, {"tcp": TCP, "app_proto": "failed", "in_iface": "eth0"}),
    ("flow", ENDED | {"action": "drop"}, {"proto": "UDP", "community_id": "1:x="}),
    ("flow", {}, {"proto": "IPv6-ICMP", "src_ip": "0:0:0:0:0:ffff:a00:5", "icmp_type": 8}),
    *(("dns", detail, {"proto": "UDP"}) for detail in DNS),
    ("dns", DNS[1], {"src_port": 53, "dest_port": 40000}),
    ("http", HTTP | {"redirect": "http://b/"}, {"tx_id": 0, "app_proto": "http"}),
    ("http", {"hostname": "a", "url": "/", "http_port": 8080, "length": 4}, {}),
    ("tls", TLS, {"pcap_cnt": 4}),
    ("tls", {}, {"src_ip": "fe80::1"}),
)


@pytest.mark.parametrize("detail", NAMELESS)
def test_a_question_without_a_name_stands_beside_others(detail: dict[str, Any]) -> None:
    raws = [eve("dns", each, proto="UDP") for each in (DNS[0], detail)]
    assert agree("suricata", raws) == 1


# One holds what may be a key in its payload; those of the honeypot name no zone; two of the mixed
# ones are of other types.
@pytest.mark.parametrize(("path", "taken"), list(zip(SAMPLES, (59, 0, 4), strict=True)))
def test_real_logs_are_read_alike(path: str, taken: int) -> None:
    assert agree("suricata", lines(path)) == taken


@pytest.mark.parametrize("event", EVENTS)
def test_every_usual_event_is_read_at_once(event: tuple[str, Any, dict[str, Any]]) -> None:
    kind, detail, more = event
    raw = eve(kind, detail, **more)
    compact = json.dumps(json.loads(raw), separators=(",", ":")).encode()
    # Beside one that has other fields, as a column is made of both.
    assert agree("suricata", [raw, compact, eve(kind, EVENTS[0][1] if kind == "alert" else {})]) > 1


def test_all_types_together_are_read_alike() -> None:
    raws = [eve(kind, detail, **more) for kind, detail, more in EVENTS]
    assert agree("suricata", raws) == len(raws)


@pytest.mark.parametrize("turned", [{}, {"direction": "to_client"}, {"direction": "to_server"}])
@pytest.mark.parametrize("kind", ["alert", "flow"])
def test_ends_are_turned_alike(kind: str, turned: dict[str, str]) -> None:
    other = {"src_ip": "203.0.113.9", "src_port": 80, "dest_ip": "10.0.0.5", "dest_port": 51000}
    nowhere = {"src_ip": "10.0.0.5", "dest_ip": "203.0.113.9"}
    flows = [FLOW, FLOW | ENDS, FLOW | nowhere, FLOW | nowhere | {"src_port": 51000}]
    flows += [FLOW | other, FLOW | dict.fromkeys(("src_ip", "dest_ip"), "10.0.0.5")]
    raws = []
    for flow in flows:
        for ends in (ENDS, other, dict.fromkeys(("src_ip", "dest_ip"), "10.0.0.5")):
            inner = {"alert": ALERT} if kind == "alert" else {}
            raws.append(json.dumps(BASE | ends | turned | inner | {"flow": flow}).encode())
            raws[-1] = raws[-1][:-1] + f',"event_type":"{kind}"}}'.encode()
    assert agree("suricata", raws) == len(raws)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.lists(st.one_of(st.text(max_size=3), st.integers(0, 9)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    st.sampled_from(["", "-", "N/A", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "nowhere"]),
    st.sampled_from([0, 53, 65535, 65536, 2.0, 1e300, 999, 1000, 200, 2**61, 2**63]),
    st.sampled_from(["to_client", "closed", "drop", "pass", "GET", "failed", "NOERROR", "x "]),
    st.sampled_from(["http://a/b?c", "/x?y=1", "/", "//a", "?q", "a.example", "/x?", "CORP\\anna"]),
    st.sampled_from(
        [
            *("2024-05-01T10:00:00+02:00", "2024-05-01T10:00:00.1234567Z", "2024-05-01T10:00:00"),
            *("2024-02-30T10:00:00Z", "2024-05-01T24:00:00Z", "2024-05-01T10:00:60+0000"),
            *("1900-01-01T00:00:00+0200", "9999-12-31T23:59:59-0200", "2024-05-01 10:00:00Z"),
            *("2024-05-01T10:00:00+2400", "2024-05-01T10:00:00+0060", "2024-05-01T10:00:00+02"),
        ]
    ),
)


@pytest.mark.parametrize(
    "most", [1, pytest.param(4, marks=pytest.mark.full)], ids=["one_change", "four_changes"]
)
@given(data=st.data())
def test_events_with_any_field_changed_are_read_alike(data: st.DataObject, most: int) -> None:
    raws = []
    for _ in range(data.draw(st.integers(1, 4))):
        kind, detail, more = data.draw(st.sampled_from(EVENTS))
        fields: dict[str, Any] = json.loads(eve(kind, detail, **more))
        for _ in range(data.draw(st.integers(0, most))):
            inner = [value for value in fields.values() if type(value) is dict]
            of = data.draw(st.sampled_from([fields, *inner, *inner]))
            name = data.draw(st.sampled_from([*of, "strange", "app_proto", "host", "direction"]))
            if data.draw(st.booleans()):
                of.pop(name, None)
            else:
                of[name] = data.draw(VALUES)
        raws.append(json.dumps(fields, ensure_ascii=data.draw(st.booleans())).encode())
    agree("suricata", raws)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:-1] + b',"src_ip":"10.9.9.9"}',
        lambda raw: raw[:-1] + b',"src_ip" :"10.9.9.9"}',
        lambda raw: raw[:-1] + b',"event_type":"alert"}',
        lambda raw: raw.replace(b'"rev"', b'"rev": 1, "rev"'),
        lambda raw: raw.replace(b'"rev"', b'"rev" : 1, "rev"'),
        lambda raw: raw.replace(b"TA0001", b"TA\xff0001"),
        lambda raw: raw.replace(b"TA0001", b"TA\\ud8000001"),
        lambda raw: raw.replace(b'"gid": 1', b'"gid": 18446744073709551616'),
        lambda raw: raw + b"{}",
        lambda raw: raw + b"\n" + raw,
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"[" + raw + b"]",
        lambda raw: b"<14>May  1 10:00:00 ids suricata[77]: " + raw,
        lambda raw: raw[:-1] + b',"payload":"' + b"y" * 65536 + b'"}',
        lambda raw: raw.replace(b'"alert"', b'"drop"'),
        lambda raw: b"",
    ],
)
def test_what_is_unusual_is_left_to_be_read_by_itself(change: Any) -> None:
    raw = eve("alert", ALERT)
    read = lookup("suricata").columns(records("suricata", [raw, change(raw)]), SETTINGS)
    assert read is not None
    assert read.left == [1]


def test_a_record_with_a_header_is_left_to_be_read_by_itself() -> None:
    batch = records("suricata", [eve("alert", ALERT)], [{"key": "host", "value": b"ids"}])
    read = lookup("suricata").columns(batch, SETTINGS)
    assert read is not None
    assert (read.events, read.left) == (None, [0])


def test_few_events_of_a_type_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "FEWEST_EVENTS", 3)
    raws = [eve("flow", {}), *[eve("alert", ALERT)] * 3, eve("flow", {})]
    read = lookup("suricata").columns(records("suricata", raws), SETTINGS)
    assert read is not None
    assert read.left == [0, 4]
