"""Risk by entity: when several rules together are an incident, and what a correction takes away."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from alerts.domain.finding import identity
from alerts.domain.levels import score_of_level
from alerts.lifecycle.bucket_state import BucketState
from alerts.lifecycle.risk_score import INCIDENT, RISK
from alerts.rulepack.predicate import Test
from alerts.rulepack.rule_pack import Rule, RulePack
from alerts.tables import FINDING
from infra.config.settings import AlertSettings
from tests.alerts.lifecycle.test_alert_fold import DETECTED, VALIDATOR, body, finding, leased, tick
from tests.alerts.lifecycle.test_suppression import suppress

TACTICS = {"a": "discovery", "b": "execution", "c": "impact"}


def rule(name: str) -> Rule:
    tactics = (TACTICS[name],) if name in TACTICS else ()
    return Rule(id=name, title=name, predicate=Test("message", "eq", "x"), tactics=tactics)


SHADOW = msgspec.structs.replace(rule("s"), shadow=True)
PACK = RulePack(rules=(*(rule(name) for name in "abcdefgh"), SHADOW))


def load(_: str) -> RulePack:
    return PACK


class Risks:
    """A bucket that sees every finding as its rule does and as the risk of its entity does."""

    def __init__(self, **settings: Any) -> None:
        self.settings = AlertSettings(**settings)
        self.blob = BucketState().encode()

    def step(self, *rows: dict[str, Any]) -> list[dict[str, Any]]:
        state = BucketState.decode(self.blob)
        out = state.step(rows, load, self.settings, DETECTED)
        self.blob = state.encode()
        self.remembered = bytes(state._kept.risk)
        for one in out:
            if one["out"] == "alert":
                VALIDATOR.validate(body(one["row"]))
        return out

    def incidents(self, *rows: dict[str, Any]) -> list[dict[str, Any]]:
        return [one["row"] for one in self.step(*rows) if one["out"] == "finding"]


def seen(name: str, second: float, level: str = "low", mac: str = "aa", **keys: Any) -> Any:
    """A finding's row for the risk of its entity."""
    more = {"rule_id": name, "rule_title": f"rule {name}", "level": level, "pack": PACK.hash,
            "alerting": False, "finding_id": identity(name, f"{second}")}  # fmt: skip
    return finding(second, leased(mac), target=f"{RISK}|device|{mac}", **(more | keys))


def corrected(row: dict[str, Any], mac: str) -> list[dict[str, Any]]:
    """The same finding, now another device's: to every bucket and to that of the device."""
    new = row | {"holder": leased(mac), "attr_rev": 2, "via": "correction"}
    return [new | {"target": None}, new | {"target": f"{RISK}|device|{mac}"}]


@pytest.mark.parametrize(
    "now",
    [
        {"holder": None, "via": "disproved"},
        {"holder": leased("bb"), "via": "correction", "confirmed": False},
    ],
)
def test_what_counts_no_more_is_nobodys_risk(now: dict[str, Any]) -> None:
    risks = Risks()
    rows = [seen(name, n) for n, name in enumerate("def")]
    assert risks.incidents(*rows) == []
    gone = rows[0] | {"attr_rev": 2} | now
    assert risks.incidents(gone | {"target": None}, gone | {"target": f"{RISK}|ip|x"}) == []
    assert risks.incidents(seen("g", 4)) == [], "three are left"
    (row,) = risks.incidents(seen("h", 5))
    assert row["fields"]["rules"] == "4"


def test_four_rules_above_informational_are_an_incident_and_three_are_not() -> None:
    risks = Risks()
    assert risks.incidents(*[seen(name, n) for n, name in enumerate("def")]) == []
    assert risks.incidents(seen("g", 4, "informational")) == []
    (row,) = risks.incidents(seen("h", 5))
    assert set(row) <= {column.name for column in FINDING.columns}
    assert (row["rule_id"], row["fields"]["rules"]) == (INCIDENT, "5")
    assert row["holder"]["mac"] == "aa"
    assert [e["event_uid"] for e in row["evidence"]] == ["e0", "e1", "e2", "e4", "e5"]


