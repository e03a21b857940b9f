"""Events against the JSON Schema of OCSF 1.8.0.

What `ocsf_object` gives is valid as it is. One departure is known: an API call
whose record has no `sourceIPAddress` has no `src_endpoint`, which OCSF requires.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from ingest.ocsf import KINDS, OBSERVABLE, SEVERITY
from ingest.present import ocsf_object
from tests.ingest.logs import FILES, good, lines, rows, trails

EXPORT = get_ocsf_schema(version="1.8.0")
SCHEMA = OcsfJsonSchemaEmbedded(EXPORT)


@cache
def validator(class_uid: int, profiles: tuple[str, ...]) -> Draft202012Validator:
    name = SCHEMA.lookup_class_name_from_uid(class_uid)
    return Draft202012Validator(SCHEMA.get_class_schema(name, profiles=list(profiles)))


def faults(row: dict[str, Any]) -> list[str]:
    found = ocsf_object(row)
    profiles = ("cloud", "host") if "cloud" in found else ("host",)
    return [error.message for error in validator(found["class_uid"], profiles).iter_errors(found)]


@pytest.mark.parametrize(("source", "path", "zone"), FILES)
def test_events_of_the_samples_are_valid(source: str, path: str, zone: str) -> None:
    # Lines of a kind repeat; every fifth, and all of the rare kinds, take a second.
    found = rows(source, *lines(path), tz=zone)
    chosen = [row for at, row in enumerate(found) if at % 5 == 0 or row["class_uid"] == 3002]
    assert {fault for row in chosen for fault in faults(row)} == set()


def test_events_of_cloudtrail_files_are_valid() -> None:
    found = [row for raw in trails() for row in rows("aws_cloudtrail", raw)]
    assert {fault for row in found for fault in faults(row)} == set()


def test_the_known_departure_is_the_only_one() -> None:
    row = good("aws_cloudtrail", '{"eventName":"GetX","eventSource":"x.amazonaws.com"}')
    assert faults(row) == ["'src_endpoint' is a required property"]


def test_a_relay_and_the_other_columns_of_ours_have_a_valid_place() -> None:
    line = "Mar  2 09:00:00 h dhcpd: DHCPACK on 10.7.0.1 to 02:42:ac:77:0b:10 via 10.9.0.1"
    row = good("isc_dhcpd", line)
    assert faults(row) == []
    assert ocsf_object(row)["relay"] == {"ip": "10.9.0.1", "type_id": 0}
    line = "Mar  2 09:00:00 h sshd[1]: Failed password for root from 10.0.0.5 port 4242 ssh2"
    shown = ocsf_object(good("sshd", line))
    assert shown["unmapped"]["auth_method"] == "password"
    assert shown["metadata"]["labels"] == ["time_quality:assumed_year", "scope:default"]


def test_names_of_ids_are_those_of_ocsf() -> None:
    for uid, kind in KINDS.items():
        theirs = EXPORT["classes"][SCHEMA.lookup_class_name_from_uid(uid)]
        assert kind.name == theirs["caption"]
        names = theirs["attributes"]["activity_id"]["enum"]
        for at, name in enumerate(kind.activities):
            assert name in ("", names[str(at)]["caption"] if name else "")
    observable = EXPORT["objects"]["observable"]["attributes"]["type_id"]["enum"]
    assert {uid: observable[str(uid)]["caption"] for uid in OBSERVABLE} == dict(OBSERVABLE)
    severity = EXPORT["classes"]["base_event"]["attributes"]["severity_id"]["enum"]
    assert {uid: severity[str(uid)]["caption"] for uid in SEVERITY} == dict(SEVERITY)
