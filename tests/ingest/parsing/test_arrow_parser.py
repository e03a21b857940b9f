"""Parsing as Spark calls it, and that nothing can stop it."""

from __future__ import annotations

import gc
import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ingest.sources.generic
from infra.errors import Usage
from ingest import parse
from ingest.parsing.arrow_parser import EVENT_ARROW, arrow_parser, event_rows
from ingest.parsing.source import ParseSettings, Record, sources
from tests.examples import examples
from tests.ingest.logs import FILES, NOW, SETTINGS, lines, rows, trails

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(*records: tuple[str, bytes | None], headers: Any = None) -> pa.RecordBatch:
    """Rows of bronze.record as Spark hands them over."""
    n = len(records)
    columns = {
        "record_id": pa.array([f"r{at}" for at in range(n)]),
        "source": pa.array([source for source, _ in records]),
        "mode": pa.array(["live"] * n),
        "received_at": pa.array([NOW] * n, pa.timestamp("us", "UTC")),
        "topic": pa.array(["t"] * n),
        "partition": pa.array([0] * n, pa.int32()),
        "offset": pa.array(range(n), pa.int64()),
        "raw": pa.array([raw for _, raw in records], pa.binary()),
        "headers": pa.array([headers] * n, HEADERS),
    }
    return pa.RecordBatch.from_pydict(columns)


def parsed(*batches: pa.RecordBatch, settings: ParseSettings = SETTINGS) -> list[dict[str, Any]]:
    found = list(pickle.loads(pickle.dumps(arrow_parser(settings)))(iter(batches)))
    assert all(one.schema.equals(EVENT_ARROW) for one in found)
    return [row for one in found for row in one.to_pylist()]


