"""Windows events made to mislead, and fields that are not what they should be."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.source import Context, Record, Unreadable
from ingest.sources.windows import event_of_xml
from ingest.sources.windows.providers import BY_PROVIDER
from tests.examples import examples
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import NOW, SETTINGS, good, reason, rows
from tests.ingest.windows_forms import FORMS, Sample, nxlog, xml
from tests.ingest.windows_logon_samples import FAILED, LOGON
from tests.ingest.windows_samples import SAMPLES

NAMES = [
    "admin from 6.6.6.6",
    'x","IpAddress":"6.6.6.6',
    "\x1b[31mroot\x1b[0m",
    "\u202enimda",
    "=cmd|'/c calc'!A0",
    "</Data><Data Name='IpAddress'>6.6.6.6</Data>",
    "a\r\nSource Network Address:\t6.6.6.6",
    "\\x22 IpAddress=6.6.6.6",
    "{{7*7}}",
    "&lt;Event&gt;",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMS)
def test_a_user_name_cannot_forge_anything(form: str, name: str) -> None:
    source, write = FORMS[form]
    event = good(source, write(Sample(4625, FAILED | {"TargetUserName": name})))
    assert event["src_ip"] == "203.0.113.9"
    shown = name.replace("\r\n", "\n") if form == "xml" else name
    assert event["user"]["name"] == shown
    assert event["status_code"] == "0xC000006A"


def test_no_document_type_is_read() -> None:
    bomb = (
        b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">'
        b"]>" + xml(SAMPLES["4624"])
    )
    assert [one.get("dead_letter_reason") for one in rows("windows_xml", bomb)] == [
        "a document type in the XML, which no event has",
        None,
    ]
    external = b'<!DOCTYPE Event SYSTEM "file:///etc/passwd"><Event><System/></Event>'
    assert "document type" in rows("windows_xml", external)[0]["dead_letter_reason"]
    entity = xml(SAMPLES["4624"]).replace(b">bob<", b">&xxe;<")
    assert "undefined entity" in reason("windows_xml", entity)


def test_control_characters_do_not_hide_an_event() -> None:
    raw = xml(SAMPLES["4688"]).replace(b"bitsadmin /transfer x", b"a&#x1b;[0m&#0;b\x08c&#xD800;")
    event = good("windows_xml", raw)
    assert event["process"]["cmd_line"] == "a\x1b[0m\x00b\x08c\ufffd"


def test_text_of_an_event_inside_a_value_stays_text() -> None:
    inner = xml(SAMPLES["4624"]).decode()
    event = good("windows_xml", xml(Sample(4625, FAILED | {"TargetUserName": inner})))
    assert event["user"]["name"] == inner
    assert event["activity_id"] == 1
    assert event["status_id"] == 2


def test_smuggled_json_is_refused() -> None:
    one = nxlog(SAMPLES["4624"])
    assert "a second value" in reason("windows_nxlog", one + one)
    twice = one[:-1] + b',"IpAddress":"6.6.6.6"}'
    assert "stands twice" in reason("windows_nxlog", twice)


def test_elements_that_stand_twice_do_not_overrule() -> None:
    text = xml(SAMPLES["4624"]).decode()
    doubled = text.replace("</EventData>", "<Data Name='IpAddress'>6.6.6.6</Data></EventData>")
    event = good("windows_xml", doubled)
    assert event["src_ip"] == "10.9.8.7"
    assert json.loads(event["unmapped"])["IpAddress.2"] == "6.6.6.6"


ODD: list[Any] = [None, [], {}, "", "-", -5, 1e300, True, 2**62, "\x00", " "]
ODD += [[1, {"a": "b"}], {"a": []}]


def odd_versions(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(node, dict):
        return [path, *(p for key, one in node.items() for p in odd_versions(one, (*path, key)))]
    if isinstance(node, list):
        return [path, *(p for at, one in enumerate(node) for p in odd_versions(one, (*path, at)))]
    return [path]


JSON_FORMS = [form for form in FORMS if form != "xml"]


@pytest.mark.parametrize("form", JSON_FORMS)
@pytest.mark.parametrize("name", ["4624", "4688", "4698", "1102", "sysmon 1", "sysmon 22", "800"])
def test_odd_values_anywhere_never_stop_the_parser(form: str, name: str) -> None:
    source, write = FORMS[form]
    document = write(SAMPLES[name])
    raws = []
    for path in odd_versions(json.loads(document))[1:]:
        for odd in ODD:
            changed = json.loads(document)
            at = changed
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = odd
            raws.append(json.dumps(changed).encode())
    found = rows(source, *raws)
    assert [
        one["dead_letter_reason"]
        for one in found
        if "failed:" in str(one.get("dead_letter_reason"))
    ] == []
    read = [one for one in found if one.get("dead_letter_reason") is None]
    assert len(read) > len(found) * 0.8
    assert [fault for one in read for fault in misfits(one)] == []


@examples(200)
@given(
    fields=st.dictionaries(
        st.sampled_from([*LOGON, "EventTime", "@timestamp", "Keywords", "Level", "Message"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    ),
    event_id=st.sampled_from([1, 3, 22, 255, 400, 4624, 4688, 4768, 5156, 7045, 1102, 99]),
    provider=st.sampled_from(sorted({one.provider for one in SAMPLES.values()})),
)
def test_any_fields_give_an_event(fields: dict[str, Any], event_id: int, provider: str) -> None:
    raw = json.dumps({"EventID": event_id, "SourceName": provider, **fields}).encode()
    (found,) = rows("windows_nxlog", raw)
    why = found.get("dead_letter_reason")
    assert why is None or "beyond 64 bits" in why or "surrogate" in why or "not valid" in why
    assert rows("windows_nxlog", raw) == [found]


@pytest.mark.parametrize(
    "text",
    [
        "<Event>" * 200_000,
        "<Event " + "a" * 2_000_000,
        "<Event><System>" + "<a>" * 300_000,
        xml(SAMPLES["4624"]).decode().replace("bob", "<" * 500_000),
        xml(SAMPLES["4624"]).decode().replace("bob", "&#x1;" * 300_000),
        xml(SAMPLES["800"]).decode().replace("whoami", " " * 1_000_000 + "="),
        xml(SAMPLES["4698"]).decode().replace("cmd.exe", "&lt;Command&gt;" * 100_000),
    ],
)
def test_hostile_xml_costs_no_time(text: str) -> None:
    start = time.process_time()
    found = rows("windows_xml", text.encode())
    assert found
    assert not [one for one in found if "failed:" in str(one.get("dead_letter_reason"))]
    assert time.process_time() - start < 5


def test_hostile_messages_cost_no_time() -> None:
    start = time.process_time()
    for message in ("a: " * 500_000, "\tSecurity ID:\t\t" * 200_000, "X=\n" * 300_000, "A" * 10**6):
        raw = {"EventID": 4624, "Channel": "Security", "Hostname": "h", "Message": message}
        assert good("windows_nxlog", json.dumps(raw))["class_uid"] == 3002
        raw = {"EventID": 800, "SourceName": "PowerShell", "Hostname": "h", "Message": message}
        assert good("windows_nxlog", json.dumps(raw))["class_uid"] == 1009
    assert time.process_time() - start < 10


def test_a_name_is_no_event_of_another_channel() -> None:
    raw = json.dumps({"EventID": 1, "Channel": "Application", "Hostname": "h", "Image": "x"})
    assert good("windows_nxlog", raw)["class_uid"] == 0


@pytest.mark.parametrize("provider", BY_PROVIDER)
def test_every_known_event_is_ocsf_even_without_its_data(provider: str) -> None:
    for event_id in BY_PROVIDER[provider]:
        for data in ({}, dict.fromkeys((*LOGON, "param1", "param2", "TargetObject"), "x")):
            event = good("windows_xml", xml(Sample(event_id, data, provider, "Some/Log")))
            assert faults(event) + misfits(event) == [], event_id
            assert event["message"]


def test_an_event_cut_short_can_be_read_as_far_as_it_came() -> None:
    whole = xml(SAMPLES["sysmon 1"]).decode()
    context = Context(Record("r", "windows_xml", "live", NOW, b""), SETTINGS)
    for end in range(whole.index("CurrentDirectory"), len(whole) - 20, 37):
        event = event_of_xml(whole[:end], context, cut=True)
        assert event["process"]["pid"] == 9260
        assert json.loads(event["unmapped"])["truncated"] is True
        with pytest.raises(Unreadable, match="not valid XML"):
            event_of_xml(whole[:end], context)
    assert event_of_xml(whole, context, cut=True) == event_of_xml(whole, context)


@pytest.mark.parametrize("form", ["nxlog", "velociraptor", "evtx_dump"])
def test_keywords_may_be_a_number_without_a_sign(form: str) -> None:
    source, write = FORMS[form]
    document = json.loads(write(SAMPLES["4625"]))
    part = document.get("Event", document)
    part.get("System", part)["Keywords"] = 0x8010000000000000
    event = good(source, json.dumps(document))
    assert (event["status_id"], json.loads(event["unmapped"])["Keywords"]) == (
        2,
        "0x8010000000000000",
    )


def test_rights_taken_from_a_token_are_not_given_to_it() -> None:
    data = SAMPLES["4703"].named | {
        "EnabledPrivilegeList": "-",
        "DisabledPrivilegeList": "SeDebugPrivilege",
    }
    event = good("windows_xml", xml(Sample(4703, data)))
    assert (event["activity_id"], event["activity_name"]) == (99, "Remove Privileges")
    assert event["privileges"] == ["SeDebugPrivilege"]
