"""Correlations: windows in event time, in any order of arrival."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from alerts.correlation.correlator import Correlator
from alerts.correlation.group import LATENESS, MAX_ENTRIES, CorrelationState
from alerts.correlation.history import forget_findings
from alerts.correlation.negation import looks_ahead
from alerts.domain.entity import micros
from alerts.domain.finding import identity
from alerts.rulepack.rule_pack import Correlation
from tests.alerts.correlation_history import without
from tests.examples import examples

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


def correlation(**keys: Any) -> Correlation:
    plain = Correlation(
        id="c",
        title="Guessing",
        type="event_count",
        rules=("r",),
        group_by=("device",),
        timespan_seconds=60,
        count=3,
        level="high",
        alerting=True,
        feeds=("d",),
    )
    return msgspec.structs.replace(plain, **keys)


def leased(mac: str, **keys: Any) -> dict[str, Any]:
    return {"status": "leased", "mac": mac, "ip": "10.0.0.5", "session_id": f"s-{mac}"} | keys


def finding(second: float, rule: str = "r", rev: int = 1, **keys: Any) -> dict[str, Any]:
    uid = keys.pop("uid", f"{rule}@{second}")
    at = NOON + timedelta(seconds=second)
    return {
        "finding_id": identity(rule, uid),
        "rule_id": rule,
        "event_uid": uid,
        "event_time": at,
        "received_at": at + timedelta(seconds=1),
        "pack": "p",
        "source": "sshd",
        "mode": "live",
        "role": "src_endpoint",
        "scope": "default",
        "ip": "10.0.0.5",
        "holder": leased("aa"),
        "attr_rev": rev,
        "fields": {},
        "snippet": uid,
    } | keys


class Run:
    """A correlation fed batch by batch, its state through bytes after each."""

    def __init__(self, definition: Correlation) -> None:
        self.definition = definition
        self.state = CorrelationState()

    def __call__(self, *rows: dict[str, Any]) -> list[dict[str, Any]]:
        run = Correlator(self.state)
        out = [told for row in rows for told in run.feed(self.definition, row)]
        out += run.judge(self.definition)
        blob = msgspec.msgpack.encode(self.state)
        self.state = msgspec.msgpack.decode(blob, type=CorrelationState)
        return out

    def findings(self, *rows: dict[str, Any]) -> list[dict[str, Any]]:
        return [out["row"] for out in self(*rows) if out["out"] == "finding"]


#   seconds  0 ....10....20            three inside a minute
def test_the_count_fires_with_the_finding_that_completes_it() -> None:
    run = Run(correlation())
    assert run.findings(finding(0), finding(10)) == []
    (row,) = run.findings(finding(20))
    assert row["kind"] == "correlation"
    assert row["rule_id"] == "c"
    assert row["event_time"] == NOON + timedelta(seconds=20)
    assert row["window_start"] == NOON
    assert row["received_at"] == NOON + timedelta(seconds=21)
    assert row["holder"]["mac"] == "aa"
    assert row["fields"]["count"] == "3"
    assert row["evidence_total"] == 3
    assert len(row["evidence"]) == 3
    assert row["feeds"] == ["d"]
    assert row["alerting"]
    assert row["pack"] == "p"


#   seconds  0 .......30.......60      the bound is inclusive
#   seconds  0 .......30.......60.1    and a tenth later is outside
def test_a_window_is_as_long_as_the_timespan_and_no_longer() -> None:
    assert len(Run(correlation()).findings(finding(0), finding(30), finding(60))) == 1
    assert Run(correlation()).findings(finding(0), finding(30), finding(60.1)) == []


#   arrives  20, 0, then 10            order of arrival does not matter
def test_late_findings_are_put_in_their_place() -> None:
    (row,) = Run(correlation()).findings(finding(20), finding(0), finding(10))
    assert row["window_start"] == NOON
    assert row["event_time"] == NOON + timedelta(seconds=20)


@examples(60)
@given(st.lists(st.integers(0, 50), min_size=3, max_size=12, unique=True), st.randoms())
def test_any_order_of_arrival_fires_once_with_at_least_the_threshold(
    seconds: list[int], shuffle: random.Random
) -> None:
    rows = [finding(s) for s in seconds]
    shuffle.shuffle(rows)
    fired = Run(correlation()).findings(*rows)
    assert len(fired) == 1
    assert fired[0]["evidence_total"] >= 3


def test_the_same_finding_counts_once() -> None:
    run = Run(correlation())
    assert run.findings(*[finding(0)] * 5, finding(10), finding(10)) == []
    assert len(run.findings(finding(20))) == 1


#   0 10 20 | quiet until 80 | 81 82 83
def test_a_group_is_quiet_for_a_timespan_after_it_fired() -> None:
    run = Run(correlation())
    assert len(run.findings(*[finding(s) for s in (0, 10, 20, 30, 40, 50, 60, 70, 80)])) == 1
    assert len(run.findings(finding(81))) == 1


def test_what_counted_in_one_window_does_not_count_in_the_next() -> None:
    run = Run(correlation(timespan_seconds=100))
    assert len(run.findings(finding(0), finding(80), finding(100))) == 1
    assert run.findings(finding(201), finding(202)) == []
    assert len(run.findings(finding(203))) == 1


def test_gt_needs_one_more() -> None:
    run = Run(correlation(op="gt"))
    assert run.findings(finding(0), finding(1), finding(2)) == []
    assert len(run.findings(finding(3))) == 1


def test_devices_are_counted_apart_and_followed_over_addresses() -> None:
    run = Run(correlation())
    others = [finding(s, holder=leased("bb")) for s in (1, 2)]
    moved = finding(3, ip="10.0.0.9", holder=leased("aa", ip="10.0.0.9"))
    assert run.findings(finding(0), *others, finding(2.5)) == []
    (row,) = run.findings(moved)
    assert row["holder"]["mac"] == "aa"
    assert row["ip"] == "10.0.0.9"


def test_an_address_without_a_lease_is_its_own_group_in_each_scope() -> None:
    run = Run(correlation())
    none = {"status": "none"}
    rows = [finding(s, holder=none, scope="a") for s in (0, 1)]
    rows += [finding(s, holder=none, scope="b") for s in (2, 3)]
    assert run.findings(*rows) == []
    assert len(run.findings(finding(4, holder=none, scope="a"))) == 1


def test_grouping_by_fields_columns_and_aliases() -> None:
    by_user = correlation(group_by=("user.name",))
    rows = [finding(s, user_name="bob") for s in (0, 1)] + [finding(2, fields={"user.name": "bob"})]
    assert len(Run(by_user).findings(*rows)) == 1
    assert Run(by_user).findings(*[finding(s) for s in (0, 1, 2)]) == []

    aliased = correlation(
        rules=("r", "q"),
        group_by=("who",),
        aliases={"who": {"r": "user.name", "q": "actor.user.name"}},
    )
    rows = [
        finding(0, fields={"user.name": "bob"}),
        finding(1, "q", fields={"actor.user.name": "bob"}),
        finding(2, "q", fields={"actor.user.name": "eve"}),
        finding(3, "q", fields={"actor.user.name": "bob"}),
    ]
    (row,) = Run(aliased).findings(*rows)
    assert row["fields"]["who"] == "bob"


def test_values_are_counted_not_findings() -> None:
    run = Run(correlation(type="value_count", field="dst_endpoint.ip"))
    same = [finding(s, dst_ip="10.0.1.1") for s in range(10)]
    assert run.findings(*same, finding(11, dst_ip="10.0.1.2"), finding(12)) == []
    (row,) = run.findings(finding(13, dst_ip="10.0.1.3"))
    assert "3 values" in row["snippet"]


def test_temporal_needs_all_rules_in_any_order() -> None:
    run = Run(correlation(type="temporal", rules=("r", "q"), count=2))
    assert run.findings(finding(0, "q"), finding(1, "q")) == []
    (row,) = run.findings(finding(2, "r"))
    assert [e["event_uid"] for e in row["evidence"]] == ["q@1", "r@2"]


def test_temporal_ordered_needs_their_order_in_event_time() -> None:
    ordered = correlation(type="temporal_ordered", rules=("a", "b", "c"), count=3)
    assert Run(ordered).findings(finding(0, "b"), finding(1, "a"), finding(2, "c")) == []
    (row,) = Run(ordered).findings(finding(2, "c"), finding(0, "a"), finding(1, "b"))
    assert [e["event_uid"] for e in row["evidence"]] == ["a@0", "b@1", "c@2"]
    assert Run(ordered).findings(*[finding(5, r) for r in "abc"]) == [], "one instant has no order"


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from("abcx")),
        unique=True,
        max_size=7,
    )
)
@examples(200)
def test_temporal_ordered_finds_its_order_however_late_its_findings_come(
    arriving: list[tuple[int, str]],
) -> None:
    ordered = correlation(type="temporal_ordered", rules=("a", "b", "c"), count=3)
    rows = Run(ordered).findings(*[finding(second, rule) for second, rule in arriving])
    times = {rule: [second for second, each in arriving if each == rule] for rule in "abc"}
    chains = [
        (first, then, last)
        for first in times["a"]
        for then in times["b"]
        for last in times["c"]
        if first < then < last
    ]
    assert len(rows) == bool(chains)
    for row in rows:
        shown = [each["event_uid"].split("@") for each in row["evidence"]]
        assert [rule for rule, _ in shown] == ["a", "b", "c"]
        assert tuple(int(second) for _, second in shown) in chains


def test_a_correlation_of_correlations_rests_on_their_events() -> None:
    (below,) = Run(correlation()).findings(finding(0), finding(10), finding(20))
    upper = correlation(id="d", type="temporal", rules=("c", "r"), count=2, feeds=())
    (row,) = Run(upper).findings(below | {"attr_rev": 1}, finding(30))
    assert [e["event_uid"] for e in row["evidence"]] == ["r@0", "r@10", "r@20", "r@30"]
    assert row["evidence_total"] == 4


def test_temporal_ordered_may_ask_for_some_of_its_rules() -> None:
    two_of_three = correlation(type="temporal_ordered", rules=("a", "b", "c"), count=2)
    (row,) = Run(two_of_three).findings(finding(0, "b"), finding(1, "a"), finding(2, "c"))
    assert [e["event_uid"] for e in row["evidence"]] == ["a@1", "c@2"]


def test_groups_and_values_are_compared_without_case() -> None:
    by_user = correlation(group_by=("user.name",))
    names = ("Bob", "BOB", "bob")
    (row,) = Run(by_user).findings(*[finding(n, user_name=u) for n, u in enumerate(names)])
    assert row["fields"]["user.name"] == "bob", "told as the newest finding spelt it"

    values = correlation(type="value_count", field="user.name", count=2)
    assert Run(values).findings(*[finding(n, user_name=u) for n, u in enumerate(names)]) == []


def test_a_number_is_told_under_the_name_of_its_type() -> None:
    total = correlation(type="value_sum", field="traffic.bytes_out", count=100)
    rows = [finding(n, fields={"traffic.bytes_out": v}) for n, v in enumerate(("60", "-", "40.5"))]
    (row,) = Run(total).findings(*rows)
    assert row["fields"]["value_sum"] == "100.5"
    assert row["fields"]["count"] == "3"
    assert row["evidence_total"] == 2, "what has no number shows nothing"
    assert "sum of traffic.bytes_out is 100.5" in row["snippet"]


#   0   10 | the clock goes to 500 | then 20: three inside the minute that ended long ago
def test_what_completes_a_closed_window_fires_late_and_is_counted() -> None:
    run = Run(correlation())
    assert run.findings(finding(0), finding(10), finding(500)) == []
    (row,) = run.findings(finding(20))
    assert row["fields"]["late"] == "true"
    assert "(late)" in row["snippet"]
    assert row["event_time"] == NOON + timedelta(seconds=20)
    assert run.state.late == 1


#   0 told as the only one by `lt 2`; 100, 110 closed as two; 45 late: its own window has one
def test_a_condition_that_waits_looks_again_when_a_finding_comes_late() -> None:
    run = Run(correlation(op="lt", count=2, timespan_seconds=20))
    assert run.findings(finding(0), finding(100), finding(110), finding(400)) == []
    told = Correlator(run.state).settle(run.definition, micros(NOON))
    assert [out["row"]["event_time"] for out in told] == [
        NOON,
        NOON + timedelta(seconds=100),
    ]
    (row,) = run.findings(finding(45))
    assert row["fields"]["late"] == "true"
    assert Correlator(run.state).settle(run.definition, micros(NOON)) == [], "each window once"


def test_a_full_group_drops_its_oldest_and_says_so() -> None:
    values = correlation(type="value_count", field="n", count=2, timespan_seconds=100_000)
    run = Correlator(CorrelationState())
    for n in range(MAX_ENTRIES + 5):
        assert run.feed(values, finding(n, fields={"n": "same"})) == []
    (group,) = run.state.groups.values()
    assert len(group.entries) == MAX_ENTRIES
    assert run.state.dropped == 5
    (out,) = run.feed(values, finding(5000, fields={"n": "other"}))
    assert out["row"]["fields"]["incomplete"] == "6"


def test_a_group_keeps_what_a_high_count_needs() -> None:
    many = correlation(count=3 * MAX_ENTRIES, timespan_seconds=100_000)
    run = Correlator(CorrelationState())
    rows = [out for n in range(3 * MAX_ENTRIES) for out in run.feed(many, finding(n))]
    assert [out["row"]["evidence_total"] for out in rows] == [3 * MAX_ENTRIES]


def test_a_finding_that_leaves_a_group_has_what_is_left_looked_at_again() -> None:
    low = correlation(type="value_avg", op="lte", count=5, field="n")
    run = Run(low)
    run(finding(10, fields={"n": "100"}), finding(11, fields={"n": "1"}), finding(400))
    assert Correlator(run.state).settle(low, micros(NOON)) == []
    (row,) = run.findings(finding(10, rev=2, fields={"n": "100"}, holder=leased("bb")))
    assert row["event_time"] == NOON + timedelta(seconds=11)
    assert row["holder"]["mac"] == "aa"
    assert row["fields"]["value_avg"] == "1"


def test_evidence_holds_ten_at_most_and_says_how_many_there_were() -> None:
    (row,) = Run(correlation(count=25)).findings(*[finding(s) for s in range(25)])
    assert len(row["evidence"]) == 10
    assert row["evidence_total"] == 25


def test_a_corrected_finding_moves_to_its_device_and_completes_the_window_there() -> None:
    run = Run(correlation())
    rows = [finding(0), finding(10), finding(20, holder=leased("bb"))]
    assert run.findings(*rows) == []
    assert run.findings(finding(20, rev=1, holder=leased("aa"))) == [], "no newer, no change"
    (row,) = run.findings(finding(20, rev=2, holder=leased("aa")))
    assert row["holder"]["mac"] == "aa"
    assert run.findings(finding(21, holder=leased("bb")), finding(22, holder=leased("bb"))) == []


def test_what_fired_is_corrected_with_its_newest_finding() -> None:
    run = Run(correlation())
    (fired,) = run.findings(finding(0), finding(10), finding(20))
    corrections = [finding(s, rev=5, holder=leased("bb", known_at=NOON)) for s in (0, 10, 20)]
    (out,) = run(*corrections)
    assert out["out"] == "attribution"
    row = out["row"]
    assert row["finding_id"] == fired["finding_id"]
    assert row["rev"] == 5
    assert row["holder"]["mac"] == "bb"
    assert row["via"] == "correction"
    told = msgspec.json.decode(row["finding"])
    assert told["rule_id"] == "c"
    assert told["event_uid"] == fired["event_uid"]
    assert run(*corrections) == [], "the same once more says nothing"


#   aa  0 ..10..20            three: told
#   aa  0 ..10        bb 20   two and one: nobody did it three times
def test_what_fired_is_disproved_when_its_findings_are_of_several_devices() -> None:
    run = Run(correlation())
    (fired,) = run.findings(finding(0), finding(10), finding(20))
    (out,) = run(finding(20, rev=5, holder=leased("bb", known_at=NOON)))
    assert out["out"] == "attribution"
    row = out["row"]
    assert row["finding_id"] == fired["finding_id"]
    assert (row["via"], row["holder"], row["rev"]) == ("disproved", None, 5)
    assert row["attributed_at"] == NOON
    assert run.findings(finding(25, holder=leased("bb"))) == []
    (other,) = run.findings(finding(30, holder=leased("bb")))
    assert other["holder"]["mac"] == "bb", "it keeps nobody quiet"


#   aa  0 ..10..20..30        told with the third
#   aa  0 ......20..30  bb 10 still three
def test_what_fired_stays_where_the_condition_holds_without_what_was_anothers() -> None:
    run = Run(correlation())
    (fired,) = run.findings(finding(0), finding(10), finding(20), finding(30))
    (out,) = run(finding(10, rev=5, holder=leased("bb")))
    row = out["row"]
    assert row["finding_id"] == fired["finding_id"]
    assert (row["via"], row["holder"]["mac"]) == ("correction", "aa")
    told = msgspec.json.decode(row["finding"])
    assert [event["event_uid"] for event in told["evidence"]] == ["r@0", "r@20", "r@30"]
    assert told["event_time"] == fired["event_time"].isoformat().replace("+00:00", "Z")
    assert run(finding(10, rev=6, holder=leased("cc"))) == [], "it is none of its findings"


def test_what_is_confirmed_no_more_is_not_counted() -> None:
    run = Run(correlation())
    (fired,) = run.findings(finding(0), finding(10), finding(20))
    gone = finding(20, rev=5, holder=leased("bb")) | {"confirmed": False}
    assert run(gone | {"attr_rev": 0}) == [], "an older word"
    (out,) = run(gone)
    assert (out["row"]["finding_id"], out["row"]["via"]) == (fired["finding_id"], "disproved")
    assert run(gone) == []
    assert run.findings(*[finding(s, holder=leased("bb")) for s in (21, 22)]) == []


def test_what_was_disproved_is_told_again_under_its_id() -> None:
    run = Run(correlation())
    (fired,) = run.findings(finding(0), finding(10), finding(20))
    (out,) = run(finding(20, rev=5, holder=leased("bb")))
    assert out["row"]["via"] == "disproved"
    (out,) = run(finding(25, rev=2))
    assert out["out"] == "attribution"
    assert out["row"]["finding_id"] == fired["finding_id"]
    assert (out["row"]["via"], out["row"]["holder"]["mac"]) == ("correction", "aa")
    assert out["row"]["rev"] > 5


def test_a_device_that_was_told_already_is_not_told_twice_by_what_moves_to_it() -> None:
    run = Run(correlation())
    ours = [finding(s) for s in (0, 10, 20)]
    theirs = [finding(s, holder=leased("bb"), uid=f"b{s}") for s in (5, 15, 25)]
    assert len(run.findings(*ours, *theirs)) == 2
    (out,) = run(*[finding(s, rev=5, holder=leased("bb")) for s in (0, 10, 20)])
    assert out["row"]["via"] == "disproved"
    assert (
        out["row"]["finding_id"] == run.state.groups['["device|aa"]'].fired[0].finding["finding_id"]
    )


def test_what_counted_something_disproved_is_judged_again() -> None:
    upper = correlation(id="d", type="temporal", rules=("c", "r"), count=2, feeds=())
    run = Run(upper)
    below = finding(20, "c") | {"kind": "correlation"}
    (fired,) = run.findings(below, finding(30))
    (out,) = run(below | {"attr_rev": 5, "via": "disproved", "holder": None})
    assert out["row"]["finding_id"] == fired["finding_id"]
    assert out["row"]["via"] == "disproved"
    assert run(below | {"attr_rev": 5, "via": "disproved", "holder": None}) == []
    assert Run(upper)(below | {"attr_rev": 5, "via": "disproved", "holder": None}) == []


MACS = ("aa", "bb", "cc")


@examples(500)
@given(
    said=st.lists(
        st.tuples(st.integers(0, 150), st.sampled_from(MACS)), max_size=14, unique_by=lambda r: r[0]
    ),
    corrected=st.lists(
        st.tuples(st.integers(0, 13), st.sampled_from(MACS), st.booleans()), max_size=10
    ),
)
def test_after_any_corrections_what_stands_is_what_a_plain_scan_finds(
    said: list[tuple[int, str]], corrected: list[tuple[int, str, bool]]
) -> None:
    run = Run(correlation())
    outputs = run(*[finding(second, holder=leased(mac)) for second, mac in said])
    owner = dict(said)
    batch = []
    for rev, (number, mac, ends) in enumerate(corrected, 2):
        if number < len(said):
            second = said[number][0]
            owner[second] = mac
            batch.append(finding(second, rev=rev, holder=leased(mac)))
        if ends:
            outputs += run(*batch)
            batch = []
    outputs += run(*batch)

    newest: dict[str, dict[str, Any]] = {}
    for out in outputs:
        row = out["row"]
        before = newest.get(row["finding_id"])
        if before is None:
            assert out["out"] == "finding"
        else:
            assert out["out"] == "attribution"
            assert row["rev"] > before.get("rev", -1)
        newest[row["finding_id"]] = row
    standing = [row for row in newest.values() if row.get("via") != "disproved"]
    kept = {
        one.finding["finding_id"]: (key, one)
        for key, group in run.state.groups.items()
        for one in group.fired
        if not one.disproved
    }
    assert {row["finding_id"] for row in standing} == set(kept)
    for row in standing:
        key, one = kept[row["finding_id"]]
        mac = row["holder"]["mac"]
        assert key == f'["device|{mac}"]'
        ends = (one.end - micros(NOON)) // 1_000_000
        seconds = {s for s, whose in owner.items() if whose == mac and ends - 60 <= s <= ends}
        assert len(one.members) >= 3
        assert set(one.members) <= {identity("r", f"r@{s}") for s in seconds}
    for mac in MACS:
        mine = sorted(s for s, whose in owner.items() if whose == mac)
        told = [one for key, one in kept.values() if key == f'["device|{mac}"]']
        for end in mine:
            if len([s for s in mine if end - 60 <= s <= end]) >= 3:
                at = micros(NOON + timedelta(seconds=end))
                minute = 60_000_000
                assert any(one.start - minute <= at <= one.end + minute for one in told)


def test_the_correction_reaches_what_fired_even_after_its_findings_are_forgotten() -> None:
    run = Run(correlation())
    run(finding(0), finding(10), finding(20))
    forget_findings(run.state, micros(NOON) + LATENESS + 90_000_000)
    assert not any(group.entries for group in run.state.groups.values())
    (out,) = run(finding(20, rev=9, holder=leased("bb")))
    assert out["out"] == "attribution"


def test_what_nothing_can_concern_any_more_is_forgotten() -> None:
    run = Run(correlation())
    run(finding(0), finding(10), finding(20))
    forget_findings(run.state, micros(NOON) + 100_000_000)
    assert run.state.groups
    forget_findings(run.state, micros(NOON) + 10 * 3600 * 1_000_000)
    assert not run.state.groups


@examples(50)
@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from("rq"), st.sampled_from(["aa", "bb"])),
        max_size=30,
    )
)
def test_counting_agrees_with_a_plain_scan_on_the_first_firing(
    drawn: list[tuple[int, str, str]],
) -> None:
    """In order, the first firing of a device is at the first instant a plain scan finds."""
    timeline = sorted(drawn)
    rows = [
        finding(second, rule, holder=leased(mac), uid=f"e{n}")
        for n, (second, rule, mac) in enumerate(timeline)
    ]
    fired = Run(correlation(rules=("r", "q"))).findings(*rows)
    for mac in ("aa", "bb"):
        seconds = [second for second, _, of in timeline if of == mac]
        full = [s for n, s in enumerate(seconds) if n >= 2 and s - seconds[n - 2] <= 60]
        times = [row["event_time"] for row in fired if row["holder"]["mac"] == mac]
        assert bool(times) is bool(full)
        if full:
            assert times[0] == NOON + timedelta(seconds=full[0])


WITHOUT = correlation(
    rules=("r", "q"), type="temporal", count=1, any_of=(("r",),), none_of=(("q",),)
)


@examples(200)
@given(
    definition=st.sampled_from(
        [WITHOUT, msgspec.structs.replace(WITHOUT, type="temporal_ordered")]
    ),
    said=st.lists(
        st.tuples(st.integers(0, 250), st.sampled_from("rq"), st.sampled_from(MACS)),
        max_size=12,
        unique_by=lambda r: r[0],
    ),
    corrected=st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from((*MACS, None)), st.booleans()), max_size=10
    ),
    early=st.booleans(),
)
def test_after_any_corrections_nothing_stands_that_was_ruled_out_and_nothing_is_missed(
    definition: Correlation,
    said: list[tuple[int, str, str]],
    corrected: list[tuple[int, str | None, bool]],
    early: bool,
) -> None:
    """A mac of None: the finding counts no more."""
    run, late = Run(definition), micros(NOON) + 10_000 * 1_000_000
    outputs = run(*[finding(s, rule, holder=leased(mac)) for s, rule, mac in said])
    owner: dict[int, str | None] = {s: mac for s, _, mac in said}

    def settle() -> list[dict[str, Any]]:
        return Correlator(run.state).settle(definition, late)

    outputs += settle() if early else []
    batch: list[dict[str, Any]] = []
    for rev, (number, mac, ends) in enumerate(corrected, 2):
        if number < len(said):
            second, rule, _ = said[number]
            owner[second] = mac
            lost = {"via": "disproved", "holder": None} if mac is None else {"holder": leased(mac)}
            batch = [row for row in batch if row["event_uid"] != f"{rule}@{second}"]
            batch.append(finding(second, rule, rev, **lost))
        if ends:
            outputs += run(*batch)
            batch = []
    outputs += run(*batch) + settle()

    standing: set[str] = set()
    for out in outputs:
        told = out["row"]["finding_id"]
        if out["row"].get("via") == "disproved":
            standing.remove(told)
        else:
            assert out["out"] == "attribution" or told not in standing
            standing.add(told)
    groups = run.state.groups.items()
    kept = [(key, one) for key, group in groups for one in group.fired if not one.disproved]
    assert {one.finding["finding_id"] for _, one in kept} == standing
    points = [
        (n, s, rule, f'["device|{owner[s]}"]', None)
        for n, (s, rule, _) in enumerate(said)
        if owner[s] is not None
    ]
    minute, ahead = 60_000_000, looks_ahead(definition)
    true = {
        (key, micros(NOON + timedelta(seconds=known)) - ahead)
        for key, known in without(definition, points)
    }
    assert {(key, one.end) for key, one in kept} <= true
    for key, end in true:
        assert any(k == key and one.start - minute <= end <= one.end + minute for k, one in kept)