def test_a_rule_in_shadow_adds_to_no_risk() -> None:
    risks = Risks()
    tried = [seen("s", n, "critical") for n in range(5)]
    assert risks.incidents(*tried, *[seen(name, n, "medium") for n, name in enumerate("de")]) == []
    rows = risks.incidents(*[seen(name, n) for n, name in enumerate("fg", 5)])
    assert [row["fields"]["rules"] for row in rows] == ["4"]


def test_an_incident_rests_on_the_events_of_the_correlations_in_it() -> None:
    counted = [{"event_uid": "first", "time": seen("d", 0)["event_time"], "snippet": "x"}]
    counted.append(counted[0] | {"event_uid": "newest"})
    correlation = seen("d", 0) | {"kind": "correlation", "evidence": counted}
    (row,) = Risks().incidents(correlation, *[seen(name, n) for n, name in enumerate("efg", 1)])
    assert [e["event_uid"] for e in row["evidence"]] == ["newest", "e1", "e2", "e3"]


def test_three_tactics_are_an_incident() -> None:
    risks = Risks()
    assert risks.incidents(seen("a", 0), seen("b", 1), seen("b", 2)) == []
    (row,) = risks.incidents(seen("c", 3))
    assert row["fields"]["tactics"] == "discovery, execution, impact"


def test_the_score_is_that_of_each_rule_once_with_one_for_each_doubling() -> None:
    risks = Risks(incident_score=score_of_level("high", 4) + score_of_level("critical", 1))
    assert (
        risks.incidents(*[seen("d", n, "high") for n in range(3)], seen("e", 9, "critical")) == []
    )
    (row,) = risks.incidents(seen("d", 10, "high"))
    assert row["fields"]["risk"] == str(75 + 2 + 90)


def test_a_rule_counts_for_a_day_after_its_newest_finding() -> None:
    day = 24 * 3600
    risks = Risks()
    risks.step(*[seen(name, 0) for name in "def"])
    assert risks.incidents(seen("g", day + 1)) == []
    again = Risks()
    again.step(*[seen(name, 0) for name in "def"])
    assert len(again.incidents(seen("g", day))) == 1


def test_a_finding_that_comes_a_day_late_counts_no_more_than_in_order() -> None:
    old = seen("h", -25 * 3600)
    three = [seen(name, n) for n, name in enumerate("def")]
    in_order, late = Risks(), Risks()
    assert in_order.incidents(old) == in_order.incidents(*three) == []
    assert late.incidents(*three) == []
    assert late.incidents(old) == []


def test_an_incident_is_told_once_and_then_the_entity_rests_for_a_day() -> None:
    risks = Risks()
    (first,) = risks.incidents(*[seen(name, n) for n, name in enumerate("defgh")])
    assert risks.incidents(seen("a", 100), seen("b", 200), seen("c", 300)) == []
    later = 25 * 3600
    (second,) = risks.incidents(*[seen(name, later + n) for n, name in enumerate("defg")])
    assert second["finding_id"] != first["finding_id"]


def test_entities_do_not_mix() -> None:
    rows = [
        seen(name, n, mac=mac) for n, (name, mac) in enumerate(zip("defg", "1212", strict=True))
    ]
    assert Risks().incidents(*rows) == []


def test_the_same_finding_again_adds_nothing() -> None:
    risks = Risks(incident_score=26)
    row = seen("d", 0)
    assert risks.incidents(row) == []
    assert risks.incidents(row, row) == []
    assert len(risks.incidents(seen("d", 1))) == 1


def test_a_correction_takes_a_finding_from_one_entity_to_the_other() -> None:
    risks = Risks()
    rows = [seen(name, n) for n, name in enumerate("def")]
    risks.step(*rows, *[seen(name, 10 + n, mac="bb") for n, name in enumerate("gha")])
    (row,) = risks.incidents(*corrected(rows[0], "bb"))
    assert row["holder"]["mac"] == "bb"
    assert risks.incidents(seen("g", 20)) == [], "aa has e, f and g now, no d"


