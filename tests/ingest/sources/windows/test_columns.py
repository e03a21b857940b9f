"""Windows events read many at once equal those read one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.spark.session import project_root
from ingest.parsing.source import ParseSettings, lookup
from ingest.sources.windows.columns import reader
from ingest.sources.windows.columns.column import Column, Split, Unlike, column_of
from ingest.sources.windows.columns.many import each, holds
from ingest.sources.windows.record import Fields
from tests.examples import examples
from tests.ingest.columnar import SETTINGS, agree, records
from tests.ingest.logs import lines
from tests.ingest.windows_forms import beat, nxlog
from tests.ingest.windows_samples import SAMPLES

SOURCE = "windows_nxlog"
ELSEWHERE = ParseSettings(
    zones={SOURCE: "Europe/Berlin"},
    host_zones={SOURCE: {"WS02.corp.example": "America/New_York"}},
    scopes=(("north", ("WS02.corp.example",)),),
)
FREQUENT = (
    *("sysmon 1", "sysmon 3", "sysmon 5", "sysmon 7", "sysmon 10", "sysmon 11", "sysmon 12"),
    *("sysmon 13", "sysmon 17", "sysmon 18", "sysmon 22", "sysmon 23"),
    *("4624", "4625", "4634", "4656", "4658", "4663", "4672", "4688", "4689", "4703", "5156"),
)


@pytest.fixture(autouse=True, scope="module")
def _however_few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "FEWEST_EVENTS", 1)
        patch.setattr(reader, "FEWEST_RECORDS", 1)
        yield


def recordings(folder: str) -> list[bytes]:
    paths = sorted((project_root() / "samples" / folder).glob("*.gz"))
    return [line for path in paths for line in lines(f"{folder}/{path.name}")]


def fields_of(name: str) -> dict[str, Any]:
    fields = json.loads(nxlog(SAMPLES[name]))
    assert isinstance(fields, dict)
    return fields


def compact(fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def alike(name: str) -> list[bytes]:
    """A sample four times, as events of one kind differ: by number, time, host, and each text."""
    fields = fields_of(name)
    rows = []
    for number in range(4):
        row = fields | {
            "RecordNumber": 4711 + number,
            "Hostname": f"WS0{number % 3}.corp.example",
            "@timestamp": f"2024-03-05T10:20:3{number}.123Z",
            "ExecutionProcessID": 744 + number % 2,
        }
        if "UtcTime" in row:
            row["UtcTime"] = f"2024-03-05 10:20:3{number}.123"
        for key, value in SAMPLES[name].named.items():
            # What ends in a digit, as ids and addresses do, ends in another.
            if key != "UtcTime" and value[-1:].isdigit() and not value.startswith("%%"):
                row[key] = value[:-1] + str((int(value[-1]) + number) % 10)
            elif "\\" in value or value.endswith("}"):
                row[key] = value.replace("a", "abcd"[number])
        rows.append(compact(row))
    return rows


@pytest.mark.parametrize(
    ("folder", "events", "at_once"), [("windows", 396, 379), ("windows_processes", 339, 339)]
)
def test_recordings_are_read_alike(folder: str, events: int, at_once: int) -> None:
    raws = recordings(folder)
    assert len(raws) == events
    assert agree(SOURCE, raws) == at_once


@pytest.mark.parametrize("name", SAMPLES)
def test_each_event_is_read_alike(name: str) -> None:
    raws = alike(name)
    assert (agree(SOURCE, raws) == len(raws)) >= (name in FREQUENT)


@pytest.mark.parametrize("name", FREQUENT)
def test_each_event_is_read_alike_in_other_zones_and_sites(name: str) -> None:
    raws = alike(name)
    assert agree(SOURCE, raws, ELSEWHERE) == len(raws)


BEATS = "winlogbeat"


def alike_beats(name: str) -> list[bytes]:
    """A sample four times as Winlogbeat writes it, the data as `alike` varies it."""
    rows = []
    for number, raw in enumerate(alike(name)):
        document, fields = json.loads(beat(SAMPLES[name])), json.loads(raw)
        document["@timestamp"] = fields["@timestamp"]
        document["host"]["name"] = fields["Hostname"]
        winlog = document["winlog"]
        winlog |= {"computer_name": fields["Hostname"], "record_id": number}
        winlog["process"]["pid"] = 744 + number % 2
        data = winlog["event_data"] if "event_data" in winlog else winlog["user_data"]
        data |= {key: fields[key] for key in data}
        rows.append(compact(document))
    return rows


@pytest.mark.parametrize("name", SAMPLES)
def test_each_event_of_winlogbeat_is_read_alike(name: str) -> None:
    raws = alike_beats(name)
    assert (agree(BEATS, raws) == len(raws)) >= (name in FREQUENT)


@pytest.mark.parametrize("name", FREQUENT)
def test_each_event_of_winlogbeat_is_read_alike_at_other_sites(name: str) -> None:
    raws = alike_beats(name)
    assert agree(BEATS, raws, ELSEWHERE) == len(raws)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("winlog.event_data.ProcessId", 7),
        ("winlog.event_data.ProcessId", {"a": {"b": 1}}),
        ("winlog.event_data.ProcessId", {}),
        ("winlog.event_data", {}),
        ("winlog.event_data", None),
        ("winlog.event_data.a.b", "c"),
        ("winlog.event_id", None),
        ("winlog.event_id", 4.0),
        ("winlog.keywords", -9223372036854775808),
        ("winlog.keywords", "Audit Failure"),
        ("winlog.level", "Error"),
        ("winlog.user", {"identifier": "S-1-5-18", "name": "SYSTEM", "domain": "NT AUTHORITY"}),
        ("winlog.user", {"identifier": "S-1-5-18"}),
        ("winlog.user", "ann"),
        ("winlog.process.pid", "744"),
        ("winlog.process.thread", {}),
        ("winlog.activity_id", "{00000000-0000-0000-0000-000000000000}"),
        ("winlog.computer_name", None),
        ("winlog.provider_name", "other"),
        ("event.code", 1),
        ("host", "ws01"),
        ("log.level", "warning"),
        ("message", "Process Create:\nmore"),
        ("@timestamp", "yesterday"),
        ("@timestamp", 1600000000),
        ("process.pid", 5),
        ("registry.data.strings", ["a"]),
        ("user.name", "ann"),
        ("_source", {"winlog": {}}),
        ("winlog.x.keywords", 1234567890123456789),
    ],
)
def test_odd_documents_among_usual_ones_are_read_alike(path: str, value: Any) -> None:
    for name in ("sysmon 1", "4688"):
        usual = alike_beats(name)
        odd = [with_value(raw, path, value) for raw in usual]
        assert agree(BEATS, [*usual, odd[0]]) >= len(usual)
        agree(BEATS, odd)


def test_documents_whose_keys_have_points_are_read_alike() -> None:
    raws = [raw.replace(b'"agent":{', b'"agent.more":{') for raw in alike_beats("4688")]
    assert agree(BEATS, raws) == 0


@pytest.mark.parametrize("source", [SOURCE, BEATS])
@pytest.mark.parametrize(
    "spelled",
    [b'"\\u004beywords":', b'"\\u006beywords":', b'"Keywords"  :  ', b'"keywords":' + b" " * 12],
)
def test_a_mask_is_text_where_the_row_reader_makes_it_so(source: str, spelled: bytes) -> None:
    usual = alike("4688") if source == SOURCE else alike_beats("4688")
    places = [(), ("host",)] if source == SOURCE else [("winlog",), ("fields",), ("fields", "of")]
    for place in places:
        for more in (b"", b'"keywords":1234567890123456789,'):
            rows = [with_value(raw, ".".join((*place, "MASK")), 1234567890123456789)
                    .replace(b'"MASK":', more + spelled) for raw in usual]  # fmt: skip
            agree(source, [*usual, *rows])


def test_what_no_reader_foresaw_costs_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> NoReturn:
        raise RuntimeError("not foreseen")

    for name in ("parts_of", "batch_of_groups"):
        with monkeypatch.context() as patch:
            patch.setattr(reader, name, fails)
            at_once = lookup(SOURCE).columns(records(SOURCE, alike("4688")), SETTINGS)
        assert at_once is not None
        assert at_once.events is None
        assert at_once.left == [0, 1, 2, 3]


def with_value(raw: bytes, path: str, value: Any) -> bytes:
    document = json.loads(raw)
    *steps, last = path.split(".")
    node = document
    for step in steps:
        node = node.setdefault(step, {})
    node[last] = value
    return compact(document)


def test_all_events_together_are_read_alike() -> None:
    raws = [raw for name in SAMPLES for raw in alike(name)]
    assert agree(SOURCE, raws) > len(raws) * 3 / 4


def test_few_events_of_a_kind_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FEWEST_EVENTS", 5)
    assert agree(SOURCE, [*alike("sysmon 1"), *alike("4688")]) == 0
    assert agree(SOURCE, [*alike("sysmon 1"), *alike("sysmon 1"), *alike("4688")]) == 8
    monkeypatch.setattr(reader, "FEWEST_RECORDS", 13)
    assert agree(SOURCE, [*alike("sysmon 1"), *alike("sysmon 1"), *alike("4688")]) == 0


def test_what_came_with_headers_is_left() -> None:
    headers = [{"key": "tz", "value": b"Asia/Tokyo"}]
    at_once = lookup(SOURCE).columns(records(SOURCE, alike("4688"), headers), SETTINGS)
    assert at_once is not None
    assert at_once.events is None
    assert at_once.left == [0, 1, 2, 3]


# Each beside three usual events: what is odd about one must cost its neighbours nothing.
@pytest.mark.parametrize(
    "change",
    [
        {"UtcTime": "never"},
        {"UtcTime": "2024-03-05 25:00:00.000", "@timestamp": "x", "EventTime": ""},
        {"UtcTime": "1899-12-31 00:00:00.000"},
        {"EventTime": "2024-10-27 02:30:00", "UtcTime": None},
        {"EventTime": "/Date(1600000000000)/", "UtcTime": None},
        {"EventTime": 1600000000, "UtcTime": None},
        {"Hashes": "MD5=00000000000000000000000000000000"},
        {"Hashes": "MD5=" + "a" * 32 + ",SHA1=" + "a" * 32 + ",MD5=" + "a" * 32},
        {"Hashes": "none at all"},
        {"User": "ann"},
        {"User": "CORP\\ann\\x"},
        {"User": "  CORP\\ann "},
        {"User": "-"},
        {"ProcessId": 0},
        {"ProcessId": "0x1F4"},
        {"ProcessId": 4294967296},
        {"ProcessId": 1.5},
        {"ProcessId": -0.0},
        {"ProcessId": True},
        {"ProcessId": None},
        {"ProcessId": ["1"]},
        {"ProcessId": {"value": 1}},
        {"ProcessId": 10**30},
        {"EventID": "1"},
        {"EventID": 65537},
        {"EventID": None},
        {"EventID": 10**12},
        {"SourceName": None, "Channel": None},
        {"SourceName": "sysmon, more or less"},
        {"Hostname": ""},
        {"Hostname": 7, "host": {"name": "a"}},
        {"Keywords": "0x8010000000000000"},
        {"Keywords": -9223372036854775808, "nested": {"Keywords": 1234567890123456789}},
        {"nested": {"Keywords": 12345678901234567890}},
        {"Message": "Process Create:\r\nRuleName: -"},
        {"Message": ""},
        {"Level": "Error"},
        {"CommandLine": "caf\u00e9 \U0001f600 \"quoted\" \\ \x7f"},
        {"CommandLine": "x" * 1000},
        {"CommandLine": "\ud800"},
        {"": "empty"},
        {"Data.CommandLine": "other"},
        {"oddities": "its own"},
        {"Domain": "CORP", "AccountName": "ann", "AccountType": "User"},
        {"Domain": 1, "AccountName": "ann", "AccountType": "User"},
    ],
)  # fmt: skip
def test_odd_events_among_usual_ones_are_read_alike(change: dict[str, Any]) -> None:
    usual = alike("sysmon 1")
    fields = json.loads(usual[0]) | change
    odd = json.dumps(fields).encode()
    assert agree(SOURCE, [*usual, odd]) >= len(usual)
    # And where all of them are odd in the same way.
    every = [json.dumps(json.loads(raw) | change).encode() for raw in usual]
    agree(SOURCE, every)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw + b"{}",
        lambda raw: raw + b"\n" + raw,
        lambda raw: raw[:-1] + b',"EventID":2}',
        lambda raw: raw[:-1] + b',"\\u0045ventID":2}',
        lambda raw: raw[:-1] + b',"x":{"y":1,"y":2}}',
        lambda raw: raw[:-1] + b',"x":"\xff"}',
        lambda raw: raw[:-1] + b',"x":1e999}',
        lambda raw: raw[:-1],
        lambda raw: b"[" + raw + b"]",
        lambda raw: b" " + raw + b" ",
        lambda raw: raw.replace(b":", b" : ", 1),
        lambda raw: b"",
        lambda raw: b"{}",
        lambda raw: raw.replace(b"CommandLine", b"Command\\u004cine"),
    ],
)
def test_damaged_records_cost_no_neighbour_anything(spoil: Any) -> None:
    usual = alike("sysmon 1")
    assert agree(SOURCE, [*usual, spoil(usual[0])]) >= len(usual)


VALUES = st.one_of(
    st.sampled_from(
        [
            *("", " ", "-", "0", "0x0", "1", " 80 ", "0x1f", "%%1793", "true", "FALSE", "S-1-5-18"),
            *("S-1-0-0", "CORP\\ann", "ann@corp.example", "C:\\a b\\c.exe", "\\\\10.0.0.1", "::1"),
            *("fe80::1%4", "::ffff:10.0.0.1", "10.0.0.1", "{00000000-0000-0000-0000-000000000000}"),
            *("type:  5 a.example;::ffff:1.2.3.4;", "SetValue", "DWORD (0x00000001)", "(Default)"),
            *("MD5=" + "0" * 32, "SHA1=" + "ab" * 20, "2024-03-05 10:20:30.123", "%%4417 %%1537"),
            *(None, True, False, 0, 1, 4, -1, 2**31, 2**63, 1.0, 0.5, [], ["a"], {}, {"a": 1}),
        ]
    ),
    st.text(max_size=12),
    st.integers(-(2**65), 2**65),
)


@given(data=st.data())
@examples(150)
def test_whatever_fields_hold_is_read_alike(data: st.DataObject) -> None:
    rows = []
    for name in data.draw(st.lists(st.sampled_from(FREQUENT), min_size=1, max_size=2)):
        names = [*fields_of(name), "Message", "UserID", "host", "More", "SubjectUserName", "Hashes"]
        changed = data.draw(st.lists(st.sampled_from(names), max_size=4, unique=True))
        for raw in alike(name):
            row = json.loads(raw)
            changes(data, row, changed)
            spaced = data.draw(st.booleans())
            rows.append(json.dumps(row).encode() if spaced else compact_of(row))
    agree(SOURCE, rows, data.draw(st.sampled_from([SETTINGS, ELSEWHERE])))


@given(data=st.data())
@examples(100)
def test_whatever_documents_hold_is_read_alike(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FREQUENT))
    rows = []
    own, of_data = (
        data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
        for names in (
            ["computer_name", "record_id", "level", "keywords", "user", "process", "task", "More"],
            [*SAMPLES[name].named, "More"],
        )
    )
    for raw in alike_beats(name):
        row = json.loads(raw)
        changes(data, row["winlog"], own)
        changes(data, row["winlog"]["event_data"], of_data)
        rows.append(compact_of(row))
    agree(BEATS, rows, data.draw(st.sampled_from([SETTINGS, ELSEWHERE])))


def changes(data: st.DataObject, row: dict[str, Any], names: list[str]) -> None:
    """Other values of these fields; most of the time all events have the field."""
    for key in names:
        if data.draw(st.integers(0, 9)):
            row[key] = data.draw(VALUES)
        else:
            row.pop(key, None)


def compact_of(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


TEXTS = st.text(st.sampled_from("aB1\\-{} "), max_size=4)


@given(st.lists(TEXTS, min_size=1, max_size=6))
@examples(200)
def test_a_column_answers_as_each_of_its_values(values: list[str]) -> None:
    column = column_of(values)
    # The rows of each answer, however the column was parted.
    assert answers(column, len(values), str.lower) == [value.lower() for value in values]
    parts = answers(column, len(values), lambda value: value.rpartition("\\")[2])
    assert parts == [value.rpartition("\\")[2] for value in values]
    taken = answers(column, len(values), lambda value: Fields({"a": value}).text("a"))
    assert taken == [Fields({"a": value}).text("a") for value in values]


def answers(column: Any, rows: int, question: Any) -> list[Any]:
    """What each row gets for an answer, where the column is parted as often as it asks for it."""
    try:
        answer = question_of(column, question)
    except Split as split:
        result: list[Any] = [None] * rows
        for label in np.unique(split.labels):
            places = np.flatnonzero(split.labels == label)
            own = column.at(places)
            for place, value in zip(places, answers(own, len(places), question), strict=True):
                result[place] = value
        return result
    if isinstance(answer, Column):
        return [answer.values[code] for code in answer.codes]
    return [answer] * rows


def question_of(column: Any, question: Any) -> Any:
    return each(question, column) if question is str.lower else question(column)


def test_many_values_are_never_taken_for_one() -> None:
    column = column_of(["a", "b"])
    for question in (str, "{}".format, len, list, int, " ".join, "a".__add__, "ab".find):
        with pytest.raises((TypeError, AttributeError)):
            question(column)
    with pytest.raises(Split):
        {"a": 1}.get(column)
    with pytest.raises(Split):
        bool(column == "a")
    with pytest.raises(Unlike):
        {"a": 1}.get(column_of([str(number) for number in range(100)]))
    assert holds(str.isalpha, column)
    assert each(len, column) == 1