def test_the_schema_has_microseconds_and_no_large_types() -> None:
    text = str(EVENT_ARROW)
    assert "large" not in text
    assert EVENT_ARROW.field("time").type == pa.timestamp("us", "UTC")
    assert EVENT_ARROW.field("record_ids").type == pa.list_(pa.field("element", pa.string()))


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by event; those read many at once come first."""
    return sorted(rows, key=lambda row: row["event_uid"])


def test_real_logs_come_through_arrow_as_they_are() -> None:
    records = [(source, raw) for source, path, _ in FILES for raw in lines(path)[:40]] + [
        ("aws_cloudtrail", trails()[0])
    ]
    found = parsed(batch(*records))
    expected = event_rows(
        [Record(f"r{at}", source, "live", NOW, raw) for at, (source, raw) in enumerate(records)],
        SETTINGS,
    )
    assert len(found) == len(expected)
    for new, old in zip(in_order(found), in_order(expected), strict=True):
        for name, value in old.items():
            if not isinstance(value, dict | list):
                assert new[name] == value, name
        assert (new["src_endpoint"] or {}).get("ip") == (old.get("src_endpoint") or {}).get("ip")
        assert len(new["observables"] or []) == len(old.get("observables") or [])


def test_hostile_rows_leave_the_good_ones_of_their_batch_intact() -> None:
    good = lines("zeek/json_corelight/NASHUA_conn.log")[0]
    hostile = [b"null", good + good, b'{"ts":1e300}', b"\xff", b"", None, good[:-1]]
    found = in_order(parsed(batch(*(("zeek:conn", raw) for raw in [good, *hostile, good]))))
    assert [row["dead_letter_reason"] is None for row in found] == [True] + [False] * 7 + [True]
    assert [row["event_uid"] for row in found] == [f"r{at}#0" for at in range(9)]
    alone = parsed(batch(("zeek:conn", good)))[0]
    assert found[0] == alone


BROKEN = '''
from ingest.parsing.source import Source, lookup


class Broken(Source):
    """Fails on `boom`, and gives rows that fit no column for other words."""

    name = "broken"

    def parse(self, record, context):
        if record.raw == b"boom":
            raise ZeroDivisionError("a bug")
        if record.raw == b"none":
            return []
        (event,) = lookup("windows_dhcp").parse(record, context)
        if event["message"] == "type":
            event["severity_id"] = "x"
        if event["message"] == "column":
            event["no_such"] = 1
        return [event]

    def restamp(self, raw, when, zone):
        return raw


SOURCES = (Broken(),)
'''


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[None]:
    """One more source, the way every source is added: a module among the parsers."""
    (tmp_path / "broken_source.py").write_text(BROKEN)
    ingest.sources.generic.__path__.append(str(tmp_path))
    sources.cache_clear()
    yield
    ingest.sources.generic.__path__.remove(str(tmp_path))
    sources.cache_clear()


@pytest.mark.usefixtures("broken")
def test_a_parser_that_fails_costs_only_its_record() -> None:
    line = b"30,03/02/26,09:00:00,%s,,,,"
    fine = line % b"fine"
    words = [fine, b"boom", line % b"type", fine, line % b"column", b"none", fine]
    found = parsed(batch(*(("broken", word) for word in words)))
    assert [row["event_uid"] for row in found] == [f"r{at}#0" for at in range(7)]
    reasons = [row["dead_letter_reason"] for row in found]
    assert [reasons[0], reasons[3], reasons[6]] == [None, None, None]
    assert reasons[1] == "parser broken failed: ZeroDivisionError: a bug"
    assert reasons[2].startswith("parser broken made a row that fits no column: ")
    assert "no_such" in reasons[4]
    assert reasons[5] == "the parser found no event in it"


def test_an_empty_batch_gives_an_empty_batch() -> None:
    assert parsed(batch()) == []


def test_headers_reach_the_parser() -> None:
    raw = b"2026-03-02 09:00:00.1 INFO  [a/1.2] DHCP4_STARTED x"
    sent = [{"key": "host", "value": b"gw"}, {"key": "tz", "value": b"Asia/Tokyo"}]
    row = parsed(batch(("kea_dhcp4", raw), headers=sent))[0]
    assert (row["host_name"], row["time"].hour) == ("gw", 0)


def test_the_garbage_collector_is_left_as_it_was() -> None:
    assert gc.isenabled()
    parsed(batch(("sshd", b"x")))
    assert gc.isenabled()


HOSTILE = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(str.encode),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "ts",
                        "id",
                        "id.orig_h",
                        "id_orig_h",
                        "uid",
                        "query",
                        "answers",
                        "TTLs",
                        "rcode",
                        "eventName",
                        "resources",
                        "eventSource",
                        "eventTime",
                        "userIdentity",
                        "Records",
                        "sessionContext",
                        "status_code",
                        "host",
                        "uri",
                        "orig_bytes",
                        "duration",
                    ]
                ),
                inner,
                max_size=6,
            )
        ),
        max_leaves=20,
    ).map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda raw, at, piece: raw[:at] + piece + raw[at:],
        st.sampled_from([raw for _, path, _ in FILES for raw in lines(path)[3:6]]),
        st.integers(0, 300),
        st.binary(max_size=5),
    ),
)


@examples(50)  # of each of some eighty sources
@given(raws=st.lists(HOSTILE, min_size=1, max_size=4))
@pytest.mark.parametrize("source", sorted(sources()))
def test_any_bytes_give_rows_and_the_same_ones_again(source: str, raws: list[bytes]) -> None:
    found = rows(source, *raws)
    assert {row["record_ids"][0] for row in found} == {f"r{at}" for at in range(len(raws))}
    assert rows(source, *raws) == found
    assert len({row["event_uid"] for row in found}) == len(found)
    assert not [
        row["dead_letter_reason"]
        for row in found
        if "failed:" in str(row.get("dead_letter_reason"))
    ]
    arrow = parsed(batch(*((source, raw) for raw in raws)))
    uids = [sorted(row["event_uid"] for row in each) for each in (arrow, found)]
    assert uids[0] == uids[1]
    assert not [row for row in arrow if "fits no column" in str(row["dead_letter_reason"])]


def test_parse_gives_plain_objects() -> None:
    raw = b"Mar  2 09:00:00 h sshd[1]: Accepted password for ann from 10.0.0.5 port 4 ssh2"
    now = datetime(2026, 3, 2, 8, 0, 1, tzinfo=UTC)
    (found,) = parse(raw, "sshd", tz="Europe/Berlin", now=now)
    assert found["time"] == int(datetime(2026, 3, 2, 8, tzinfo=UTC).timestamp() * 1000)
    assert found["src_endpoint"] == {"ip": "10.0.0.5", "port": 4}
    assert found["user"] == {"name": "ann"}
    (dead,) = parse(b"\xff", "sshd", now=now)
    assert dead["dead_letter_reason"] == "not valid UTF-8 at byte 0"
    with pytest.raises(Usage, match="no source 'x'; there are"):
        parse(b"", "x")
    with pytest.raises(Usage, match="no time zone 'Mars'"):
        parse(b"", "sshd", tz="Mars")


def test_events_are_of_the_tenant_of_their_record_and_joined_within_it() -> None:
    """Two tenants' machines may share a name, a serial number and a millisecond."""
    start = b'type=SYSCALL msg=audit(1700000000.123:7): arch=c000003e syscall=59 exe="/bin/a"'
    other = b'type=PATH msg=audit(1700000000.123:7): item=0 name="/secret/of/another"'
    records = batch(
        ("auditd", start), ("auditd", other), ("auditd", other), ("zeek:dns", b"broken"),
        ("sshd", b"<38>Nov 20 10:00:00 gw sshd[1]: Accepted password for ann from 10.0.0.1 port 2"),
    )  # fmt: skip
    tenants = ["acme", "globex", None, "globex", "acme"]
    named = records.append_column("tenant_uid", pa.array(tenants))
    found = parsed(named)
    held = {uid: row["tenant_uid"] for row in found for uid in row["record_ids"]}
    assert held == dict(zip(["r0", "r1", "r2", "r3", "r4"], tenants, strict=True))
    assert all(len(row["record_ids"]) == 1 for row in found)
    # What a tenant has of a site is a scope of its own, or another's lease would be told of them.
    assert {row["scope"] for row in found if row["tenant_uid"] == "acme"} == {"tenant-acme.default"}
    assert {row["scope"] for row in found if row["tenant_uid"] is None} == {"default"}
    # Where none is named, or the table is of an earlier release, they are one event as before.
    joined = [row for row in parsed(records) if row["source"] == "auditd"]
    assert [len(row["record_ids"]) for row in joined] == [3]
    assert joined[0]["tenant_uid"] is None