def test_of_several_corrections_in_one_batch_the_newest_counts() -> None:
    risks = Risks()
    rows = [seen(name, n) for n, name in enumerate("def")]
    risks.step(*rows, *[seen(name, 10 + n, mac="cc") for n, name in enumerate("gha")])
    first = corrected(rows[0], "bb")
    second = [row | {"holder": leased("cc"), "attr_rev": 3} for row in corrected(rows[0], "cc")]
    (row,) = risks.incidents(*second, *first)
    assert row["holder"]["mac"] == "cc"
    assert b"device|bb" not in risks.remembered
    assert risks.incidents(seen("g", 20)) == [], "aa has e, f and g now, no d"


def test_what_is_silenced_adds_no_risk() -> None:
    risks = Risks()
    risks.step(suppress(rule_id="d"), *[seen(name, n) for n, name in enumerate("defg")])
    assert len(risks.incidents(seen("h", 9))) == 1


def test_an_incident_becomes_an_alert_whose_entitys_alerts_name_it() -> None:
    risks = Risks()
    own = seen("d", 0) | {"target": "d", "alerting": True}
    risks.step(own)
    (row,) = risks.incidents(*[seen(name, n) for n, name in enumerate("abc")])
    back = row | {"row_kind": "finding", "attr_rev": None, "via": "join"}
    told = risks.step(
        back | {"target": INCIDENT},
        back | {"target": None},
        seen("e", 30) | {"target": "e", "alerting": True},
        seen("f", 31, mac="bb") | {"target": "f", "alerting": True},
    )
    alerts = {a["row"]["rule_id"]: a["row"] for a in told if a["out"] == "alert"}
    incident = alerts[INCIDENT]
    assert (incident["entity_value"], incident["level"], incident["incident_id"]) == (
        "aa",
        "high",
        None,
    )
    assert {t["name"] for a in body(incident)["attack"] for t in a["tactics"]} == {
        "Discovery",
        "Execution",
        "Impact",
    }
    assert alerts["e"]["incident_id"] == incident["alert_id"]
    assert alerts["f"]["incident_id"] is None
    assert body(alerts["e"])["group_key"] == body(incident)["group_key"]
    (later,) = risks.step(tick(25 * 3600), seen("e", 90_000) | {"target": "e", "alerting": True})
    assert later["row"]["incident_id"] is None, "the incident is over"


def test_an_entity_that_no_finding_is_about_stays_as_it_was_and_counts_on() -> None:
    risks = Risks()
    risks.step(*[seen(name, n) for n, name in enumerate("def")])
    for n in range(20):
        risks.step(seen("g", 10 + n, mac=f"other{n}"))
    assert len(risks.incidents(seen("h", 40))) == 1


def test_of_too_many_entities_those_silent_for_longest_go(monkeypatch: Any) -> None:
    monkeypatch.setattr("alerts.lifecycle.risk_score.MAX_ENTITIES", 10)
    monkeypatch.setattr("alerts.lifecycle.bucket_state.MAX_ENTITIES", 10)
    risks = Risks()
    for n in range(40):
        risks.step(seen("d", n, mac=f"m{n}."))
    kept = [n for n in range(40) if f"device|m{n}.".encode() in risks.remembered]
    assert kept == list(range(40 - len(kept), 40))
    assert 10 <= len(kept) <= 13


def test_risk_is_read_only_when_findings_come() -> None:
    risks = Risks()
    risks.step(seen("d", 0))
    before = BucketState.decode(risks.blob)._kept.risk
    risks.step(tick(48 * 3600))
    assert bytes(BucketState.decode(risks.blob)._kept.risk) == bytes(before)
    risks.step(seen("e", 48 * 3600, mac="bb"))
    assert b"device|aa" not in risks.remembered
