"""Events against the JSON Schema of OCSF 1.8.0.

What `ocsf_object` gives is valid as it is. One departure is known: an API call
whose record has no `sourceIPAddress` has no `src_endpoint`, which OCSF requires.
"""

from __future__ import annotations

import pytest

from ingest.parsing.ocsf import ACTION, DISPOSITION, KINDS, OBSERVABLE, SEVERITY
from ingest.parsing.ocsf_export import ocsf_object
from tests.ingest.conforms import CLASSES, EXPORT, faults, misfits
from tests.ingest.logs import FILES, good, lines, rows, trails


@pytest.mark.parametrize(("source", "path", "zone"), FILES)
def test_events_of_the_samples_are_valid(source: str, path: str, zone: str) -> None:
    # Lines of a kind repeat; every fifth, and all of the rare kinds, take a second.
    found = rows(source, *lines(path), tz=zone)
    chosen = [row for at, row in enumerate(found) if at % 5 == 0 or row["class_uid"] == 3002]
    assert {fault for row in chosen for fault in faults(row)} == set()
    assert {leaf for row in chosen for leaf in misfits(row)} == set()


def test_events_of_cloudtrail_files_are_valid() -> None:
    found = [row for raw in trails() for row in rows("aws_cloudtrail", raw)]
    assert {fault for row in found for fault in faults(row)} == set()


def test_the_known_departure_is_the_only_one() -> None:
    row = good("aws_cloudtrail", '{"eventName":"GetX","eventSource":"x.amazonaws.com"}')
    assert faults(row) == [": 'src_endpoint' is a required property"]


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
        theirs = EXPORT["classes"][CLASSES[uid]]
        assert (kind.name, kind.category_uid) == (theirs["caption"], theirs["category_uid"])
        names = theirs["attributes"]["activity_id"]["enum"]
        assert kind.activities == {int(at): name["caption"] for at, name in names.items()}
        assert kind.without.isdisjoint(theirs["attributes"])
    base = EXPORT["classes"]["network_activity"]["attributes"]
    for ours, theirs in (
        (OBSERVABLE, EXPORT["objects"]["observable"]["attributes"]["type_id"]["enum"]),
        (SEVERITY, base["severity_id"]["enum"]),
        (ACTION, base["action_id"]["enum"]),
        (DISPOSITION, base["disposition_id"]["enum"]),
    ):
        assert {uid: theirs[str(uid)]["caption"] for uid in ours} == dict(ours)
