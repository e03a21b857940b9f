"""Windows events in all the forms they come in: one event is the same event in each."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import Unreadable, lookup
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, lines, reason, row, rows
from tests.ingest.windows_forms import FORMS, NAMESPACE, SECURITY, Sample, beat, nxlog, sysmon, xml
from tests.ingest.windows_logon_samples import LOGON
from tests.ingest.windows_samples import SAMPLES
from tests.ingest.windows_sysmon_samples import BY_ANN, CREATED

RECORDINGS = (
    "windows/cmd_bitsadmin_download_psh_script.jsonl.gz",
    "windows/covenant_psremoting_command.jsonl.gz",
    "windows/empire_shell_rubeus_asktgt_ptt.jsonl.gz",
    "windows/schtask_create.jsonl.gz",
)
APART = ("event_uid", "record_ids", "source", "received_at", "time", "time_quality", "unmapped")
WHEN = datetime(2031, 7, 9, 5, 4, 3, 210987, UTC)
NEW_YORK = "America/New_York"


def left(event: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(event["unmapped"] or "{}")
    assert isinstance(found, dict)
    return found


def same(event: dict[str, Any]) -> dict[str, Any]:
    """What an event must have whatever form it came in."""
    found = {name: value for name, value in event.items() if name not in APART}
    found["metadata"] = {k: v for k, v in found["metadata"].items() if k != "original_time"}
    return found


@pytest.mark.parametrize("name", SAMPLES)
def test_an_event_is_the_same_in_every_form(name: str) -> None:
    found = {form: good(source, write(SAMPLES[name])) for form, (source, write) in FORMS.items()}
    expected = found["xml"]
    data = SAMPLES[name].named.keys() - {"Version"}  # an event has one of its own, too
    for form, event in found.items():
        assert same(event) == same(expected), form
        assert data & left(event).keys() == data & left(expected).keys(), form
        assert abs(event["time"] - expected["time"]) < timedelta(seconds=1)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_event_is_ocsf(name: str) -> None:
    for source, write in FORMS.values():
        event = good(source, write(SAMPLES[name]))
        assert faults(event) == []
        assert misfits(event) == []
        assert event["metadata"]["event_code"] == str(SAMPLES[name].event_id)
        assert event["message"]


@pytest.mark.parametrize("path", RECORDINGS)
def test_no_line_of_a_recording_is_a_dead_letter(path: str) -> None:
    found = rows("windows_nxlog", *lines(path))
    assert [one["dead_letter_reason"] for one in found if one.get("dead_letter_reason")] == []
    assert [fault for one in found for fault in faults(one) + misfits(one)] == []
    assert rows("windows_nxlog", *lines(path)) == found


def test_the_recordings_hold_what_they_should() -> None:
    found = [one for path in RECORDINGS for one in rows("windows_nxlog", *lines(path))]
    classes = Counter(one["class_name"] for one in found)
    assert {
        *("Process Activity", "Module Activity", "Registry Key Activity", "Network Activity"),
        *("Authentication", "Script Activity", "Scheduled Job Activity", "SMB Activity"),
        *("Registry Value Activity", "Authorize Session", "Group Management"),
    } <= classes.keys()
    assert classes["Base Event"] <= 10


# -- times -------------------------------------------------------------------------------------


def flat(**fields: Any) -> dict[str, Any]:
    return {"EventID": 4634, "SourceName": SECURITY, "Hostname": "h", **fields}


@pytest.mark.parametrize(
    ("fields", "tz", "expected", "quality"),
    [
        # Local beside UTC: the zone is seen from both, whatever is configured.
        (
            {"EventTime": "2020-08-06 11:56:34", "@timestamp": "2020-08-06T15:56:36.430Z"},
            "UTC",
            datetime(2020, 8, 6, 15, 56, 34, tzinfo=UTC),
            "exact",
        ),
        # India is five and a half hours ahead.
        (
            {"EventTime": "2020-08-06 21:26:34", "@timestamp": "2020-08-06T15:56:34.430Z"},
            "UTC",
            datetime(2020, 8, 6, 15, 56, 34, 430000, UTC),
            "exact",
        ),
        # Shipped hours and odd minutes later: only the configured zone is left.
        (
            {"EventTime": "2020-08-06 11:56:34", "@timestamp": "2020-08-06T19:03:36.430Z"},
            NEW_YORK,
            datetime(2020, 8, 6, 15, 56, 34, tzinfo=UTC),
            "assumed_zone",
        ),
        (
            {"EventTime": "2020-01-06T11:56:34.123456-05:00"},
            "Asia/Tokyo",
            datetime(2020, 1, 6, 16, 56, 34, 123456, UTC),
            "exact",
        ),
        (
            {"EventTime": "2020-12-06 11:56:34"},
            NEW_YORK,
            datetime(2020, 12, 6, 16, 56, 34, tzinfo=UTC),
            "assumed_zone",
        ),
        (
            {"TimeCreated": "2020-10-19 12:28:35.564"},
            NEW_YORK,
            datetime(2020, 10, 19, 16, 28, 35, 564000, UTC),
            "assumed_zone",
        ),
        # Local time that claims to be UTC, beside the real one.
        (
            {"TimeCreated": "2020-10-19T12:28:35.564Z", "@timestamp": "2020-10-19T16:28:35.600Z"},
            "UTC",
            datetime(2020, 10, 19, 16, 28, 35, 600000, UTC),
            "exact",
        ),
        (
            {"@timestamp": "2020-10-19T16:28:35.600Z"},
            NEW_YORK,
            datetime(2020, 10, 19, 16, 28, 35, 600000, UTC),
            "exact",
        ),
        (
            {"EventTime": "nonsense", "@timestamp": "2020-10-19T16:28:35Z"},
            "UTC",
            datetime(2020, 10, 19, 16, 28, 35, tzinfo=UTC),
            "exact",
        ),
        (
            {"TimeCreated": "/Date(1603124915564)/"},
            "UTC",
            datetime(2020, 10, 19, 16, 28, 35, 564000, UTC),
            "exact",
        ),
        ({}, "UTC", datetime(2026, 11, 21, 4, tzinfo=UTC), "received"),
    ],
)
def test_the_time_of_flat_json(
    fields: dict[str, Any], tz: str, expected: datetime, quality: str
) -> None:
    event = good("windows_nxlog", json.dumps(flat(**fields)), tz=tz)
    assert (event["time"], event["time_quality"]) == (expected, quality)
    kept = left(event)
    for name, value in fields.items():
        exact = event["time_quality"] == "exact" and event["metadata"]["original_time"] is None
        assert kept.get(name) == value or exact or event["metadata"]["original_time"] == value


def test_sysmon_says_in_utc_when_it_was() -> None:
    raw = lines(RECORDINGS[0])
    events = rows("windows_nxlog", *raw, tz="Asia/Tokyo")
    for text, event in zip(raw, events, strict=True):
        fields = json.loads(text)
        if "UtcTime" in fields:
            said = datetime.fromisoformat(fields["UtcTime"]).replace(tzinfo=UTC)
            assert (event["time"], event["time_quality"]) == (said, "exact")
            assert left(event)["TimeCreated"] == fields["TimeCreated"]


def test_the_hour_a_clock_goes_back_is_told_by_the_arrival() -> None:
    raw = json.dumps(flat(EventTime="2024-11-03 01:30:00"))
    for hour in (5, 6):
        now = datetime(2024, 11, 3, hour, 30, 5, tzinfo=UTC)
        event = good("windows_nxlog", raw, tz=NEW_YORK, now=now)
        assert event["time"] == now.replace(second=0)


def test_a_naive_system_time_is_utc() -> None:
    text = xml(SAMPLES["4624"]).decode().replace("T10:20:30.1234567Z", " 10:20:30.123456")
    event = good("windows_xml", text, tz="Asia/Tokyo")
    assert event["time"] == datetime(2024, 3, 5, 10, 20, 30, 123456, UTC)
    assert event["time_quality"] == "exact"
    velociraptor = {
        "System": {
            "EventID": {"Value": 4634},
            "Provider": {"Name": SECURITY},
            "TimeCreated": {"SystemTime": 1709634030.5},
        }
    }
    event = good("windows_evtx_json", json.dumps(velociraptor))
    assert event["time"] == datetime(2024, 3, 5, 10, 20, 30, 500000, UTC)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["4624", "sysmon 1"])
def test_a_restamped_event_is_the_same_event_at_the_new_time(form: str, name: str) -> None:
    source, write = FORMS[form]
    raw = write(SAMPLES[name])
    zone = ZoneInfo("America/Chicago")
    moved = lookup(source).restamp(raw, WHEN, zone)
    before, after = good(source, raw), good(source, moved, tz="America/Chicago")
    assert WHEN - after["time"] < timedelta(seconds=1)
    assert after["time"] <= WHEN
    assert same(after) == same(before)
    assert len(moved) == len(raw)


def test_what_has_no_time_or_several_events_cannot_be_restamped() -> None:
    for source, raw in (
        ("windows_nxlog", b'{"EventID":1}'),
        ("winlogbeat", b'{"@timestamp":"soon"}'),
        ("windows_evtx_json", b'{"Event":{"System":{}}}'),
        ("windows_xml", b"<Event/>"),
        ("windows_xml", xml(SAMPLES["4624"]) * 2),
        ("windows_xml", b"\xff"),
    ):
        with pytest.raises(Unreadable):
            lookup(source).restamp(raw, WHEN, ZoneInfo("UTC"))


# -- packings ----------------------------------------------------------------------------------


def test_xml_comes_alone_in_a_row_in_a_file_and_pretty() -> None:
    one = xml(SAMPLES["4624"]).decode()
    expected = same(good("windows_xml", one))
    pretty = one.replace("><", ">\r\n  <")
    declared = f'\ufeff<?xml version="1.0" encoding="utf-8" standalone="yes"?>\n{one}'
    for text in (pretty, declared, f"<Events>\n{one}\n</Events>", f"  {one}\n"):
        assert same(good("windows_xml", text)) == expected
    wide = '<?xml version="1.0" encoding="utf-16"?><Events>' + one + one + "</Events>"
    found = rows("windows_xml", wide.encode("utf-16"))
    assert [same(event) for event in found] == [expected, expected]
    broken = rows("windows_xml", f"{one}\n<Event><System></Event>\n{one}".encode())
    assert [event.get("dead_letter_reason") for event in broken] == [
        None,
        "not valid XML: mismatched tag at line 1, column 17",
        None,
    ]


def test_a_file_of_xml_is_whole_unless_each_line_is_an_event() -> None:
    source = lookup("windows_xml")
    one = xml(SAMPLES["4624"])
    assert not source.is_whole(one + b"\n")
    assert source.is_whole(b"<Events>" + one + b"\n")
    assert source.is_whole(b'<?xml version="1.0"?>\n')
    assert source.is_whole(b"<Event xmlns='x'>\n")
    assert source.is_whole("<Event></Event>\n".encode("utf-16"))


def test_a_rendered_event_keeps_its_words() -> None:
    words = (
        "<RenderingInfo Culture='en-US'><Message>An account was successfully logged on.\n\n"
        "Subject: ...</Message><Level>Information</Level><Task>Logon</Task>"
        "<Keywords><Keyword>Audit Success</Keyword></Keywords></RenderingInfo>"
    )
    event = good(
        "windows_xml", xml(SAMPLES["4624"]).decode().replace("</Event>", words + "</Event>")
    )
    assert same(event) == same(good("windows_xml", xml(SAMPLES["4624"])))
    assert left(event)["RenderingInfo.Task"] == "Logon"
    assert left(event)["Message"].startswith("An account was successfully logged on.\n\nSubject")


def test_evtx_dump_writes_headings_unless_told_otherwise() -> None:
    source, write = FORMS["evtx_dump"]
    pretty = json.dumps(json.loads(write(SAMPLES["4624"])), indent=2)
    raw = f"Record 1\n{pretty}\nRecord 2\n{pretty}\nRecord 3\n{{\n".encode()
    found = rows(source, raw)
    assert [one["class_uid"] for one in found] == [3002, 3002, 0]
    assert "not valid JSON" in found[2]["dead_letter_reason"]
    assert lookup(source).is_whole(b"Record 1\n")
    assert "not valid JSON" in reason(source, b"Record 1\n{")


def test_arrays_and_lines_of_json_are_unpacked() -> None:
    one = nxlog(SAMPLES["4624"])
    for raw in (b"[" + one + b"," + one + b"]", one + b"\n" + one + b"\n"):
        assert [event["class_uid"] for event in rows("windows_nxlog", raw)] == [3002, 3002]


# -- other shippers ----------------------------------------------------------------------------


def test_evtxecmd_packs_the_data_into_text() -> None:
    data = [{"@Name": key, "#text": value} for key, value in LOGON.items()]
    raw = {
        "PayloadData1": "Target: CORP\\bob",
        "MapDescription": "Successful logon",
        "Payload": json.dumps({"EventData": {"Data": data}}),
        "Computer": "WS01.corp.example",
        "Channel": "Security",
        "Provider": SECURITY,
        "EventId": 4624,
        "EventRecordId": "4711",
        "ProcessId": 744,
        "ThreadId": 812,
        "Level": "LogAlways",
        "Keywords": "Audit success",
        "SourceFile": "C:\\x.evtx",
        "TimeCreated": "2024-03-05T10:20:30.1234567+00:00",
    }
    event = good("windows_evtx_json", json.dumps(raw))
    expected = good("windows_xml", xml(SAMPLES["4624"]))
    assert same(event) == same(expected)
    assert event["time"] == expected["time"]
    assert left(event)["MapDescription"] == "Successful logon"
    raw["Payload"] = "not JSON"
    assert left(good("windows_evtx_json", json.dumps(raw)))["Payload"] == "not JSON"


def test_winlogbeats_modules_move_data_to_ecs() -> None:
    document = json.loads(beat(SAMPLES["sysmon 1"]))
    data = document["winlog"]["event_data"]
    for name in (*CREATED, "UtcTime"):
        if name not in (
            "LogonId",
            "LogonGuid",
            "TerminalSessionId",
            "IntegrityLevel",
            "ParentUser",
        ):
            data.pop(name, None)
    document["process"] = {
        "entity_id": CREATED["ProcessGuid"],
        "pid": 9260,
        "executable": CREATED["Image"],
        "command_line": CREATED["CommandLine"],
        "working_directory": CREATED["CurrentDirectory"],
        "name": "cmd.exe",
        "args": ["cmd.exe", "/c"],
        "hash": {
            "sha1": "a330ede32dfa03ae6808ee7fb6916d8deb8f5dde",
            "md5": "a094e2b38d3dd864b07580d243cb6e43",
            "sha256": "c441e19d20961d4e990e117a300ed318bedbf2f8ba0ff07bee7832ac502cddf2",
        },
        "pe": {
            "imphash": "ce4bd072766253f6a267d0284ca82002",
            "company": CREATED["Company"],
            "description": CREATED["Description"],
            "file_version": CREATED["FileVersion"],
            "original_file_name": CREATED["OriginalFileName"],
            "product": CREATED["Product"],
        },
        "parent": {
            "entity_id": CREATED["ParentProcessGuid"],
            "pid": 10044,
            "executable": CREATED["ParentImage"],
            "command_line": CREATED["ParentCommandLine"],
        },
    }
    document["user"] = {"name": "ann", "domain": "CORP", "id": "S-1-5-18"}
    event = good("winlogbeat", json.dumps(document))
    assert same(event) == same(good("windows_xml", xml(SAMPLES["sysmon 1"])))
    assert left(event)["process"]["args"] == ["cmd.exe", "/c"]


def test_winlogbeat_documents_come_flattened_and_as_hits() -> None:
    document = json.loads(beat(SAMPLES["4624"]))
    expected = same(good("winlogbeat", beat(SAMPLES["4624"])))
    hit = {"_index": "winlogbeat", "_id": "x", "_source": document}
    assert same(good("winlogbeat", json.dumps(hit))) == expected

    def flattened(node: Any, path: str = "") -> dict[str, Any]:
        if not isinstance(node, dict):
            return {path: node}
        return {
            key: value
            for name, one in node.items()
            for key, value in flattened(one, f"{path}.{name}" if path else name).items()
        }

    assert same(good("winlogbeat", json.dumps(flattened(document)))) == expected


def test_a_flat_event_of_which_only_the_message_was_kept() -> None:
    event = next(
        one
        for one in rows("windows_nxlog", *lines(RECORDINGS[3]))
        if one["metadata"]["event_code"] == "4698"
    )
    assert event["job"]["name"].startswith("\\Microsoft\\Windows\\SoftwareProtectionPlatform\\")
    assert event["job"]["cmd_line"]
    assert event["actor"]["user"]["name"] == "pgustavo"
    cleared = next(
        one
        for one in rows("windows_nxlog", *lines(RECORDINGS[0]))
        if one["metadata"]["event_code"] == "1102"
    )
    assert cleared["actor"]["user"] == {
        "name": "wardog",
        "domain": "WORKSTATION5",
        "uid": "S-1-5-21-3940915590-64593676-1414006259-500",
    }


def test_a_message_cannot_say_something_twice() -> None:
    message = (
        "Process Create:\r\nUtcTime: 2024-03-05 10:20:30.123\r\nProcessId: 7\r\n"
        "Image: C:\\evil.exe\r\nCommandLine: evil\r\nParentImage: C:\\good.exe\r\n"
        "ParentImage: C:\\bad.exe\r\n"
    )
    raw = {
        "EventID": 1,
        "SourceName": "Microsoft-Windows-Sysmon",
        "Hostname": "h",
        "Message": message,
    }
    event = good("windows_nxlog", json.dumps(raw))
    assert (event["process"]["path"], event["process"]["pid"]) == ("C:\\evil.exe", 7)
    assert event["process"].get("parent") is None
    assert left(event)["Message"] == message


def test_the_provider_is_known_by_its_guid_or_its_channel() -> None:
    data = {"EventID": 1, "Hostname": "h", **BY_ANN, "UtcTime": "2024-03-05 10:20:30.123"}
    for how in (
        {"SourceName": "Microsoft-Windows-Sysmon"},
        {"ProviderGuid": "{5770385F-C22A-43E0-BF4C-06F5698FFBD9}"},
        {"Channel": "Microsoft-Windows-Sysmon/Operational"},
    ):
        event = good("windows_nxlog", json.dumps(data | how))
        assert (event["class_uid"], event["process"]["pid"]) == (1007, 9260)
    foreign = data | {"SourceName": "Contoso", "Channel": "Security"}
    assert good("windows_nxlog", json.dumps(foreign))["class_uid"] == 0


def test_an_unknown_event_keeps_all_it_has() -> None:
    event = good("windows_xml", xml(SAMPLES["unknown"]))
    assert (event["class_uid"], event["status_id"]) == (0, 1)
    assert event["actor"]["user"]["name"] == "ann"
    assert left(event)["Odd"] == "x"
    failed = Sample(4999, {"Odd": "x"}, keywords="0x8010000000000000")
    assert good("windows_xml", xml(failed))["status_id"] == 2
    levels = {1: 5, 2: 4, 3: 3, 4: 1, 5: 1, 0: 1}
    for level, severity in levels.items():
        sample = Sample(7, {}, "Contoso", "Application", "0x80000000000000", level)
        assert good("windows_xml", xml(sample))["severity_id"] == severity
        assert good("winlogbeat", beat(sample))["severity_id"] == severity


def test_sysmon_for_linux_is_read_by_the_same_core() -> None:
    text = (
        '<Event><System><Provider Name="Linux-Sysmon" '
        'Guid="{ff032593-a8d3-4f13-b0d6-01fc615a0f97}"/><EventID>5</EventID>'
        '<TimeCreated SystemTime="2022-05-11T18:10:20.399931000Z"/><EventRecordID>1</EventRecordID>'
        "<Channel>Linux-Sysmon/Operational</Channel><Computer>UBUNTU5</Computer></System>"
        '<EventData><Data Name="UtcTime">2022-05-11 18:10:20.395</Data>'
        '<Data Name="ProcessId">1774</Data><Data Name="Image">/usr/bin/x</Data>'
        '<Data Name="User">root</Data></EventData></Event>'
    )
    event = good("windows_xml", text)
    assert (event["class_uid"], event["activity_id"]) == (1007, 2)
    assert event["process"]["path"] == "/usr/bin/x"
    assert event["process"]["user"] == {"name": "root"}
    assert event["time"] == datetime(2022, 5, 11, 18, 10, 20, 395000, UTC)
    assert faults(event) == []


def test_what_is_no_windows_event_is_refused_with_its_reason() -> None:
    assert reason("windows_nxlog", b'{"a":1}') == "no 'EventID' in the record"
    assert "neither 'SourceName'" in reason("windows_nxlog", b'{"EventID":1}')
    assert "EventID: expected a number, found 'x'" in reason(
        "windows_nxlog", b'{"EventID":"x","Channel":"Security"}'
    )
    assert "no 'winlog.event_id'" in reason("winlogbeat", b'{"winlog":{}}')
    assert "no 'Event.System'" in reason("windows_evtx_json", b'{"Event":{}}')
    assert "without <System>" in reason("windows_xml", b"<Event>x</Event>")
    assert "not a Windows event in XML: 'hello'" in reason("windows_xml", b"hello")
    assert "cut short" in reason("windows_xml", b"<Event><System>")
    assert row("windows_xml", sysmon_without_id())["dead_letter_reason"].startswith("EventID: ")


def sysmon_without_id() -> bytes:
    return xml(sysmon(1, {})).replace(b"<EventID>1</EventID>", b"<EventID></EventID>")


def test_the_namespace_says_nothing() -> None:
    event = good("windows_evtx_json", FORMS["python_evtx"][1](SAMPLES["1102"]))
    assert NAMESPACE not in json.dumps(left(event))
