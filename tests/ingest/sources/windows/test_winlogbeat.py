"""Winlogbeat's documents, alone and packed, as it writes them and after its modules.

Their shapes are those of the samples in https://github.com/elastic/integrations (folders
`_dev/test/pipeline`) and https://github.com/elastic/beats (`x-pack/winlogbeat/module`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.logs import good, reason, rows
from tests.ingest.windows_forms import beat, xml
from tests.ingest.windows_samples import SAMPLES

FIRST, SECOND = (json.loads(beat(SAMPLES[name])) for name in ("4624", "4688"))


def pretty(value: Any) -> bytes:
    return json.dumps(value, indent=4).encode()


@pytest.mark.parametrize(
    "packed",
    [
        {"expected": [FIRST, SECOND]},
        {"events": [FIRST, SECOND]},
        [FIRST, SECOND],
        {"took": 3, "hits": {"total": 2, "hits": [{"_source": FIRST}, {"_source": SECOND}]}},
    ],
    ids=["expected", "events", "array", "hits"],
)
def test_packed_documents_are_events_of_their_own(packed: Any) -> None:
    events = rows("winlogbeat", pretty(packed))
    assert [event["metadata"]["event_code"] for event in events] == ["4624", "4688"]
    assert events[0]["user"]["name"] == good("winlogbeat", json.dumps(FIRST))["user"]["name"]


def test_a_document_that_cannot_be_read_keeps_its_reason_beside_the_others() -> None:
    events = rows("winlogbeat", pretty({"events": [FIRST, {"message": "x"}, 7]}))
    assert [bool(event.get("dead_letter_reason")) for event in events] == [False, True, True]


@pytest.mark.parametrize(
    "packed", [{"events": []}, {"events": [7]}, {"events": [FIRST], "expected": [FIRST]}]
)
def test_a_packing_without_a_document_or_with_two_arrays_is_refused(packed: Any) -> None:
    assert reason("winlogbeat", pretty(packed))


def test_a_list_in_an_event_is_no_packing() -> None:
    document = FIRST | {"events": [SECOND]}
    (event,) = rows("winlogbeat", pretty(document))
    assert event["metadata"]["event_code"] == "4624"


def test_the_powershell_module_moves_the_context_to_ecs() -> None:
    document: dict[str, Any] = {
        "@timestamp": "2020-05-14T07:00:30.891Z",
        "event": {"category": "process", "code": "400", "provider": "PowerShell", "sequence": 13},
        "host": {"name": "ws01"},
        "powershell": {
            "engine": {"new_state": "Available", "previous_state": "None", "version": "5.1.1"},
            "process": {"executable_version": "1.0.0.0"},
            "runspace_id": "405e84eb-9ca3-40d8-a4da-cf6ed1b38ed2",
        },
        "process": {
            "command_line": "C:\\Windows\\wsmprovhost.exe -Embedding\nUserId=CORP\\admin",
            "entity_id": "2458050c-5e21-47a6-bbdf-41ef2151b519",
            "title": "ServerRemoteHost",
        },
        "winlog": {
            "channel": "Windows PowerShell",
            "computer_name": "ws01",
            "event_id": "400",
            "keywords": ["Classic"],
            "provider_name": "PowerShell",
            "record_id": "1492",
        },
    }
    event = good("winlogbeat", json.dumps(document))
    assert event["class_uid"] == 6002
    run = event["actor"]["process"]
    assert run["cmd_line"] == "C:\\Windows\\wsmprovhost.exe -Embedding UserId=CORP\\admin"
    assert run["uid"] == "2458050c-5e21-47a6-bbdf-41ef2151b519"
    assert "user" not in event["actor"] or event["actor"]["user"] is None
    assert json.loads(event["more"])["app"]["version"] == "5.1.1"
    document["winlog"]["event_id"] = document["event"]["code"] = "800"
    document["user"] = {"name": "ann", "domain": "CORP"}
    document["powershell"]["command"] = {"value": "Add-Type -AssemblyName System"}
    event = good("winlogbeat", json.dumps(document))
    assert event["actor"]["user"] == {"name": "ann", "domain": "CORP"}
    assert event["script"]["content"] == "Add-Type -AssemblyName System"


def test_the_sysmon_module_moves_answers_to_ecs() -> None:
    document = json.loads(beat(SAMPLES["sysmon 22"]))
    for name in ("QueryName", "QueryResults", "QueryStatus"):
        document["winlog"]["event_data"].pop(name, None)
    document["dns"] = {
        "question": {"name": "go.example.com"},
        "answers": [
            {"data": "e1.example.net", "type": "CNAME"},
            {"data": "203.0.113.7", "type": "A"},
        ],
        "resolved_ip": ["203.0.113.7"],
    }
    document["sysmon"] = {"dns": {"status": "SUCCESS"}}
    event = good("winlogbeat", json.dumps(document))
    assert event["query"]["hostname"] == "go.example.com"
    assert [(a["rdata"], a["type"]) for a in event["answers"]] == [
        ("e1.example.net", "CNAME"),
        ("203.0.113.7", "A"),
    ]
    assert (event["status_id"], event["rcode"]) == (1, "NOERROR")


def test_the_samples_read_the_same_from_xml() -> None:
    assert (
        good("windows_xml", xml(SAMPLES["4624"]))["user"]
        == good("winlogbeat", json.dumps(FIRST))["user"]
    )
