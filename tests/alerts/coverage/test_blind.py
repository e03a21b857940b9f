"""Rules that can see nothing are named with the reason; a usual quiet makes nobody blind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.compiler.compiler import BUNDLED, compile_rules
from alerts.coverage.blind import BLIND, PARTLY, blind_rules, causes_told
from alerts.coverage.field_baseline import (
    FieldHabit,
    FieldPlace,
    as_rows,
    can_hold,
    leaf_of,
    leaves_of,
    of_rows,
)
from alerts.coverage.run import RULE_ID, CoverageState, coverage_folder, look_for_blind_rules
from alerts.rulebook.rule_store import recompile
from alerts.rulepack.predicate import All, Either, Node, Not, Test, holds
from alerts.rulepack.rule_pack import Correlation, ModelRule, Query, Rule, RulePack
from alerts.tables import ALERT, ALERT_ACTION
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.errors import Fatal
from infra.kafka.client import Broker
from infra.streaming.lake import Lake
from ingest.quality.source_silence import Silence
from ingest.tables import EVENT, RECORD
from reporting.document.html import to_html
from reporting.document.request import ReportRequest
from reporting.figures.daily import figures
from reporting.interval import parse_interval
from reporting.reports.daily import compose

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = 86_400.0
LOGIN = 3002


def silence(source: str, minutes: float, allowed: float) -> Silence:
    newest = AT - timedelta(minutes=minutes)
    return Silence(source, newest, minutes * 60, allowed * 60, allowed * 60, "habit")


def habit(without: float, ago: float = 2 * DAY, longest: float = 600) -> FieldHabit:
    """Of a field that three in four events had for a week, and none since."""
    last = AT.timestamp() - ago
    return FieldHabit(1000, 750, last - 7 * DAY, last, longest, without)


def rule(name: str, predicate: Node, sources: tuple[str, ...] = ("sshd",)) -> Rule:
    return Rule(id=name, title=name, sources=sources, classes=(LOGIN,), predicate=predicate)


USER = Test("user_name", "eq", "root")
PORT = Test("src_endpoint.port", "eq", 22)
FEEDS = [("sshd", LOGIN), ("okta", LOGIN), ("zeek:dns", 4003)]


def states(found: Any) -> dict[str, str]:
    return {rule_id: one.state for rule_id, one in found.items()}


def test_a_rule_is_blind_when_all_its_sources_are_silent_and_partly_when_some_are() -> None:
    both = rule("both", USER, ("sshd", "okta"))
    pack = RulePack(rules=(rule("one", USER), both, rule("other", USER, ("okta",))))
    found = blind_rules(pack, FEEDS, [silence("sshd", 90, 10), silence("okta", 5, 10)], {})
    assert states(found) == {"one": BLIND, "both": PARTLY}
    assert found["one"].since == AT - timedelta(minutes=90)
    assert "sshd is silent since 2026-11-20 10:30 UTC" in found["one"].reason


def test_what_never_fed_a_rule_does_not_blind_it() -> None:
    pack = RulePack(rules=(rule("one", USER, ("kea",)),))
    assert blind_rules(pack, FEEDS, [silence("sshd", 90, 10)], {}) == {}


def test_a_rule_is_blind_without_a_field_it_needs_and_not_without_one_it_may_do_without() -> None:
    pack = RulePack(
        rules=(
            rule("needs", All((USER, PORT))),
            rule("either", Either((USER, Test("src_ip", "exists", True)))),
            rule("excludes", All((Test("src_ip", "exists", True), Not(USER)))),
        )
    )
    gone: dict[FieldPlace, FieldHabit] = {("sshd", LOGIN, "user_name"): habit(400)}
    found = blind_rules(pack, FEEDS, [], gone)
    assert states(found) == {"needs": BLIND}
    assert "user_name is empty in 400 events" in found["needs"].reason


def test_a_correlation_is_blind_when_what_it_counts_is() -> None:
    def counting(name: str, kind: str, *rules: str, **keys: Any) -> Correlation:
        return Correlation(
            id=name, title=name, type=kind, rules=rules, group_by=(), timespan_seconds=60, **keys
        )

    needs_b = {"any_of": (("b",),), "none_of": (("a",),)}

    pack = RulePack(
        rules=(rule("a", USER), rule("b", USER, ("okta",))),
        correlations=(
            counting("any", "event_count", "a", "b"),
            counting("order", "temporal_ordered", "a", "b"),
            counting("above", "event_count", "order"),
            counting("either", "temporal", "a", "b", any_of=(("a",), ("b",))),
            counting("without", "temporal", "a", "b", **needs_b),
            counting("with", "temporal", "a", "b", any_of=(("a",),), none_of=(("b",),)),
        ),
    )
    found = blind_rules(pack, FEEDS, [silence("sshd", 90, 10)], {})
    counts = {"any": PARTLY, "order": BLIND, "above": BLIND}
    # What a blind rule would have ruled out is told all the same.
    expressions = {"either": PARTLY, "without": PARTLY, "with": BLIND}
    assert states(found) == {"a": BLIND} | counts | expressions


def test_a_model_is_blind_when_its_source_is_silent() -> None:
    model = ModelRule(
        id="m", title="m", classes=(4003,), features=("events",), threshold=6, history_days=14
    )
    found = blind_rules(RulePack(models=(model,)), FEEDS, [silence("zeek:dns", 90, 10)], {})
    assert states(found) == {"m": BLIND}


NEEDS = "SELECT event_uid FROM event WHERE class_uid = 3002 AND lower(user_name) = 'root'"


@pytest.mark.parametrize(
    ("query", "state"),
    [
        (NEEDS, BLIND),
        ("SELECT e.event_uid FROM event e WHERE e.source IN ('sshd') AND e.user_name > 'a'", BLIND),
        ("SELECT event_uid FROM event WHERE class_uid = 3002 AND NOT user_name IS NULL", BLIND),
        ("SELECT event_uid FROM event WHERE class_uid = 3002 AND NOT (user_name = 'root')", BLIND),
        (
            "WITH of AS (SELECT * FROM event WHERE user_name LIKE 'r%' AND class_uid = 3002) "
            "SELECT event_uid FROM of WHERE status_id = 2",
            BLIND,
        ),
        (f"{NEEDS} UNION ALL SELECT event_uid FROM event WHERE class_uid = 4003", PARTLY),
        (f"{NEEDS} UNION ALL SELECT event_uid FROM event WHERE source = 'sshd'", None),
        ("SELECT event_uid FROM event WHERE user_name = 'root' OR src_ip = '10.0.0.1'", None),
        ("SELECT event_uid FROM event WHERE coalesce(user_name, '') <> 'root'", None),
        ("SELECT event_uid FROM event WHERE user_name IS NULL", None),
        ("SELECT event_uid FROM event WHERE user_name <=> 'root'", None),
        ("SELECT event_uid FROM event WHERE class_uid = 4003 AND user_name = 'root'", None),
        ("SELECT event_uid FROM event", None),
    ],
)
def test_a_query_is_blind_without_a_column_that_its_condition_needs(
    query: str, state: str | None
) -> None:
    pack = RulePack(queries=(Query(id="asks", title="asks", type="sql", text=query),))
    gone: dict[FieldPlace, FieldHabit] = {("sshd", LOGIN, "user_name"): habit(400)}
    found = blind_rules(pack, [("sshd", LOGIN), ("zeek:dns", 4003)], [], gone)
    assert states(found) == ({} if state is None else {"asks": state})


def test_queries_and_functions_are_blind_when_what_they_ask_for_is_silent() -> None:
    source = "def rule(events):\n    return events"
    asks = Query(id="asks", title="asks", type="sql", text=NEEDS)
    looks = Query(id="looks", title="looks", type="function", text=source, sees=(NEEDS,))
    unread = Query(id="unread", title="unread", type="function", text=source)
    pack = RulePack(queries=(asks, looks, unread))
    found = blind_rules(pack, FEEDS[:1], [silence("sshd", 90, 10)], {})
    assert states(found) == {"asks": BLIND, "looks": BLIND}, "of the third nothing is known"


def test_one_cause_is_told_once_with_all_its_rules() -> None:
    pack = RulePack(rules=tuple(rule(f"r{n}", USER) for n in range(5)))
    found = blind_rules(pack, FEEDS, [silence("sshd", 90, 10)], {})
    told = causes_told(found)
    assert [[r.id for r in rules] for _, rules in told.values()] == [[f"r{n}" for n in range(5)]]
    later = blind_rules(pack, FEEDS, [silence("sshd", 90, 10)], {})
    assert causes_told(later).keys() == told.keys()


# -- habits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "gone"),
    [
        (habit(400), True),
        (habit(30), False),  # some twenty events should have had it: chance
        (habit(400, longest=3 * DAY), False),  # it was missing for longer before
        (habit(400, ago=1800), False),  # not an hour yet
        (
            FieldHabit(1000, 750, AT.timestamp() - 3 * DAY, AT.timestamp() - 2.5 * DAY, 0, 400),
            False,
        ),
        (FieldHabit(1000, 0, 0, 0, 0, 400), False),
    ],
)
def test_a_field_is_gone_when_it_is_missing_for_longer_than_usual(
    one: FieldHabit, gone: bool
) -> None:
    assert one.gone(AT.timestamp()) is gone


def test_nights_without_a_field_become_its_habit() -> None:
    one = FieldHabit()
    for day in range(5):
        one.take(1000, 300, day * DAY, day * DAY + DAY / 2, ended=False)
        one.take(5000, 0, 0, 0, ended=False)
    night = 4 * DAY + DAY / 2
    assert not one.gone(night + DAY / 2)
    assert one.gone(night + DAY)


def test_a_pause_that_was_called_gone_is_no_habit() -> None:
    broken, usual = habit(400), habit(400)
    now = AT.timestamp()
    broken.take(10, 8, now, now, ended=True)
    usual.take(10, 8, now, now, ended=False)
    assert broken.longest == 600
    assert usual.longest == 2 * DAY


def test_habits_come_back_as_they_were_kept() -> None:
    habits: dict[FieldPlace, FieldHabit] = {("zeek:dns", 4003, "query.hostname"): habit(3)}
    assert of_rows(as_rows(habits)) == habits


def nodes() -> st.SearchStrategy[Node]:
    tests: st.SearchStrategy[Node] = st.builds(
        Test,
        st.sampled_from(["user_name", "src_ip", "host_name"]),
        st.just("eq"),
        st.sampled_from(["a", None]),
    ) | st.builds(Test, st.sampled_from(["user_name", "src_ip"]), st.just("exists"), st.booleans())
    return st.recursive(
        tests,
        lambda inner: (
            st.builds(Not, inner)
            | st.builds(lambda parts: All(tuple(parts)), st.lists(inner, min_size=1, max_size=3))
            | st.builds(lambda parts: Either(tuple(parts)), st.lists(inner, min_size=1, max_size=3))
        ),
        max_leaves=6,
    )


@given(node=nodes(), gone=st.sets(st.sampled_from(["user_name", "src_ip", "host_name"])))
def test_a_rule_that_is_called_blind_matches_no_event_without_the_fields(
    node: Node, gone: set[str]
) -> None:
    if can_hold(node, gone):
        return
    names = ("user_name", "src_ip", "host_name")
    for bits in range(27):
        values = {n: (None, "a", "b")[bits // 3**k % 3] for k, n in enumerate(names)}
        event = {n: None if n in gone else v for n, v in values.items()}
        assert not holds(node, event)


def test_every_field_of_the_bundled_rules_is_a_leaf_that_can_be_counted() -> None:
    pack = compile_rules([BUNDLED]).pack
    found = {leaf for one in pack.rules for leaf in leaves_of(one.predicate)}
    assert {"user.name", "query.hostname"} <= found
    assert all(leaf_of(leaf) == leaf for leaf in found)
    assert leaf_of("answers.rdata") == "answers"
    assert leaf_of("nothing.there") is None


# -- on a lake -----------------------------------------------------------------------------------


def logins(since: datetime, until: datetime, user: str | None) -> list[dict[str, Any]]:
    """A login every two minutes."""
    steps = int((until - since).total_seconds()) // 120
    return [event(since + timedelta(minutes=2 * n), user) for n in range(steps)]


def event(at: datetime, user: str | None, source: str = "sshd") -> dict[str, Any]:
    told = {"name": user} if user else None
    return {
        "event_uid": f"{source}:{at.isoformat()}",
        "record_ids": [f"{source}:{at.isoformat()}"],
        "source": source,
        "mode": "live",
        "time": at,
        "received_at": at,
        "class_uid": LOGIN,
        "activity_id": 1,
        "status_id": 2,
        "src_ip": "192.0.2.7",
        "src_endpoint": {"ip": "192.0.2.7"},
        "user_name": user,
        "user": told,
        "message": "Invalid user",
        "status_detail": "Invalid user",
    }


def add(lake: Lake, events: Sequence[dict[str, Any]], finished: datetime) -> None:
    """Events with their records, and how far ingest has finished."""
    beat = {
        "event_uid": f"beat:{finished.isoformat()}",
        "source": "_heartbeat",
        "mode": "live",
        "time": finished,
        "received_at": finished,
    }
    lake.add(EVENT, [*events, beat], "test")
    records: Iterable[dict[str, Any]] = (
        {
            "record_id": one["event_uid"],
            "source": one["source"],
            "mode": "live",
            "received_at": one["received_at"],
            "topic": "t",
            "partition": 0,
            "offset": number,
            "raw": b"x",
        }
        for number, one in enumerate(events)
    )
    lake.add(RECORD, list(records), "test")


def test_without_a_pack_in_force_it_says_so(settings: Settings) -> None:
    with pytest.raises(Fatal, match="no current rule pack"):
        look_for_blind_rules(settings, AT)


@pytest.mark.full
def test_a_field_that_goes_and_comes_back_is_told_and_taken_back(
    lake: Lake, broker: Broker
) -> None:
    settings = load(
        home=lake.settings.home,
        kafka={"bootstrap": broker.address, "topic_prefix": "b.", "tick_topic": "b.tick"},
    )
    recompile(settings)
    gone_at = AT - timedelta(hours=6)
    add(lake, logins(AT - timedelta(days=2), gone_at, "root"), gone_at)
    for hours in (46, 24):  # looks are hourly; that they were fewer makes no difference
        done = look_for_blind_rules(settings, AT - timedelta(hours=hours), tell=True)
        assert (done.told, states(done.blind)) == (0, {})
    assert look_for_blind_rules(settings, gone_at, tell=True).told == 0

    add(lake, logins(gone_at, AT, None), AT)
    done = look_for_blind_rules(settings, AT, tell=True)
    assert done.told == 1
    assert {one.rule.name for one in done.blind.values() if one.state == BLIND} >= {
        "ssh_root_login"
    }
    kept = CoverageState.load(coverage_folder(settings))
    assert all("user" in told["reason"] for told in kept.blind.values())
    again = look_for_blind_rules(settings, AT + timedelta(minutes=1), tell=True)
    assert (again.told, states(again.blind)) == (0, states(done.blind))

    (uid,) = kept.told
    lake.add(ALERT, [alert_of(uid)], "test")
    back = AT + timedelta(hours=1)
    add(lake, logins(AT, back, "root"), back)
    done = look_for_blind_rules(settings, back, tell=True)
    assert (states(done.blind), done.told, done.closed) == ({}, 1, 1)
    asked = list((lake.spool / ALERT_ACTION.name.partition(".")[2]).rglob("*.json"))
    assert len(asked) == 1
    assert '"alert_id": "alert-1"' in asked[0].read_text()


def ticks(lake: Lake, since: datetime, until: datetime) -> None:
    """Heartbeats, one in ten minutes."""
    steps = int((until - since).total_seconds()) // 600
    times = [since + timedelta(minutes=10 * n) for n in range(1, steps + 1)]
    beat = {"source": "_heartbeat", "mode": "live"}
    rows = [{**beat, "event_uid": f"beat:{at}", "time": at, "received_at": at} for at in times]
    lake.add(EVENT, rows, "test")


@pytest.mark.full
def test_a_source_that_stays_silent_keeps_its_alert_until_it_is_heard_again(
    lake: Lake, broker: Broker
) -> None:
    kafka = {"bootstrap": broker.address, "topic_prefix": "s.", "tick_topic": "s.tick"}
    settings = load(home=lake.settings.home, kafka=kafka)
    recompile(settings)
    add(lake, logins(AT - timedelta(days=2), AT, "root"), AT)
    assert look_for_blind_rules(settings, AT, tell=True).told == 0
    months = timedelta(days=65)
    ticks(lake, AT, AT + months)
    done = look_for_blind_rules(settings, AT + timedelta(hours=2), tell=True)
    assert done.told == 1
    (uid,) = CoverageState.load(coverage_folder(settings)).told
    lake.add(ALERT, [alert_of(uid)], "test")

    blind = states(done.blind)
    for days in (29, 29.999, 31, 64):
        done = look_for_blind_rules(settings, AT + timedelta(days=days), tell=True)
        assert (done.told, done.closed, states(done.blind)) == (0, 0, blind)

    back = AT + months
    add(lake, [event(back - timedelta(minutes=1), "root")], back)
    done = look_for_blind_rules(settings, back, tell=True)
    assert (done.told, done.closed, states(done.blind)) == (1, 1, {})
    assert CoverageState.load(coverage_folder(settings)).told == {}


@pytest.mark.full
def test_the_operators_word_ends_what_a_source_long_silent_blinds(
    lake: Lake, broker: Broker
) -> None:
    def told_by(**more: Any) -> Settings:
        kafka = {"bootstrap": broker.address, "topic_prefix": "o.", "tick_topic": "o.tick"}
        return load(home=lake.settings.home, kafka=kafka, **more)

    recompile(told_by())
    add(lake, logins(AT - timedelta(days=2), AT, "root"), AT)
    assert look_for_blind_rules(told_by(), AT, tell=True).told == 0
    ticks(lake, AT, AT + timedelta(days=40))
    assert look_for_blind_rules(told_by(), AT + timedelta(hours=2), tell=True).told == 1
    assert look_for_blind_rules(told_by(), AT + timedelta(days=35), tell=True).told == 0
    never = told_by(sources={"sshd": {"silent_minutes": 0}})
    done = look_for_blind_rules(never, AT + timedelta(days=36), tell=True)
    assert (done.told, states(done.blind)) == (1, {})


@pytest.mark.full
def test_the_daily_report_lists_what_was_blind_and_until_when(lake: Lake) -> None:
    def told(uid: str, activity: str, at: datetime) -> dict[str, Any]:
        return event(at, None, "headgate") | {
            "event_uid": f"{uid}-{activity}",
            "class_uid": 2004,
            "activity_name": activity,
            "metadata": {"event_code": "rule_blind"},
            "finding_info": {"uid": uid, "title": f"rules are blind by {uid} <b>"},
            "message": f"{uid} is silent",
        }

    day = timedelta(days=1)
    rows = [
        told("now", "Create", AT),
        told("over", "Create", AT - day),
        told("over", "Close", AT - timedelta(hours=1)),
        told("long ago", "Create", AT - 9 * day),
        told("long ago", "Close", AT - 8 * day),
        told("later", "Create", AT + 2 * day),
    ]
    lake.add(EVENT, rows, "test")
    connection = connect(lake.settings.lake_root)
    today = parse_interval(f"{AT:%Y-%m-%d}")
    request = ReportRequest(lake.settings, connection, today, AT)
    found = figures(request).blind
    assert [row["message"] for row in found] == ["over is silent", "now is silent"]
    assert [row["ended"] for row in found] == [AT - timedelta(hours=1), None]
    page = to_html(compose(request))
    assert "Rules that saw nothing" in page
    assert "blind by now &lt;b&gt;" in page


def alert_of(uid: str) -> dict[str, Any]:
    """The alert that the record became, as far as it is looked at."""
    body = f'{{"state": "open", "fields": {{"finding_info.uid": "{uid}"}}}}'
    return {
        "alert_id": "alert-1",
        "revision": 1,
        "rule_id": RULE_ID,
        "body": body,
        "event_time": AT,
    }
