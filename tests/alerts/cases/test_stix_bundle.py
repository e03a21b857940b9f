"""Alerts as STIX 2.1: what the standard's own library accepts, with ids that stay."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import stix2

from alerts.cases.case import Case
from alerts.cases.stix_bundle import NO_SIGHTING, stix_bundle
from infra.config.intelligence_section import StixSettings

BEGAN = datetime(2026, 11, 20, 14, 5, 7, 123456, tzinfo=UTC)
PARTNER = "indicator--8e2e2d2b-17d4-4cbf-938f-98ee46b3cd3f"
DEFAULT = StixSettings()


def body(number: int = 1, **more: Any) -> dict[str, Any]:
    instant = BEGAN.isoformat()
    return {
        "alert_id": f"{number:032x}",
        "revision": 1,
        "verdict": None,
        "rule": {"id": "r", "name": "SSH password guessing"},
        "attack": [{"technique": {"uid": "T1110.001"}, "tactics": []}],
        "severity": "High",
        "event_time": instant,
        "window_start": instant,
        "window_end": (BEGAN + timedelta(seconds=9)).isoformat(),
        "detected_at": (BEGAN + timedelta(seconds=11)).isoformat(),
        "entities": [
            {"type": "device", "value": "02:42:AC:77:0b:11"},
            {"type": "ip", "value": "10.77.0.102"},
            {"type": "ip", "value": "2001:db8::7"},
            {"type": "host", "value": "lt-1101"},
            {"type": "user", "value": "çarol"},
        ],
        "title": "SSH password guessing: lt-1101",
        "summary": "Seen 5 times.",
        "count": 5,
        "evidence_total": 22,
        "fields": {},
    } | more


def parsed(*bodies: Any, settings: StixSettings = DEFAULT, case: Case | None = None) -> Any:
    """The bundle as the library reads it: it refuses what the standard does not know."""
    bundle, _ = stix_bundle(bodies, settings, case)
    return stix2.parse(json.dumps(bundle), allow_custom=False)


def of_kind(bundle: Any, kind: str) -> list[Any]:
    return [each for each in bundle.objects if each.type == kind]


def test_an_alert_is_a_grouping_of_a_sighting_and_of_what_was_observed() -> None:
    bundle = parsed(body())
    (sighting,) = of_kind(bundle, "sighting")
    (pattern,) = of_kind(bundle, "attack-pattern")
    (observed,) = of_kind(bundle, "observed-data")
    (grouping,) = of_kind(bundle, "grouping")
    assert (sighting.sighting_of_ref, sighting.count) == (pattern.id, 5)
    assert pattern.external_references[0].external_id == "T1110.001"
    assert sighting.observed_data_refs == [observed.id]
    assert grouping.object_refs == [sighting.id, observed.id]
    assert observed.first_observed == BEGAN.replace(microsecond=123000)
    assert observed.number_observed == 22
    ids = {each.id for each in bundle.objects}
    assert {*observed.object_refs, *sighting.where_sighted_refs} <= ids


def test_observables_have_the_ids_that_the_standard_demands() -> None:
    objects = {each.type: each for each in parsed(body()).objects}
    for own, theirs in (
        ("mac-addr", stix2.MACAddress(value="02:42:ac:77:0b:11")),
        ("ipv4-addr", stix2.IPv4Address(value="10.77.0.102")),
        ("ipv6-addr", stix2.IPv6Address(value="2001:db8::7")),
        ("domain-name", stix2.DomainName(value="lt-1101")),
        ("user-account", stix2.UserAccount(account_login="çarol")),
    ):
        assert objects[own].id == theirs.id


def test_the_same_revision_is_the_same_bundle_and_a_later_one_the_same_objects() -> None:
    first, _ = stix_bundle([body(2), body(1)], DEFAULT)
    again, _ = stix_bundle([body(1), body(2)], DEFAULT)
    assert json.dumps(first) == json.dumps(again)
    changed = body(1, changed_at=(BEGAN + timedelta(hours=1)).isoformat(), count=6)
    later, _ = stix_bundle([changed, body(2)], DEFAULT)
    assert [each["id"] for each in later["objects"]] == [each["id"] for each in first["objects"]]
    assert later["id"] != first["id"]
    (moved,) = [each for each in later["objects"] if each.get("count") == 6]
    assert moved["modified"] == "2026-11-20T15:05:07.123Z"


@pytest.mark.parametrize(
    ("fields", "sighted", "pattern"),
    [
        ({"indicator.source": f"partner:{PARTNER}"}, PARTNER, None),
        (
            {"indicator.list": "own", "indicator.kind": "domain", "indicator.value": "e.example"},
            None,
            "[domain-name:value = 'e.example']",
        ),
        (
            {"indicator.list": "own", "indicator.kind": "network", "indicator.value": "fd00::/8"},
            None,
            "[ipv6-addr:value = 'fd00::/8']",
        ),
        (
            {"indicator.list": "own", "indicator.kind": "hash", "indicator.value": "a" * 64},
            None,
            f"[file:hashes.'SHA-256' = '{'a' * 64}']",
        ),
    ],
)
def test_what_met_an_indicator_is_a_sighting_of_it(
    fields: dict[str, str], sighted: str | None, pattern: str | None
) -> None:
    bundle = parsed(body(fields=fields))
    (sighting,) = of_kind(bundle, "sighting")
    made = of_kind(bundle, "indicator")
    # The feed's own indicator is named and not sent back.
    assert [each.pattern for each in made] == ([pattern] if pattern else [])
    assert sighting.sighting_of_ref == (sighted or made[0].id)


def test_a_value_cannot_leave_its_pattern() -> None:
    odd = "http://e.example/' OR x:y = '\\"
    fields = {"indicator.list": "own", "indicator.kind": "url", "indicator.value": odd}
    (made,) = of_kind(parsed(body(fields=fields)), "indicator")
    assert made.pattern == "[url:value = 'http://e.example/\\' OR x:y = \\'\\\\']"


@pytest.mark.parametrize("verdict", sorted(NO_SIGHTING))
def test_what_was_judged_no_attack_is_left_out_and_counted(verdict: str) -> None:
    bundle, left_out = stix_bundle([body(1, verdict=verdict), body(2)], DEFAULT)
    assert left_out == 1
    assert len([each for each in bundle["objects"] if each["type"] == "grouping"]) == 1


def test_the_site_is_not_named_where_the_settings_say_so() -> None:
    settings = StixSettings(identity="ACME CERT", tlp="clear", entities=False)
    case = Case("case-0123456789", "carol's laptop", BEGAN, "ana", changed_at=BEGAN)
    bundle, _ = stix_bundle([body()], settings, case)
    text = json.dumps(bundle)
    assert stix2.parse(text).objects
    assert [word for word in ("10.77.0.102", "lt-1101", "arol", "02:42") if word in text] == []
    assert "ACME CERT" in text
    marked = [each for each in bundle["objects"] if each["type"] != "marking-definition"]
    assert {tuple(each["object_marking_refs"]) for each in marked} == {(stix2.TLP_WHITE.id,)}


@pytest.mark.parametrize(
    ("tlp", "marking"),
    [("green", stix2.TLP_GREEN), ("amber", stix2.TLP_AMBER), ("red", stix2.TLP_RED)],
)
def test_markings_are_those_of_the_standard(tlp: Any, marking: Any) -> None:
    bundle = parsed(body(), settings=StixSettings(tlp=tlp))
    assert of_kind(bundle, "marking-definition") == [marking]


def test_a_case_is_an_incident_over_the_groupings_of_its_alerts() -> None:
    case = Case("case-0123456789", "laptop", BEGAN, "ana", changed_at=BEGAN + timedelta(hours=1))
    bundle = parsed(body(1), body(2), case=case)
    (incident,) = of_kind(bundle, "incident")
    *alerts, whole = of_kind(bundle, "grouping")
    assert whole.object_refs == [incident.id, *(each.id for each in alerts)]
    assert incident.name == "laptop"


def test_an_address_that_is_none_is_left_out() -> None:
    odd = {"type": "ip", "value": "gateway"}
    observed = of_kind(
        parsed(body(entities=[odd, {"type": "ip", "value": "10.0.0.5"}])), "ipv4-addr"
    )
    assert [each.value for each in observed] == ["10.0.0.5"]
